//! The path of a frame from the application that draws it to the viewer, with the time of each stage.
//!
//! ```text
//! application   draws frame n at time n / rate, if it is not late  keeps only the newest frame, so others may never be sent
//! server        takes the newest, converts, encodes, sends         -> link (link.rs) ->
//! viewer        receives, decodes, presents, reads the number      acknowledges, so that few frames are in transit
//! ```
//! Every stage records the time and the thread's CPU time. A frame counts as presented if its picture is in
//! the screen's colours and shows the number that was sent. From time to time, a presented frame is kept and
//! scored after the run.
//!
//! Left out: a window system below the application; servers of other projects, which are in
//! server/session.rs.

use crate::codec::{Codec, Held};
use crate::cpu::{self, Calendar, Lap, now_ns};
use crate::link::{Link, Relay, SOCKET_BUFFER};
use crate::picture::canvas::Size;
use crate::picture::{Picture, number};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vsteer_core::Fault;

/// From the start to the measured window, ns.
pub const WARM_UP_NS: u64 = 1_000_000_000;
/// From the start to the time at which the encoder learns its frame rate, before the window begins.
const LEARN_NS: u64 = 800_000_000;
/// Frames in transit in addition to those that the delay holds: one is drawn at the viewer while the next is
/// encoded.
const UNDER_WAY: u64 = 2;
/// How often a waiting stage checks whether to end.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The conditions of a run.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// What is on the screen.
    pub picture: &'a Picture,
    /// Frames per second that the application would draw.
    pub fps: u32,
    /// Threads that draw.
    pub draw_threads: usize,
    /// The link between server and viewer.
    pub link: Link,
    /// The length of the measured window.
    pub length: Duration,
    /// How many frames are kept.
    pub samples: usize,
    /// Print each frame on standard output when it is presented.
    pub tell: bool,
    /// Ends the run when set; what was measured until then counts.
    pub stop: &'a AtomicBool,
}

/// A run to make.
pub struct Run<'a> {
    /// See [`Conditions`].
    pub under: Conditions<'a>,
    pub codec: &'static Codec,
    /// What the codec should hold.
    pub held: Held,
    /// Frames per second that share the rate; `None`: as many as are sent in the first second.
    pub rate_fps: Option<u32>,
}

/// When a sent frame passed each stage, ns; 0: it did not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// When it should have been drawn.
    pub source: u64,
    /// When the server took it.
    pub captured: u64,
    /// When its colours were converted for the codec.
    pub converted: u64,
    /// When it was encoded.
    pub encoded: u64,
    /// When its last byte was given to the link.
    pub sent: u64,
    /// When its last byte arrived.
    pub received: u64,
    /// When it was decoded.
    pub decoded: u64,
    /// When it was presented.
    pub presented: u64,
    /// Its encoded size, bytes.
    pub bytes: usize,
}

/// CPU time of stages over the whole run, ns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    pub draw: u64,
    pub convert: u64,
    pub encode: u64,
    pub send: u64,
    pub receive: u64,
    pub decode: u64,
    pub present: u64,
    /// CPU time of codecs' own threads.
    pub codec_threads: u64,
    /// CPU time of another project's server in the window, its whole process; `None` if the server is this
    /// program.
    pub server: Option<u64>,
    /// All other CPU time: the relay, clocks, waiting, acknowledging, keeping.
    pub harness: u64,
    /// How long the whole run lasted.
    pub lasted: u64,
}

