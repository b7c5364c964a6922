//! Text traces of Linux' scheduler in every form that its tools print, whole and damaged.
//!
//! A schedule is made here as intervals of each thread. Its text follows from it in each form, and the time in each
//! state is added up from the intervals, not from the text.

use std::collections::BTreeMap;
use std::io::Write as _;
use vsteer_core::nouns::{Culprit, ThreadCounters};
use vsteer_core::{FaultKind, limits};
use vsteer_record::{Recording, sched_trace, sniff};

const US: u64 = 1_000;
const BEGINS: u64 = 5_000_000_000;
const PERIOD: u64 = 10_000 * US;
const PERIODS: u64 = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Run,
    Ready,
    Blocked,
}

#[derive(Debug, Clone)]
enum What {
    Switch { prev: usize, state: &'static str, next: usize },
    Wake { who: usize, name: &'static str },
    Text(&'static str),
}

#[derive(Debug, Clone)]
struct Made {
    ns: u64,
    cpu: u32,
    on: usize,
    what: What,
}

#[derive(Debug, Clone)]
struct Thread {
    tid: u32,
    tgid: u32,
    comm: String,
}

/// A schedule and the intervals that it consists of.
struct Schedule {
    threads: Vec<Thread>,
    made: Vec<Made>,
    intervals: Vec<(usize, State, u64, u64)>,
    end: u64,
}

/// On each pCPU, a vCPU of one VM (sleeps, wakes, waits, runs) and one of another VM, which never sleeps. `names`: those
/// of a vCPU thread. `double`: every wake-up has two events.
fn schedule(pcpus: u32, names: fn(u32) -> String, double: bool) -> Schedule {
    let mut threads = vec![
        Thread { tid: 100, tgid: 100, comm: "qemu-system-x86".into() },
        Thread { tid: 200, tgid: 200, comm: "qemu-system-x86".into() },
    ];
    for vm in [100, 200] {
        threads.extend((0..pcpus).map(|i| Thread { tid: vm + 2 + i, tgid: vm, comm: names(i) }));
    }
    let (sleeper, hog) = (|c: u32| 2 + c as usize, |c: u32| 2 + (pcpus + c) as usize);
    let (mut made, mut intervals) = (Vec::new(), Vec::new());
    for c in 0..pcpus {
        let offset = BEGINS + u64::from(c) * 700 * US;
        let (mut slept, mut since) = (BEGINS, BEGINS);
        for k in 0..PERIODS {
            let wakes = offset + k * PERIOD;
            let runs = wakes + (400 + 10 * k + 50 * u64::from(c)) * US;
            let sleeps = runs + (1_500 + 20 * k) * US;
            let mut add = |ns, on, what| made.push(Made { ns, cpu: c, on, what });
            let wake = |name| What::Wake { who: sleeper(c), name };
            add(wakes, hog(c), wake("sched_waking"));
            if double {
                add(wakes + 2 * US, hog(c), wake("sched_wakeup"));
            }
            add(runs, hog(c), What::Switch { prev: hog(c), state: "R", next: sleeper(c) });
            add(sleeps, sleeper(c), What::Switch { prev: sleeper(c), state: "S", next: hog(c) });
            intervals.push((sleeper(c), State::Blocked, slept, wakes));
            intervals.push((sleeper(c), State::Ready, wakes, runs));
            intervals.push((sleeper(c), State::Run, runs, sleeps));
            intervals.push((hog(c), State::Run, since, runs));
            intervals.push((hog(c), State::Ready, runs, sleeps));
            (slept, since) = (sleeps, sleeps);
        }
        intervals.push((sleeper(c), State::Blocked, slept, u64::MAX));
        intervals.push((hog(c), State::Run, since, u64::MAX));
    }
    made.sort_by_key(|m| m.ns);
    let end = made.last().unwrap().ns;
    Schedule { threads, made, intervals, end }
}

impl Schedule {
    /// ns of each thread in a state up to the end.
    fn sum(&self, who: usize, state: State) -> u64 {
        let of = self.intervals.iter().filter(|(w, s, ..)| *w == who && *s == state);
        of.map(|(.., from, to)| (*to).min(self.end).saturating_sub(*from)).sum()
    }

    fn text(&self, form: &Form) -> String {
        let mut text = form.head.to_owned();
        for m in &self.made {
            text += &self.line(form, m);
        }
        text
    }

    fn line(&self, form: &Form, m: &Made) -> String {
        let on = &self.threads[m.on];
        let task = (form.task)(on);
        let time = format!("{}.{:06}", m.ns / 1_000_000_000, m.ns % 1_000_000_000 / 1_000);
        let time = if form.ns { format!("{time}000") } else { time };
        let (name, fields) = match &m.what {
            What::Text(event) => event.split_once(' ').map(|(n, f)| (n, f.to_owned())).unwrap(),
            What::Switch { prev, state, next } => {
                ("sched_switch", (form.switch)(&self.threads[*prev], state, &self.threads[*next]))
            }
            What::Wake { who, name } => (*name, (form.wake)(&self.threads[*who], m.cpu)),
        };
        format!("{task} [{:03}] {}{time}: {}{name}: {fields}\n", m.cpu, form.flags, form.subsystem)
    }
}

struct Form {
    name: &'static str,
    head: &'static str,
    task: fn(&Thread) -> String,
    flags: &'static str,
    subsystem: &'static str,
    switch: fn(&Thread, &str, &Thread) -> String,
    wake: fn(&Thread, u32) -> String,
    ns: bool,
    tgids: bool,
}

fn raw(p: &Thread, state: &str, n: &Thread) -> String {
    format!(
        "prev_comm={} prev_pid={} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={} next_prio=120",
        p.comm, p.tid, n.comm, n.tid
    )
}

fn bare(p: &Thread, state: &str, n: &Thread) -> String {
    raw(p, if state == "R" { "0" } else { "1" }, n).replace(" ==> ", " ")
}

fn pretty(p: &Thread, state: &str, n: &Thread) -> String {
    format!("{}:{} [120] {state} ==> {}:{} [120]", p.comm, p.tid, n.comm, n.tid)
}

fn wake(w: &Thread, cpu: u32) -> String {
    format!("comm={} pid={} prio=120 target_cpu={cpu:03}", w.comm, w.tid)
}

fn pretty_wake(w: &Thread, cpu: u32) -> String {
    format!("{}:{} [120] CPU:{cpu:03}", w.comm, w.tid)
}

const PERF: Form = Form {
    name: "perf script",
    head: "",
    task: |t| format!("{:>16} {:>5}", t.comm, t.tid),
    flags: " ",
    subsystem: "      sched:",
    switch: raw,
    wake,
    ns: false,
    tgids: false,
};
const TRACE_CMD: Form = Form {
    name: "trace-cmd report",
    head: "cpus=4\n",
    task: |t| format!("{:>16}-{:<5}", t.comm, t.tid),
    flags: " ",
    subsystem: "",
    switch: pretty,
    wake: pretty_wake,
    ns: false,
    tgids: false,
};
const FTRACE: Form = Form {
    name: "ftrace",
    head: "# tracer: nop\n#\n# entries-in-buffer/entries-written: 10/10   #P:4\n#\n",
    task: |t| format!("{:>16}-{:<7}", t.comm, t.tid),
    flags: "d..2.  ",
    subsystem: "",
    switch: raw,
    wake,
    ns: false,
    tgids: false,
};
const FORMS: [Form; 9] = [
    PERF,
    Form { name: "perf, pretty", switch: pretty, wake: pretty_wake, ..PERF },
    Form { name: "perf, ns", ns: true, head: "# hostname : kvm7\n# os release : 6.12.1\n#\n", ..PERF },
    Form {
        name: "perf, pid",
        task: |t| format!("{:>16} {:>5}/{:<5}", t.comm, t.tgid, t.tid),
        subsystem: "   1  sched:",
        tgids: true,
        ..PERF
    },
    TRACE_CMD,
    Form { name: "trace-cmd, raw", switch: bare, wake, ..TRACE_CMD },
    Form { name: "trace-cmd, flags", flags: "d.h3. ", ns: true, ..TRACE_CMD },
    FTRACE,
    Form {
        name: "ftrace, tgid",
        task: |t| format!("{:>16}-{:<7} ({:>7})", t.comm, t.tid, t.tgid),
        tgids: true,
        ..FTRACE
    },
];

fn read(bytes: &[u8], name: &str) -> Result<Recording, vsteer_core::Fault> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::File::create(&file).unwrap().write_all(bytes).unwrap();
    assert!(sched_trace::is_one(&file), "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
    sched_trace::read(&file)
}

/// The last counters of each thread.
fn counted(recording: &Recording) -> BTreeMap<u32, ThreadCounters> {
    recording.batches.last().unwrap().threads.iter().map(|t| (t.tid.0, t.counters.clone())).collect()
}

/// The counters agree with the schedule within `slack` ns for each thread and state.
fn agrees(case: &str, s: &Schedule, recording: &Recording, slack: u64) {
    let all = counted(recording);
    for (who, thread) in s.threads.iter().enumerate().skip(2) {
        let c = &all[&thread.tid];
        for (state, got) in
            [(State::Run, c.run_ns), (State::Ready, c.ready_ns), (State::Blocked, c.blocked_ns)]
        {
            let (is, got) = (s.sum(who, state), got.unwrap());
            assert!(is.abs_diff(got) <= slack, "{case}: {} {state:?}: {got}, not {is}", thread.comm);
        }
        assert_eq!(c.limited_ns, None, "{case}: a trace does not tell quotas");
    }
    for batch in &recording.batches {
        assert!(batch.threads.iter().all(|t| t.counters.run_ns.is_some()));
    }
}

/// Ways in which a trace that tells everything may look different.
fn harmless(s: &Schedule, form: &Form) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let text = s.text(form);
    let mut noisy = text.replace('\n', "\n\n");
    let event = Made {
        ns: BEGINS,
        cpu: 1,
        on: 2 + 1,
        what: What::Text("kvm_exit reason EXIT_HLT rip 0x1 [x] 1.2: a"),
    };
    noisy.insert_str(form.head.len(), &s.line(form, &event));
    let gzip = |text: &str| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    };
    let end = text.trim_end().rfind('\n').unwrap();
    vec![
        ("whole", text.clone().into_bytes(), "trace.txt"),
        ("lines of Windows", text.replace('\n', "\r\n").into_bytes(), "trace.txt"),
        ("other events and blank lines", noisy.into_bytes(), "trace.txt"),
        ("compressed", gzip(&text), "trace.txt.gz"),
        ("without the last line feed", text.trim_end().as_bytes().to_vec(), "trace.txt"),
        ("with a line that was cut", format!("{text}{}", &text[end + 1..end + 30]).into_bytes(), "trace.txt"),
    ]
}

#[test]
fn every_form_tells_the_same_times() {
    let mut inputs = 0;
    for form in &FORMS {
        for double in [false, true] {
            let s = schedule(4, |i| format!("CPU {i}/KVM"), double);
            for (case, bytes, file) in harmless(&s, form) {
                let case = format!("{}, {case}", form.name);
                let recording = read(&bytes, file).unwrap_or_else(|e| panic!("{case}: {e}"));
                agrees(&case, &s, &recording, 0);
                let config = &recording.configs[0].config;
                let names: Vec<_> = config.vms.iter().map(|vm| vm.name.as_str()).collect();
                let expected = if form.tgids { ["qemu-100", "qemu-200"] } else { ["qemu-102", "qemu-202"] };
                assert_eq!(names, expected, "{case}: main threads are in no event");
                assert_eq!(recording.notes.iter().any(|n| n.contains("thread ids")), !form.tgids, "{case}");
                assert!(recording.has_switches());
                inputs += 1;
            }
        }
    }
    assert!(inputs >= 40, "{inputs}");
}

#[test]
fn vcpus_of_every_vmm_are_found() {
    for (names, vm) in [
        ((|i| format!("CPU {i}/KVM")) as fn(u32) -> String, "qemu-102"),
        (|i| format!("CPU {i}/TCG"), "qemu-102"),
        (|i| format!("vcpu{i}"), "cloud-hypervisor-102"),
        (|i| format!("fc_vcpu {i}"), "firecracker-102"),
    ] {
        let s = schedule(3, names, false);
        let recording = read(s.text(&PERF).as_bytes(), "trace.txt").unwrap();
        agrees(vm, &s, &recording, 0);
        assert_eq!(recording.configs[0].config.vms[0].name, vm);
        let threads = &recording.configs[0].config.vms[0].threads;
        assert_eq!(threads.len(), 3);
    }
}

/// A hog waits while the sleeper of the same pCPU runs, and the other way round: nobody else gets blame.
#[test]
fn blame_is_the_time_of_who_ran() {
    let s = schedule(4, |i| format!("CPU {i}/KVM"), true);
    let recording = read(s.text(&PERF).as_bytes(), "trace.txt").unwrap();
    let mut blame: BTreeMap<(String, String), i64> = BTreeMap::new();
    for b in recording.batches.iter().flat_map(|b| &b.blame) {
        let Culprit::Vm(by) = &b.culprit else { panic!("{:?}", b.culprit) };
        *blame.entry((b.victim.to_string(), by.to_string())).or_default() += b.ns;
    }
    let ready = |vm: usize| (0..4).map(|c| s.sum(2 + 4 * vm + c, State::Ready)).sum::<u64>() as i64;
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let expected =
        BTreeMap::from([(pair("qemu-102", "qemu-202"), ready(0)), (pair("qemu-202", "qemu-102"), ready(1))]);
    assert_eq!(blame, expected);
}

/// Damage costs the time around it, and a note names it.
#[test]
fn what_is_missing_is_told() {
    for form in &FORMS {
        let s = schedule(4, |i| format!("CPU {i}/KVM"), false);
        let mut lines: Vec<String> = s.text(form).lines().map(str::to_owned).collect();
        let told = |lines: &[String], word: &str| {
            let recording = read(lines.join("\n").as_bytes(), "trace.txt").unwrap();
            let notes = recording.notes.join("\n");
            assert!(notes.contains(word), "{}: {notes}", form.name);
            recording
        };
        let middle = lines.len() / 2;
        // Two lines of different pCPUs changed their places.
        let mut swapped = lines.clone();
        swapped.swap(middle, middle + 1);
        agrees(form.name, &s, &told(&swapped, "out of order"), PERIOD);
        // Lost events, once told by the recorder and once only by what follows.
        let mut lost = lines.clone();
        lost.splice(middle..middle + 8, ["CPU:1 [LOST 8 EVENTS]".to_owned()]);
        agrees(form.name, &s, &told(&lost, "lost 8 events"), 3 * PERIOD);
        lines.drain(middle..middle + 9);
        agrees(form.name, &s, &told(&lines, "events are missing"), 3 * PERIOD);
    }
}

#[test]
fn without_wake_ups_ready_time_is_not_measured() {
    let s = schedule(2, |i| format!("CPU {i}/KVM"), false);
    let text: String =
        s.text(&FTRACE).lines().filter(|l| !l.contains("sched_waking")).map(|l| format!("{l}\n")).collect();
    let recording = read(text.as_bytes(), "trace.txt").unwrap();
    let collector = &recording.manifest.collector;
    for lacking in ["ready_ns", "wait_ns", "blocked_ns", "wake_latency", "blame", "limited_ns"] {
        assert!(!collector.measures(lacking), "{lacking}");
    }
    assert!(collector.missing["ready_ns"].contains("wake-ups"));
    let all = counted(&recording);
    assert!(all.values().all(|c| c.ready_ns.is_none() && c.run_ns.is_some()));
    assert!(recording.batches.iter().all(|b| b.blame.is_empty()));
}

/// Idle pCPUs, threads outside VMs, exits, and switches that the trace cannot contain.
#[test]
fn others_and_idle_pcpus_are_accounted() {
    let text = "\
        <idle>-0     [000]  1.000000: sched_wakeup: CPU 0/KVM:12 [120] CPU:000\n\
        <idle>-0     [000]  1.000100: sched_switch: swapper/0:0 [120] R ==> make:77 [120]\n\
          make-77    [000]  1.000600: sched_switch: make:77 [120] R ==> CPU 0/KVM:12 [120]\n\
     CPU 0/KVM-12    [000]  1.001600: sched_switch: CPU 0/KVM:12 [120] S ==> swapper/0:0 [120]\n\
        <idle>-0     [000]  1.005000: sched_switch: swapper/0:0 [120] R ==> kworker/0:1:9 [120]\n\
   kworker/0:1-9     [000]  1.005000: sched_wakeup: CPU 0/KVM:12 [120] CPU:000\n\
   kworker/0:1-9     [000]  1.005400: sched_switch: kworker/0:1:9 [120] I ==> CPU 0/KVM:12 [120]\n\
     CPU 0/KVM-12    [000]  1.009000: sched_switch: CPU 0/KVM:12 [120] Z ==> swapper/0:0 [120]\n\
        <idle>-0     [000]  1.010000: sched_switch: swapper/0:0 [120] R ==> make:78 [120]\n";
    let recording = read(text.as_bytes(), "trace.txt").unwrap();
    let c = &counted(&recording)[&12];
    let us = |ns: Option<u64>| ns.unwrap() / US;
    assert_eq!((us(c.run_ns), us(c.ready_ns), us(c.blocked_ns)), (4_600, 1_000, 3_400));
    assert_eq!((c.wakeups, c.switches, c.preemptions), (Some(2), Some(2), Some(0)));
    let pcpu = &recording.batches.last().unwrap().pcpus[0];
    assert_eq!((pcpu.idle_ns / US, pcpu.user_ns / US), (100 + 3_400 + 1_000, 5_500));
    let blame: Vec<_> =
        recording.batches.iter().flat_map(|b| &b.blame).map(|b| (b.culprit.clone(), b.ns)).collect();
    assert!(blame.contains(&(Culprit::Placement, 100_000)), "{blame:?}");
    assert!(
        blame
            .iter()
            .any(|(c, ns)| *ns == 500_000 && matches!(c, Culprit::Process { comm, .. } if comm == "make"))
    );
    assert!(blame.iter().any(|(c, ns)| *ns == 400_000 && matches!(c, Culprit::Kernel { .. })), "{blame:?}");
}

#[test]
fn a_trace_that_tells_nothing_is_refused_with_the_cause() {
    let whole = schedule(2, |i| format!("CPU {i}/KVM"), false);
    let text = whole.text(&PERF);
    let refused = |text: &str, kind: FaultKind, cause: &str, help: &str| {
        let fault = read(text.as_bytes(), "trace.txt").map(|_| ()).unwrap_err();
        assert_eq!(fault.kind, kind, "{fault}");
        assert!(
            fault.cause.as_ref().unwrap().contains(cause) && fault.help.as_ref().unwrap().contains(help),
            "{fault}"
        );
    };
    let without =
        |word: &str| text.lines().filter(|l| !l.contains(word)).map(|l| format!("{l}\n")).collect::<String>();
    refused(
        &without("sched_switch"),
        FaultKind::BadInput,
        "80 other events, but no sched_switch",
        "perf record -a -e",
    );
    refused(&text.replace("CPU ", "cpu "), FaultKind::NothingThere, "no thread is named", "while VMs run");
    refused(
        &text.replace("CPU ", "qemu-system-x86 "),
        FaultKind::NothingThere,
        "a VMM ran",
        "debug-threads=on",
    );
    refused(&format!("{text}{text}"), FaultKind::BadInput, "several traces", "a file of its own");
    refused(&text.replace("prev_pid", "pid"), FaultKind::BadInput, "known form", "-F");
    let ticks: String = text.lines().map(|l| l.replacen("5.", "5", 1) + "\n").collect();
    refused(&ticks, FaultKind::BadInput, "does not count seconds", "trace_clock");
    let one = text.lines().nth(1).unwrap();
    refused(one, FaultKind::BadInput, "the same time", "seconds");
}

#[test]
fn more_vms_than_the_accounts_have_numbers_for_are_refused() {
    let line = |n: usize| {
        let (us, tid) = (n % 1_000_000, n + 10);
        format!(
            "CPU 0/KVM {tid} [000] 1.{us:06}: sched:sched_switch: prev_comm=CPU 0/KVM prev_pid={tid} prev_prio=120 \
             prev_state=S ==> next_comm=CPU 0/KVM next_pid={} next_prio=120\n",
            tid + 1
        )
    };
    let vms = |most: usize| read((0..most).map(line).collect::<String>().as_bytes(), "trace.txt");
    assert!(vms(limits::TRACE_VMS - 1).is_ok());
    let fault = vms(limits::TRACE_VMS + 1).map(|_| ()).unwrap_err();
    assert!(fault.kind == FaultKind::BadInput && fault.to_string().contains("10000 at most"), "{fault}");
}

/// A binary trace is refused with the command that prints it.
#[test]
fn binary_traces_are_named_with_the_command_that_prints_them() {
    for (bytes, name, help) in [
        (&b"PERFILE2\x68\0\0\0\0\0\0\0"[..], "perf", "perf script -F +pid -i FILE > FILE.txt"),
        (b"\x17\x08\x44tracing6\0\0\0", "trace-cmd", "trace-cmd report FILE > FILE.txt"),
    ] {
        let known = sniff::what_is(bytes).unwrap();
        assert!(known.name.contains(name) && known.help.contains(help), "{known:?}");
    }
    let text = schedule(2, |i| format!("CPU {i}/KVM"), false).text(&TRACE_CMD);
    let known = sniff::what_is(text.as_bytes()).unwrap();
    assert_eq!(known.reader, Some(sniff::Reader::SchedTrace));
}
