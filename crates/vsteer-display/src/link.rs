//! The link between a server and its viewer: a relay with a rate, a delay and a queue, which every server's
//! stream passes.
//!
//! The relay listens. For each viewer it connects to the server and passes on the bytes of both. Bytes from
//! the server pass at most at the rate; both directions are delayed. Bytes that wait for the rate are queued.
//! If the queue is full, the relay stops reading from the server, like a router whose sender has learned the
//! rate. A link without a rate passes everything, up to [`FASTEST_BYTES_PER_MS`] within its delay. A link
//! with 0 bit/s passes nothing.
//!
//! Left out: datagrams and their loss, which are in datagrams.rs.

use crate::cpu;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use vsteer_core::Fault;

/// Bytes that pass at once: 1.6 ms at 20 Mbit/s.
const CHUNK: usize = 4096;
/// Kernel buffers are small, so that bytes wait in the queue.
pub const SOCKET_BUFFER: usize = 32 << 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much a link without a rate may have in transit per ms of its delay, bytes: 10 Gbit/s.
const FASTEST_BYTES_PER_MS: f64 = 1.25e6;
/// The most bytes in transit, because they are in this program's memory.
const ON_THE_WAY_MOST: f64 = 256e6;

/// The properties of a link.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Link {
    /// From server to viewer, bit/s; `None`: unlimited.
    pub rate_bit_s: Option<u64>,
    /// Delay in each direction, ms.
    pub delay_ms: f64,
    /// How much may wait for the rate, bytes.
    pub queue_bytes: usize,
    /// Datagrams lost at random, percent; streams lose nothing.
    pub loss_percent: f64,
}

/// A running link.
pub struct Relay {
    /// The address to which viewers connect.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    cpu_ns: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    listens: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens, and passes bytes on to the server.
    ///
    /// # Errors
    /// No free port.
    pub fn start(link: Link, server: SocketAddr) -> Result<Relay, Fault> {
        let told = |e| Fault::io("listening for a viewer".to_owned(), &e);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        listener.set_nonblocking(true).map_err(told)?;
        let (stop, cpu_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let passed = Arc::new(AtomicU64::new(0));
        let (stopped, used, counts) = (stop.clone(), cpu_ns.clone(), passed.clone());
        let listens = std::thread::spawn(move || {
            let mut passing = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                // If the connection to the server fails, the viewer sees the end of its stream and reports
                // it.
                if let Ok((viewer, _)) = listener.accept()
                    && let Ok(mut both) = pass(link, viewer, server, &stopped, &used, &counts)
                {
                    passing.append(&mut both);
                }
                std::thread::sleep(LOOK_EVERY);
            }
            passing.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
            used.fetch_add(cpu::thread_ns(), Ordering::Relaxed);
        });
        Ok(Relay { address, stop, cpu_ns, passed, listens: Some(listens) })
    }

    /// Bytes passed to viewers so far; the counter keeps running.
    pub fn passed(&self) -> Arc<AtomicU64> {
        self.passed.clone()
    }

    /// Ends the link; returns the CPU time that it used, ns.
    pub fn end(mut self) -> u64 {
        self.finish();
        self.cpu_ns.load(Ordering::Relaxed)
    }

    fn finish(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.listens.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.finish();
    }
}

fn pass(
    link: Link,
    viewer: TcpStream,
    server: SocketAddr,
    stop: &Arc<AtomicBool>,
    cpu_ns: &Arc<AtomicU64>,
    passed: &Arc<AtomicU64>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let server = TcpStream::connect(server)?;
    viewer.set_nonblocking(false)?;
    for stream in [&viewer, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(LOOK_EVERY))?;
    }
    set_socket_recv_buffer_size(&server, SOCKET_BUFFER)?;
    set_socket_send_buffer_size(&viewer, SOCKET_BUFFER)?;
    let back = Link { rate_bit_s: None, ..link };
    let mut threads = Vec::new();
    let uncounted = Arc::default();
    let ways = [(link, server.try_clone()?, viewer.try_clone()?, passed), (back, viewer, server, &uncounted)];
    for (link, from, to, counts) in ways {
        let room = (link.queue_bytes + on_the_way(link)).div_ceil(CHUNK).max(2);
        let (send, come) = sync_channel(room);
        let (stop_read, cpu_read) = (stop.clone(), cpu_ns.clone());
        threads.push(std::thread::spawn(move || {
            take(link, from, &send, &stop_read);
            cpu_read.fetch_add(cpu::thread_ns(), Ordering::Relaxed);
        }));
        let (stop_write, cpu_write, counts) = (stop.clone(), cpu_ns.clone(), counts.clone());
        threads.push(std::thread::spawn(move || {
            give(to, &come, &stop_write, &counts);
            cpu_write.fetch_add(cpu::thread_ns(), Ordering::Relaxed);
        }));
    }
    Ok(threads)
}

