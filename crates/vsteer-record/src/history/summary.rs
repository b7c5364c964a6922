//! What do many rows of a VM say in a few figures? Sums, the worst row, and a trend.

use super::hour::largest;
use super::row::{Cost, VmRow};
use vsteer_core::thresholds::Thresholds;

/// A VM over some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Id of the VM.
    pub vm: String,
    /// Name of the VM.
    pub name: String,
    /// Number of vCPUs in the last row.
    pub vcpus: Option<u64>,
    /// Time in which the VM was observed, µs.
    pub covered_us: u64,
    /// Run share, summed over vCPUs.
    pub run: Option<f64>,
    /// Ready share, summed over vCPUs.
    pub ready: Option<f64>,
    /// Limited share, summed over vCPUs.
    pub limited: Option<f64>,
    /// The row with the largest ready share: its time, ms since 1970, and the share.
    pub worst: Option<(u64, f64)>,
    /// The largest 99th percentile of a row, µs.
    pub wake_p99_us: Option<u64>,
    /// Who made the VM wait most.
    pub costs: Vec<Cost>,
}

/// Sums up rows of one VM; `None` without a row.
pub fn summary<'a>(rows: impl Iterator<Item = &'a VmRow> + Clone) -> Option<Summary> {
    let last = rows.clone().last()?;
    let covered_us = rows.clone().fold(0_u64, |sum, r| sum.saturating_add(r.covered_us));
    // A minute in which it was not measured does not make the whole time unknown.
    let share = |of: fn(&VmRow) -> Option<u64>| {
        let known = rows.clone().filter_map(|r| Some((of(r)?, r.covered_us)));
        let (us, of_us) = known.fold((0.0, 0.0), |(a, b), (us, of_us)| (a + us as f64, b + of_us as f64));
        (of_us > 0.0).then(|| us / of_us)
    };
    let ready = rows.clone().filter_map(|r| Some((r.unix_ms, r.ready()?)));
    Some(Summary {
        vm: last.vm.clone(),
        name: last.name.clone(),
        vcpus: last.vcpus,
        covered_us,
        run: share(|r| r.run_us),
        ready: share(|r| r.ready_us.or(r.wait_us)),
        limited: share(|r| r.limited_us),
        worst: ready.max_by(|a, b| a.1.total_cmp(&b.1)),
        wake_p99_us: rows.clone().filter_map(|r| r.wake_p99_us).max(),
        costs: largest(rows.flat_map(|r| r.costs.iter().cloned()).collect()),
    })
}

/// The rows of each VM. Rows are in order of VMs.
pub fn by_vm(rows: &[VmRow]) -> impl Iterator<Item = &[VmRow]> {
    rows.chunk_by(|a, b| (&a.name, &a.vm) == (&b.name, &b.vm))
}

/// The ready share of a VM in `n` equal parts of a time; `None` where nothing was measured.
pub fn trend(rows: &[VmRow], from_ms: u64, to_ms: u64, n: usize) -> Vec<Option<f64>> {
    parts(rows, from_ms, to_ms, n).iter().map(|part| summary(part.iter().copied())?.ready).collect()
}

/// The rows of `n` equal parts of a time.
pub fn parts(rows: &[VmRow], from_ms: u64, to_ms: u64, n: usize) -> Vec<Vec<&VmRow>> {
    let mut all = vec![Vec::new(); n];
    let span = to_ms.saturating_sub(from_ms).max(1);
    for row in rows {
        let at = u128::from(row.unix_ms.saturating_sub(from_ms)) * n as u128 / u128::from(span);
        if let Some(part) = all.get_mut(at as usize) {
            part.push(row);
        }
    }
    all
}

/// A threshold that a row exceeds.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Over {
    /// What was measured.
    pub quantity: &'static str,
    /// The measured value, in `unit`.
    pub value: f64,
    /// The threshold, in `unit`.
    pub against: f64,
    /// Unit of both.
    pub unit: &'static str,
}

/// The thresholds that a row exceeds. A row does not tell which VM mostly sleeps, so the stricter thresholds of such VMs are
/// left out.
pub fn over(row: &VmRow, t: &Thresholds) -> Vec<Over> {
    let percent = |quantity, value: Option<f64>, against: f64| {
        let value = value.filter(|v| *v > against)?;
        Some(Over { quantity, value: 100.0 * value, against: 100.0 * against, unit: "%" })
    };
    let group = |us: Option<u64>| row.share(us).filter(|_| row.of_group);
    let waits = row.ready_us.or(row.wait_us);
    let mut all: Vec<Over> = [
        percent("ready per vCPU", row.per_vcpu(waits), t.ready_per_vcpu),
        percent("ready per VM group", group(waits), t.ready_group),
        percent("co-stop per vCPU", row.per_vcpu(row.costop_us), t.costop_per_vcpu),
        percent("co-stop per VM group", group(row.costop_us), t.costop_group),
        percent("limited per vCPU", row.per_vcpu(row.limited_us), t.limited_per_vcpu),
    ]
    .into_iter()
    .flatten()
    .collect();
    // As in diagnose: a VM that runs most of the time has few wake-ups.
    let rests = row.per_vcpu(row.run_us).is_some_and(|run| run < t.wakes_matter_run);
    let late = row.wake_p99_us.map(|us| us as f64 / 1000.0).filter(|ms| rests && *ms > t.wake_p99_ns / 1e6);
    all.extend(late.map(|value| Over {
        quantity: "wake-up to running, 99th percentile",
        value,
        against: t.wake_p99_ns / 1e6,
        unit: "ms",
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unix_ms: u64, ready_us: Option<u64>) -> VmRow {
        let covered_us = 60_000_000;
        VmRow { unix_ms, vcpus: Some(2), covered_us, ready_us, run_us: Some(0), ..VmRow::default() }
    }

    #[test]
    fn figures_of_rows() {
        let rows = [row(0, Some(6_000_000)), row(60_000, None), row(120_000, Some(18_000_000))];
        let all = summary(rows.iter()).unwrap();
        assert_eq!((all.ready, all.worst, all.limited), (Some(0.2), Some((120_000, 0.3)), None));
        assert_eq!(trend(&rows, 0, 240_000, 4), [Some(0.1), None, Some(0.3), None]);
        assert_eq!(summary([].iter()), None);
        let t = Thresholds::default();
        let exceeded = over(&rows[2], &t);
        assert_eq!((exceeded.len(), exceeded[0].quantity, exceeded[0].value), (1, "ready per vCPU", 15.0));
        assert_eq!(over(&rows[1], &t), []);
    }
}
