//! Who asks a domain's server, and how long do answers take? A thread of Domain-0's, by a schedule that was drawn beforehand.
//!
//! Requests are sent when they are due, whether those before are answered or not (open loop); they wait here while all slots of the
//! domain's page ([`super::ring`]) are taken. How long one took is from when it was due until its answer is seen here, so Domain-0's own
//! waits for a pCPU are in it, as they are where requests come over a network.
//!
//! A line of the log is `{"ts":1767225600.123456789,"duration_us":6600.123}`, as in the emulated host (host/log.rs): CLOCK_REALTIME when
//! the answer was seen.
//!
//! Source: Linux, include/uapi/xen/privcmd.h (a foreign frame is mapped) and evtchn.h.
//!
//! Left out: grants, by which a domain would say who may map its page: Domain-0 may map all.

use super::ring::{Asked, Ring};
use crate::vmm::requests;
use crate::workload::Workload;
use libc::{CLOCK_MONOTONIC, CLOCK_REALTIME};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const PRIVCMD: &str = "/dev/xen/privcmd";
const EVTCHN: &str = "/dev/xen/evtchn";
/// _IOC(_IOC_NONE, type, number, size).
const fn request_of(kind: u8, number: u64, size: usize) -> u64 {
    (size as u64) << 16 | (kind as u64) << 8 | number
}
const MMAPBATCH_V2: u64 = request_of(b'P', 4, size_of::<MapBatch>());
const BIND_INTERDOMAIN: u64 = request_of(b'E', 1, size_of::<Bind>());
const NOTIFY: u64 = request_of(b'E', 4, size_of::<u32>());
const PAGE: usize = 4096;
/// What comes first is due so long after all are started, ns.
const BEGIN_AFTER_NS: u64 = 500_000_000;
/// How long at most nobody looks whether it is over, ns.
const LOOK_EVERY_NS: u64 = 200_000_000;

/// struct privcmd_mmapbatch_v2.
#[repr(C)]
struct MapBatch {
    count: u32,
    domain: u16,
    address: u64,
    frames: *const u64,
    errors: *mut i32,
}

#[repr(C)]
struct Bind {
    domain: u32,
    port: u32,
}

/// Where a domain takes its requests from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Door {
    pub frame: u64,
    pub port: u32,
}

impl Door {
    /// As the domain says on its console.
    pub fn said(console: &str) -> Option<Door> {
        let line = console.lines().find(|l| l.starts_with("{\"vsteer_ring\":1,") && l.ends_with('}'))?;
        let number = |name: &str| {
            let rest = &line[line.find(name)? + name.len()..];
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        Some(Door { frame: number("\"frame\":")?, port: u32::try_from(number("\"port\":")?).ok()? })
    }
}

/// A running thread.
pub struct Asker {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl Asker {
    /// Begins to ask.
    ///
    /// # Errors
    /// The page cannot be mapped, the event channel not bound, the log not made.
    pub fn start(domain: u16, door: Door, workload: &Workload, log: &str) -> Result<Asker, String> {
        let line = Line::open(domain, door)?;
        let log = File::create(log).map_err(|e| format!("making {log}: {e}"))?;
        let mut due_ns = now_ns(CLOCK_MONOTONIC) + BEGIN_AFTER_NS;
        let coming: VecDeque<Asked> = requests(workload, 0)
            .into_iter()
            .map(|r| {
                due_ns += r.gap_ns;
                Asked { arrived_ns: due_ns, units: r.demand_units }
            })
            .collect();
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let thread = std::thread::spawn(move || ask(line, coming, log, &told));
        Ok(Asker { over, thread })
    }

    /// Ends it.
    ///
    /// # Errors
    /// What went wrong meanwhile.
    pub fn end(self) -> Result<(), String> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the thread that asks has panicked".to_owned())?
    }
}

/// The page and the channel.
struct Line {
    ring: *const Ring,
    channel: File,
    port: u32,
    /// Its file lasts as long as the page is mapped.
    _privcmd: File,
}

// SAFETY: the page stays mapped for as long as the process lives, and all of it is atomics.
#[allow(unsafe_code)]
unsafe impl Send for Line {}

impl Line {
    #[allow(unsafe_code)]
    fn open(domain: u16, door: Door) -> Result<Line, String> {
        let open = |path: &str| {
            let file = File::options().read(true).write(true).open(path);
            file.map_err(|e| format!("opening {path}: {e}"))
        };
        let last = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
        let (privcmd, channel) = (open(PRIVCMD)?, open(EVTCHN)?);
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let page = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), PAGE, rights, libc::MAP_SHARED, privcmd.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(last("mapping a page of Xen's"));
        }
        let (frames, mut errors) = ([door.frame], [0_i32]);
        let mut batch = MapBatch {
            count: 1,
            domain,
            address: page as u64,
            frames: frames.as_ptr(),
            errors: errors.as_mut_ptr(),
        };
        // SAFETY: the structure that this call takes; its arrays live.
        let mapped = unsafe { libc::ioctl(privcmd.as_raw_fd(), MMAPBATCH_V2, ptr::from_mut(&mut batch)) };
        if mapped != 0 || errors[0] != 0 {
            return Err(last(&format!("mapping frame {:#x} of domain {domain} ({})", door.frame, errors[0])));
        }
        let mut bind = Bind { domain: domain.into(), port: door.port };
        // SAFETY: as above.
        let port = unsafe { libc::ioctl(channel.as_raw_fd(), BIND_INTERDOMAIN, ptr::from_mut(&mut bind)) };
        let port = u32::try_from(port).map_err(|_| last("binding an event channel"))?;
        Ok(Line { ring: page.cast_const().cast(), channel, port, _privcmd: privcmd })
    }

    #[allow(unsafe_code)]
    fn ring(&self) -> &Ring {
        // SAFETY: it is mapped, and both sides know it as this.
        unsafe { &*self.ring }
    }

    #[allow(unsafe_code)]
    fn tell(&self) {
        let mut port = self.port;
        // SAFETY: the structure that this call takes is a port. It fails for a domain that is gone, which shows elsewhere.
        unsafe { libc::ioctl(self.channel.as_raw_fd(), NOTIFY, ptr::from_mut(&mut port)) };
    }

    /// Waits until the domain tells something, or for so long.
    #[allow(unsafe_code)]
    fn wait(&mut self, most_ns: u64) -> std::io::Result<()> {
        let mut poll = libc::pollfd { fd: self.channel.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: (most_ns / 1_000_000_000) as i64,
            tv_nsec: (most_ns % 1_000_000_000) as i64,
        };
        // SAFETY: one structure, and a time.
        let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, ptr::null()) };
        if ready > 0 {
            let mut port = [0; 4];
            self.channel.read_exact(&mut port)?;
            // It is masked until its number is written back.
            self.channel.write_all(&port)?;
        }
        Ok(())
    }
}

