//! What comes of an application's frames where a server of somebody else's brings them to a viewer?
//!
//! ```text
//! application   draws frame n at n / rate and shows it in the server's display     the display holds it up where the server is busy: source_fps tells
//! server        a process of its own: takes, encodes, sends when it wants          -> link (link.rs) ->
//! viewer        decodes, reads the number in the picture after each update         a number that it has not seen is a frame that was presented
//! ```
//! What passes inside of the server is not seen: there are no stages, and what was sent is what came. CPU time is the server's whole process, which as an X server takes
//! the application's pixels as well. A server that ends, a viewer that cannot go on: what was measured until then is kept, and said why.
//!
//! Left out: several viewers of one server.

use super::{By, Server, Started, tigervnc, xdisplay::XDisplay};
use crate::cpu::{self, Lap, now_ns};
use crate::link::Relay;
use crate::path::{Conditions, LOOK_EVERY, Outcome, Passed, Used, WARM_UP_NS};
use crate::picture::number;
use crate::rfb::{Client, Encoding, Said};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// Of pixels that came as something else than was asked for, the part that makes it another encoding: a server's first rectangles may be.
const OTHERWISE_MOST: f64 = 0.1;
/// Buffers that the application has.
const BUFFERS: usize = 2;

/// What threads share.
struct Shared {
    over: AtomicBool,
    /// The newest frame that was given to the display; none yet: -1.
    newest: AtomicI64,
    /// CPU time of drawing and showing.
    draw_ns: AtomicU64,
}

