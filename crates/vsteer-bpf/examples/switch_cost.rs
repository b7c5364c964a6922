//! What does a context switch cost more while the observer is attached, beside bpftrace and perf in the same run?
//!
//! Two threads on one pCPU hand one byte to and fro through two pipes: every hand-over is a wake-up and a switch. What
//! they pay is read from their own CPU clocks, which the kernel charges with whatever runs inside the scheduler's
//! tracepoints and not with what other processes do meanwhile; so the figures stand on a busy machine as well. Each
//! turn of ours, bpftrace or perf lies between two turns of nothing; its cost is that of its undisturbed bursts less
//! the mean of its neighbours', and the median over turns counts. Turns go on, up to three times as many, until all medians
//! are known well enough.
//!
//! bpftrace's script sums run and ready per thread from sched_switch and sched_wakeup: the least of what ours counts.
//! perf is `perf sched record`, which writes every event to a file.
//!
//! Left out: caches that other threads would have kept warm, and interrupts. `switch_cost [--json] [REPETITIONS]`;
//! exits with 1 where a promise is broken, 2 where nothing could be measured. tools/bench.sh prepares what it needs.

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use vsteer_bpf::{Observer, Options, Watched};
use vsteer_core::nouns::{Role, Tid, VmId};

/// Hand-overs to and fro per burst: some 2 ms, so that some bursts of a turn go undisturbed on a busy machine too.
const ROUNDS: u32 = 250;
const BURSTS: usize = 240;
/// Which of a turn's bursts counts. What disturbs a burst (a sibling hardware thread, cold caches, a hypervisor below)
/// only ever adds; the very least would be one lucky burst.
const UNDISTURBED: f64 = 0.05;
/// A turn of bpftrace or perf that is not ready by then is given up.
const READY: Duration = Duration::from_secs(20);
/// Most that an unwatched switch may cost, as a fraction of bpftrace's.
const UNWATCHED_RATIO: f64 = 0.25;
/// How well a median must be known, as a fraction of bpftrace's cost.
const KNOWN: f64 = 0.02;
/// Most that a watched switch may cost, as a fraction of bpftrace's.
const WATCHED_RATIO: f64 = 1.0;

/// What bpftrace runs. `tick` says that its probes are attached; it ends by itself whatever happens to this program.
const SCRIPT: &str = r#"
tracepoint:sched:sched_switch {
  $now = nsecs;
  if (args->prev_pid) {
    if (@on[args->prev_pid]) { @run_ns[args->prev_pid] = sum($now - @on[args->prev_pid]); }
    if ((args->prev_state & 0xff) == 0) { @waits[args->prev_pid] = $now; }
  }
  if (args->next_pid) {
    @on[args->next_pid] = $now;
    if (@waits[args->next_pid]) {
      @ready_ns[args->next_pid] = sum($now - @waits[args->next_pid]);
      delete(@waits[args->next_pid]);
    }
  }
}
tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @waits[args->pid] = nsecs; }
interval:ms:200 { printf("tick\n"); }
interval:s:60 { exit(); }
END { clear(@on); clear(@waits); }
"#;

type Failure = Box<dyn std::error::Error>;

/// Two threads that hand a byte to and fro on one pCPU.
struct Pair {
    tids: [u32; 2],
    begin: Vec<Sender<u32>>,
    cpu_ns: Receiver<u64>,
    threads: Vec<JoinHandle<()>>,
}

