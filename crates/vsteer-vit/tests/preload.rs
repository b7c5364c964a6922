//! With the library loaded, does an unmodified program tell the host each of its waits, and none unless the VM is
//! opted in?
//!
//! The programs are this test itself, as another process that waits in a given way, and some that every Debian has.
//! Whether real hypercalls happen depends on the machine; the library counts them either way and reports which.

#![allow(unsafe_code)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Names the way to wait, in the other process.
const WAY: &str = "VSTEER_VIT_TEST_WAY";
const WAIT: Duration = Duration::from_millis(3);

/// The library, where cargo has put it: beside the folder of this test, or in it.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|f| f.join("libvsteer_vit.so")).find(|f| f.is_file());
    found.expect("cargo builds the library before its tests")
}

/// Of how many ends a program would tell the host, or did; `flag` is what the agent keeps.
fn told(mut program: Command, flag: &str) -> u64 {
    let file = tempfile(flag);
    program.env("LD_PRELOAD", library()).env("VSTEER_VIT_FLAG", &file).env("VSTEER_VIT_REPORT", "1");
    let done = program.output().unwrap();
    std::fs::remove_file(file).unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    // A program that starts another has several lines.
    let lines = said.lines().filter(|l| l.starts_with("vsteer-vit:"));
    let number = |line: &str| line.split("sent ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    let counts: Vec<u64> = lines.map(|l| number(l).unwrap_or_else(|| panic!("{l}"))).collect();
    assert!(!counts.is_empty(), "nothing was reported: {said}");
    counts.iter().sum()
}

fn tempfile(text: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static N: AtomicU32 = AtomicU32::new(0);
    let n = N.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("vsteer-vit-{}-{n}", std::process::id()));
    std::fs::write(&file, text).unwrap();
    file
}

fn this_one(way: &str) -> Command {
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.args(["--ignored", "--exact", "waits_in_a_way", "--nocapture", "--test-threads=1"]).env(WAY, way);
    own
}

/// The other process: waits five times.
#[test]
#[ignore = "helper: other tests run it as a process of its own"]
fn waits_in_a_way() {
    let way = std::env::var(WAY).expect("the parent sets a way");
    for _ in 0..5 {
        wait(&way);
    }
}

fn wait(way: &str) {
    let span = libc::timespec { tv_sec: 0, tv_nsec: WAIT.as_nanos() as i64 };
    let ms = WAIT.as_millis() as i32;
    let twice = libc::itimerspec { it_interval: span, it_value: span };
    // SAFETY: plain calls of the C library with values that live.
    unsafe {
        match way {
            "sleep" => std::thread::sleep(WAIT),
            "usleep" => drop(libc::usleep(WAIT.as_micros() as u32)),
            "poll" => drop(libc::poll(std::ptr::null_mut(), 0, ms)),
            "ppoll" => drop(libc::ppoll(std::ptr::null_mut(), 0, &raw const span, std::ptr::null())),
            "select" => {
                let null = std::ptr::null_mut();
                let mut time = libc::timeval { tv_sec: 0, tv_usec: WAIT.as_micros() as i64 };
                libc::select(0, null, null, null, &raw mut time);
            }
            "epoll" => {
                let (fd, mut event) = (libc::epoll_create1(0), libc::epoll_event { events: 0, u64: 0 });
                libc::epoll_wait(fd, &raw mut event, 1, ms);
                libc::close(fd);
            }
            "condition" => {
                let (mutex, condition) = (Mutex::new(()), Condvar::new());
                drop(condition.wait_timeout(mutex.lock().unwrap(), WAIT));
            }
            "semaphore" => {
                let mut sem: libc::sem_t = std::mem::zeroed();
                let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                libc::sem_init(&raw mut sem, 0, 0);
                libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut at);
                let ns = at.tv_nsec + span.tv_nsec;
                (at.tv_sec, at.tv_nsec) = (at.tv_sec + ns / 1_000_000_000, ns % 1_000_000_000);
                libc::sem_timedwait(&raw mut sem, &raw const at);
            }
            // Armed once, it ends again and again: a reader waits for the next end.
            "timerfd" => {
                let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
                let mut times = 0u64;
                libc::timerfd_settime(fd, 0, &raw const twice, std::ptr::null_mut());
                for _ in 0..2 {
                    libc::read(fd, (&raw mut times).cast(), 8);
                }
                libc::close(fd);
            }
            // Of no use to the wait itself, but what ends first.
            "timerfd-elsewhere" => {
                let fd = libc::timerfd_create(libc::CLOCK_REALTIME, 0);
                libc::timerfd_settime(fd, 0, &raw const twice, std::ptr::null_mut());
                libc::poll(std::ptr::null_mut(), 0, 5 * ms);
                libc::close(fd);
            }
            "nothing" => {
                libc::poll(std::ptr::null_mut(), 0, 0);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn each_way_to_wait_is_told() {
    // The test harness waits for its own thread, without a limit: it reports nothing of its own.
    for way in ["sleep", "usleep", "poll", "ppoll", "select", "epoll", "condition", "semaphore"] {
        assert_eq!(told(this_one(way), "1\n"), 5, "{way}");
    }
    // When it is set, which is the first read's end as well, and the second read's.
    assert_eq!(told(this_one("timerfd"), "1\n"), 10);
    assert_eq!(told(this_one("timerfd-elsewhere"), "1\n"), 5);
}

#[test]
fn nobody_is_told_who_did_not_ask() {
    for flag in ["0\n", ""] {
        assert_eq!(told(this_one("sleep"), flag), 0, "{flag:?}");
    }
    assert_eq!(told(this_one("nothing"), "1\n"), 0);
}

#[test]
fn programs_that_know_nothing_of_it() {
    let mut sleep = Command::new("sleep");
    sleep.arg("0.01");
    assert_eq!(told(sleep, "1\n"), 1);
    // Its own limit, by a timer that sends a signal, and the other's sleep.
    let mut limited = Command::new("timeout");
    limited.args(["0.02", "sleep", "1"]);
    assert!(told(limited, "1\n") >= 1);
    let mut perl = Command::new("perl");
    perl.args(["-e", "select(undef, undef, undef, 0.005) for 1..4"]);
    assert_eq!(told(perl, "1\n"), 4);
}
