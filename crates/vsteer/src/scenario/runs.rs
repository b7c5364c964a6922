//! Runs every point of a sweep with every seed on all cores, with progress. Ctrl-C keeps the finished runs.

use crate::interrupt::Interrupt;
use crate::source::{progress_done, progress_of};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use vsteer_core::Fault;
use vsteer_sim::scenario::Case;
use vsteer_sim::scenario::outcome::{Follow, Run, run};

/// Runs `cases` with each of `seeds`; the runs of each case, those that were not begun left out.
///
/// # Errors
/// That of the first run that failed.
pub fn all(cases: &[Case], seeds: &[u64], interrupt: &Interrupt) -> Result<Vec<Vec<Run>>, Fault> {
    let jobs = cases.len() * seeds.len();
    let whole_ns: u64 = cases.iter().map(|c| c.end_ns).sum::<u64>().saturating_mul(seeds.len() as u64);
    let (next, done_ns) = (AtomicUsize::new(0), AtomicU64::new(0));
    let results: Mutex<Vec<Option<Result<Run, Fault>>>> = Mutex::new((0..jobs).map(|_| None).collect());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.max(1));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs || interrupt.is_set() {
                        return;
                    }
                    let (case, seed) = (&cases[job / seeds.len()], seeds[job % seeds.len()]);
                    let mut follow = Watched { interrupt, done_ns: &done_ns, told_ns: 0 };
                    let ran = run(case, seed, |s| (case.policy.build)(s, &case.values), &mut follow);
                    done_ns.fetch_add(case.end_ns.saturating_sub(follow.told_ns), Ordering::Relaxed);
                    results.lock().expect("no worker panics while it holds this")[job] = Some(ran);
                }
            });
        }
        let ended = || results.lock().expect("as above").iter().filter(|r| r.is_some()).count();
        while ended() < jobs && !interrupt.is_set() {
            std::thread::sleep(Duration::from_millis(50));
            let part = done_ns.load(Ordering::Relaxed) as f64 / whole_ns.max(1) as f64;
            progress_of("simulating", part, &format!("{} of {jobs} runs", ended()));
        }
    });
    progress_done();
    let mut results = results.into_inner().expect("as above").into_iter();
    let of_case = |_| results.by_ref().take(seeds.len()).flatten().collect::<Result<Vec<Run>, Fault>>();
    cases.iter().map(of_case).collect()
}

struct Watched<'a> {
    interrupt: &'a Interrupt,
    done_ns: &'a AtomicU64,
    told_ns: u64,
}

impl Follow for Watched<'_> {
    fn go_on(&mut self, now_ns: u64) -> bool {
        self.done_ns.fetch_add(now_ns - self.told_ns, Ordering::Relaxed);
        self.told_ns = now_ns;
        !self.interrupt.is_set()
    }
}
