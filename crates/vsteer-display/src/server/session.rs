//! What comes of an application's frames where a server of somebody else's brings them to a viewer?
//!
//! ```text
//! application   draws frame n at n / rate and shows it in the server's display     the display holds it up where the server is busy: source_fps tells
//! server        a process of its own: takes, encodes, sends when it wants          -> link (link.rs) ->
//! viewer        decodes, reads the number in the picture where it changes          a number that it has not seen is a frame that was presented
//! ```
//! The window begins a second after the viewer has connected, however long that took; if it cannot, all the same, and tells that nothing came. What passes inside of the
//! server is not seen: there are no stages, and what was sent is what came. CPU time is the server's whole process, the display that it shows included. A server that ends,
//! a viewer that cannot go on: what was measured until then is kept, and said why.
//!
//! Left out: several viewers of one server.

use super::ends::{Shows, Viewer};
use super::spice::Spice;
use super::vnc::Vnc;
use super::xdisplay::XDisplay;
use super::{By, Display, Server, Started, freerdp, gstreamer, qemu, tigervnc};
use crate::cpu::{self, Calendar, Lap, now_ns};
use crate::datagrams::Datagrams;
use crate::link::{Link, Relay};
use crate::path::{Conditions, LOOK_EVERY, Outcome, Passed, Ticks, Used, WARM_UP_NS};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// Buffers that the application has.
const BUFFERS: usize = 2;
/// Until the window begins for a viewer that has not connected.
const CONNECTS_WITHIN_NS: u64 = 15_000_000_000;

/// What threads share.
struct Shared {
    over: AtomicBool,
    /// From when on is counted; not known yet: `u64::MAX`.
    from_ns: AtomicU64,
    /// The newest frame that was given to the display; none yet: -1.
    newest: AtomicI64,
    /// CPU time of drawing and showing.
    draw_ns: AtomicU64,
}

impl Shared {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Has the window begun?
    fn counts(&self) -> bool {
        now_ns() >= self.from_ns.load(Ordering::Acquire)
    }
}