/// The result of a run.
pub struct Outcome {
    /// The wall clock at the start.
    pub calendar: Calendar,
    /// The measured window.
    pub from_ns: u64,
    pub until_ns: u64,
    /// Frames drawn in the window.
    pub drawn: usize,
    /// Sent frames, by number.
    pub frames: BTreeMap<u32, Passed>,
    /// Presented frames whose picture showed another number than was sent.
    pub wrong: usize,
    /// Received frames that gave no picture, and the first fault.
    pub broken: usize,
    /// See [`Outcome::broken`].
    pub why_broken: Option<Fault>,
    /// The position of the picture in the viewer's window, if it is not at its corner.
    pub window_offset: [usize; 2],
    /// Kept frames, by number.
    pub kept: Vec<(u32, Vec<u8>)>,
    /// What another project's server and its viewer negotiated, according to the received data; `None` for
    /// this program's own.
    pub negotiated: Option<String>,
    /// Bytes that the viewer of such a server received in the window.
    pub passed: Option<u64>,
    pub used: Used,
}

/// The newest drawn frame.
#[derive(Default)]
struct Newest {
    frame: Option<(u32, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// Data shared between the threads.
struct Shared {
    newest: Mutex<Newest>,
    drawn: Condvar,
    frames: Mutex<BTreeMap<u32, Passed>>,
    /// Frames sent and not yet acknowledged.
    under_way: Mutex<u64>,
    acknowledged: Condvar,
    over: AtomicBool,
    /// CPU time of this program's drawing threads.
    draw_ns: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(size: Size) -> Shared {
        Shared {
            newest: Mutex::new(Newest { frame: None, spare: vec![vec![0; size.bytes()]; 2] }),
            drawn: Condvar::new(),
            frames: Mutex::default(),
            under_way: Mutex::default(),
            acknowledged: Condvar::new(),
            over: AtomicBool::new(false),
            draw_ns: AtomicU64::new(0),
        }
    }

    /// Waits for at most [`LOOK_EVERY`] until fewer than `most` frames are under way. False if it timed out.
    fn fewer_under_way(&self, most: u64) -> bool {
        let under_way = locked(&self.under_way);
        let waits = |n: &mut u64| *n >= most && !self.over();
        let waited = self.acknowledged.wait_timeout_while(under_way, LOOK_EVERY, waits);
        *waited.unwrap_or_else(PoisonError::into_inner).0 < most
    }

    /// Waits for a frame for at most [`LOOK_EVERY`], swaps it with `pixels`, and returns its number.
    fn take_newest(&self, pixels: &mut Vec<u8>) -> Option<u32> {
        let newest = locked(&self.newest);
        let waits = |n: &mut Newest| n.frame.is_none() && !self.over();
        let (mut newest, _) =
            self.drawn.wait_timeout_while(newest, LOOK_EVERY, waits).unwrap_or_else(PoisonError::into_inner);
        let (frame, taken) = newest.frame.take()?;
        newest.spare.push(std::mem::replace(pixels, taken));
        Some(frame)
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn note(&self, frame: u32, what: impl FnOnce(&mut Passed)) {
        what(locked(&self.frames).entry(frame).or_default());
    }
}

/// Makes the run.
///
/// # Errors
/// A missing encoder or decoder, or no sockets. Later failures are in the outcome.
pub fn run(run: &Run) -> Result<Outcome, Fault> {
    let Ends { relay, server, viewer } = Ends::open(run.under.link)?;
    let ends = |stream: &TcpStream| stream.try_clone().map_err(of_server);
    let closes = [ends(&server)?, ends(&viewer)?];
    let acknowledges = ends(&server)?;

    let calendar = Calendar::now();
    let begun = now_ns();
    let (process_ns, own_ns) = (cpu::process_ns(), cpu::thread_ns());
    let from_ns = begun + WARM_UP_NS;
    let shared = &Shared::new(run.under.picture.size());
    let (done, until_ns) = std::thread::scope(|scope| {
        let draws = scope.spawn(move || draw(run, begun, from_ns, shared));
        let serves = scope.spawn(move || {
            let done = serve(run, server, begun, shared);
            shared.over.store(true, Ordering::Relaxed);
            done
        });
        let hears = scope.spawn(move || {
            hear(acknowledges, shared);
            cpu::thread_ns()
        });
        let views = scope.spawn(move || view(run, viewer, from_ns, shared));
        let end_ns = from_ns + run.under.length.as_nanos() as u64;
        while now_ns() < end_ns && !run.under.stop.load(Ordering::Relaxed) && !shared.over() {
            std::thread::sleep(Duration::from_nanos(end_ns.saturating_sub(now_ns())).min(LOOK_EVERY));
        }
        let until_ns = now_ns();
        shared.over.store(true, Ordering::Relaxed);
        shared.drawn.notify_all();
        shared.acknowledged.notify_all();
        closes.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        let joined = (
            draws.join().expect("it does not panic"),
            serves.join().expect("it does not panic"),
            hears.join().expect("it does not panic"),
            views.join().expect("it does not panic"),
        );
        (joined, until_ns)
    });
    let relay_ns = relay.end();
    let ((drawn, drawer_ns), served, hearing_ns, viewed) = done;
    let (served, viewed) = (served?, viewed?);
    let mut used = Used {
        draw: shared.draw_ns.load(Ordering::Relaxed),
        lasted: now_ns() - begun,
        harness: relay_ns + hearing_ns + served.rest + viewed.rest + drawer_ns + cpu::thread_ns() - own_ns,
        ..Used::of_stages(&served, &viewed)
    };
    let stages: u64 = served.used.iter().chain(&viewed.used).sum::<u64>() + used.draw + used.harness;
    used.codec_threads = (cpu::process_ns() - process_ns).saturating_sub(stages);
    Ok(Outcome {
        calendar,
        from_ns,
        // A run that ended before its window began has no window, and nothing was drawn in it. The outcome
        // gives the reason.
        until_ns: until_ns.max(from_ns + 1),
        drawn: if until_ns > from_ns { drawn } else { 0 },
        frames: std::mem::take(&mut *locked(&shared.frames)),
        wrong: viewed.wrong,
        broken: viewed.broken,
        why_broken: viewed.why_broken.or(served.why),
        window_offset: viewed.window_offset,
        kept: viewed.kept,
        negotiated: None,
        passed: None,
        used,
    })
}

fn of_server(e: std::io::Error) -> Fault {
    Fault::io("a socket of the server's".to_owned(), &e)
}

/// The server's and the viewer's end of a link.
struct Ends {
    relay: Relay,
    server: TcpStream,
    viewer: TcpStream,
}

impl Ends {
    fn open(link: Link) -> Result<Ends, Fault> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(of_server)?;
        let relay = Relay::start(link, listener.local_addr().map_err(of_server)?)?;
        let to_relay = |e| Fault::io("connecting to the link".to_owned(), &e);
        let viewer = TcpStream::connect(relay.address).map_err(to_relay)?;
        let (server, _) = listener.accept().map_err(of_server)?;
        for stream in [&viewer, &server] {
            stream.set_nodelay(true).map_err(of_server)?;
        }
        set_socket_send_buffer_size(&server, SOCKET_BUFFER).map_err(|e| of_server(e.into()))?;
        Ok(Ends { relay, server, viewer })
    }
}

impl Used {
    /// The CPU time of the stages of both ends.
    fn of_stages(served: &Served, viewed: &Viewed) -> Used {
        let ([convert, encode, send], [receive, decode, present]) = (served.used, viewed.used);
        Used { convert, encode, send, receive, decode, present, ..Used::default() }
    }
}

/// The times at which the application draws its frames: at its rate, and not earlier.
pub struct Ticks {
    begun: u64,
    fps: u64,
    n: u64,
}

impl Ticks {
    /// Starts at this time, ns, with this many frames per second.
    pub fn from(begun: u64, fps: u32) -> Ticks {
        Ticks { begun, fps: fps.into(), n: 0 }
    }

    /// Waits for the next frame's time for a while; returns its number if the time has come.
    pub fn wait(&self) -> Option<u32> {
        let at = self.begun + self.n * 1_000_000_000 / self.fps;
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())).min(LOOK_EVERY));
        (now_ns() >= at).then_some(self.n as u32)
    }

    /// The frame was drawn. Times that have passed are skipped.
    pub fn drawn(&mut self) {
        self.n = (self.n + 1).max((now_ns() - self.begun) * self.fps / 1_000_000_000);
    }
}