/// What a link holds in addition to its queue, bytes: the bytes that its rate passes during its delay.
fn on_the_way(link: Link) -> usize {
    let bytes_per_ms = link.rate_bit_s.map_or(FASTEST_BYTES_PER_MS, |rate| rate as f64 / 8e3);
    // Without a rate and a delay, some buffer is still needed between the two threads.
    let least = if link.rate_bit_s.is_none() { 1 << 20 } else { 0 };
    ((bytes_per_ms * link.delay_ms).min(ON_THE_WAY_MOST) as usize).max(least)
}

/// Waits until a time, ns; false if it was told to stop earlier.
pub fn until(at_ns: u64, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = Duration::from_nanos(at_ns.saturating_sub(cpu::now_ns()));
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
    false
}

/// Bytes to pass on, with their time.
type Chunk = (u64, Vec<u8>);

fn take(link: Link, mut from: TcpStream, to: &SyncSender<Chunk>, stop: &AtomicBool) {
    let delay_ns = (link.delay_ms * 1e6) as u64;
    // Until when earlier bytes use the rate.
    let mut taken_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        if link.rate_bit_s == Some(0) {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        let mut bytes = vec![0; CHUNK];
        match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => bytes.truncate(n),
            Err(e) if waits(&e) => continue,
            Err(_) => return,
        }
        let now = cpu::now_ns();
        taken_ns = taken_ns.max(now);
        if let Some(rate) = link.rate_bit_s {
            taken_ns += bytes.len() as u64 * 8_000_000_000 / rate;
        }
        let mut chunk = (taken_ns + delay_ns, bytes);
        loop {
            match to.try_send(chunk) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if !stop.load(Ordering::Relaxed) => {
                    chunk = back;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return,
            }
        }
    }
}