/// Runs it; and what it calls itself. One that holds a rate is told this one (bit/s); the seed decides which datagrams are lost.
///
/// # Errors
/// A server that is not there or does not start, a display that does not answer. What fails later is told in the outcome.
pub fn run(
    server: &Server,
    under: &Conditions,
    rate: Option<u64>,
    seed: u64,
) -> Result<(Outcome, String), Fault> {
    let size = under.picture.size();
    let (started, link) = match server.by {
        By::TigerVnc(_) => stream(under.link, tigervnc::start(size, under.fps)?)?,
        By::QemuVnc(_) => stream(under.link, qemu::start(size, qemu::Served::Vnc)?)?,
        By::QemuSpice(compression) => {
            stream(under.link, qemu::start(size, qemu::Served::Spice(compression))?)?
        }
        By::FreeRdp(_) => stream(under.link, freerdp::start(size)?)?,
        By::GStreamer(video) => {
            let viewer = free_port()?;
            let link = Datagrams::start(under.link, seed, viewer)?;
            (gstreamer::start(size, under.fps, video, rate, link.address)?, Way::Datagrams(link, viewer))
        }
    };
    let Started { mut processes, display, version, home: _home, .. } = started;
    let display: Box<dyn Shows + Send> = match display {
        Display::X(number) => Box::new(XDisplay::open(number, size, BUFFERS)?),
        Display::Guest(screen) => Box::new(screen),
    };
    let passed = link.passed();
    let lost = link.lost();
    let link_at = link.viewers();
    // A viewer in this program waits for it to say something: shut, it says so.
    let connections = match server.by {
        By::TigerVnc(_) | By::QemuVnc(_) => 1,
        // Each of its channels has one.
        By::QemuSpice(_) => 2,
        By::FreeRdp(_) | By::GStreamer(_) => 0,
    };
    let streams: Vec<TcpStream> = (0..connections).map(|_| connected(link_at)).collect::<Result<_, _>>()?;
    let closes: Result<Vec<TcpStream>, _> = streams.iter().map(TcpStream::try_clone).collect();
    let closes = closes.map_err(|e| Fault::io("a socket of the viewer's".to_owned(), &e))?;

    let calendar = Calendar::now();
    let begun = now_ns();
    let own_ns = cpu::thread_ns();
    let shared = &Shared {
        over: AtomicBool::new(false),
        from_ns: AtomicU64::new(u64::MAX),
        newest: AtomicI64::new(-1),
        draw_ns: AtomicU64::new(0),
    };
    let (mut server_cpu, mut given) = (Window::default(), Window::default());
    let counted = passed.clone();
    let (drawn, viewed, until_ns, ended) = std::thread::scope(|scope| {
        let draws = scope.spawn(move || draw(under, display, begun, shared));
        let views = scope.spawn(move || {
            let mut streams = streams.into_iter();
            let mut stream = || streams.next().expect("as many were connected above");
            let viewer: Result<Box<dyn Viewer>, Fault> = match server.by {
                By::TigerVnc(encoding) | By::QemuVnc(encoding) => {
                    Vnc::start(stream(), encoding).map(|v| Box::new(v) as Box<dyn Viewer>)
                }
                By::QemuSpice(compression) => {
                    Spice::start([stream(), stream()], compression, under.link.delay_ms)
                        .map(|v| Box::new(v) as Box<dyn Viewer>)
                }
                By::FreeRdp(asked) => {
                    freerdp::view(link_at, asked, size, &shared.over).map(|v| Box::new(v) as Box<dyn Viewer>)
                }
                By::GStreamer(video) => gstreamer::view(link_at, video, size, lost, &shared.over)
                    .map(|v| Box::new(v) as Box<dyn Viewer>),
            };
            let viewed = match viewer {
                Ok(mut viewer) => view(under, &mut *viewer, begun, shared, &passed),
                // Ended before the link let it begin: nothing came, and that is no fault of a server's.
                Err(why) => Viewed { why: (!shared.over()).then_some(why), ..Viewed::default() },
            };
            shared.over.store(true, Ordering::Relaxed);
            viewed
        });
        let mut ended = None;
        let connects_until = begun + CONNECTS_WITHIN_NS;
        while !under.stop.load(Ordering::Relaxed) && !shared.over() {
            let from_ns = shared.from_ns.load(Ordering::Acquire);
            let end_ns = from_ns.saturating_add(under.length.as_nanos() as u64);
            if now_ns() >= end_ns {
                break;
            }
            if from_ns == u64::MAX && now_ns() >= connects_until {
                // The viewer may have connected in this moment: the first word counts.
                let now = (Ordering::AcqRel, Ordering::Acquire);
                let _ = shared.from_ns.compare_exchange(u64::MAX, now_ns(), now.0, now.1);
                continue;
            }
            let next_ns = if now_ns() < from_ns { from_ns } else { end_ns };
            std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(now_ns())).min(LOOK_EVERY));
            server_cpu.note(shared.counts(), processes.iter().map(|p| p.cpu_ns()).sum());
            given.note(shared.counts(), Some(counted.load(Ordering::Relaxed)));
            if let Some(why) = processes.iter_mut().find_map(|p| p.runs().err()) {
                ended = Some(why);
                break;
            }
        }
        let until_ns = now_ns();
        shared.over.store(true, Ordering::Relaxed);
        closes.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        let drawn = draws.join().expect("it does not panic");
        let viewed = views.join().expect("it does not panic");
        // Who ends takes the link with it: the server's own word is the better one.
        let ended = ended.or_else(|| processes.iter_mut().find_map(|p| p.runs().err()));
        (drawn, viewed, until_ns, ended)
    });
    let lasted = now_ns() - begun;
    processes.iter_mut().for_each(super::process::Process::end);
    let relay_ns = link.end();
    let used = Used {
        draw: shared.draw_ns.load(Ordering::Relaxed),
        server: Some(server_cpu.used()),
        decode: viewed.cpu_ns,
        harness: relay_ns + viewed.rest_ns + drawn.rest_ns + cpu::thread_ns() - own_ns,
        lasted,
        ..Used::default()
    };
    let from_ns = shared.from_ns.load(Ordering::Acquire).min(until_ns);
    let outcome = Outcome {
        calendar,
        from_ns,
        // One that ended before its window began has none, and nothing was drawn in it; it is told why.
        until_ns: until_ns.max(from_ns + 1),
        drawn: if until_ns > from_ns { drawn.frames } else { 0 },
        frames: viewed.frames,
        wrong: viewed.wrong,
        broken: viewed.broken,
        why_broken: ended.or(drawn.why).or(viewed.why),
        window_offset: viewed.window_offset,
        kept: viewed.kept,
        negotiated: viewed.negotiated,
        passed: Some(given.used()),
        used,
    };
    Ok((outcome, version))
}

/// What lies between.
enum Way {
    Stream(Relay),
    /// And where its viewer waits for them.
    Datagrams(Datagrams, SocketAddr),
}

fn stream(link: Link, started: Started) -> Result<(Started, Way), Fault> {
    let relay = Relay::start(link, started.address)?;
    Ok((started, Way::Stream(relay)))
}

/// Free now; where another takes it before the viewer does, that says so.
fn free_port() -> Result<SocketAddr, Fault> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|s| s.local_addr())
        .map_err(|e| Fault::io("a port for datagrams".to_owned(), &e))
}

impl Way {
    /// Where viewers connect to, or wait.
    fn viewers(&self) -> SocketAddr {
        match self {
            Way::Stream(relay) => relay.address,
            Way::Datagrams(_, viewer) => *viewer,
        }
    }

