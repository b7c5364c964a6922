//! Watches all threads of the processes given and prints where their time went over some seconds: `watch SECONDS PID...`
use std::time::Duration;
use vsteer_bpf::*;
use vsteer_core::{CpuSet, nouns::*};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let secs: u64 = args[0].parse().unwrap();
    let mut o = Observer::start(Options::default()).unwrap_or_else(|e| panic!("{e}"));
    println!("missing {:?}", o.missing());
    let mut w = vec![];
    for p in &args[1..] {
        for (i, t) in std::fs::read_dir(format!("/proc/{p}/task")).unwrap().enumerate() {
            let tid = t.unwrap().file_name().to_str().unwrap().parse().unwrap();
            w.push(Watched {
                vm: VmId(p.clone()),
                role: Role::Vcpu(i as u32),
                tid: Tid(tid),
                affinity: CpuSet::first(2),
            });
        }
    }
    o.watch(&w).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let ss = |t: u32, p: &str| -> (u64, u64) {
        let s = std::fs::read_to_string(format!("/proc/{p}/task/{t}/schedstat")).unwrap_or_default();
        let v: Vec<u64> = s.split_whitespace().map(|x| x.parse().unwrap()).collect();
        if v.len() > 1 { (v[0], v[1]) } else { (0, 0) }
    };
    let s0: Vec<_> = w.iter().map(|t| ss(t.tid.0, &t.vm.0)).collect();
    let a = o.read().unwrap();
    std::thread::sleep(Duration::from_secs(secs));
    let s1: Vec<_> = w.iter().map(|t| ss(t.tid.0, &t.vm.0)).collect();
    let b = o.read().unwrap();
    misses();
    let win = (b.mono_ns - a.mono_ns) as f64;
    println!("window {:.3}s surprises {} then {}", win / 1e9, a.surprises, b.surprises);
    for y in &b.threads {
        let Some(x) = a.threads.iter().find(|x| x.tid == y.tid) else { continue };
        let k = w.iter().position(|z| z.tid == y.tid).unwrap();
        let d = |f: fn(&ThreadCounters) -> Option<u64>| {
            (f(&y.counters).unwrap_or(0) - f(&x.counters).unwrap_or(0)) as f64
        };
        let p = |v: f64| 100.0 * v / win;
        let (run, rdy, lim, blk) =
            (d(|c| c.run_ns), d(|c| c.ready_ns), d(|c| c.limited_ns), d(|c| c.blocked_ns));
        println!(
            "{} {:>7} run {:6.2} ss {:6.2} rdy {:6.2} lim {:6.2} sum {:6.3} ss {:6.3} blk {:6.2} resid {:7.4} lag {:6.2} ovl {:5.2} sw {} pre {} wk {} mig {} p99wake {:?}us",
            y.vm,
            y.tid.0,
            p(run),
            p((s1[k].0 - s0[k].0) as f64),
            p(rdy),
            p(lim),
            p(rdy + lim),
            p((s1[k].1 - s0[k].1) as f64),
            p(blk),
            100.0 - p(run + rdy + lim + blk),
            p(d(|c| c.lag_ns)),
            p(d(|c| c.overlap_ns)),
            d(|c| c.switches),
            d(|c| c.preemptions),
            d(|c| c.wakeups),
            d(|c| c.migrations),
            y.counters
                .wake_latency
                .as_ref()
                .unwrap()
                .since(x.counters.wake_latency.as_ref().unwrap())
                .quantile_ns(0.99)
                .map(|n| n / 1000.0)
        );
        let mut bl: Vec<(String, f64)> = b
            .blame
            .iter()
            .filter(|z| z.victim == y.vm && z.role == y.role)
            .map(|z| {
                let old = a
                    .blame
                    .iter()
                    .find(|q| q.victim == z.victim && q.role == z.role && q.culprit == z.culprit)
                    .map_or(0, |q| q.ns);
                (format!("{:?}", z.culprit), p(z.ns.saturating_sub(old) as f64))
            })
            .collect();
        bl.sort_by(|p, q| q.1.total_cmp(&p.1));
        let sum: f64 = bl.iter().map(|x| x.1).sum();
        println!("    blame sum {sum:.3} of {:.3}: {:?}", p(rdy), &bl[..bl.len().min(5)]);
    }
}
#[allow(dead_code)]
fn misses() {
    for p in libbpf_rs::query::ProgInfoIter::default() {
        if p.name.to_string_lossy().starts_with("on_") {
            println!("{:?} misses {} runs {}", p.name, p.recursion_misses, p.run_cnt);
        }
    }
}
