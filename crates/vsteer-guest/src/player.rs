//! `player -- COMMAND`: how many frames per second does a media player show, and how does it sleep between them?
//!
//! For anybody's guest: run it before and after a change on the host. The player says each frame on a status line, as MPlayer
//! does (`V: ...`). So what counts is the moment at which it shows a frame, not what it decodes. A player sleeps until a
//! frame is due. If its VM waits for a pCPU then, the frame is late: the gap to the frame before shows it.
//!
//! Sleeps, run time and waits for a vCPU come from `/proc/PID/task`, twice a second, so the last half second of a thread
//! may be missing.
//!
//! Source: `man 1 mplayer`; Linux, Documentation/scheduler/sched-stats.rst (`/proc/PID/schedstat`); the measure: Park et al.,
//! "VIT", J. KIISE 37(1), 2010. Left out: players without a line per frame, and their sound.

use crate::clock::now_ns;
use crate::play::Line;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

const USAGE: &str = "player [--json] [--for SECONDS] [--frame-line PREFIX] -- COMMAND [WORD...]";
/// How MPlayer's status lines begin.
const FRAME_LINE: &str = "V:";
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A player that ignores the request to end is killed after this time.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// What the user asks for.
struct Asked {
    json: bool,
    length: Option<Duration>,
    frame_line: String,
    command: Vec<String>,
}

impl Asked {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut asked =
            Asked { json: false, length: None, frame_line: FRAME_LINE.to_owned(), command: Vec::new() };
        loop {
            match words.next().as_deref() {
                Some("--json") => asked.json = true,
                Some("--for") => {
                    let word = words.next().ok_or(USAGE)?;
                    let s = word.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                    let s = s.filter(|s| !s.is_zero());
                    asked.length = Some(s.ok_or_else(|| format!("--for {word}: not a number of seconds"))?);
                }
                Some("--frame-line") => asked.frame_line = words.next().ok_or(USAGE)?,
                Some("--") => break,
                _ => return Err(USAGE.to_owned()),
            }
        }
        asked.command = words.collect();
        if asked.command.is_empty() { Err(USAGE.to_owned()) } else { Ok(asked) }
    }
}

/// A thread of the player, as the kernel counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Thread {
    /// On a vCPU, ns.
    run_ns: u64,
    /// Ready, but not on a vCPU, ns.
    wait_ns: u64,
    /// How often it went to sleep.
    sleeps: u64,
    /// When it was seen first and last, ns.
    seen_ns: (u64, u64),
}

impl Thread {
    fn read(task: &std::path::Path) -> Option<Thread> {
        let text = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().filter_map(|n| n.parse().ok());
        let (run_ns, wait_ns) = (numbers.next()?, numbers.next()?);
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        let now_ns = now_ns();
        Some(Thread { run_ns, wait_ns, sleeps: sleeps.trim().parse().ok()?, seen_ns: (now_ns, now_ns) })
    }
}

/// All threads of a process so far, by id.
fn look(pid: u32, threads: &mut BTreeMap<u32, Thread>) {
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let tid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (Some(tid), Some(now)) = (tid, Thread::read(&entry.path())) {
            let first_ns = threads.get(&tid).map_or(now.seen_ns.0, |t: &Thread| t.seen_ns.0);
            threads.insert(tid, Thread { seen_ns: (first_ns, now.seen_ns.1), ..now });
        }
    }
}

/// What was seen of a player.
#[derive(Debug, Default, PartialEq)]
struct Report {
    /// From frame to frame, ns, in order.
    gaps_ns: Vec<u64>,
    /// Its threads together; `seen_ns` is how long they were seen, as a sum.
    sleeps: u64,
    run_ns: u64,
    wait_ns: u64,
    seen_ns: u64,
    /// How long it was watched, ns.
    length_ns: u64,
}

impl Report {
    fn of(gaps_ns: Vec<u64>, threads: &BTreeMap<u32, Thread>) -> Report {
        let sum = |of: fn(&Thread) -> u64| threads.values().map(of).sum();
        let begun = threads.values().map(|t| t.seen_ns.0).min().unwrap_or(0);
        let ended = threads.values().map(|t| t.seen_ns.1).max().unwrap_or(0);
        Report {
            gaps_ns,
            sleeps: sum(|t| t.sleeps),
            run_ns: sum(|t| t.run_ns),
            wait_ns: sum(|t| t.wait_ns),
            seen_ns: sum(|t| t.seen_ns.1 - t.seen_ns.0),
            length_ns: ended - begun,
        }
    }

