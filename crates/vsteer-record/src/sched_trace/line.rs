//! Reads one line of a text trace: who was on which pCPU, when, and which scheduler event came.
//!
//! All producers print `TASK-and-thread [pCPU] FLAGS SECONDS: EVENT: FIELDS`, with these differences:
//!
//! | producer | thread | event | fields of a switch |
//! |---|---|---|---|
//! | `perf script` | `comm TID` or `comm PID/TID` | `sched:sched_switch:` | `prev_comm=... prev_pid=...`, or as trace-cmd |
//! | `trace-cmd report` | `comm-TID` | `sched_switch:` | `comm:TID [prio] STATE ==> comm:TID [prio]`, with `-R` as perf |
//! | ftrace's file `trace` | `comm-TID` or `comm-TID (PID)` | `sched_switch:` | `prev_comm=... prev_pid=...` |
//!
//! A thread can give itself any name of up to 15 bytes. Every search therefore looks for a text that is longer than a
//! name.
//!
//! Sources: linux@6.12/include/trace/events/sched.h and kernel/trace/trace_output.c, libtraceevent@1.7
//! plugins/plugin_sched_switch.c, trace-cmd@3.1.6 tracecmd/trace-read.c.

/// A line that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line<'a> {
    /// An event.
    Event(Event<'a>),
    /// The producer lost this number of events of a pCPU; `None`: an unknown number.
    Lost {
        /// The pCPU; `None` if the line does not name it.
        cpu: Option<u32>,
        /// How many events.
        events: Option<u64>,
    },
    /// The host's number of pCPUs.
    Pcpus(u32),
    /// ftrace's buffer overwrote this number of events before the first one of the file.
    Overwritten(u64),
    /// The host's name.
    Hostname(&'a str),
    /// The kernel's version.
    Kernel(&'a str),
}

/// An event of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// When, ns on the trace's clock. `None`: the clock does not count seconds.
    pub ns: Option<u64>,
    /// On which pCPU.
    pub cpu: u32,
    /// The thread on the pCPU; 0 is the idle thread.
    pub tid: u32,
    /// Its process, if the line names it.
    pub tgid: Option<u32>,
    /// Its name.
    pub comm: &'a str,
    /// What happened.
    pub what: What<'a>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What<'a> {
    /// `sched_switch`.
    Switch(Switch<'a>),
    /// `sched_waking`, `sched_wakeup` or `sched_wakeup_new`.
    Wake(Wake<'a>),
    /// `sched_migrate_task`.
    Migrate {
        /// The thread.
        tid: u32,
        /// Its new pCPU.
        to: u32,
    },
    /// One of these events, with fields in an unknown form.
    Garbled,
    /// Another event.
    Other,
}

/// A context switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch<'a> {
    /// Name of the thread that left.
    pub prev_comm: &'a str,
    /// The thread that left.
    pub prev: u32,
    /// Its state.
    pub left: Left,
    /// Name of the thread that got the pCPU.
    pub next_comm: &'a str,
    /// The thread that got the pCPU.
    pub next: u32,
}

/// The state of a thread that left its pCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It could run on.
    Runnable,
    /// It sleeps. The kernel's bits of the state.
    Asleep(u16),
    /// It ended.
    Dead,
}

/// A wake-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake<'a> {
    /// Name of the woken thread.
    pub comm: &'a str,
    /// The woken thread.
    pub tid: u32,
    /// The pCPU in whose queue it is put.
    pub target: Option<u32>,
}

const SECOND_NS: u64 = 1_000_000_000;

/// Reads a line; `None` if it says nothing that vsteer needs.
pub fn read(line: &str) -> Option<Line<'_>> {
    match line.trim_start() {
        comment if comment.starts_with('#') => comment_line(comment),
        lost if lost.starts_with("CPU:") => lost_line(lost),
        // trace-cmd's first line.
        count if count.starts_with("cpus=") => count[5..].trim().parse().ok().map(Line::Pcpus),
        _ => event(line),
    }
}