impl Shared {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Runs it; and what it calls itself.
///
/// # Errors
/// A server that is not there or does not start, a display that does not answer. What fails later is told in the outcome.
pub fn run(server: &Server, under: &Conditions) -> Result<(Outcome, String), Fault> {
    let size = under.picture.size();
    let By::TigerVnc(encoding) = server.by;
    let Started { mut process, display, address, version } = tigervnc::start(size, under.fps)?;
    let display = XDisplay::open(display, size, BUFFERS)?;
    let relay = Relay::start(under.link, address)?;
    let told = |e| Fault::io("connecting to the link".to_owned(), &e);
    let viewer = TcpStream::connect(relay.address).map_err(told)?;
    viewer.set_nodelay(true).map_err(told)?;
    let closes = viewer.try_clone().map_err(told)?;

    let begun = now_ns();
    let own_ns = cpu::thread_ns();
    let from_ns = begun + WARM_UP_NS;
    let server_from = process.cpu_ns();
    let mut server_ns = server_from;
    let shared = &Shared { over: AtomicBool::new(false), newest: AtomicI64::new(-1), draw_ns: AtomicU64::new(0) };
    let (drawn, viewed, until_ns, ended) = std::thread::scope(|scope| {
        let draws = scope.spawn(move || draw(under, display, begun, from_ns, shared));
        let views = scope.spawn(move || {
            let viewed = view(under, viewer, encoding, begun, from_ns, shared);
            shared.over.store(true, Ordering::Relaxed);
            viewed
        });
        let end_ns = from_ns + under.length.as_nanos() as u64;
        let mut ended = None;
        while now_ns() < end_ns && !under.stop.load(Ordering::Relaxed) && !shared.over() {
            std::thread::sleep(Duration::from_nanos(end_ns.saturating_sub(now_ns())).min(LOOK_EVERY));
            server_ns = process.cpu_ns().or(server_ns);
            if let Err(why) = process.runs() {
                ended = Some(why);
                break;
            }
        }
        let until_ns = now_ns();
        shared.over.store(true, Ordering::Relaxed);
        let _ = closes.shutdown(Shutdown::Both);
        let drawn = draws.join().expect("it does not panic");
        let viewed = views.join().expect("it does not panic");
        // Who ends takes the link with it: the server's own word is the better one.
        let ended = ended.or_else(|| process.runs().err());
        (drawn, viewed, until_ns, ended)
    });
    let lasted = now_ns() - begun;
    server_ns = process.cpu_ns().or(server_ns);
    process.end();
    let relay_ns = relay.end();
    let used = Used {
        draw: shared.draw_ns.load(Ordering::Relaxed),
        server: server_ns.zip(server_from).map(|(now, from)| now - from),
        decode: viewed.decode_ns,
        harness: relay_ns + viewed.rest_ns + drawn.rest_ns + cpu::thread_ns() - own_ns,
        lasted,
        ..Used::default()
    };
    let outcome = Outcome {
        from_ns,
        until_ns: until_ns.max(from_ns + 1),
        drawn: drawn.frames,
        frames: viewed.frames,
        wrong: viewed.wrong,
        broken: viewed.broken,
        why_broken: ended.or(drawn.why).or(viewed.why),
        window_offset: viewed.window_offset,
        kept: viewed.kept,
        negotiated: viewed.negotiated,
        used,
    };
    Ok((outcome, version))
}

/// What the application did.
#[derive(Default)]
struct Drawn {
    /// In the window.
    frames: usize,
    rest_ns: u64,
    why: Option<Fault>,
}

fn draw(under: &Conditions, mut display: XDisplay, begun: u64, from_ns: u64, shared: &Shared) -> Drawn {
    let tick = |n: u64| begun + n * 1_000_000_000 / u64::from(under.fps);
    let mut pixels = vec![0; under.picture.size().bytes()];
    let mut drawn = Drawn::default();
    let mut lap = Lap::new();
    let mut n = 0;
    while !shared.over() {
        std::thread::sleep(Duration::from_nanos(tick(n).saturating_sub(now_ns())).min(LOOK_EVERY));
        if now_ns() < tick(n) {
            continue;
        }
        drawn.rest_ns += lap.take();
        let threads_ns = under.picture.draw(n as u32, &mut pixels, under.draw_threads);
        // Known before it can be seen.
        shared.newest.store(n as i64, Ordering::Release);
        let shown = display.show(&pixels, &shared.over);
        shared.draw_ns.fetch_add(lap.take() + threads_ns, Ordering::Relaxed);
        match shown {
            Ok(true) => drawn.frames += usize::from(now_ns() >= from_ns),
            Ok(false) => break,
            Err(why) => {
                if !shared.over() {
                    drawn.why = Some(why);
                }
                break;
            }
        }
        // Ticks that have passed are gone.
        n = (n + 1).max((now_ns() - begun) * u64::from(under.fps) / 1_000_000_000);
    }
    drawn.rest_ns += lap.take();
    drawn
}

/// What the viewer saw.
#[derive(Default)]
struct Viewed {
    frames: BTreeMap<u32, Passed>,
    decode_ns: u64,
    rest_ns: u64,
    wrong: usize,
    broken: usize,
    why: Option<Fault>,
    window_offset: [usize; 2],
    kept: Vec<(u32, Vec<u8>)>,
    negotiated: Option<String>,
}

fn view(
    under: &Conditions,
    stream: TcpStream,
    encoding: Encoding,
    begun: u64,
    from_ns: u64,
    shared: &Shared,
) -> Viewed {
    let mut viewed = Viewed::default();
    let mut lap = Lap::new();
    let told = |e| Fault::io("a socket of the viewer's".to_owned(), &e);
    let client = stream
        .try_clone()
        .map_err(told)
        .and_then(|writes| Client::start(BufReader::with_capacity(1 << 16, stream), writes, encoding));
    let mut client = match client {
        Ok(client) => client,
        Err(why) => {
            // Ended before the link let it begin: nothing came, and that is no fault of a server's.
            viewed.why = (!shared.over()).then_some(why);
            return viewed;
        }
    };
    let keep_every = under.length.as_nanos() as u64 / under.samples.max(1) as u64;
    let mut keep_at = from_ns;
    let (mut last, mut told_bytes) = (None, 0);
    loop {
        viewed.rest_ns += lap.take();
        let said = client.next();
        viewed.decode_ns += lap.take();
        match said {
            Ok(Said::Update) => {}
            Ok(Said::Other) => continue,
            Err(why) => {
                viewed.why = (!shared.over()).then_some(why);
                break;
            }
        }
        let presented = now_ns();
        let screen = client.screen();
        match number::read(screen.pixels(), screen.size()) {
            Some((frame, at)) if last.is_none_or(|l| frame > l) => {
                if i64::from(frame) > shared.newest.load(Ordering::Acquire) {
                    viewed.wrong += 1;
                    continue;
                }
                viewed.window_offset = at;
                last = Some(frame);
                let passed = Passed {
                    source: begun + u64::from(frame) * 1_000_000_000 / u64::from(under.fps),
                    received: presented,
                    decoded: presented,
                    presented,
                    bytes: (client.bytes() - told_bytes) as usize,
                    ..Passed::default()
                };
                told_bytes = client.bytes();
                viewed.frames.insert(frame, passed);
                if presented >= keep_at
                    && viewed.kept.len() < under.samples
                    && let Some(part) = screen.part(at, under.picture.size())
                {
                    viewed.kept.push((frame, part));
                    keep_at = presented.max(keep_at + keep_every);
                }
            }
            // The same picture, made better or sent again.
            Some((frame, _)) if last == Some(frame) => {}
            Some(_) => viewed.wrong += 1,
            // What stood there before the first frame has no number.
            None if last.is_none() => {}
            None => {
                viewed.broken += 1;
                viewed.why.get_or_insert_with(|| {
                    Fault::new(FaultKind::Failed, "an update came after which no frame's number could be read")
                });
            }
        }
    }
    if let Some(part) = client.otherwise().filter(|part| *part > OTHERWISE_MOST) {
        let why = format!("{:.0} % of the pixels came as something else", 100.0 * part);
        let what = format!("the server did not send what was asked for ({encoding:?})");
        viewed.why = Some(Fault::new(FaultKind::Unsupported, what).because(why));
    }
    viewed.negotiated = Some(client.negotiated());
    viewed.rest_ns += lap.take();
    viewed
}