/// The application. Returns how many frames it drew in the window, and its own thread's other CPU time.
fn draw(run: &Run, begun: u64, from_ns: u64, shared: &Shared) -> (usize, u64) {
    let mut ticks = Ticks::from(begun, run.under.fps);
    let mut drawn = 0;
    let mut lap = Lap::new();
    let mut rest = 0;
    while !shared.over() {
        let Some(n) = ticks.wait() else { continue };
        let Some(mut pixels) = locked(&shared.newest).spare.pop() else {
            unreachable!("one is drawn, one is the newest, one is at the server's");
        };
        rest += lap.take();
        let threads_ns = run.under.picture.draw(n, &mut pixels, run.under.draw_threads);
        shared.draw_ns.fetch_add(lap.take() + threads_ns, Ordering::Relaxed);
        drawn += usize::from(now_ns() >= from_ns);
        let mut newest = locked(&shared.newest);
        if let Some((_, old)) = newest.frame.replace((n, pixels)) {
            newest.spare.push(old);
        }
        drop(newest);
        shared.drawn.notify_one();
        ticks.drawn();
    }
    (drawn, rest + lap.take())
}

/// The CPU time of the server's thread.
struct Served {
    used: [u64; 3],
    rest: u64,
    why: Option<Fault>,
}

fn serve(run: &Run, mut viewer: TcpStream, begun: u64, shared: &Shared) -> Result<Served, Fault> {
    let size = run.under.picture.size();
    let mut encoder = run.codec.encoder(size, run.rate_fps.unwrap_or(run.under.fps), run.held)?;
    let window = UNDER_WAY + (2.0 * run.under.link.delay_ms / 1e3 * f64::from(run.under.fps)).ceil() as u64;
    let mut served = Served { used: [0; 3], rest: 0, why: None };
    let mut pixels = vec![0; run.under.picture.size().bytes()];
    let mut message = Vec::new();
    let mut lap = Lap::new();
    // A codec that holds a rate must know how many frames share it.
    let learns = matches!(run.held, Held::Rate(_)) && run.codec.holds_rate && run.rate_fps.is_none();
    let (mut learnt, mut went) = (!learns, 0u64);
    while !shared.over() {
        if !learnt && now_ns() >= begun + LEARN_NS {
            learnt = true;
            let fps = (went * 1_000_000_000).div_ceil(now_ns() - begun).clamp(1, u64::from(run.under.fps));
            encoder = run.codec.encoder(size, fps as u32, run.held)?;
        }
        if !shared.fewer_under_way(window) {
            continue;
        }
        let Some(frame) = shared.take_newest(&mut pixels) else { continue };
        let mut passed = Passed {
            source: begun + u64::from(frame) * 1_000_000_000 / u64::from(run.under.fps),
            captured: now_ns(),
            ..Passed::default()
        };
        served.rest += lap.take();
        let encoded = encoder.convert(&pixels).and_then(|()| {
            passed.converted = now_ns();
            served.used[0] += lap.take();
            message.clear();
            message.extend([0; 8]);
            encoder.encode(&mut message)
        });
        served.used[1] += lap.take();
        if let Err(why) = encoded {
            served.why = Some(why);
            break;
        }
        went += 1;
        passed.encoded = now_ns();
        passed.bytes = message.len();
        let length = (message.len() - 8) as u32;
        message[..4].copy_from_slice(&frame.to_le_bytes());
        message[4..8].copy_from_slice(&length.to_le_bytes());
        // Recorded before the frame can arrive.
        shared.note(frame, |p| *p = passed);
        *locked(&shared.under_way) += 1;
        served.rest += lap.take();
        if let Err(e) = viewer.write_all(&message) {
            if !shared.over() {
                served.why = Some(Fault::io(format!("sending frame {frame}"), &e));
            }
            break;
        }
        served.used[2] += lap.take();
        let now = now_ns();
        shared.note(frame, |p| p.sent = now);
    }
    served.rest += lap.take();
    Ok(served)
}

