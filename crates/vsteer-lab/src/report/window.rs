//! Computes what a VM got and waited for between two times.
//!
//! Reports are cumulative, so a window is the difference of two of them: the first one taken at or after its
//! start and the last one taken at or before its end. The used window is inside the requested one, up to 2 s
//! shorter, and is printed. Rates refer to the time between these two reports.
//!
//! When was a report taken, by the host's clock? A stalled VM delivers seconds late, so the arrival time does
//! not show it. But host and guest clocks run at the same speed. So the report with the least delay relative
//! to the guest's own time gives the offset between the clocks for all its neighbours ([`taken_ns`]; the idea
//! is that of NTP's clock filter, RFC 5905 section 10). Its error is that of the best stamp among some 120
//! ([`super::stamp`]: below 20 ms) plus the clocks' drift over a minute. Left out: interpolation inside a
//! second, which would invent samples.

use super::histogram::{Histogram, Runs, Summary};
use crate::accel::Accel;
use serde::{Deserialize, Serialize};
use std::path::Path;
use vsteer_core::{Fault, FaultKind};

/// Jiffies of all vCPUs together, 1/100 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Jiffies {
    pub user: u64,
    /// Time in the guest's kernel.
    pub system: u64,
    pub idle: u64,
    /// Time stolen by the host.
    pub steal: u64,
}

/// One report of a guest; vsteer-guest's README documents it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestReport {
    /// The format's version.
    pub vsteer_guest: u32,
    /// Sequence number from 0.
    pub seq: u64,
    /// The guest's CLOCK_MONOTONIC, ns.
    pub t_ns: u64,
    /// The kind of workload.
    pub workload: String,
    /// vCPUs that the guest sees.
    pub vcpus: u32,
    /// Completed work units.
    pub units: u64,
    /// Lateness of timers.
    pub late: Runs,
    pub resp: Runs,
    /// CPU time; `None` if the guest could not read it.
    pub jiffies: Option<Jiffies>,
}

/// A report and its arrival time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Stamped {
    /// The host's CLOCK_MONOTONIC, ns.
    pub host_ns: u64,
    /// The guest's report.
    pub report: GuestReport,
}

/// The measurement of a VM, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmMeasured {
    pub vm: String,
    /// Its workload with parameters, which is the lab's secret.
    pub workload: String,
    pub vcpus: u32,
    /// Why there is no measurement; `None` if there is one.
    pub absent: Option<String>,
    pub window: Option<VmWindow>,
}

/// What one VM measured over a window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VmWindow {
    /// The window's start: when its first report was taken, host CLOCK_MONOTONIC, ns.
    pub since_ns: u64,
    /// The window's end: when its last report was taken, ns.
    pub until_ns: u64,
    /// Its length, s.
    pub window_s: f64,
    /// Reports in the window, both ends included.
    pub reports: usize,
    /// Work units per second, all vCPUs together.
    pub work_units_per_s: f64,
    /// Lateness of timers; `None` if the workload sets none.
    pub lateness: Option<Summary>,
    /// Response times; `None` if the workload serves no requests.
    pub response: Option<Summary>,
    /// Share of the vCPUs' time in user mode, %.
    pub user_percent: Option<f64>,
    /// Share in the guest's kernel, %.
    pub system_percent: Option<f64>,
    /// Idle share, %.
    pub idle_percent: Option<f64>,
    /// Share stolen by the host, as the guest sees it, %. `None` under emulation, which reports nothing to
    /// the guest.
    pub steal_percent: Option<f64>,
    /// Guest time per host time since the guest's first report: 1 unless its clock drifts. `None` in its first
    /// seconds.
    pub guest_clock_ratio: Option<f64>,
}

/// Reads a file of stamped reports. An incomplete last line is left out.
///
/// # Errors
/// The file is missing or contains something else.
pub fn read(file: &Path) -> Result<Vec<Stamped>, Fault> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Fault::io(format!("reading the guest's reports {}", file.display()), &e))?;
    let whole = &text[..text.rfind('\n').map_or(0, |i| i + 1)];
    let parse = |(i, line): (usize, &str)| {
        let stamped: Result<Stamped, _> = serde_json::from_str(line);
        stamped.map_err(|e| {
            Fault::new(
                FaultKind::BadInput,
                format!("{} line {}: not a guest's report", file.display(), i + 1),
            )
            .because(e)
        })
    };
    whole.lines().enumerate().map(parse).collect()
}

/// The reports since the guest's last start, because all counts start at 0 again there.
pub fn last_run(reports: &[Stamped]) -> &[Stamped] {
    let began = (1..reports.len()).rev().find(|&i| reports[i].report.seq <= reports[i - 1].report.seq);
    &reports[began.unwrap_or(0)..]
}

