//! Replays the kernel's own trace of its scheduler: who waited for a pCPU, how long, and behind whom?
//!
//! Input is what `perf script` prints of the events in [`EVENTS`]. It needs only the standard library and shares no
//! code with vsteer, so that a fault of vsteer's cannot be in both. Threads are runnable from a wake-up, or from a
//! switch that left them runnable, until they get a pCPU. The replay charges a wait to the thread that has the pCPU on whose
//! queue the waiting thread is. A wake-up that one pCPU sends to another (`sched_waking` there, `sched_wakeup` here)
//! counts from the moment it is sent. While any pCPU idles that the waiting thread may use, it charges the wait to placement.
//!
//! This kernel does not report some switches (seen on 6.18: from the idle task of one pCPU). If another thread leaves
//! a pCPU than came last, its run time (`sched_stat_runtime`) says when it came at the latest, because run time leaves
//! out what a hypervisor below took; its wake-up says when at the earliest. The time between is not known.
//!
//! perf also lacks some wake-ups that such an idle task makes: a thread then gets a pCPU after it blocked. From then until
//! it got the pCPU, how long it waited is not known.
//!
//! Left out: quotas, of which the trace tells nothing. A wait is the time ready and limited.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The events that perf must record.
pub const EVENTS: &str = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new,\
                          sched:sched_migrate_task,sched:sched_stat_runtime";

/// A thread whose waits are of interest.
#[derive(Debug, Clone)]
pub struct Thread {
    pub vm: String,
    pub is_vcpu: bool,
    /// The pCPUs that it may use.
    pub allowed: BTreeSet<usize>,
}

/// For whom a thread waited.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behind {
    Vm(String),
    /// Threads of this name that belong to no VM.
    Named(String),
    Placement,
    /// Before the trace's first event of that pCPU.
    Unknown,
}

/// A time made of pieces, each of which lies between two events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Time {
    pub ns: u64,
    pub pieces: u64,
    /// How much of it may belong elsewhere, because the kernel did not report a switch.
    pub unsure: u64,
}

impl Time {
    pub fn add(&mut self, ns: u64, unsure: u64) {
        self.ns += ns;
        self.pieces += u64::from(ns > 0);
        self.unsure += unsure;
    }
}

/// What one thread did in a window.
#[derive(Debug, Default)]
pub struct Did {
    pub waited: Time,
    /// Of that, while another vCPU of its VM ran.
    pub lag: Time,
    /// From a wake-up to the pCPU, of each wait that ended in the window, ns: at least, and at most.
    pub woken: Vec<(u64, u64)>,
    pub behind: BTreeMap<Behind, Time>,
    /// Times in which it blocked and then waited, from when is not known, ns.
    pub unknown: u64,
}

/// The thread that leaves a pCPU.
#[derive(Debug, PartialEq)]
struct Leaves {
    tid: u32,
    name: String,
    /// It wants to run on.
    stays: bool,
}

#[derive(Debug, PartialEq)]
enum What {
    Switch {
        from: Leaves,
        to: u32,
        name: String,
    },
    /// The pCPU of the event begins to wake it.
    Sends {
        tid: u32,
    },
    Wakes {
        tid: u32,
        cpu: usize,
    },
    Moves {
        tid: u32,
        cpu: usize,
    },
    Ran {
        tid: u32,
        ns: u64,
    },
}

#[derive(Debug, PartialEq)]
struct Event {
    ns: u64,
    cpu: usize,
    what: What,
}

/// The last field ` KEY=VALUE` of a text. A thread's name may contain anything, but it comes first.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let at = text.rfind(&format!("{key}="))?;
    text[at + key.len() + 1..].split_whitespace().next()
}