fn comment_line(line: &str) -> Option<Line<'_>> {
    let text = line.trim_start_matches(['#', ' ', '\t']);
    let after =
        |name: &str| text.strip_prefix(name).map(|rest| rest.trim_start_matches([' ', ':']).trim_end());
    if let Some(numbers) = after("entries-in-buffer/entries-written") {
        let (entries, pcpus) = numbers.split_once("#P:").unwrap_or((numbers, ""));
        let (kept, written) = entries.trim().split_once('/')?;
        let lost = written.parse::<u64>().ok()?.saturating_sub(kept.parse().ok()?);
        return match (lost, pcpus.trim().parse()) {
            (0, Ok(pcpus)) => Some(Line::Pcpus(pcpus)),
            _ => Some(Line::Overwritten(lost)),
        };
    }
    let pcpus = after("nrcpus avail").and_then(|n| n.parse().ok()).map(Line::Pcpus);
    let named = |name: &str| after(name).filter(|rest| !rest.is_empty());
    pcpus.or_else(|| named("hostname").map(Line::Hostname)).or_else(|| named("os release").map(Line::Kernel))
}

/// `CPU:1 [LOST 12 EVENTS]` of ftrace, `CPU:1 [12 EVENTS DROPPED]` and `CPU:1 [EVENTS DROPPED]` of trace-cmd.
fn lost_line(line: &str) -> Option<Line<'_>> {
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once('[')?;
    let (text, _) = rest.split_once(']')?;
    (text.contains("EVENTS") && (text.contains("LOST") || text.contains("DROPPED"))).then(|| Line::Lost {
        cpu: cpu.trim().parse().ok(),
        events: text.split_whitespace().find_map(|word| word.parse().ok()),
    })
}

/// The part of a line from the pCPU's number on, read.
struct Place<'a> {
    before: &'a str,
    cpu: u32,
    ns: Option<u64>,
    rest: &'a str,
}

fn event(line: &str) -> Option<Line<'_>> {
    // A name may hold brackets too, so each of them is tried. None is long enough for what must follow.
    let (place, (tid, tgid, comm)) = line.match_indices('[').find_map(|(at, _)| {
        let place = place(line, at)?;
        let thread = thread(place.before)?;
        Some((place, thread))
    })?;
    if let Some(lost) = place.rest.strip_prefix("PERF_RECORD_LOST") {
        let events = lost.split_whitespace().find_map(|word| word.parse().ok());
        return Some(Line::Lost { cpu: Some(place.cpu), events });
    }
    let (name, fields) = named(place.rest)?;
    let what = match name {
        "sched_switch" => switch(fields).map_or(What::Garbled, What::Switch),
        "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => wake(fields),
        "sched_migrate_task" => migrate(fields).unwrap_or(What::Garbled),
        _ => What::Other,
    };
    Some(Line::Event(Event { ns: place.ns, cpu: place.cpu, tid, tgid, comm, what }))
}

/// `[CPU] FLAGS TIME: ` at this bracket.
fn place(line: &str, at: usize) -> Option<Place<'_>> {
    let (cpu, rest) = line[at + 1..].split_once(']')?;
    let cpu = number(cpu)?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (mut word, mut rest) = rest.split_once([' ', '\t'])?;
    if !word.ends_with(':') {
        // Flags of ftrace, such as `d..2.`.
        (word, rest) = rest.trim_start().split_once([' ', '\t'])?;
    }
    let time = word.strip_suffix(':')?;
    let ns = match time.split_once('.') {
        Some((seconds, part)) => Some(moment(seconds, part)?),
        None => number(time).map(|_: u64| None)?,
    };
    Some(Place { before: &line[..at], cpu, ns, rest: rest.trim_start() })
}

/// A number of digits alone: the parser of numbers also takes a sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Seconds and their decimals as ns.
fn moment(seconds: &str, decimals: &str) -> Option<u64> {
    if decimals.is_empty() || decimals.len() > 9 {
        return None;
    }
    let part: u64 = number(decimals)?;
    let unit = 10u64.pow(9 - decimals.len() as u32);
    number::<u64>(seconds)?.checked_mul(SECOND_NS)?.checked_add(part * unit)
}

/// The thread before the pCPU's number: its id, its process and its name.
fn thread(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let mut text = text.trim();
    let mut tgid = None;
    if let Some(open) = text.strip_suffix(')') {
        let (before, process) = open.rsplit_once('(')?;
        // ftrace prints dashes for an unknown process.
        tgid = number(process.trim());
        text = before.trim_end();
    }
    let (comm, ids) = text.rsplit_once([' ', '-']).unwrap_or(("", text));
    let (process, tid) = match ids.split_once('/') {
        Some((process, tid)) => (number(process), tid),
        None => (None, ids),
    };
    Some((number(tid).filter(|_| !tid.is_empty())?, tgid.or(process), comm.trim()))
}