/// How many reports on each side share the offset between the clocks.
const NEIGHBOURS: usize = 60;
/// A window shorter than half the time between two reports is not valid: its reports were delivered together.
const WINDOW_LEAST_NS: u64 = 500_000_000;

/// When each report was taken, on the host's clock, ns. `reports` must come from one run of the guest.
pub fn taken_ns(reports: &[Stamped]) -> Vec<u64> {
    let offset = |r: &Stamped| i128::from(r.host_ns) - i128::from(r.report.t_ns);
    let taken = |(i, r): (usize, &Stamped)| {
        let near = &reports[i.saturating_sub(NEIGHBOURS)..reports.len().min(i + NEIGHBOURS + 1)];
        let least = near.iter().map(offset).min().expect("a report is near itself");
        (i128::from(r.report.t_ns) + least).try_into().unwrap_or(0)
    };
    reports.iter().enumerate().map(taken).collect()
}

/// Guest time per host time, between the reports with the least delay in the first and the second half.
fn clock_ratio(reports: &[Stamped]) -> Option<f64> {
    let best = |half: &[Stamped]| {
        let offset = |r: &&Stamped| i128::from(r.host_ns) - i128::from(r.report.t_ns);
        half.iter().min_by_key(offset).map(|r| (r.host_ns as f64, r.report.t_ns as f64))
    };
    let (first, second) = reports.split_at(reports.len() / 2);
    let ((host_a, guest_a), (host_b, guest_b)) = best(first).zip(best(second))?;
    // Below 3 s, the stamps' error alone would look like a drift of 1 %.
    (guest_b - guest_a >= 3e9).then(|| (guest_b - guest_a) / (host_b - host_a))
}

/// Computes the window of one VM.
///
/// # Errors
/// Fewer than two reports in the window; the VM was started again in it; a malformed histogram.
pub fn between(
    vm: &str,
    reports: &[Stamped],
    since_ns: u64,
    until_ns: u64,
    accel: Accel,
) -> Result<VmWindow, Fault> {
    // If a guest was started again, only the last run counts, and only if the window is inside it.
    let run = last_run(reports);
    let before = &reports[..reports.len() - run.len()];
    if before.iter().any(|r| (since_ns..=until_ns).contains(&r.host_ns)) {
        return Err(Fault::new(FaultKind::Changed, format!("VM \"{vm}\" was restarted within the window"))
            .because("its counters went down")
            .help("choose a window that begins after that"));
    }
    let taken = taken_ns(run);
    let inside: Vec<(&GuestReport, u64)> = run.iter().map(|r| &r.report).zip(taken).collect();
    let inside: Vec<_> = inside.into_iter().filter(|(_, at)| (since_ns..=until_ns).contains(at)).collect();
    let ends = inside.first().zip(inside.last()).filter(|(a, b)| b.1.saturating_sub(a.1) >= WINDOW_LEAST_NS);
    let Some((&(a, first_ns), &(b, last_ns))) = ends else {
        return Err(Fault::new(
            FaultKind::NothingThere,
            format!("VM \"{vm}\" has not reported twice in the window"),
        )
        .because(format!("{} of its {} reports lie in it", inside.len(), reports.len()))
        .help("choose a longer window (a guest that gets its CPU reports once a second)"));
    };
    let malformed =
        || Fault::new(FaultKind::BadInput, format!("VM \"{vm}\" sent counters that make no sense"));
    let durations = |of: fn(&GuestReport) -> &Runs| -> Result<Option<Summary>, Fault> {
        let (then, now) = (Histogram::from_runs(of(a)), Histogram::from_runs(of(b)));
        let (then, now) = (then.ok_or_else(malformed)?, now.ok_or_else(malformed)?);
        Ok(now.since(&then).ok_or_else(malformed)?.summary())
    };
    let window_s = (last_ns - first_ns) as f64 / 1e9;
    let shares = a.jiffies.zip(b.jiffies).and_then(|(a, b)| shares_percent(&a, &b));
    Ok(VmWindow {
        since_ns: first_ns,
        until_ns: last_ns,
        window_s,
        reports: inside.len(),
        work_units_per_s: b.units.checked_sub(a.units).ok_or_else(malformed)? as f64 / window_s,
        lateness: durations(|r| &r.late)?,
        response: durations(|r| &r.resp)?,
        user_percent: shares.map(|s| s[0]),
        system_percent: shares.map(|s| s[1]),
        idle_percent: shares.map(|s| s[2]),
        steal_percent: shares.map(|s| s[3]).filter(|_| accel == Accel::Kvm),
        guest_clock_ratio: clock_ratio(run),
    })
}