fn own_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Pair {
    fn on(cpu: usize) -> Result<Pair, Failure> {
        let (a, b) = (std::io::pipe()?, std::io::pipe()?);
        let (tell, tids) = channel();
        let (done, cpu_ns) = channel();
        let mut begin = Vec::new();
        let mut threads = Vec::new();
        let ends: [(PipeReader, PipeWriter, bool); 2] = [(a.0, b.1, false), (b.0, a.1, true)];
        for (mut from, mut to, first) in ends {
            let (go, rounds) = channel::<u32>();
            begin.push(go);
            let (tell, done) = (tell.clone(), done.clone());
            threads.push(std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                sched_setaffinity(None, &only).expect("a thread may move to an allowed pCPU");
                tell.send(gettid().as_raw_nonzero().get() as u32).expect("the main thread waits");
                let mut byte = [0u8];
                while let Ok(n) = rounds.recv() {
                    let before = own_cpu_ns();
                    for _ in 0..n {
                        if first {
                            to.write_all(&byte).expect("the other end is open");
                            from.read_exact(&mut byte).expect("the other end is open");
                        } else {
                            from.read_exact(&mut byte).expect("the other end is open");
                            to.write_all(&byte).expect("the other end is open");
                        }
                    }
                    done.send(own_cpu_ns() - before).expect("the main thread waits");
                }
            }));
        }
        Ok(Pair { tids: [tids.recv()?, tids.recv()?], begin, cpu_ns, threads })
    }

    /// CPU time per switch, ns, of each burst.
    fn bursts(&self, n: usize) -> Result<Vec<f64>, Failure> {
        (0..n)
            .map(|_| {
                // The one that waits first, so that the other finds it waiting.
                self.begin.iter().try_for_each(|b| b.send(ROUNDS))?;
                let sum = self.cpu_ns.recv()? + self.cpu_ns.recv()?;
                Ok(sum as f64 / f64::from(2 * ROUNDS))
            })
            .collect()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.begin.clear();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// A program that traces; ended with this value, by its id.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Tracer {
    /// Asks it to end, and gives up after a while.
    fn end(&mut self) -> Result<(), Failure> {
        kill_process(Pid::from_child(&self.0), Signal::INT)?;
        let begun = Instant::now();
        while self.0.try_wait()?.is_none() {
            if begun.elapsed() > READY {
                return Err("it does not end when asked to".into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

fn with_bpftrace(pair: &Pair) -> Result<Vec<f64>, Failure> {
    let mut command = Command::new("bpftrace");
    command.args(["-e", SCRIPT]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut t = Tracer(command.spawn().map_err(|e| format!("starting bpftrace: {e}"))?);
    let (say, said) = channel();
    let out = t.0.stdout.take().ok_or("no standard output")?;
    let reader = std::thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).for_each(|l| drop(say.send(l)));
    });
    while said.recv_timeout(READY).map_err(|_| "bpftrace does not attach")? != "tick" {}
    let ns = pair.bursts(BURSTS)?;
    t.end().map_err(|e| format!("bpftrace: {e}"))?;
    reader.join().map_err(|_| "reading bpftrace's output failed")?;
    let lines: Vec<String> = said.try_iter().collect();
    for tid in pair.tids {
        let seen = lines.iter().any(|l| l.starts_with(&format!("@run_ns[{tid}]: ")));
        seen.then_some(()).ok_or_else(|| format!("bpftrace did not see thread {tid}"))?;
    }
    Ok(ns)
}

fn with_perf(pair: &Pair, folder: &std::path::Path) -> Result<Vec<f64>, Failure> {
    let file = folder.join(format!("switch-cost-{}.perf", std::process::id()));
    let mut command = Command::new("perf");
    command.args(["sched", "record", "-o"]).arg(&file).args(["--", "sleep", "60"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut t = Tracer(command.spawn().map_err(|e| format!("starting perf: {e}"))?);
    // It writes its header when the events are on.
    let begun = Instant::now();
    while std::fs::metadata(&file).map_or(0, |m| m.len()) == 0 {
        if begun.elapsed() > READY || t.0.try_wait()?.is_some() {
            return Err("perf does not begin to record".into());
        }
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(500));
    let ns = pair.bursts(BURSTS)?;
    let ended = t.end();
    let _ = std::fs::remove_file(&file);
    ended.map_err(|e| format!("perf: {e}"))?;
    Ok(ns)
}

/// With ours attached; `watched`: the pair are vCPUs of two VMs, else the observer watches another thread.
fn with_ours(pair: &Pair, cpu: u32, watched: bool) -> Result<Vec<f64>, Failure> {
    let mut observer = Observer::start(Options::default())?;
    let main = gettid().as_raw_nonzero().get() as u32;
    let tids: &[u32] = if watched { &pair.tids } else { &[main] };
    let of = |tid: &u32| Watched {
        vm: VmId(format!("vm{tid}").into()),
        role: Role::Vcpu(0),
        tid: Tid(*tid),
        affinity: std::iter::once(cpu).collect(),
    };
    observer.watch(&tids.iter().map(of).collect::<Vec<_>>())?;
    let before = observer.read()?;
    let ns = pair.bursts(BURSTS)?;
    let after = observer.read()?;
    if watched {
        // Every hand-over is a switch of either; a kernel that hides them would make this look cheap.
        let expected = u64::from(ROUNDS) * BURSTS as u64;
        for t in &after.threads {
            let earlier = before.threads.iter().find(|b| b.tid == t.tid).and_then(|b| b.counters.switches);
            let seen = t.counters.switches.unwrap_or(0) - earlier.unwrap_or(0);
            if seen < expected * 98 / 100 {
                return Err(format!("the observer saw {seen} of {expected} switches of {:?}", t.tid).into());
            }
        }
    }
    Ok(ns)
}

fn quantile(values: &[f64], q: f64) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    v[((v.len() - 1) as f64 * q).round() as usize]
}

/// Which tool traces in which turn.
const TURNS: [&str; 4] = ["ours, unwatched", "ours, watched", "bpftrace", "perf sched record"];

/// Figures of one way of tracing, ns per switch.
#[derive(Default)]
struct Figures {
    /// Undisturbed bursts of each turn.
    whole: Vec<f64>,
    /// The same less that of the turns of nothing around it.
    cost: Vec<f64>,
}

impl Figures {
    fn cost_ns(&self) -> f64 {
        quantile(&self.cost, 0.5)
    }

    /// Half the distance between the quartiles of the turns over the square root of their number: how sure the median
    /// is, roughly.
    fn error_ns(&self) -> f64 {
        (quantile(&self.cost, 0.75) - quantile(&self.cost, 0.25)) / 2.0 / (self.cost.len() as f64).sqrt()
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("switch_cost: {e}");
            ExitCode::from(2)
        }
    }
}

/// Median, ns per switch, with nothing attached, and figures by what was attached.
type Measured = (f64, BTreeMap<&'static str, Figures>);

fn measure(pair: &Pair, cpu: u32, repetitions: usize) -> Result<Measured, Failure> {
    let nothing = || pair.bursts(BURSTS).map(|ns| quantile(&ns, UNDISTURBED));
    let mut all: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut none = vec![nothing()?];
    for turn in 0..3 * repetitions {
        let unknown = |f: &Figures| f.error_ns() > KNOWN * all["bpftrace"].cost_ns();
        if turn >= repetitions && !all.values().any(unknown) {
            break;
        }
        for what in TURNS {
            let ns = match what {
                "ours, unwatched" => with_ours(pair, cpu, false)?,
                "ours, watched" => with_ours(pair, cpu, true)?,
                "bpftrace" => with_bpftrace(pair)?,
                _ => with_perf(pair, &std::env::temp_dir())?,
            };
            let (whole, after) = (quantile(&ns, UNDISTURBED), nothing()?);
            let before = *none.last().expect("one was measured first");
            let figures = all.entry(what).or_default();
            figures.whole.push(whole);
            figures.cost.push(whole - (before + after) / 2.0);
            none.push(after);
        }
    }
    Ok((quantile(&none, 0.5), all))
}

/// A promise: the turn, the largest ratio to bpftrace's cost, and whether the ratio holds.
type Promise = (&'static str, f64, bool);

fn print_json(cpu: usize, (none, all): &Measured, kept: &[Promise], ratio: &dyn Fn(&str) -> f64) {
    let rows = all.iter().map(|(what, f)| {
        format!(
            r#""{what}":{{"ns_per_switch":{:.1},"cost_ns":{:.1},"error_ns":{:.1},"ratio_to_bpftrace":{:.3},"turns":{}}}"#,
            quantile(&f.whole, 0.5),
            f.cost_ns(),
            f.error_ns(),
            ratio(what),
            f.cost.len()
        )
    });
    let promises =
        kept.iter().map(|(what, limit, ok)| format!(r#""{what}":{{"at_most":{limit},"kept":{ok}}}"#));
    let (rows, promises) = (rows.collect::<Vec<_>>().join(","), promises.collect::<Vec<_>>().join(","));
    println!(r#"{{"cpu":{cpu},"none_ns_per_switch":{none:.1},"rows":{{{rows}}},"promises":{{{promises}}}}}"#);
}

fn print_text((none, all): &Measured, kept: &[Promise], ratio: &dyn Fn(&str) -> f64) {
    println!("{:<20} {:>14} {:>10} {:>8} {:>12}", "", "ns per switch", "cost, ns", "+-", "to bpftrace");
    println!("{:<20} {none:>14.0}", "nothing attached");
    for what in TURNS {
        let (f, r) = (&all[what], ratio(what));
        let (whole, cost, error) = (quantile(&f.whole, 0.5), f.cost_ns(), f.error_ns());
        println!("{what:<20} {whole:>14.0} {cost:>10.0} {error:>8.0} {r:>11.2}x");
    }
    for (what, limit, ok) in kept {
        let verdict = if *ok { "kept" } else { "BROKEN" };
        println!("{what}: at most {limit} of bpftrace's cost: {:.2}, {verdict}", ratio(what));
    }
}

fn run() -> Result<bool, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.iter().any(|w| w == "--json");
    let repetitions: usize = words.iter().find_map(|w| w.parse().ok()).unwrap_or(5);
    let allowed = sched_getaffinity(None)?;
    let cpu = (0..CpuSet::MAX_CPU).rev().find(|c| allowed.is_set(*c)).ok_or("no pCPU is allowed")?;
    // Less preempted, where that is allowed.
    let _ = rustix::process::setpriority_process(None, -15);
    let pair = Pair::on(cpu)?;
    pair.bursts(BURSTS)?;

    let measured = measure(&pair, cpu as u32, repetitions)?;
    let all = &measured.1;
    let bpftrace = all["bpftrace"].cost_ns();
    if bpftrace <= 0.0 || all.values().any(|f| f.cost_ns() + 2.0 * f.error_ns() < 0.0) {
        return Err("a cost came out below nothing: this machine is too unquiet, try again".into());
    }
    let ratio = |what: &str| all[what].cost_ns() / bpftrace;
    let kept = [
        ("ours, unwatched", UNWATCHED_RATIO, ratio("ours, unwatched") <= UNWATCHED_RATIO),
        ("ours, watched", WATCHED_RATIO, ratio("ours, watched") <= WATCHED_RATIO),
    ];
    if json {
        print_json(cpu, &measured, &kept, &ratio);
    } else {
        print_text(&measured, &kept, &ratio);
    }
    Ok(kept.iter().all(|(.., ok)| *ok))
}