fn give(mut to: TcpStream, come: &Receiver<Chunk>, stop: &AtomicBool, counts: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let (at_ns, bytes) = match come.recv_timeout(LOOK_EVERY) {
            Ok(chunk) => chunk,
            Err(RecvTimeoutError::Timeout) => continue,
            // One side has ended, and the other has received all its bytes.
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if !until(at_ns, stop) {
            break;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() && !stop.load(Ordering::Relaxed) {
            match to.write(rest) {
                Ok(n) => {
                    rest = &rest[n..];
                    counts.fetch_add(n as u64, Ordering::Relaxed);
                }
                Err(e) if waits(&e) => {}
                Err(_) => return,
            }
        }
    }
    let _ = to.shutdown(if stop.load(Ordering::Relaxed) { Shutdown::Both } else { Shutdown::Write });
}

fn waits(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::time::Instant;

    /// Does this test run in a separate network namespace, whose loopback has Ethernet's packet size? If not,
    /// this runs the test there in another process and returns false.
    pub fn in_a_network_of_its_own(test: &str) -> bool {
        const WITHIN: &str = "VSTEER_DISPLAY_TBF";
        if std::env::var_os(WITHIN).is_some() {
            return true;
        }
        let myself = std::env::current_exe().unwrap();
        let words = format!(
            "ip link set lo mtu 1500 up && {WITHIN}=1 {} --ignored --exact {test} --nocapture",
            myself.display()
        );
        let done = std::process::Command::new("unshare").args(["-n", "sh", "-c", &words]).status().unwrap();
        assert!(done.success());
        false
    }

    /// Sends this many bytes through a link. Returns when the first and the last arrived.
    fn through(link: Link, bytes: usize, limit: Duration) -> (Duration, Duration, usize) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(link, listener.local_addr().unwrap()).unwrap();
        let mut viewer = TcpStream::connect(relay.address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        viewer.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        let begun = Instant::now();
        let sends = std::thread::spawn(move || {
            let _ = server.write_all(&vec![7; bytes]);
            server
        });
        let (mut came, mut first, mut last) = (0, Duration::ZERO, Duration::ZERO);
        let mut part = vec![0; 65_536];
        while came < bytes && begun.elapsed() < limit {
            if let Ok(n) = viewer.read(&mut part) {
                came += n;
                last = begun.elapsed();
                if first.is_zero() {
                    first = last;
                }
            }
        }
        drop(viewer);
        relay.end();
        drop(sends.join());
        (first, last, came)
    }

    #[test]
    fn a_rate_and_a_delay_are_kept() {
        let link =
            Link { rate_bit_s: Some(8_000_000), delay_ms: 30.0, queue_bytes: 32 << 10, loss_percent: 0.0 };
        let (first, last, came) = through(link, 500_000, Duration::from_secs(30));
        assert_eq!(came, 500_000);
        assert!(first >= Duration::from_millis(30), "{first:?}");
        // Half a second according to the rate. How much later depends on the machine's other load.
        assert!(last >= Duration::from_millis(520), "{last:?}");
    }

    #[test]
    fn where_the_server_ends_its_viewer_is_told_once_it_has_all() {
        let link =
            Link { rate_bit_s: Some(8_000_000), delay_ms: 10.0, queue_bytes: 32 << 10, loss_percent: 0.0 };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(link, listener.local_addr().unwrap()).unwrap();
        let mut viewer = TcpStream::connect(relay.address).unwrap();
        viewer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(&[7; 50_000]).unwrap();
        drop(server);
        assert_eq!(viewer.read_to_end(&mut Vec::new()).unwrap(), 50_000);
    }

    #[test]
    fn one_so_slow_that_a_chunk_takes_hours_ends_at_once_where_it_is_told_to() {
        let link = Link { rate_bit_s: Some(20), delay_ms: 0.0, queue_bytes: 32 << 10, loss_percent: 0.0 };
        let begun = Instant::now();
        assert_eq!(through(link, 100_000, Duration::from_millis(300)).2, 0);
        // It would take 1,638 s.
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[test]
    fn without_a_rate_a_delay_bounds_no_stream() {
        let link = Link { rate_bit_s: None, delay_ms: 100.0, queue_bytes: 64 << 10, loss_percent: 0.0 };
        // 30 MB in a tenth of a second are 2.4 Gbit/s.
        assert!(on_the_way(link) > 30_000_000);
        assert!(on_the_way(Link { delay_ms: 10_000.0, ..link }) <= 256_000_000);
        assert_eq!(on_the_way(Link { delay_ms: 0.0, ..link }), 1 << 20);
        assert_eq!(on_the_way(Link { rate_bit_s: Some(8_000_000), delay_ms: 10.0, ..link }), 10_000);
    }

    /// In a separate network namespace: a stream through this link, and the same through the loopback with
    /// the kernel's TBF and Ethernet's packet size. Needs root: `cargo test -p vsteer-display --bins
    /// beside_the_kernels_tbf -- --ignored --nocapture`.
    #[test]
    #[ignore = "needs root, unshare and tc"]
    fn a_stream_beside_the_kernels_tbf() {
        const BYTES: usize = 3_000_000;
        if !in_a_network_of_its_own("link::tests::a_stream_beside_the_kernels_tbf") {
            return;
        }
        let tc = |words: &str| {
            let done = std::process::Command::new("tc").args(words.split(' ')).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stdout).unwrap()
        };
        let link =
            Link { rate_bit_s: Some(8_000_000), delay_ms: 0.0, queue_bytes: 32_768, loss_percent: 0.0 };
        let (first, last, came) = through(link, BYTES, Duration::from_secs(60));
        assert_eq!(came, BYTES);
        let ours_s = (last - first).as_secs_f64();
        tc("qdisc add dev lo root tbf rate 8mbit burst 3100 limit 32768");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut viewer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let sends = std::thread::spawn(move || server.write_all(&vec![7; BYTES]));
        let (mut came, mut first, mut part) = (0, None, vec![0; 65_536]);
        while came < BYTES {
            came += viewer.read(&mut part).unwrap();
            first.get_or_insert_with(Instant::now);
        }
        let theirs_s = first.unwrap().elapsed().as_secs_f64();
        sends.join().unwrap().unwrap();
        // What the kernel counts: headers, acknowledgements, and retransmissions.
        let said = tc("-s qdisc show dev lo");
        let sent: f64 =
            said.split("Sent ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let ours = BYTES as f64 * 8e-6 / ours_s;
        let theirs = BYTES as f64 * 8e-6 / theirs_s;
        let of_all = BYTES as f64 / sent;
        println!(
            "{ours:.2} Mbit/s here, {theirs:.2} of the kernel's, {:.2} with the {:.1} % that are heads, acknowledgements and repetitions",
            theirs / of_all,
            100.0 * (1.0 - of_all)
        );
        assert!((ours / (theirs / of_all) - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_link_without_rate_passes_all_and_one_of_0_nothing() {
        let link = Link { rate_bit_s: None, delay_ms: 0.0, queue_bytes: 0, loss_percent: 0.0 };
        assert_eq!(through(link, 3_000_000, Duration::from_secs(30)).2, 3_000_000);
        let none = Link { rate_bit_s: Some(0), ..link };
        assert_eq!(through(none, 1000, Duration::from_millis(300)).2, 0);
    }
}