/// Work units of a VM per second between two times, interpolated between the reports around each time. Work
/// during a gap without reports counts in full, except for a gap that includes one of the two times.
///
/// # Errors
/// `NothingThere` unless there are reports around each of the two times that are closer together than
/// `gap_most_ns`.
pub fn work_per_s(
    vm: &str,
    reports: &[Stamped],
    (since_ns, until_ns): (u64, u64),
    gap_most_ns: u64,
) -> Result<f64, Fault> {
    let run = last_run(reports);
    let taken = taken_ns(run);
    let at = |moment: u64| {
        let none = |why: String| {
            Fault::new(FaultKind::NothingThere, format!("VM \"{vm}\" did not report throughout")).because(why)
        };
        let after = taken.partition_point(|t| *t <= moment);
        let (Some(before), true) = (after.checked_sub(1), after < taken.len()) else {
            return Err(none("no report stands on each side of the window's edge".to_owned()));
        };
        let gap_ns = taken[after] - taken[before];
        if gap_ns > gap_most_ns {
            return Err(none(format!("no report for {:.1} s at the window's edge", gap_ns as f64 / 1e9)));
        }
        let (low, high) = (run[before].report.units as f64, run[after].report.units as f64);
        Ok(low + (high - low) * (moment - taken[before]) as f64 / gap_ns as f64)
    };
    Ok((at(until_ns)? - at(since_ns)?) / ((until_ns - since_ns) as f64 / 1e9))
}

