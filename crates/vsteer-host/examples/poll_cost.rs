//! What does one poll of 1,000 threads cost? Starts a process of 1,000 sleeping threads, polls their schedstat and
//! prints the CPU time per poll, next to that of opening every file again. `poll_cost [POLLS [THREADS]]`

use rustix::time::{ClockId, clock_gettime};
use std::process::{Command, Stdio};
use vsteer_core::nouns::{Role, VmId};
use vsteer_host::linux::schedstat::{Polled, Schedstat};
use vsteer_host::linux::task;
use vsteer_host::root::Root;

fn cpu_ms() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

fn main() {
    let number = |i, default: usize| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (polls, threads) = (number(1, 50), number(2, 1000));
    if std::env::var_os("POLL_COST_CHILD").is_some() {
        for _ in 0..threads {
            std::thread::Builder::new().stack_size(16 << 10).spawn(std::thread::park).expect("a thread");
        }
        // Until the parent closes the pipe.
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().expect("an executable"))
        .args([polls.to_string(), threads.to_string()])
        .env("POLL_COST_CHILD", "1")
        .stdin(Stdio::piped())
        .spawn()
        .expect("a child");
    let root = Root::live().expect("/");
    while task::threads(&root, child.id()).len() < threads {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let watched: Vec<Polled> = (0u32..)
        .zip(task::threads(&root, child.id()))
        .map(|(i, tid)| Polled { vm: VmId("poll-cost".into()), role: Role::Vcpu(i), pid: child.id(), tid })
        .collect();

    let mut kept = Schedstat::new();
    kept.watch(&watched);
    let mut each: Vec<f64> = (0..polls)
        .map(|_| {
            let before = cpu_ms();
            assert_eq!(kept.read().len(), watched.len());
            cpu_ms() - before
        })
        .collect();
    each.sort_by(f64::total_cmp);
    let anew: Vec<f64> = (0..polls.min(5))
        .map(|_| {
            let before = cpu_ms();
            let mut s = Schedstat::new();
            s.watch(&watched);
            assert_eq!(s.read().len(), watched.len());
            cpu_ms() - before
        })
        .collect();
    let mean = anew.iter().sum::<f64>() / anew.len() as f64;
    println!(
        "{} threads: {:.2} ms of CPU per poll (median of {polls}; {:.2} least, {:.2} most), opening again {mean:.2} ms",
        watched.len(),
        each[each.len() / 2],
        each[0],
        each[each.len() - 1]
    );
    drop(child.stdin.take());
    child.wait().expect("the child ends");
}