    /// Bytes that viewers were given so far; it goes on counting.
    fn passed(&self) -> Arc<AtomicU64> {
        match self {
            Way::Stream(relay) => relay.passed(),
            Way::Datagrams(link, _) => link.counts.passed.clone(),
        }
    }

    /// Says what became of datagrams so far.
    fn lost(&self) -> impl Fn() -> String + Send + 'static {
        let counts = match self {
            Way::Stream(_) => None,
            Way::Datagrams(link, _) => Some(link.counts.clone()),
        };
        move || {
            counts.as_ref().map_or(String::new(), |c| {
                let [came, lost, dropped] = [&c.came, &c.lost, &c.dropped].map(|n| n.load(Ordering::Relaxed));
                format!("of {came} datagrams the link lost {lost} and its full queue dropped {dropped}")
            })
        }
    }

    fn end(self) -> u64 {
        match self {
            Way::Stream(relay) => relay.end(),
            Way::Datagrams(link, _) => link.end(),
        }
    }
}

fn connected(link: SocketAddr) -> Result<TcpStream, Fault> {
    let told = |e| Fault::io("connecting to the link".to_owned(), &e);
    let stream = TcpStream::connect(link).map_err(told)?;
    stream.set_nodelay(true).map_err(told)?;
    Ok(stream)
}

/// What was used within the window (CPU time of processes, bytes of a link), from what had been used at moments; where processes have gone, the last that was read.
#[derive(Default)]
struct Window {
    first: Option<u64>,
    last: Option<u64>,
}

impl Window {
    fn note(&mut self, counts: bool, now: Option<u64>) {
        if counts || self.first.is_none() {
            self.last = now.or(self.last);
        }
        if !counts {
            self.first = now.or(self.first);
        }
    }

    fn used(&self) -> u64 {
        self.last.zip(self.first).map_or(0, |(last, first)| last.saturating_sub(first))
    }
}

/// What the application did.
#[derive(Default)]
struct Drawn {
    /// In the window.
    frames: usize,
    rest_ns: u64,
    why: Option<Fault>,
}

fn draw(under: &Conditions, mut display: Box<dyn Shows + Send>, begun: u64, shared: &Shared) -> Drawn {
    let mut ticks = Ticks::from(begun, under.fps);
    let mut pixels = vec![0; under.picture.size().bytes()];
    let mut drawn = Drawn::default();
    let mut lap = Lap::new();
    while !shared.over() {
        let Some(n) = ticks.wait() else { continue };
        drawn.rest_ns += lap.take();
        let threads_ns = under.picture.draw(n, &mut pixels, under.draw_threads);
        // Known before it can be seen.
        shared.newest.store(n.into(), Ordering::Release);
        let shown = display.show(&pixels, &shared.over);
        shared.draw_ns.fetch_add(lap.take() + threads_ns, Ordering::Relaxed);
        match shown {
            Ok(true) => drawn.frames += usize::from(shared.counts()),
            Ok(false) => break,
            Err(why) => {
                if !shared.over() {
                    drawn.why = Some(why);
                }
                break;
            }
        }
        ticks.drawn();
    }
    drawn.rest_ns += lap.take();
    drawn
}

