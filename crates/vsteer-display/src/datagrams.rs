//! The network between a server and a viewer that use datagrams: a relay with a rate, a delay, random loss
//! and a bounded queue.
//!
//! It passes on each received datagram to the viewer's port. A datagram may be lost at random (with the same
//! seed, the same numbers are lost). Otherwise it waits for the rate behind earlier ones. If more bytes would
//! wait than the queue holds, it is dropped. Then it is delayed. [`Shaper`] makes all decisions without a
//! clock.
//!
//! Source: drop-tail queue behind a token bucket whose depth is one datagram (as `tc-tbf(8)` with `burst` of
//! one). Left out: a way back (RTCP), jitter, reordering, bursts of loss (GAP(display-datagrams)).

use crate::cpu;
use crate::link::{Link, until};
use crate::picture::drawn;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use vsteer_core::Fault;

/// The largest datagram, bytes.
const LARGEST: usize = 65_536;
/// The kernel's buffer for datagrams that were not read yet, bytes.
const BUFFER: usize = 8 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The resolution of the random decision.
const PARTS: f64 = 1e9;

/// What happens to a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Lost,
    /// The queue was full.
    Dropped,
    /// It arrives at this time, ns.
    Comes(u64),
}

pub struct Shaper {
    link: Link,
    seed: u64,
    /// How many datagrams it has seen.
    n: u64,
    /// Until when earlier datagrams use the rate, ns.
    taken_ns: u64,
}

impl Shaper {
    /// A shaper for a link; the seed decides which datagrams are lost.
    pub fn new(link: Link, seed: u64) -> Shaper {
        Shaper { link, seed, n: 0, taken_ns: 0 }
    }

    /// The fate of the next datagram, received at this time; times never go back.
    pub fn next(&mut self, now_ns: u64, bytes: usize) -> Fate {
        self.n += 1;
        if (drawn(self.seed, self.n) % PARTS as u64) as f64 / PARTS < self.link.loss_percent / 100.0 {
            return Fate::Lost;
        }
        let delay_ns = (self.link.delay_ms * 1e6) as u64;
        let Some(rate) = self.link.rate_bit_s else { return Fate::Comes(now_ns + delay_ns) };
        if rate == 0 {
            return Fate::Dropped;
        }
        let takes = |bytes: u64| bytes * 8_000_000_000 / rate;
        // The bytes that the rate has not passed on yet are waiting.
        let waits_ns = self.taken_ns.saturating_sub(now_ns);
        if waits_ns > 0 && waits_ns + takes(bytes as u64) > takes(self.link.queue_bytes as u64) {
            return Fate::Dropped;
        }
        self.taken_ns = self.taken_ns.max(now_ns) + takes(bytes as u64);
        Fate::Comes(self.taken_ns + delay_ns)
    }
}

/// Counters of all datagrams.
#[derive(Debug, Default)]
pub struct Counts {
    /// Datagrams received by the link.
    pub came: AtomicU64,
    /// Datagrams lost at random.
    pub lost: AtomicU64,
    /// Datagrams dropped because the queue was full.
    pub dropped: AtomicU64,
    /// Bytes passed on.
    pub passed: Arc<AtomicU64>,
}

/// A running link.
pub struct Datagrams {
    /// The address to which servers send.
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    cpu_ns: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Datagrams {
    /// Receives datagrams and passes them on to the viewer.
    ///
    /// # Errors
    /// No free port.
    pub fn start(link: Link, seed: u64, viewer: SocketAddr) -> Result<Datagrams, Fault> {
        let told = |e| Fault::io("a port for datagrams".to_owned(), &e);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(told)?;
        let address = socket.local_addr().map_err(told)?;
        socket.set_read_timeout(Some(LOOK_EVERY)).map_err(told)?;
        // A frame arrives all at once, while this program may have to wait for a CPU. Without a large buffer,
        // the kernel would drop datagrams and cause a loss that the link did not. Only root may exceed the
        // kernel's limit.
        if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            set_socket_recv_buffer_size(&socket, BUFFER).map_err(|e| told(e.into()))?;
        }
        let gives = socket.try_clone().map_err(told)?;
        let (stop, cpu_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let counts = Arc::new(Counts::default());
        let (send, come) = channel();
        let (stopped, used, counted) = (stop.clone(), cpu_ns.clone(), counts.clone());
        let takes = std::thread::spawn(move || {
            take(&socket, Shaper::new(link, seed), &send, &stopped, &counted);
            used.fetch_add(cpu::thread_ns(), Ordering::Relaxed);
        });
        let (stopped, used, counted) = (stop.clone(), cpu_ns.clone(), counts.clone());
        let gives = std::thread::spawn(move || {
            give(&gives, viewer, &come, &stopped, &counted);
            used.fetch_add(cpu::thread_ns(), Ordering::Relaxed);
        });
        Ok(Datagrams { address, counts, stop, cpu_ns, threads: vec![takes, gives] })
    }

    /// Ends the link; returns the CPU time that it used, ns.
    pub fn end(mut self) -> u64 {
        self.finish();
        self.cpu_ns.load(Ordering::Relaxed)
    }

    fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.finish();
    }
}

