//! Measures an application's frames that another project's server brings to a viewer.
//!
//! ```text
//! application   draws frame n at time n / rate and shows it in the server's display    a busy server delays it, which source_fps shows
//! server        a separate process: captures, encodes, sends when it wants         -> link (link.rs) ->
//! viewer        decodes, reads the number in the picture when it changes           a new number means that a frame was presented
//! ```
//! The window begins one second after the viewer has connected, however long that took. If the viewer cannot
//! connect, the window begins anyway, and the result says that nothing arrived. The inside of the server is
//! not visible. So there are no stages, and the sent data is the received data. CPU time is the server's
//! whole process, including the display that it shows. If a server ends or a viewer cannot continue, the
//! result keeps what was measured until then, with the reason.
//!
//! Left out: several viewers of one server.

use super::ends::{Shows, Viewer};
use super::process::Process;
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

/// How many buffers the application has.
const BUFFERS: usize = 2;
/// If the viewer has not connected after this time, the window begins anyway.
const CONNECTS_WITHIN_NS: u64 = 15_000_000_000;

/// Data shared between the threads.
struct Shared {
    over: AtomicBool,
    /// The start of the window; `u64::MAX` while it is not known.
    from_ns: AtomicU64,
    /// The newest frame that was given to the display; -1 before the first.
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

/// Makes the run; also returns what the server calls itself. A server that holds a rate gets this one
/// (bit/s). The seed decides which datagrams are lost.
///
/// # Errors
/// A server that is missing or does not start, a display that does not answer. Later failures are in the
/// outcome.
pub fn run(
    server: &Server,
    under: &Conditions,
    rate: Option<u64>,
    seed: u64,
) -> Result<(Outcome, String), Fault> {
    let size = under.picture.size();
    let (started, link) = start(server, under, rate, seed)?;
    let Started { mut processes, display, version, home: _home, .. } = started;
    let display: Box<dyn Shows + Send> = match display {
        Display::X(number) => Box::new(XDisplay::open(number, size, BUFFERS)?),
        Display::Guest(screen) => Box::new(screen),
    };
    let passed = link.passed();
    let ends = Ends::open(server, &link)?;
    // A viewer in this program waits for the server's data. Closing its sockets makes it return.
    let closes: Result<Vec<TcpStream>, _> = ends.streams.iter().map(TcpStream::try_clone).collect();
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
    let counted = passed.clone();
    let came = std::thread::scope(|scope| {
        let draws = scope.spawn(move || draw(under, display, begun, shared));
        let views = scope.spawn(move || {
            let viewed = match ends.viewer(server.by, under, &shared.over) {
                Ok(mut viewer) => view(under, &mut *viewer, begun, shared, &passed),
                // The run ended before the link let the session begin. Nothing arrived, which is not the
                // server's fault.
                Err(why) => Viewed { why: (!shared.over()).then_some(why), ..Viewed::default() },
            };
            shared.over.store(true, Ordering::Relaxed);
            viewed
        });
        let mut watched = watch(under, begun, shared, &mut processes, &counted);
        shared.over.store(true, Ordering::Relaxed);
        closes.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        let drawn = draws.join().expect("it does not panic");
        let viewed = views.join().expect("it does not panic");
        // A server that ends also breaks the link. The server's own message is the better one.
        watched.ended = watched.ended.or_else(|| processes.iter_mut().find_map(|p| p.runs().err()));
        Came { drawn, viewed, watched }
    });
    let lasted = now_ns() - begun;
    processes.iter_mut().for_each(Process::end);
    let relay_ns = link.end();
    let used = Used {
        draw: shared.draw_ns.load(Ordering::Relaxed),
        server: Some(came.watched.cpu.used()),
        decode: came.viewed.cpu_ns,
        harness: relay_ns + came.viewed.rest_ns + came.drawn.rest_ns + cpu::thread_ns() - own_ns,
        lasted,
        ..Used::default()
    };
    let from_ns = shared.from_ns.load(Ordering::Acquire);
    Ok((came.outcome(calendar, from_ns, used), version))
}

/// The results of application, viewer and server.
struct Came {
    drawn: Drawn,
    viewed: Viewed,
    watched: Watched,
}

impl Came {
    fn outcome(self, calendar: Calendar, from_ns: u64, used: Used) -> Outcome {
        let Came { drawn, viewed, watched } = self;
        let until_ns = watched.until_ns;
        let from_ns = from_ns.min(until_ns);
        Outcome {
            calendar,
            from_ns,
            // A run that ended before the measured period began has no such period, so no frame counts. The
            // outcome gives the reason.
            until_ns: until_ns.max(from_ns + 1),
            drawn: if until_ns > from_ns { drawn.frames } else { 0 },
            frames: viewed.frames,
            wrong: viewed.wrong,
            broken: viewed.broken,
            why_broken: watched.ended.or(drawn.why).or(viewed.why),
            window_offset: viewed.window_offset,
            kept: viewed.kept,
            negotiated: viewed.negotiated,
            passed: Some(watched.given.used()),
            used,
        }
    }
}

/// Starts the server, and the link between it and its viewer.
fn start(server: &Server, under: &Conditions, rate: Option<u64>, seed: u64) -> Result<(Started, Way), Fault> {
    let size = under.picture.size();
    match server.by {
        By::TigerVnc(_) => stream(under.link, tigervnc::start(size, under.fps)?),
        By::QemuVnc(_) => stream(under.link, qemu::start(size, qemu::Served::Vnc)?),
        By::QemuSpice(compression) => {
            stream(under.link, qemu::start(size, qemu::Served::Spice(compression))?)
        }
        By::FreeRdp(_) => stream(under.link, freerdp::start(size)?),
        By::GStreamer(video) => {
            let viewer = free_port()?;
            let link = Datagrams::start(under.link, seed, viewer)?;
            let started = gstreamer::start(size, under.fps, video, rate, link.address)?;
            Ok((started, Way::Datagrams(link, viewer)))
        }
    }
}

/// What a viewer needs to reach the server.
struct Ends {
    /// The address to which it connects, or at which it waits.
    link_at: SocketAddr,
    /// The connections of a viewer inside this program.
    streams: Vec<TcpStream>,
    /// Describes what happened to datagrams so far.
    lost: Box<dyn Fn() -> String + Send>,
}

impl Ends {
    fn open(server: &Server, link: &Way) -> Result<Ends, Fault> {
        let (lost, link_at) = (Box::new(link.lost()), link.viewers());
        let connections = match server.by {
            By::TigerVnc(_) | By::QemuVnc(_) => 1,
            // Each of its channels needs one.
            By::QemuSpice(_) => 2,
            By::FreeRdp(_) | By::GStreamer(_) => 0,
        };
        let streams = (0..connections).map(|_| connected(link_at)).collect::<Result<_, _>>()?;
        Ok(Ends { link_at, streams, lost })
    }