/// User, system, idle and stolen time as shares of their sum.
fn shares_percent(a: &Jiffies, b: &Jiffies) -> Option<[f64; 4]> {
    let spent = [
        b.user.checked_sub(a.user)?,
        b.system.checked_sub(a.system)?,
        b.idle.checked_sub(a.idle)?,
        b.steal.checked_sub(a.steal)?,
    ];
    let sum: u64 = spent.iter().sum();
    (sum > 0).then(|| spent.map(|s| 100.0 * s as f64 / sum as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same line that vsteer-guest's own test requires: change both or neither.
    const LINE: &str = "{\"vsteer_guest\":1,\"seq\":7,\"t_ns\":8000123456,\"workload\":\"periodic\",\"vcpus\":2,\"units\":42,\
        \"late\":{\"n\":98,\"sum_ns\":163000000,\"runs\":[[4,7,90],[64,1]]},\
        \"resp\":{\"n\":2,\"sum_ns\":9,\"runs\":[[399,2]]},\
        \"jiffies\":{\"user\":12,\"system\":40,\"idle\":1500,\"steal\":3}}";

    fn stamped(seq: u64, units: u64, late: &[(u64, u64)]) -> Stamped {
        let mut report: GuestReport = serde_json::from_str(LINE).unwrap();
        report.seq = seq;
        report.t_ns = seq * 1_000_000_000;
        report.units = units;
        report.late.n = late.iter().map(|l| l.1).sum();
        report.late.runs = late.iter().map(|&(b, n)| vec![b, n]).collect();
        report.late.sum_ns = report.late.n * 2_000_000;
        report.jiffies = Some(Jiffies { user: 100 * seq, system: 0, idle: 300 * seq, steal: 0 });
        Stamped { host_ns: 50_000_000_000 + seq * 1_000_000_000, report }
    }

    #[test]
    fn the_guests_line_is_read() {
        let report: GuestReport = serde_json::from_str(LINE).unwrap();
        assert_eq!((report.seq, report.units, report.late.n), (7, 42, 98));
        assert_eq!(report.jiffies.unwrap().steal, 3);
        assert_eq!(Histogram::from_runs(&report.late).unwrap().n(), 98);
    }

    #[test]
    fn edges_are_reports_inside_the_window() {
        let reports: Vec<Stamped> = (0..10).map(|s| stamped(s, 500 * s, &[(110, 200 * s)])).collect();
        // From 51.5 s to 55.9 s: the reports at 52, 53, 54 and 55 s.
        let window = between("v", &reports, 51_500_000_000, 55_900_000_000, Accel::Tcg).unwrap();
        assert_eq!((window.since_ns, window.until_ns, window.reports), (52_000_000_000, 55_000_000_000, 4));
        assert_eq!(window.window_s, 3.0);
        assert_eq!(window.work_units_per_s, 500.0);
        let late = window.lateness.unwrap();
        assert_eq!((late.n, late.mean_ms), (600, 2.0));
        assert_eq!((window.user_percent, window.idle_percent), (Some(25.0), Some(75.0)));
        assert_eq!(window.guest_clock_ratio, Some(1.0));
        assert_eq!(window.steal_percent, None, "emulation tells the guest of no theft: that is not 0");
        assert_eq!(between("v", &reports, 0, u64::MAX, Accel::Kvm).unwrap().steal_percent, Some(0.0));
    }

    #[test]
    fn a_lost_line_loses_no_sample() {
        let all: Vec<Stamped> = (0..10).map(|s| stamped(s, 500 * s, &[(110, 200 * s), (163, s)])).collect();
        let some: Vec<Stamped> = all.iter().filter(|r| r.report.seq % 3 == 0).cloned().collect();
        let window = |r: &[Stamped]| between("v", r, 0, u64::MAX, Accel::Tcg).unwrap();
        assert_eq!(window(&all).lateness, window(&some).lateness);
        assert_eq!(window(&all).work_units_per_s, window(&some).work_units_per_s);
    }

    #[test]
    fn too_few_reports_and_a_new_start_are_faults() {
        let mut reports: Vec<Stamped> = (0..5).map(|s| stamped(s, s, &[])).collect();
        let fault = between("v", &reports, 51_500_000_000, 52_500_000_000, Accel::Tcg).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NothingThere);
        // A stalled VM delivers everything at once. The arrival times span no time, but the reports were
        // taken seconds apart.
        let bunch: Vec<Stamped> =
            reports.iter().map(|r| Stamped { host_ns: 55_000_000_000, ..r.clone() }).collect();
        assert_eq!(between("v", &bunch, 0, u64::MAX, Accel::Tcg).unwrap().window_s, 4.0);
        reports.push(Stamped { host_ns: 60_000_000_000, ..stamped(0, 0, &[]) });
        let fault = between("v", &reports, 0, u64::MAX, Accel::Tcg).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Changed);
        reports.extend((1..4).map(|s| Stamped { host_ns: (60 + s) * 1_000_000_000, ..stamped(s, s, &[]) }));
        let window = between("v", &reports, 58_000_000_000, u64::MAX, Accel::Tcg).unwrap();
        assert_eq!(window.reports, 4, "a window after the new start is a window");
    }

    #[test]
    fn late_delivery_moves_neither_the_window_nor_the_rate() {
        let prompt: Vec<Stamped> = (0..30).map(|s| stamped(s, 500 * s, &[])).collect();
        let mut stalled = prompt.clone();
        // Reports 10 to 14 arrive together, at the time of report 15, and report 20 arrives 0.3 s late.
        (10..15).for_each(|i| stalled[i].host_ns = prompt[15].host_ns);
        stalled[20].host_ns += 300_000_000;
        assert_eq!(taken_ns(&stalled), taken_ns(&prompt));
        let window =
            |r: &[Stamped]| between("v", r, prompt[11].host_ns, prompt[20].host_ns, Accel::Tcg).unwrap();
        assert_eq!(window(&stalled), window(&prompt));
        assert_eq!(window(&stalled).work_units_per_s, 500.0);
    }

    #[test]
    fn work_counts_while_a_vm_does_not_report() {
        let all: Vec<Stamped> = (0..20).map(|s| stamped(s, 500 * s, &[])).collect();
        let edges = (52_250_000_000, 66_500_000_000);
        let work = |reports: &[Stamped]| work_per_s("v", reports, edges, 2_500_000_000);
        assert!((work(&all).unwrap() - 500.0).abs() < 1e-9);
        // From 54 s to 62 s it does not report, and works at the same rate.
        let silent: Vec<Stamped> = all.iter().filter(|r| !(5..12).contains(&r.report.seq)).cloned().collect();
        assert!((work(&silent).unwrap() - 500.0).abs() < 1e-9);
        // No report for 3 s around the first edge, and none after the second.
        let late: Vec<Stamped> = all.iter().filter(|r| !(2..4).contains(&r.report.seq)).cloned().collect();
        let fault = work(&late).unwrap_err();
        assert!(fault.to_string().contains("no report for 3.0 s"), "{fault}");
        assert_eq!(work(&all[..15]).unwrap_err().kind, FaultKind::NothingThere);
    }

    #[test]
    fn a_drifting_clock_shows() {
        let mut reports: Vec<Stamped> = (0..30).map(|s| stamped(s, 0, &[])).collect();
        reports.iter_mut().for_each(|r| r.report.t_ns = r.report.t_ns / 100 * 99);
        let ratio = clock_ratio(&reports).unwrap();
        assert!((ratio - 0.99).abs() < 1e-6, "{ratio}");
        assert_eq!(clock_ratio(&reports[..3]), None);
    }

    #[test]
    fn a_line_being_written_is_left_out_and_a_foreign_one_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r");
        let line = format!("{{\"host_ns\":5,\"report\":{LINE}}}\n");
        std::fs::write(&file, format!("{line}{}", &line[..40])).unwrap();
        assert_eq!(read(&file).unwrap().len(), 1);
        std::fs::write(&file, format!("{line}{{}}\n")).unwrap();
        assert!(read(&file).unwrap_err().what.contains("line 2"));
    }
}