/// A line such as `[001] 12.000000345: sched:sched_wakeup: comm=a pid=7 prio=120 target_cpu=001`.
fn event(line: &str) -> Option<Event> {
    let (cpu, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, fraction) = time.split_once('.')?;
    let ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?;
    let (name, told) = rest.trim_start().split_once(": ")?;
    let number = |key: &str| field(told, key)?.parse().ok();
    let what = match name {
        "sched:sched_switch" => {
            let (from, to) = told.split_once(" ==> next_comm=")?;
            let leaves = from.strip_prefix("prev_comm=")?;
            What::Switch {
                from: Leaves {
                    tid: field(from, "prev_pid")?.parse().ok()?,
                    name: leaves[..leaves.rfind(" prev_pid=")?].to_owned(),
                    stays: field(from, "prev_state")?.starts_with('R'),
                },
                to: field(to, "next_pid")?.parse().ok()?,
                name: to[..to.rfind(" next_pid=")?].to_owned(),
            }
        }
        "sched:sched_waking" => What::Sends { tid: number("pid")? },
        "sched:sched_wakeup" | "sched:sched_wakeup_new" => {
            What::Wakes { tid: number("pid")?, cpu: number("target_cpu")? as usize }
        }
        "sched:sched_migrate_task" => What::Moves { tid: number("pid")?, cpu: number("dest_cpu")? as usize },
        "sched:sched_stat_runtime" => {
            What::Ran { tid: number("pid")?, ns: field(told, "runtime")?.parse().ok()? }
        }
        _ => return None,
    };
    Some(Event { ns, cpu: cpu.parse().ok()?, what })
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Since then, if that is known.
    Blocked(Option<u64>),
    Runs,
    Waits {
        since: u64,
        cpu: usize,
        began: u64,
        woken: bool,
    },
}

/// A part of a wait, on one pCPU.
#[derive(Debug, Clone, Copy)]
struct Part {
    from: u64,
    to: u64,
    cpu: usize,
}

/// Who got a pCPU, and when.
#[derive(Debug, Clone)]
struct Run {
    since: u64,
    tid: u32,
    name: String,
    /// Did the kernel not report that it came? Then it may have come earlier by `unsure`, ns.
    guessed: bool,
    unsure: u64,
}

/// When a wait that began with a wake-up ended, and how long it was: at least, and at most.
type Woken = (u64, (u64, u64));

/// The whole trace, replayed.
#[derive(Debug, Default)]
pub struct Replay {
    threads: BTreeMap<u32, Thread>,
    runs: Vec<Vec<Run>>,
    states: HashMap<u32, State>,
    parts: BTreeMap<u32, Vec<Part>>,
    woken: BTreeMap<u32, Vec<Woken>>,
    /// Of threads whose wake-up is not in the trace: from when until when they may have waited.
    unknown: BTreeMap<u32, Vec<(u64, u64)>>,
    /// By pCPU: what the kernel said of the run time of threads since its last switch.
    ran: HashMap<usize, Vec<(u32, u64)>>,
    /// Of each thread, its last wake-up.
    wakes: HashMap<u32, u64>,
    /// Of threads that are to wake up: where that was ordered, and when.
    sent: HashMap<u32, (usize, u64)>,
    pub switches: usize,
    /// Switches that the trace does not have.
    pub missing: usize,
    pub lost: usize,
}