    /// Connects the viewer.
    fn viewer(self, by: By, under: &Conditions, over: &AtomicBool) -> Result<Box<dyn Viewer>, Fault> {
        let Ends { link_at, streams, lost } = self;
        let size = under.picture.size();
        let mut streams = streams.into_iter();
        let mut stream = || streams.next().expect("as many as it needs were connected");
        Ok(match by {
            By::TigerVnc(encoding) | By::QemuVnc(encoding) => Box::new(Vnc::start(stream(), encoding)?),
            By::QemuSpice(compression) => {
                Box::new(Spice::start([stream(), stream()], compression, under.link.delay_ms)?)
            }
            By::FreeRdp(asked) => Box::new(freerdp::view(link_at, asked, size, over)?),
            By::GStreamer(video) => Box::new(gstreamer::view(link_at, video, size, lost, over)?),
        })
    }
}

/// What is visible of the server from outside.
#[derive(Default)]
struct Watched {
    /// CPU time of its processes.
    cpu: Window,
    /// Bytes that the link passed to its viewer.
    given: Window,
    until_ns: u64,
    /// Why the server ended early.
    ended: Option<Fault>,
}

/// Waits until the window is over or a participant ends. If the viewer cannot connect in time, the window begins
/// anyway.
fn watch(
    under: &Conditions,
    begun: u64,
    shared: &Shared,
    processes: &mut [Process],
    passed: &AtomicU64,
) -> Watched {
    let mut watched = Watched::default();
    let connects_until = begun + CONNECTS_WITHIN_NS;
    while !under.stop.load(Ordering::Relaxed) && !shared.over() {
        let from_ns = shared.from_ns.load(Ordering::Acquire);
        let end_ns = from_ns.saturating_add(under.length.as_nanos() as u64);
        if now_ns() >= end_ns {
            break;
        }
        if from_ns == u64::MAX && now_ns() >= connects_until {
            // The viewer may have connected at this moment. The first start of the window counts.
            let now = (Ordering::AcqRel, Ordering::Acquire);
            let _ = shared.from_ns.compare_exchange(u64::MAX, now_ns(), now.0, now.1);
            continue;
        }
        let next_ns = if now_ns() < from_ns { from_ns } else { end_ns };
        std::thread::sleep(Duration::from_nanos(next_ns.saturating_sub(now_ns())).min(LOOK_EVERY));
        watched.cpu.note(shared.counts(), processes.iter().map(|p| p.cpu_ns()).sum());
        watched.given.note(shared.counts(), Some(passed.load(Ordering::Relaxed)));
        watched.ended = processes.iter_mut().find_map(|p| p.runs().err());
        if watched.ended.is_some() {
            break;
        }
    }
    watched.until_ns = now_ns();
    watched
}

/// The link between server and viewer.
enum Way {
    Stream(Relay),
    /// With the address at which its viewer waits for datagrams.
    Datagrams(Datagrams, SocketAddr),
}

fn stream(link: Link, started: Started) -> Result<(Started, Way), Fault> {
    let relay = Relay::start(link, started.address)?;
    Ok((started, Way::Stream(relay)))
}

/// A free port. If another process takes it before the viewer does, the viewer reports it.
fn free_port() -> Result<SocketAddr, Fault> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|s| s.local_addr())
        .map_err(|e| Fault::io("a port for datagrams".to_owned(), &e))
}