    /// The gap that this part of all gaps does not exceed, ms.
    fn gap_ms(&self, part: f64) -> f64 {
        let mut sorted = self.gaps_ns.clone();
        sorted.sort_unstable();
        let at = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(at.saturating_sub(1)).map_or(0.0, |ns| *ns as f64 / 1e6)
    }

    fn frames_per_s(&self) -> f64 {
        let ns: u64 = self.gaps_ns.iter().sum();
        if ns > 0 { self.gaps_ns.len() as f64 * 1e9 / ns as f64 } else { 0.0 }
    }

    /// Number of sleeps per second, and how long one takes on average, ms.
    fn sleeping(&self) -> (f64, f64) {
        let asleep_ns = self.seen_ns.saturating_sub(self.run_ns + self.wait_ns);
        let per_s = if self.length_ns > 0 { self.sleeps as f64 * 1e9 / self.length_ns as f64 } else { 0.0 };
        (per_s, if self.sleeps > 0 { asleep_ns as f64 / 1e6 / self.sleeps as f64 } else { 0.0 })
    }

    /// Part of a vCPU's time.
    fn part(&self, ns: u64) -> f64 {
        if self.length_ns > 0 { ns as f64 / self.length_ns as f64 } else { 0.0 }
    }

    fn text(&self) -> String {
        let (sleeps_per_s, sleep_ms) = self.sleeping();
        format!(
            "frames: {}, {:.1} per second; from one to the next {:.1} ms in the median, {:.1} ms at p95, {:.1} ms at most\n\
             sleeps: {:.1} per second, {:.2} ms each; on a vCPU {:.1} % of the time, waiting for one in the guest {:.2} %",
            self.gaps_ns.len() + 1,
            self.frames_per_s(),
            self.gap_ms(0.5),
            self.gap_ms(0.95),
            self.gap_ms(1.0),
            sleeps_per_s,
            sleep_ms,
            100.0 * self.part(self.run_ns),
            100.0 * self.part(self.wait_ns),
        )
    }

    fn json(&self) -> String {
        let (sleeps_per_s, sleep_ms) = self.sleeping();
        format!(
            "{{\"frames\": {}, \"frames_per_s\": {:.3}, \"gap_ms\": {{\"p50\": {:.3}, \"p95\": {:.3}, \"max\": {:.3}}}, \
             \"sleeps_per_s\": {sleeps_per_s:.3}, \"sleep_mean_ms\": {sleep_ms:.3}, \"run\": {:.5}, \"wait\": {:.5}}}",
            self.gaps_ns.len() + 1,
            self.frames_per_s(),
            self.gap_ms(0.5),
            self.gap_ms(0.95),
            self.gap_ms(1.0),
            self.part(self.run_ns),
            self.part(self.wait_ns),
        )
    }
}

/// Runs the player, and prints what was seen of it.
///
/// # Errors
/// It cannot be run, or shows no two frames.
pub fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let asked = Asked::parse(words)?;
    take_interrupts();
    let report = watch(&asked)?;
    println!("{}", if asked.json { report.json() } else { report.text() });
    Ok(())
}

/// Ctrl-C ends the player, not this program, which then reports. A handler, because the player would inherit an ignored
/// signal.
#[allow(unsafe_code)]
fn take_interrupts() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
}

fn watch(asked: &Asked) -> Result<Report, String> {
    let program = &asked.command[0];
    let failed = |e: std::io::Error| format!("{program}: {e}");
    let (said, out) = std::io::pipe().map_err(failed)?;
    let mut player = Command::new(program);
    player.args(&asked.command[1..]).stdin(Stdio::null());
    let child = player.stdout(out.try_clone().map_err(failed)?).stderr(out).spawn();
    // It holds the pipe's other end, which would never end then.
    drop(player);
    let mut child = child.map_err(failed)?;
    // Held while the process may be looked at or ended, so that its number is not another one's.
    let runs = Mutex::new(true);
    let mut threads = BTreeMap::new();
    let mut gaps_ns = Vec::new();
    let mut last_words = String::new();
    let read = std::thread::scope(|scope| {
        scope.spawn(|| look_on(child.id(), asked.length, &runs, &mut threads));
        let read = frames(said, &asked.frame_line, &mut gaps_ns, &mut last_words);
        *runs.lock().expect("no thread panics with it") = false;
        read
    });
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    if gaps_ns.is_empty() {
        return Err(format!(
            "{program} ended ({status}) and showed no two frames: no two of its lines begin with {:?}. It said: {last_words}",
            asked.frame_line
        ));
    }
    Ok(Report::of(gaps_ns, &threads))
}