impl Replay {
    /// Replays these lines.
    pub fn of<'a>(threads: BTreeMap<u32, Thread>, lines: impl Iterator<Item = &'a str>) -> Replay {
        let mut replay = Replay { threads, ..Replay::default() };
        for line in lines {
            match event(line) {
                Some(event) => replay.next(event),
                None if line.contains("LOST") => replay.lost += 1,
                None => {}
            }
        }
        replay
    }

    fn next(&mut self, Event { ns, cpu, what }: Event) {
        if self.runs.len() <= cpu {
            self.runs.resize(cpu + 1, Vec::new());
        }
        match what {
            What::Switch { from, to, name } => self.switched(ns, cpu, from, (to, name)),
            What::Sends { tid } => drop(self.sent.insert(tid, (cpu, ns))),
            What::Wakes { tid, cpu: on } => {
                self.wakes.insert(tid, ns);
                let sent = self.sent.remove(&tid).filter(|(by, _)| *by != cpu).map(|(_, sent)| sent);
                match self.states.get(&tid) {
                    Some(State::Blocked(Some(since))) => {
                        let from = sent.map_or(ns, |sent| sent.max(*since));
                        self.waits(tid, from, on, true);
                    }
                    None | Some(State::Blocked(None)) => self.waits(tid, ns, on, true),
                    _ => {}
                }
            }
            What::Moves { tid, cpu: to } => {
                if let Some(State::Waits { since, cpu, began, woken }) = self.states.get(&tid).copied() {
                    self.part(tid, since, ns, cpu);
                    self.states.insert(tid, State::Waits { since: ns, cpu: to, began, woken });
                }
            }
            What::Ran { tid, ns: length } => {
                self.ran.entry(cpu).or_default().push((tid, ns - length.min(ns)))
            }
        }
    }

    fn switched(&mut self, ns: u64, cpu: usize, leaves: Leaves, (to, name): (u32, String)) {
        let Leaves { tid: from, name: former, stays } = leaves;
        self.switches += 1;
        if let Some(last) = self.runs[cpu].last()
            && last.tid != from
        {
            self.missing += 1;
            let earliest = last.since;
            let ran = self.ran.get(&cpu).into_iter().flatten().find(|(tid, _)| *tid == from);
            let came = ran.map(|(_, since)| *since).or_else(|| self.wakes.get(&from).copied());
            let (came, left) = (came.unwrap_or(ns).clamp(earliest, ns), last.tid);
            let woken = self.wakes.get(&from).map_or(earliest, |woken| (*woken).max(earliest));
            let unsure = came.saturating_sub(woken);
            if self.states.get(&left) == Some(&State::Runs) {
                self.states.insert(left, State::Blocked(None));
            }
            self.runs_on(Run { since: came, tid: from, name: former, guessed: true, unsure }, cpu);
        }
        if stays {
            self.waits(from, ns, cpu, false);
        } else {
            self.states.insert(from, State::Blocked(Some(ns)));
        }
        self.runs_on(Run { since: ns, tid: to, name, guessed: false, unsure: 0 }, cpu);
        self.ran.remove(&cpu);
    }

    fn runs_on(&mut self, run: Run, cpu: usize) {
        let (tid, ns) = (run.tid, run.since);
        // Nothing woke it: it has waited since before the trace began.
        if !run.guessed && !self.states.contains_key(&tid) {
            self.part(tid, 0, ns, cpu);
        }
        if let Some(State::Waits { since, cpu: on, began, woken }) = self.states.get(&tid).copied() {
            self.part(tid, since, ns, on);
            if woken && self.threads.contains_key(&tid) {
                let most = ns.saturating_sub(began);
                // Of a switch that was not reported, the moment is as little known to vsteer.
                let length = if run.guessed { (0, u64::MAX) } else { (most, most) };
                self.woken.entry(tid).or_default().push((ns, length));
            }
        }
        if let Some(State::Blocked(Some(since))) = self.states.get(&tid).copied()
            && self.threads.contains_key(&tid)
        {
            self.unknown.entry(tid).or_default().push((since, ns));
            self.woken.entry(tid).or_default().push((ns, (0, u64::MAX)));
        }
        self.states.insert(tid, State::Runs);
        self.runs[cpu].push(run);
    }

    fn waits(&mut self, tid: u32, ns: u64, cpu: usize, woken: bool) {
        if tid != 0 {
            self.states.insert(tid, State::Waits { since: ns, cpu, began: ns, woken });
        }
    }

    fn part(&mut self, tid: u32, from: u64, to: u64, cpu: usize) {
        if from < to && self.threads.contains_key(&tid) {
            self.parts.entry(tid).or_default().push(Part { from, to, cpu });
        }
    }

    /// The threads of interest.
    pub fn threads(&self) -> &BTreeMap<u32, Thread> {
        &self.threads
    }

    /// What each thread did between two moments.
    pub fn window(&self, from: u64, to: u64) -> BTreeMap<u32, Did> {
        let mut idle: BTreeMap<&BTreeSet<usize>, Vec<(u64, u64)>> = BTreeMap::new();
        for thread in self.threads.values() {
            idle.entry(&thread.allowed).or_insert_with(|| {
                let of = |cpu: &usize| self.times(*cpu, to, |run| run.tid == 0);
                merged(thread.allowed.iter().flat_map(of).collect())
            });
        }
        let did = |(tid, thread): (&u32, &Thread)| {
            let mut did = Did::default();
            let siblings = self.siblings(*tid, thread, to);
            let mut parts = self.parts.get(tid).cloned().unwrap_or_default();
            if let Some(State::Waits { since, cpu, .. }) = self.states.get(tid) {
                parts.push(Part { from: *since, to: to.max(*since), cpu: *cpu });
            }
            for part in parts {
                let (a, b) = (part.from.max(from), part.to.min(to));
                if a < b {
                    let unsure = self.unsure(&thread.allowed, a, b);
                    did.waited.add(b - a, unsure);
                    did.lag.add(common(&siblings, a, b), unsure);
                    self.behind(
                        Part { from: a, to: b, ..part },
                        &idle[&thread.allowed],
                        unsure,
                        &mut did.behind,
                    );
                }
            }
            let unknown = self.unknown.get(tid).into_iter().flatten();
            did.unknown = unknown.map(|(a, b)| (*b).min(to).saturating_sub((*a).max(from))).sum();
            did.waited.unsure += did.unknown;
            did.lag.unsure += did.unknown;
            let woken = self.woken.get(tid).into_iter().flatten();
            did.woken =
                woken.filter(|(ended, _)| (from..to).contains(ended)).map(|(_, wait)| *wait).collect();
            (*tid, did)
        };
        self.threads.iter().map(did).collect()
    }

    /// When the other vCPUs of its VM ran; for a thread that is a vCPU.
    fn siblings(&self, tid: u32, thread: &Thread, to: u64) -> Vec<(u64, u64)> {
        if !thread.is_vcpu {
            return Vec::new();
        }
        let is_sibling = |other: &u32| {
            *other != tid && self.threads.get(other).is_some_and(|t| t.is_vcpu && t.vm == thread.vm)
        };
        merged((0..self.runs.len()).flat_map(|cpu| self.times(cpu, to, |run| is_sibling(&run.tid))).collect())
    }

    /// When this pCPU had a thread that `of` selects, until `to`.
    fn times(&self, cpu: usize, to: u64, of: impl Fn(&Run) -> bool) -> Vec<(u64, u64)> {
        let runs = self.runs.get(cpu).map_or(&[][..], Vec::as_slice);
        let ends = runs.iter().skip(1).map(|next| next.since).chain([to]);
        runs.iter().zip(ends).filter(|(run, _)| of(run)).map(|(run, end)| (run.since, end)).collect()
    }

    /// How much of the time between two moments is not known on these pCPUs.
    fn unsure(&self, cpus: &BTreeSet<usize>, from: u64, to: u64) -> u64 {
        let of = |cpu: &usize| -> u64 {
            let runs = self.runs.get(*cpu).map_or(&[][..], Vec::as_slice);
            let first = runs.partition_point(|run| run.since < from);
            let these = runs[first..].iter().take_while(|run| run.since - run.unsure.min(run.since) <= to);
            these.map(|run| run.unsure).sum()
        };
        cpus.iter().map(of).sum()
    }

    fn behind(&self, part: Part, idle: &[(u64, u64)], unsure: u64, behind: &mut BTreeMap<Behind, Time>) {
        let Part { from, to, cpu } = part;
        let mut add = |who: Behind, ns: u64| {
            if ns > 0 {
                behind.entry(who).or_default().add(ns, unsure);
            }
        };
        let placed = common(idle, from, to);
        add(Behind::Placement, placed);
        let runs = self.runs.get(cpu).map_or(&[][..], Vec::as_slice);
        let first = runs.partition_point(|run| run.since <= from).saturating_sub(1);
        let known = runs.get(first).map_or(to, |run| run.since).clamp(from, to);
        add(Behind::Unknown, known - from - common(idle, from, known));
        for (i, run) in runs.iter().enumerate().skip(first).take_while(|(_, run)| run.since < to) {
            let (a, b) = (run.since.max(from), runs.get(i + 1).map_or(to, |next| next.since).min(to));
            if a < b && run.tid != 0 {
                let who = match self.threads.get(&run.tid) {
                    Some(thread) => Behind::Vm(thread.vm.clone()),
                    None => Behind::Named(run.name.clone()),
                };
                add(who, b - a - common(idle, a, b));
            }
        }
    }
}