impl Way {
    /// The address to which viewers connect, or at which they wait.
    fn viewers(&self) -> SocketAddr {
        match self {
            Way::Stream(relay) => relay.address,
            Way::Datagrams(_, viewer) => *viewer,
        }
    }

    /// Bytes passed to viewers so far; the counter keeps running.
    fn passed(&self) -> Arc<AtomicU64> {
        match self {
            Way::Stream(relay) => relay.passed(),
            Way::Datagrams(link, _) => link.counts.passed.clone(),
        }
    }

    /// Describes what happened to datagrams so far.
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

/// The use within the window (CPU time of processes, bytes of a link), from readings of a counter. If
/// processes are gone, the last reading counts.
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
    /// Frames in the window.
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
        // Recorded before the frame can be seen.
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
    /// CPU time in the window.
    cpu_ns: u64,
    rest_ns: u64,
    wrong: usize,
    broken: usize,
    why: Option<Fault>,
    window_offset: [usize; 2],
    kept: Vec<(u32, Vec<u8>)>,
    negotiated: Option<String>,
}

/// The state of a viewer's loop.
struct Looking<'a> {
    under: &'a Conditions<'a>,
    viewer: &'a mut dyn Viewer,
    shared: &'a Shared,
    viewed: Viewed,
    /// CPU time of a viewer that is a separate process.
    its_process: Window,
    lap: Lap,
    keep_at: u64,
}