#[allow(unsafe_code)]
fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it fills the structure.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ask(mut line: Line, mut coming: VecDeque<Asked>, mut log: File, over: &AtomicBool) -> Result<(), String> {
    let mut text = String::new();
    while !over.load(Ordering::Relaxed) {
        let now = now_ns(CLOCK_MONOTONIC);
        let mut asked = false;
        while coming.front().is_some_and(|r| r.arrived_ns <= now)
            && line.ring().under_way() < super::ring::SLOTS as u32
            && line.ring().ask(coming[0])
        {
            coming.pop_front();
            asked = true;
        }
        if asked {
            line.tell();
        }
        text.clear();
        let wall = now_ns(CLOCK_REALTIME);
        let now = now_ns(CLOCK_MONOTONIC);
        while let Some(arrived_ns) = line.ring().hear() {
            use std::fmt::Write;
            let took = now.saturating_sub(arrived_ns);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{{\"ts\":{}.{:09},\"duration_us\":{}.{:03}}}",
                wall / 1_000_000_000,
                wall % 1_000_000_000,
                took / 1_000,
                took % 1_000
            );
        }
        log.write_all(text.as_bytes()).map_err(|e| format!("writing the log: {e}"))?;
        let next = coming.front().map_or(u64::MAX, |r| r.arrived_ns);
        let full = line.ring().under_way() >= super::ring::SLOTS as u32;
        let most = if full { LOOK_EVERY_NS } else { next.saturating_sub(now).min(LOOK_EVERY_NS) };
        line.wait(most).map_err(|e| format!("waiting for a domain: {e}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_says_where_it_is_asked() {
        let console = "{\"vsteer_guest\":1}\n{\"vsteer_ring\":1,\"frame\":264510,\"port\":3}\n{\"vs";
        assert_eq!(Door::said(console), Some(Door { frame: 264_510, port: 3 }));
        assert_eq!(Door::said("{\"vsteer_ring\":1,\"frame\":26"), None, "not whole yet");
        assert_eq!(Door::said(""), None);
    }

    #[test]
    fn requests_go_round() {
        // SAFETY: all 0 is an empty page.
        #[allow(unsafe_code)]
        let ring: Box<Ring> = unsafe { Box::new(std::mem::zeroed()) };
        for round in 0..1000 {
            let request = Asked { arrived_ns: round, units: 3 * round };
            assert!(ring.ask(request));
            assert_eq!(ring.take(), Some(request));
            ring.answer(round);
            assert_eq!((ring.hear(), ring.hear(), ring.take()), (Some(round), None, None));
        }
        let all = Asked { arrived_ns: 1, units: 1 };
        assert_eq!((0..200).filter(|_| ring.ask(all)).count(), super::super::ring::SLOTS);
        assert_eq!(ring.under_way() as usize, super::super::ring::SLOTS);
    }

    /// Under Miri, which reorders what the atomics allow, each run is another order (CONTRIBUTING.md).
    #[test]
    fn both_sides_at_once_see_every_request_whole_and_in_order() {
        const REQUESTS: u64 = 2 * super::super::ring::SLOTS as u64 + 7;
        // SAFETY: all 0 is an empty page.
        #[allow(unsafe_code)]
        let ring: Box<Ring> = unsafe { Box::new(std::mem::zeroed()) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..REQUESTS {
                    let request = loop {
                        if let Some(request) = ring.take() {
                            break request;
                        }
                        std::thread::yield_now();
                    };
                    assert_eq!(request, Asked { arrived_ns: n, units: 3 * n });
                    ring.answer(n);
                }
            });
            let (mut asked, mut heard) = (0, 0);
            while heard < REQUESTS {
                let room = asked < REQUESTS && ring.under_way() < super::super::ring::SLOTS as u32;
                if room && ring.ask(Asked { arrived_ns: asked, units: 3 * asked }) {
                    asked += 1;
                }
                if let Some(arrived_ns) = ring.hear() {
                    assert_eq!(arrived_ns, heard);
                    heard += 1;
                }
            }
        });
    }
}