/// The same times, in order and apart.
fn merged(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    times.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (from, to) in times {
        match all.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => all.push((from, to)),
        }
    }
    all
}

/// How much of the time between two moments lies in these times.
fn common(times: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = times.partition_point(|(_, end)| *end <= from);
    times[first..].iter().take_while(|(a, _)| *a < to).map(|(a, b)| (*b).min(to) - (*a).max(from)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(vm: &str, cpus: &[usize]) -> Thread {
        Thread { vm: vm.to_owned(), is_vcpu: true, allowed: cpus.iter().copied().collect() }
    }

    fn at(us: u64, cpu: usize, told: &str) -> String {
        format!("[{cpu:03}] 5.{:09}: sched:{told}", us * 1_000)
    }

    fn switch(us: u64, cpu: usize, from: (u32, &str), to: (u32, &str)) -> String {
        let told = format!(
            "sched_switch: prev_comm=a b prev_pid={} prev_prio=120 prev_state={} ==> next_comm={} next_pid={} \
             next_prio=120",
            from.0, from.1, to.1, to.0
        );
        at(us, cpu, &told)
    }

    fn wakes(us: u64, cpu: usize, tid: u32) -> String {
        at(us, cpu, &format!("sched_wakeup: comm=x pid={tid} prio=120 target_cpu={cpu:03}"))
    }

    fn sent(us: u64, cpu: usize, tid: u32) -> String {
        at(us, cpu, &format!("sched_waking: comm=x pid={tid} prio=120 target_cpu=000"))
    }

    fn behind(did: &Did) -> Vec<(Behind, u64)> {
        did.behind.iter().map(|(who, time)| (who.clone(), time.ns)).collect()
    }

    fn replayed(lines: &[String]) -> (BTreeMap<u32, Did>, usize) {
        let threads = [(11, thread("a", &[0])), (12, thread("a", &[0, 1])), (21, thread("b", &[0, 1]))];
        let replay = Replay::of(threads.into_iter().collect(), lines.iter().map(String::as_str));
        (replay.window(5_000_000_000, 5_000_100_000), replay.missing)
    }

    /// 11 and 21 share pCPU 0; 12, a sibling of 11, runs on pCPU 1 until that idles.
    #[test]
    fn a_wait_is_charged_to_who_runs_and_to_placement_while_a_pcpu_idles() {
        let (did, missing) = replayed(&[
            switch(0, 1, (0, "R"), (12, "v")),
            switch(0, 0, (0, "R"), (21, "v")),
            wakes(10, 0, 11),
            switch(30, 0, (21, "R+"), (11, "v")),
            switch(40, 0, (11, "S"), (9, "make it")),
            switch(60, 1, (12, "S"), (0, "swapper/1")),
            switch(90, 0, (9, "S"), (21, "v")),
        ]);
        assert_eq!(missing, 0);
        assert_eq!(
            (did[&11].waited.ns, did[&11].lag.ns, &did[&11].woken[..]),
            (20_000, 20_000, &[(20_000, 20_000)][..])
        );
        assert_eq!(behind(&did[&11]), [(Behind::Vm("b".into()), 20_000)]);
        assert_eq!((did[&21].waited, did[&21].lag.ns), (Time { ns: 60_000, pieces: 1, unsure: 0 }, 0));
        assert_eq!(
            behind(&did[&21]),
            [
                (Behind::Vm("a".into()), 10_000),
                (Behind::Named("make it".into()), 20_000),
                (Behind::Placement, 30_000)
            ]
        );
    }

    /// One that arrives on the pCPU that sends it was never on its way, and a thread is not ready before it sleeps.
    #[test]
    fn a_wake_up_counts_from_when_another_pcpu_sent_it() {
        let (did, _) = replayed(&[
            switch(0, 0, (11, "S"), (0, "swapper/0")),
            sent(10, 1, 11),
            wakes(25, 0, 11),
            switch(30, 0, (0, "R"), (11, "v")),
            sent(38, 1, 11),
            switch(40, 0, (11, "S"), (0, "swapper/0")),
            wakes(45, 0, 11),
            switch(50, 0, (0, "R"), (11, "v")),
            switch(60, 0, (11, "S"), (0, "swapper/0")),
            sent(70, 0, 11),
            wakes(71, 0, 11),
            switch(75, 0, (0, "R"), (11, "v")),
        ]);
        assert_eq!((did[&11].waited.ns, did[&11].waited.pieces), (34_000, 3));
        assert_eq!(did[&11].woken, [(20_000, 20_000), (10_000, 10_000), (4_000, 4_000)]);
    }

    #[test]
    fn a_switch_that_is_not_there_is_found_by_the_run_time() {
        let (did, missing) = replayed(&[
            switch(0, 0, (7, "S"), (0, "swapper/0")),
            wakes(20, 0, 11),
            at(50, 0, "sched_stat_runtime: comm=v pid=11 runtime=26000 [ns]"),
            switch(50, 0, (11, "S"), (0, "swapper/0")),
        ]);
        assert_eq!((missing, did[&11].waited), (1, Time { ns: 4_000, pieces: 1, unsure: 4_000 }));
        assert_eq!(did[&11].behind.keys().collect::<Vec<_>>(), [&Behind::Placement]);
    }

    #[test]
    fn a_wake_up_that_is_not_there_is_found_when_the_thread_runs() {
        let (did, missing) = replayed(&[
            switch(0, 0, (0, "R"), (11, "v")),
            switch(20, 0, (11, "S"), (0, "swapper/0")),
            switch(50, 0, (0, "R"), (11, "v")),
        ]);
        assert_eq!((missing, did[&11].waited), (0, Time { ns: 0, pieces: 0, unsure: 30_000 }));
        assert_eq!((&did[&11].woken[..], did[&11].unknown), (&[(0, u64::MAX)][..], 30_000));
    }

    #[test]
    fn who_waits_when_the_trace_begins_is_known_when_it_runs() {
        let (did, _) = replayed(&[switch(0, 0, (0, "R"), (8, "x")), switch(40, 0, (8, "S"), (11, "v"))]);
        assert_eq!(did[&11].waited.ns, 40_000);
        assert_eq!(behind(&did[&11]), [(Behind::Named("x".into()), 40_000)]);
    }

    #[test]
    fn a_wait_moves_with_its_thread_and_may_last() {
        let (did, _) = replayed(&[
            switch(0, 0, (0, "R"), (8, "x")),
            switch(0, 1, (0, "R"), (9, "y")),
            wakes(40, 0, 12),
            at(70, 0, "sched_migrate_task: comm=v pid=12 prio=120 orig_cpu=0 dest_cpu=1"),
        ]);
        assert_eq!(did[&12].waited, Time { ns: 60_000, pieces: 2, unsure: 0 });
        assert_eq!(
            behind(&did[&12]),
            [(Behind::Named("x".into()), 30_000), (Behind::Named("y".into()), 30_000)]
        );
    }
}