/// The event's name and its fields. `perf script` may print a period before, and names the subsystem.
fn named(text: &str) -> Option<(&str, &str)> {
    let (mut name, mut fields) = text.split_once(':')?;
    if let Some((period, after)) = name.split_once(' ') {
        number::<u64>(period)?;
        name = after.trim_start();
    }
    if name == "sched" {
        (name, fields) = fields.split_once(':')?;
    }
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
    is_name.then_some((name, fields.trim()))
}

fn switch(fields: &str) -> Option<Switch<'_>> {
    let Some(rest) = fields.strip_prefix("prev_comm=") else { return pretty_switch(fields) };
    let (prev_comm, prev, rest) = raw(rest, " prev_pid=", " prev_prio=")?;
    let (_, rest) = rest.split_once(" prev_state=")?;
    let (state, rest) = rest.split_once(' ')?;
    // trace-cmd -R prints no arrow.
    let rest = rest.strip_prefix("==> ").unwrap_or(rest).strip_prefix("next_comm=")?;
    let (next_comm, next, _) = raw(rest, " next_pid=", " next_prio=")?;
    Some(Switch { prev_comm, prev, left: left(state)?, next_comm, next })
}

/// A name and a thread id, between these marks: the two together are longer than a name can be.
fn raw<'a>(text: &'a str, id: &str, end: &str) -> Option<(&'a str, u32, &'a str)> {
    text.match_indices(id).find_map(|(at, _)| {
        let after = &text[at + id.len()..];
        let digits = after.find(|c: char| !c.is_ascii_digit())?;
        after[digits..].starts_with(end).then_some(())?;
        Some((&text[..at], number(&after[..digits])?, &after[digits..]))
    })
}

/// `comm:TID [prio] STATE ==> comm:TID [prio]`.
fn pretty_switch(fields: &str) -> Option<Switch<'_>> {
    fields.match_indices(" ==> ").find_map(|(at, arrow)| {
        let (before, state) = fields[..at].rsplit_once(' ')?;
        let (prev_comm, prev) = pretty(before)?;
        let (next_comm, next) = pretty(&fields[at + arrow.len()..])?;
        Some(Switch { prev_comm, prev, left: left(state)?, next_comm, next })
    })
}

/// `comm:TID [prio]`, and nothing after it.
fn pretty(text: &str) -> Option<(&str, u32)> {
    let (task, prio) = text.trim_end().strip_suffix(']')?.rsplit_once(" [")?;
    prio.parse::<i32>().ok()?;
    let (comm, tid) = task.rsplit_once(':')?;
    Some((comm, number(tid).filter(|_| !tid.is_empty())?))
}

/// The state as letters (`S`, `R+`, `D|K`) or, in old forms, as bits.
fn left(state: &str) -> Option<Left> {
    if let Ok(bits) = state.parse::<u32>() {
        return Some(match bits & 0xff {
            0 => Left::Runnable,
            bits if bits & 0x30 != 0 => Left::Dead,
            bits => asleep(bits as u16),
        });
    }
    let bit = |letter: char| {
        Some(match letter {
            'S' => 1,
            'D' => 2,
            'T' => 4,
            't' => 8,
            'X' | 'x' => 16,
            'Z' => 32,
            // Parked, idle kernel threads, and modifiers: woken by fatal signals only, not counted as load.
            'P' | 'I' | 'K' | 'W' | 'N' | 'n' | 'w' | '|' | '+' => 0,
            _ => return None,
        })
    };
    if state.starts_with('R') {
        return Some(Left::Runnable);
    }
    let bits = state.chars().try_fold(0u16, |all, letter| Some(all | bit(letter)?))?;
    if bits & 0x30 != 0 {
        return Some(Left::Dead);
    }
    (!state.is_empty()).then_some(asleep(bits))
}

/// The other bits would mean something else among those that vsteer stores.
fn asleep(bits: u16) -> Left {
    Left::Asleep(if bits & 0xf == 0 { 1 } else { bits & 0xf })
}