/// Receives the viewer's acknowledgements.
fn hear(mut from: TcpStream, shared: &Shared) {
    let mut number = [0; 4];
    while from.read_exact(&mut number).is_ok() {
        *locked(&shared.under_way) -= 1;
        shared.acknowledged.notify_one();
    }
}

/// `frame END_S TOOK_S`.
fn tell(took_ns: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("frame {:.6} {:.6}\n", now.as_secs_f64(), took_ns as f64 / 1e9)
}

#[derive(Default)]
struct Viewed {
    used: [u64; 3],
    rest: u64,
    wrong: usize,
    broken: usize,
    why_broken: Option<Fault>,
    window_offset: [usize; 2],
    kept: Vec<(u32, Vec<u8>)>,
}

impl Viewed {
    /// The number in the decoded picture, if decoding gave one.
    fn number(&mut self, came: Result<bool, Fault>, pixels: &[u8], size: Size) -> Option<u32> {
        match came {
            Ok(true) => {
                let (seen, at) = number::read(pixels, size)?;
                self.window_offset = at;
                Some(seen)
            }
            Ok(false) => {
                self.broken += 1;
                None
            }
            Err(why) => {
                self.broken += 1;
                self.why_broken.get_or_insert(why);
                None
            }
        }
    }
}

/// Reads the next frame into `bytes`. Returns its number, or `None` once the server has closed the connection.
fn receive(server: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<u32> {
    let mut head = [0; 8];
    server.read_exact(&mut head).ok()?;
    let [frame, length] = [0, 4].map(|i| u32::from_le_bytes(head[i..i + 4].try_into().expect("four bytes")));
    bytes.resize(length as usize, 0);
    server.read_exact(bytes).ok()?;
    Some(frame)
}

fn view(run: &Run, mut server: TcpStream, from_ns: u64, shared: &Shared) -> Result<Viewed, Fault> {
    let size = run.under.picture.size();
    let mut decoder = run.codec.decoder(size)?;
    let mut viewed = Viewed::default();
    let mut pixels = vec![0; size.bytes()];
    let mut keep_at = from_ns;
    let keep_every = run.under.length.as_nanos() as u64 / run.under.samples.max(1) as u64;
    let mut bytes = Vec::new();
    let mut lap = Lap::new();
    loop {
        viewed.rest += lap.take();
        let Some(frame) = receive(&mut server, &mut bytes) else { break };
        let received = now_ns();
        viewed.used[0] += lap.take();
        let came = decoder.decode(&bytes);
        let decoded = now_ns();
        viewed.used[1] += lap.take();
        let came = came.and_then(|any| {
            if any {
                decoder.present(&mut pixels)?;
            }
            Ok(any)
        });
        let presented = now_ns();
        viewed.used[2] += lap.take();
        let seen = viewed.number(came, &pixels, size);
        if seen == Some(frame) {
            let mut source = 0;
            shared.note(frame, |p| {
                (p.received, p.decoded, p.presented) = (received, decoded, presented);
                source = p.source;
            });
            if run.under.tell {
                // A single write. The reader may be gone.
                let told = tell(presented.saturating_sub(source));
                let _ = std::io::stdout().write_all(told.as_bytes());
            }
            if presented >= keep_at && viewed.kept.len() < run.under.samples {
                viewed.kept.push((frame, pixels.clone()));
                keep_at = presented.max(keep_at + keep_every);
            }
        } else {
            shared.note(frame, |p| p.received = received);
            viewed.wrong += usize::from(seen.is_some());
        }
        if server.write_all(&frame.to_le_bytes()).is_err() {
            break;
        }
    }
    viewed.rest += lap.take();
    Ok(viewed)
}