/// What the viewer saw.
#[derive(Default)]
struct Viewed {
    frames: BTreeMap<u32, Passed>,
    /// In the window.
    cpu_ns: u64,
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
    viewer: &mut dyn Viewer,
    begun: u64,
    shared: &Shared,
    passed: &AtomicU64,
) -> Viewed {
    let connected = now_ns() + WARM_UP_NS;
    let now = (Ordering::AcqRel, Ordering::Acquire);
    let _ = shared.from_ns.compare_exchange(u64::MAX, connected, now.0, now.1);
    let keep_every = under.length.as_nanos() as u64 / under.samples.max(1) as u64;
    let mut keep_at = shared.from_ns.load(Ordering::Acquire);
    let mut viewed = Viewed::default();
    let mut its_process = Window::default();
    let mut lap = Lap::new();
    let (mut last, mut told_bytes) = (None, 0);
    while !shared.over() {
        viewed.rest_ns += lap.take();
        let changed = viewer.changed();
        let own_ns = lap.take();
        let counts = shared.counts();
        let its_own = viewer.cpu_ns();
        match its_own {
            // Here it only looks.
            Some(_) => viewed.rest_ns += own_ns,
            None if counts => viewed.cpu_ns += own_ns,
            None => {}
        }
        if its_own.is_some() {
            its_process.note(counts, its_own);
        }
        let seen = match changed {
            Ok(false) => continue,
            Ok(true) => viewer.number(),
            Err(why) => Err(why),
        };
        let presented = viewer.seen_ns();
        let (frame, at) = match seen {
            Ok(Some(seen)) => seen,
            // What stood there before the first frame has no number.
            Ok(None) if last.is_none() => continue,
            Ok(None) => {
                viewed.broken += 1;
                viewed.why.get_or_insert_with(|| {
                    Fault::new(
                        FaultKind::Failed,
                        "an update came after which no frame's number could be read",
                    )
                });
                continue;
            }
            Err(why) => {
                viewed.why = (!shared.over()).then_some(why).or(viewed.why);
                break;
            }
        };
        if last == Some(frame) {
            // The same picture, made better or sent again.
            continue;
        }
        if last.is_some_and(|l| frame < l) || i64::from(frame) > shared.newest.load(Ordering::Acquire) {
            viewed.wrong += 1;
            continue;
        }
        last = Some(frame);
        viewed.window_offset = at;
        let bytes = passed.load(Ordering::Relaxed);
        let seen = Passed {
            source: begun + u64::from(frame) * 1_000_000_000 / u64::from(under.fps),
            presented,
            bytes: (bytes - told_bytes) as usize,
            ..Passed::default()
        };
        told_bytes = bytes;
        viewed.frames.insert(frame, seen);
        if presented >= keep_at && viewed.kept.len() < under.samples {
            // Another frame may have come meanwhile: what is kept is what was looked at.
            match viewer.part(at, under.picture.size()) {
                Ok(Some(part)) => {
                    if let Some((frame, [0, 0])) = crate::picture::number::read(&part, under.picture.size()) {
                        viewed.kept.push((frame, part));
                        keep_at = presented.max(keep_at + keep_every);
                    }
                }
                Ok(None) => {}
                Err(why) => viewed.why = (!shared.over()).then_some(why).or(viewed.why),
            }
        }
    }
    viewed.cpu_ns += its_process.used();
    let (negotiated, wrong) = viewer.negotiated();
    viewed.why = wrong.or(viewed.why);
    viewed.negotiated = Some(negotiated);
    viewed.rest_ns += lap.take();
    viewed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::canvas::Size;
    use crate::picture::{Kind, Picture};

    #[test]
    fn cpu_time_is_the_windows_and_the_last_that_was_read() {
        let mut window = Window::default();
        for (counts, now) in [(false, 5), (false, 9), (true, 12), (true, 30)] {
            window.note(counts, Some(now));
        }
        window.note(true, None);
        assert_eq!(window.used(), 21);
        let mut never = Window::default();
        never.note(false, Some(7));
        assert_eq!(never.used(), 0);
    }

    /// What was measured until a server ends is kept, and it is said why that is all.
    #[test]
    #[ignore = "needs Xtigervnc"]
    fn a_server_that_is_killed_in_the_middle_leaves_what_was_measured() {
        let size = Size { width: 640, height: 360 };
        let picture = Picture::new(Kind::Targets, size, 50, 1).unwrap();
        let stop = AtomicBool::new(false);
        let under = Conditions {
            picture: &picture,
            fps: 30,
            draw_threads: 1,
            link: Link { rate_bit_s: None, delay_ms: 0.0, queue_bytes: 65_536, loss_percent: 0.0 },
            length: Duration::from_secs(60),
            samples: 3,
            tell: false,
            stop: &stop,
        };
        let server = super::super::find("tigervnc-tight").unwrap()[0];
        let (outcome, _) = std::thread::scope(|scope| {
            let runs = scope.spawn(|| run(server, &under, None, 1).unwrap());
            // Its window begins a second after its viewer has come.
            let killed = now_ns() + 50_000_000_000;
            let mut since = None;
            while now_ns() < killed {
                std::thread::sleep(LOOK_EVERY);
                let Some(pid) = child("Xtigervnc") else { continue };
                let since = *since.get_or_insert_with(now_ns);
                if now_ns() - since > 6_000_000_000 {
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                    break;
                }
            }
            runs.join().unwrap()
        });
        let lasted_s = (outcome.until_ns - outcome.from_ns) as f64 / 1e9;
        assert!((1.0..50.0).contains(&lasted_s) && outcome.frames.len() > 5, "{lasted_s} s");
        let why = outcome.why_broken.unwrap().to_string();
        assert!(why.contains("Xtigervnc") && why.contains("it ended by itself: signal: 9"), "{why}");
        assert!(outcome.passed > Some(10_000), "{:?}", outcome.passed);
    }

    /// A process of this one's, by its name.
    fn child(name: &str) -> Option<rustix::process::Pid> {
        let own = std::process::id().to_string();
        let pids =
            std::fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (head, rest) = stat.rsplit_once(')')?;
            let parent = rest.split_whitespace().nth(1)?;
            (head.ends_with(&format!("({name}")) && parent == own)
                .then(|| rustix::process::Pid::from_raw(pid))?
        })
        .next()
    }
}