fn wake(fields: &str) -> What<'_> {
    let read = match fields.strip_prefix("comm=") {
        Some(rest) => raw(rest, " pid=", " prio="),
        None => pretty_wake(fields),
    };
    let Some((comm, tid, rest)) = read else { return What::Garbled };
    // Older kernels print whether the thread was asleep at all.
    if rest.contains("success=0") {
        return What::Other;
    }
    let target = ["target_cpu=", "CPU:"].iter().find_map(|mark| {
        let (_, after) = rest.split_once(mark)?;
        number(after.split(|c: char| !c.is_ascii_digit()).next()?)
    });
    What::Wake(Wake { comm, tid, target })
}

/// `comm:TID [prio] CPU:001`.
fn pretty_wake(fields: &str) -> Option<(&str, u32, &str)> {
    fields.match_indices(']').find_map(|(at, _)| {
        let (comm, tid) = pretty(&fields[..=at])?;
        Some((comm, tid, &fields[at + 1..]))
    })
}

fn migrate(fields: &str) -> Option<What<'_>> {
    let (_, tid, rest) = raw(fields.strip_prefix("comm=")?, " pid=", " prio=")?;
    let (_, to) = rest.split_once(" dest_cpu=")?;
    Some(What::Migrate { tid, to: number(to.split_whitespace().next()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(line: &str) -> Event<'_> {
        match read(line) {
            Some(Line::Event(event)) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_same_switch_in_every_form() {
        let raw = "prev_comm=CPU 0/KVM prev_pid=458 prev_prio=120 prev_state=R+ ==> \
                   next_comm=qemu-system-x86 next_pid=454 next_prio=120";
        let bare = raw.replace(" ==> ", " ").replace("R+", "256");
        let pretty = "CPU 0/KVM:458 [120] R+ ==> qemu-system-x86:454 [120]";
        for (head, tgid) in [
            ("       CPU 0/KVM   458 [001]  2549.941095:       sched:sched_switch: ", None),
            ("       CPU 0/KVM   454/458 [001]  2549.941095000:       sched:sched_switch: ", Some(454)),
            ("       CPU 0/KVM   458 [001]  2549.941095:          1 sched:sched_switch: ", None),
            ("       CPU 0/KVM-458   [001] d..2.  2549.941095: sched_switch: ", None),
            ("       CPU 0/KVM-458     (    454) [001] d..2.  2549.941095: sched_switch: ", Some(454)),
            ("       CPU 0/KVM-458     (-------) [001] d..2.  2549.941095: sched_switch: ", None),
            ("       CPU 0/KVM-458   [001]  2549.941095: sched_switch:         ", None),
        ] {
            for fields in [raw, pretty, &bare] {
                let line = format!("{head}{fields}");
                let got = event(&line);
                assert_eq!(
                    (got.ns, got.cpu, got.tid, got.tgid),
                    (Some(2_549_941_095_000), 1, 458, tgid),
                    "{line}"
                );
                assert_eq!(got.comm, "CPU 0/KVM");
                let What::Switch(s) = got.what else { panic!("{line}") };
                assert_eq!((s.prev_comm, s.prev, s.left), ("CPU 0/KVM", 458, Left::Runnable));
                assert_eq!((s.next_comm, s.next), ("qemu-system-x86", 454));
            }
        }
    }

    #[test]
    fn wake_ups_in_every_form() {
        for fields in [
            "comm=CPU 1/KVM pid=20487 prio=120 target_cpu=001",
            "comm=CPU 1/KVM pid=20487 prio=120 success=1 target_cpu=001",
            "CPU 1/KVM:20487 [120] CPU:001",
            "CPU 1/KVM:20487 [120] success=1 CPU:001",
            "CPU 1/KVM:20487 [120]<CPU:001>",
        ] {
            for name in ["sched_waking", "sched:sched_wakeup", "sched_wakeup_new"] {
                let line = format!("  <idle>-0  [000] d.h3.  1.5: {name}: {fields}");
                let What::Wake(w) = event(&line).what else { panic!("{line}") };
                assert_eq!((w.comm, w.tid, w.target), ("CPU 1/KVM", 20487, Some(1)), "{line}");
            }
        }
        let line = "x-1 [000] 1.5: sched_wakeup: comm=a pid=2 prio=120 success=0 target_cpu=001";
        assert_eq!(event(line).what, What::Other, "it was not asleep");
        let line = "x 1 [000] 1.5: sched:sched_migrate_task: comm=a b pid=20 prio=120 orig_cpu=0 dest_cpu=13";
        assert_eq!(event(line).what, What::Migrate { tid: 20, to: 13 });
    }

    #[test]
    fn a_name_cannot_pass_for_a_field() {
        for name in [
            "a prev_pid=5",
            "x:9 [120] R ==>",
            "[000] 1.2: a:",
            "-7 (8) [1]",
            " ==> b:1 [1]",
            "",
            "]:[",
            "a/3",
        ] {
            let line = format!(
                "{name} 77 [003] 2.25: sched:sched_switch: prev_comm={name} prev_pid=77 prev_prio=120 prev_state=S \
                 ==> next_comm={name} next_pid=78 next_prio=-1"
            );
            let got = event(&line);
            assert_eq!((got.tid, got.cpu, got.ns), (77, 3, Some(2_250_000_000)), "{line}");
            let What::Switch(s) = got.what else { panic!("{line}: {:?}", got.what) };
            assert_eq!((s.prev_comm, s.prev, s.next_comm, s.next), (name, 77, name, 78), "{line}");
            assert_eq!(s.left, Left::Asleep(1));
        }
    }

    #[test]
    fn states_of_threads_that_left() {
        for (text, is) in [
            ("R", Left::Runnable),
            ("R+", Left::Runnable),
            ("R|K", Left::Runnable),
            ("S", Left::Asleep(1)),
            ("D", Left::Asleep(2)),
            ("D|W", Left::Asleep(2)),
            ("I", Left::Asleep(1)),
            ("W", Left::Asleep(1)),
            ("128", Left::Asleep(1)),
            ("T", Left::Asleep(4)),
            ("t", Left::Asleep(8)),
            ("X", Left::Dead),
            ("Z", Left::Dead),
            ("0", Left::Runnable),
            ("256", Left::Runnable),
            ("1", Left::Asleep(1)),
            ("64", Left::Asleep(1)),
        ] {
            assert_eq!(left(text), Some(is), "{text}");
        }
        assert_eq!((left("?"), left("")), (None, None));
    }

    #[test]
    fn lines_that_are_no_events() {
        let lost = |cpu, events| Some(Line::Lost { cpu, events });
        assert_eq!(read("CPU:1 [LOST 12 EVENTS]"), lost(Some(1), Some(12)));
        assert_eq!(read("CPU:12 [345 EVENTS DROPPED]"), lost(Some(12), Some(345)));
        assert_eq!(read("CPU:0 [EVENTS DROPPED]"), lost(Some(0), None));
        assert_eq!(read("swapper 0 [003] 12.5: PERF_RECORD_LOST lost 77"), lost(Some(3), Some(77)));
        assert_eq!(read("cpus=16"), Some(Line::Pcpus(16)));
        assert_eq!(read("# nrcpus avail : 8"), Some(Line::Pcpus(8)));
        assert_eq!(read("# hostname : kvm7"), Some(Line::Hostname("kvm7")));
        assert_eq!(read("# os release : 6.12.9"), Some(Line::Kernel("6.12.9")));
        assert_eq!(read("# entries-in-buffer/entries-written: 10/10   #P:4"), Some(Line::Pcpus(4)));
        assert_eq!(read("# entries-in-buffer/entries-written: 10/25   #P:4"), Some(Line::Overwritten(15)));
        for other in ["", "# tracer: nop", "text", "a [b] c: d", "CPU 0 is empty", "[0] 1.0: x: y"] {
            assert_eq!(read(other), None, "{other}");
        }
        // A clock that counts no seconds, and an event that nothing is known of.
        let other = event("a-1 [000] 123456: sched_switch: nonsense");
        assert_eq!((other.ns, other.what), (None, What::Garbled));
        assert_eq!(event("a-1 [000] 1.2: kvm_exit: reason x").what, What::Other);
        assert_eq!(event("a-1 [000] 1.2: irq:softirq_entry: vec=1").what, What::Other);
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC*", cut in 0usize..200) {
            let _ = read(&line);
            let whole = "a-1 (2) [000] d..2. 1.2: sched_switch: prev_comm=a prev_pid=1 prev_prio=1 prev_state=S ==> \
                         next_comm=b next_pid=2 next_prio=3";
            let _ = read(&format!("{}{line}", &whole[..cut.min(whole.len())]));
        }
    }
}