/// Looks at the process until it ends, and ends it when its time is over.
fn look_on(pid: u32, length: Option<Duration>, runs: &Mutex<bool>, threads: &mut BTreeMap<u32, Thread>) {
    let begun_ns = now_ns();
    let mut is_asked = false;
    loop {
        let runs = runs.lock().expect("no thread panics with it");
        if !*runs {
            return;
        }
        look(pid, threads);
        let since = Duration::from_nanos(now_ns() - begun_ns);
        if let (Some(over), Some(pid)) =
            (length.and_then(|length| since.checked_sub(length)), Pid::from_raw(pid as i32))
        {
            if over >= ENDS_WITHIN {
                let _ = kill_process(pid, Signal::KILL);
            } else if !std::mem::replace(&mut is_asked, true) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        drop(runs);
        let left = length.map_or(LOOK_EVERY, |l| {
            l.saturating_sub(Duration::from_nanos(now_ns() - begun_ns)).max(Duration::from_millis(10))
        });
        std::thread::sleep(LOOK_EVERY.min(left));
    }
}

/// Reads what the player says until it ends: the time from frame to frame, and its last other line.
fn frames(
    said: impl Read,
    frame_line: &str,
    gaps_ns: &mut Vec<u64>,
    last_words: &mut String,
) -> std::io::Result<()> {
    let (mut words, mut last_ns) = (Line::default(), None);
    for byte in BufReader::new(said).bytes() {
        match words.take(byte?) {
            Some(line) if line.starts_with(frame_line) => {
                let now_ns = now_ns();
                gaps_ns.extend(last_ns.replace(now_ns).map(|last_ns| now_ns - last_ns));
            }
            Some(line) if !line.trim().is_empty() => *last_words = line,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Asked, String> {
        Asked::parse(words.iter().map(|w| (*w).to_owned()))
    }

    /// A player that shows a frame each 40 ms and says it as MPlayer does.
    const PLAYS: &str = "printf 'Playing.\\n'; while :; do printf 'V: 0.1\\r'; sleep 0.04; done";

    #[test]
    fn frames_and_sleeps_of_a_player_that_is_ended() {
        let report = watch(&asked(&["--for", "1.5", "--", "sh", "-c", PLAYS]).unwrap()).unwrap();
        // Each round starts a program, and this machine may be busy.
        assert!((5.0..25.1).contains(&report.frames_per_s()), "{report:?}");
        assert!(report.gap_ms(0.5) >= 39.9 && report.gap_ms(1.0) >= report.gap_ms(0.95), "{report:?}");
        let (per_s, sleep_ms) = report.sleeping();
        assert!(per_s > 4.0 && sleep_ms > 1.0 && report.part(report.run_ns) < 0.9, "{report:?}");
        assert!(report.text().contains("per second") && report.json().starts_with("{\"frames\": "));
    }

    #[test]
    fn a_player_that_ignores_the_request_is_killed() {
        let stays = format!("trap '' TERM; {PLAYS}");
        let begun_ns = now_ns();
        watch(&asked(&["--for", "0.3", "--", "sh", "-c", &stays]).unwrap()).unwrap();
        assert!(now_ns() - begun_ns >= ENDS_WITHIN.as_nanos() as u64);
    }

    #[test]
    fn sums_by_hand() {
        let thread = Thread { run_ns: 1_000_000_000, wait_ns: 0, sleeps: 50, seen_ns: (0, 2_000_000_000) };
        let report = Report::of(vec![40_000_000; 49], &BTreeMap::from([(1, thread)]));
        assert!((report.frames_per_s() - 25.0).abs() < 1e-9);
        assert_eq!((report.sleeping(), report.part(report.run_ns)), ((25.0, 20.0), 0.5));
        assert_eq!((report.gap_ms(0.5), Report::default().frames_per_s()), (40.0, 0.0));
    }

    #[test]
    fn what_shows_no_frames_is_named() {
        let why = |words: &[&str]| asked(words).and_then(|a| watch(&a).map(drop)).unwrap_err();
        let none = why(&["--", "sh", "-c", "echo Cannot open film.avi"]);
        assert!(none.contains("no two frames") && none.ends_with("Cannot open film.avi"), "{none}");
        assert!(why(&["--", "/no/such/player"]).starts_with("/no/such/player: "));
        assert_eq!(why(&["mplayer"]), USAGE);
        assert_eq!(why(&["--"]), USAGE);
        assert_eq!(why(&["--for", "-1", "--", "x"]), "--for -1: not a number of seconds");
    }
}