impl Looking<'_> {
    /// Waits until the screen may have changed, and records the CPU time for that.
    fn changed(&mut self) -> Result<bool, Fault> {
        self.viewed.rest_ns += self.lap.take();
        let changed = self.viewer.changed();
        let own_ns = self.lap.take();
        let counts = self.shared.counts();
        let its_own = self.viewer.cpu_ns();
        match its_own {
            // Here this thread only reads the other process's screen.
            Some(_) => self.viewed.rest_ns += own_ns,
            None if counts => self.viewed.cpu_ns += own_ns,
            None => {}
        }
        if its_own.is_some() {
            self.its_process.note(counts, its_own);
        }
        changed
    }

    /// Records why the viewer fails. A failure after the end does not count.
    fn fails(&mut self, why: Fault) {
        self.viewed.why = (!self.shared.over()).then_some(why).or(self.viewed.why.take());
    }

    /// An update arrived after which no frame number could be read.
    fn unread(&mut self) {
        self.viewed.broken += 1;
        self.viewed.why.get_or_insert_with(|| {
            Fault::new(FaultKind::Failed, "an update came after which no frame's number could be read")
        });
    }

    /// Keeps the picture at this corner, if the next sample is due.
    fn keep(&mut self, at: [usize; 2], presented: u64) {
        if presented < self.keep_at || self.viewed.kept.len() >= self.under.samples {
            return;
        }
        let keep_every = self.under.length.as_nanos() as u64 / self.under.samples.max(1) as u64;
        let size = self.under.picture.size();
        // Another frame may have arrived in the meantime. The kept frame has the number that it shows.
        match self.viewer.part(at, size) {
            Ok(Some(part)) => {
                if let Some((frame, [0, 0])) = crate::picture::number::read(&part, size) {
                    self.viewed.kept.push((frame, part));
                    self.keep_at = presented.max(self.keep_at + keep_every);
                }
            }
            Ok(None) => {}
            Err(why) => self.fails(why),
        }
    }

    fn end(mut self) -> Viewed {
        self.viewed.cpu_ns += self.its_process.used();
        let (negotiated, wrong) = self.viewer.negotiated();
        self.viewed.why = wrong.or(self.viewed.why.take());
        self.viewed.negotiated = Some(negotiated);
        self.viewed.rest_ns += self.lap.take();
        self.viewed
    }
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
    let keep_at = shared.from_ns.load(Ordering::Acquire);
    let (viewed, its_process, lap) = (Viewed::default(), Window::default(), Lap::new());
    let mut looking = Looking { under, viewer, shared, viewed, its_process, lap, keep_at };
    let (mut last, mut told_bytes) = (None, 0);
    while !shared.over() {
        let seen = match looking.changed() {
            Ok(false) => continue,
            Ok(true) => looking.viewer.number(),
            Err(why) => Err(why),
        };
        let presented = looking.viewer.seen_ns();
        let (frame, at) = match seen {
            Ok(Some(seen)) => seen,
            // The content before the first frame has no number.
            Ok(None) if last.is_none() => continue,
            Ok(None) => {
                looking.unread();
                continue;
            }
            Err(why) => {
                looking.fails(why);
                break;
            }
        };
        if last == Some(frame) {
            // The same picture, improved or sent again.
            continue;
        }
        if last.is_some_and(|l| frame < l) || i64::from(frame) > shared.newest.load(Ordering::Acquire) {
            looking.viewed.wrong += 1;
            continue;
        }
        last = Some(frame);
        looking.viewed.window_offset = at;
        let bytes = passed.load(Ordering::Relaxed);
        let seen = Passed {
            source: begun + u64::from(frame) * 1_000_000_000 / u64::from(under.fps),
            presented,
            bytes: (bytes - told_bytes) as usize,
            ..Passed::default()
        };
        told_bytes = bytes;
        looking.viewed.frames.insert(frame, seen);
        looking.keep(at, presented);
    }
    looking.end()
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

    /// If a server ends, what was measured until then is kept, with the reason.
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
            // The window begins one second after its viewer has connected.
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

    /// A child process of this one, by its name.
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