type Datagram = (u64, Vec<u8>);

fn take(socket: &UdpSocket, mut shaper: Shaper, to: &Sender<Datagram>, stop: &AtomicBool, counts: &Counts) {
    let mut bytes = vec![0; LARGEST];
    while !stop.load(Ordering::Relaxed) {
        let n = match socket.recv(&mut bytes) {
            Ok(n) => n,
            // No process listened at the destination of the previous datagram.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => continue,
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(_) => return,
        };
        counts.came.fetch_add(1, Ordering::Relaxed);
        match shaper.next(cpu::now_ns(), n) {
            Fate::Lost => drop(counts.lost.fetch_add(1, Ordering::Relaxed)),
            Fate::Dropped => drop(counts.dropped.fetch_add(1, Ordering::Relaxed)),
            Fate::Comes(at_ns) => {
                if to.send((at_ns, bytes[..n].to_vec())).is_err() {
                    return;
                }
            }
        }
    }
}

fn give(
    socket: &UdpSocket,
    viewer: SocketAddr,
    come: &Receiver<Datagram>,
    stop: &AtomicBool,
    counts: &Counts,
) {
    while !stop.load(Ordering::Relaxed) {
        let (at_ns, bytes) = match come.recv_timeout(LOOK_EVERY) {
            Ok(datagram) => datagram,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if !until(at_ns, stop) {
            return;
        }
        // If the viewer is gone, another part reports it.
        if let Ok(n) = socket.send_to(&bytes, viewer) {
            counts.passed.fetch_add(n as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::in_a_network_of_its_own;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    /// 1,000 bytes take one millisecond.
    const LINK: Link =
        Link { rate_bit_s: Some(8_000_000), delay_ms: 30.0, queue_bytes: 3000, loss_percent: 0.0 };

    #[test]
    fn a_burst_waits_for_the_rate_and_what_the_queue_cannot_hold_is_dropped() {
        let mut shaper = Shaper::new(LINK, 1);
        let all: Vec<Fate> = (0..5).map(|_| shaper.next(0, 1000)).collect();
        assert_eq!(
            all,
            [Fate::Comes(31 * MS), Fate::Comes(32 * MS), Fate::Comes(33 * MS), Fate::Dropped, Fate::Dropped]
        );
        // One millisecond later one datagram has left, so there is room for one more.
        assert_eq!(shaper.next(MS, 1000), Fate::Comes(34 * MS));
        assert_eq!(shaper.next(MS, 1000), Fate::Dropped);
        // Much later, nothing waits.
        assert_eq!(shaper.next(100 * MS, 1000), Fate::Comes(131 * MS));
    }

    #[test]
    fn loss_is_as_much_as_is_asked_and_the_same_of_one_seed() {
        let link = Link { rate_bit_s: None, loss_percent: 5.0, ..LINK };
        let lost = |seed| -> Vec<u64> {
            let mut shaper = Shaper::new(link, seed);
            (0..100_000).filter(|_| shaper.next(0, 100) == Fate::Lost).collect()
        };
        // 5,000 expected; the standard deviation is 69.
        assert!((4700..5300).contains(&lost(1).len()), "{}", lost(1).len());
        assert!(lost(1) == lost(1) && lost(1) != lost(2));
        let mut none = Shaper::new(LINK, 1);
        assert!((0..1000u64).all(|i| none.next(i * 10 * MS, 100) != Fate::Lost));
        let mut all = Shaper::new(Link { loss_percent: 100.0, ..LINK }, 1);
        assert!((0..1000).all(|_| all.next(0, 100) == Fate::Lost));
        assert_eq!(Shaper::new(Link { rate_bit_s: Some(0), ..LINK }, 1).next(0, 1), Fate::Dropped);
    }

    #[test]
    fn datagrams_pass_later_by_the_delay() {
        let viewer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        viewer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let link =
            Datagrams::start(Link { rate_bit_s: None, ..LINK }, 1, viewer.local_addr().unwrap()).unwrap();
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let begun = cpu::now_ns();
        for i in 0..20u8 {
            server.send_to(&[i; 100], link.address).unwrap();
        }
        let mut bytes = [0; 200];
        for i in 0..20 {
            assert_eq!((viewer.recv(&mut bytes).unwrap(), bytes[0]), (100, i));
            assert!(cpu::now_ns() - begun >= 30 * MS);
        }
        assert_eq!(link.counts.came.load(Ordering::Relaxed), 20);
        // The viewer may have the last datagram before the link counts it.
        let counted = || link.counts.passed.load(Ordering::Relaxed);
        while counted() < 2000 && cpu::now_ns() - begun < 20_000 * MS {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(counted(), 2000);
        link.end();
    }

    /// Received datagrams: number, bytes, time.
    type Came = Vec<(u32, usize, u64)>;

    /// Sends this many datagrams to a port, each at its time, at one and a half times 8 Mbit/s. Returns the
    /// sending times, and what the viewer received.
    fn sent(viewer: UdpSocket, to: SocketAddr) -> (Vec<u64>, Came) {
        viewer.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let receives = std::thread::spawn(move || {
            let (mut came, mut bytes) = (Vec::new(), [0; 1500]);
            while let Ok(n) = viewer.recv(&mut bytes) {
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                came.push((number, n, cpu::now_ns()));
            }
            came
        });
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (begun, mut sent) = (cpu::now_ns(), Vec::new());
        for i in 0..3000u32 {
            let at = begun + u64::from(i) * 2 * MS / 3;
            std::thread::sleep(Duration::from_nanos(at.saturating_sub(cpu::now_ns())));
            let mut bytes = vec![0; 900 + (drawn(5, i.into()) % 100) as usize];
            bytes[..4].copy_from_slice(&i.to_le_bytes());
            sent.push(cpu::now_ns());
            server.send_to(&bytes, to).unwrap();
        }
        (sent, receives.join().unwrap())
    }

    /// In a separate network namespace: the same datagrams at the same times through this link, and through
    /// the loopback with the kernel's TBF. Needs root: `cargo test -p vsteer-display --bins
    /// beside_the_kernels_tbf -- --ignored --nocapture`.
    #[test]
    #[ignore = "needs root, unshare and tc"]
    fn beside_the_kernels_tbf() {
        if !in_a_network_of_its_own("datagrams::tests::beside_the_kernels_tbf") {
            return;
        }
        // The kernel also counts the headers of Ethernet, IP and UDP; the mean payload is 949.5 bytes.
        let payload = 949.5 / (949.5 + 42.0);
        let link = Link {
            rate_bit_s: Some((8e6 * payload) as u64),
            delay_ms: 0.0,
            queue_bytes: (32_768.0 * payload) as usize,
            ..LINK
        };
        let viewer = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let to = socket.local_addr().unwrap();
            (socket, to)
        };
        let (socket, to) = viewer();
        let relay = Datagrams::start(link, 1, to).unwrap();
        let ours = sent(socket, relay.address);
        relay.end();
        let words = "qdisc add dev lo root tbf rate 8mbit burst 1100 limit 32768";
        assert!(std::process::Command::new("tc").args(words.split(' ')).status().unwrap().success());
        let (socket, to) = viewer();
        let theirs = sent(socket, to);
        let later_ms = |(sent, came): &(Vec<u64>, Came)| {
            let sum: f64 = came.iter().map(|(i, _, at)| (at - sent[*i as usize]) as f64 / 1e6).sum();
            sum / came.len() as f64
        };
        let bytes = |(_, came): &(Vec<u64>, Came)| came.iter().map(|(_, n, _)| n).sum::<usize>() as f64;
        println!(
            "came: {} here, {} of the kernel's; {:.2} and {:.2} ms later; {:.0} and {:.0} bytes",
            ours.1.len(),
            theirs.1.len(),
            later_ms(&ours),
            later_ms(&theirs),
            bytes(&ours),
            bytes(&theirs)
        );
        assert!(ours.1.len() < 2500 && (bytes(&ours) / bytes(&theirs) - 1.0).abs() < 0.05);
        assert!((later_ms(&ours) / later_ms(&theirs) - 1.0).abs() < 0.1);
    }

    proptest! {
        /// In any second, at most the rate arrives, in order, and no datagram is delayed longer than by the
        /// queue and the delay.
        #[test]
        fn no_more_than_the_rate_comes(all in prop::collection::vec((0..2 * MS, 1..1500usize), 1..300)) {
            let mut shaper = Shaper::new(LINK, 7);
            let (mut now, mut last, mut bytes, mut first) = (0, 0, 0, None);
            for (gap, n) in all {
                now += gap;
                if let Fate::Comes(at) = shaper.next(now, n) {
                    prop_assert!(at >= last && at >= now + 30 * MS);
                    prop_assert!(at <= now + 30 * MS + 3 * MS);
                    let first = *first.get_or_insert(now);
                    bytes += n as u64;
                    prop_assert!(bytes * 1000 <= at - 30 * MS - first + 1000);
                    last = at;
                }
            }
        }
    }
}
