//! The rows of `top`: esxtop's CPU screen for any hypervisor.
//!
//! `%RDY` includes `%MLMTD`, as in esxtop; vsteer's own ready time is the rest. Group rows sum all threads of a VM, as esxtop
//! sums all worlds. The sum over vCPUs has a row of its own.

use super::{one_line, percent};
use std::fmt::Write as _;
use vsteer_core::model::{HostModel, Quantiles, Shares, ThreadModel, VmModel};
use vsteer_core::nouns::HostConfig;
use vsteer_core::numa::load::home;
pub use vsteer_core::top_columns::COLUMNS;
use vsteer_core::visible::{self, csv_cell};

/// What the columns mean, for the help of the live table.
pub const COLUMNS_HELP: &str = "  %USED   run, system, less interrupts served for others (scaled by
          frequency on ESXi alone)
  %RDY    ready and limited together, as esxtop counts it
  %CSTP   held back so that siblings catch up (ESXi and simulator)
  %LAG    ready while a sibling vCPU ran      %MLMTD  held by a quota
  %WAIT   asleep        %OVRLP  interrupts served on its time
  %SYS    the hypervisor's work on its behalf (ESXi)   N%L  local memory
  WAKE99  wake-up to running, 99th percentile; group rows sum all threads
  SW/s    times it got a pCPU   IO/s   disk requests and packets (Xen)
  TMR/s   its timers that ended %TMRLATE served 1 ms later or more
  %TMRREF it was not put first for them (all three: vsteer realtime)
  %WAKING a part of %RDY: its wake-up was on its way to another pCPU
  %CPUSOME pressure of the VM's cgroup: a thread waited for a CPU;
  %IOFULL %MEMFULL  no thread could go on, for I/O, for memory
  ~       estimated from the cgroups' throttled time
  -       not measured by this collector (vsteer diagnose says why)";

/// Stands before a value that is estimated.
const ESTIMATE: char = '~';

/// Columns of what only some hosts or VMs have: the live table shows them where anybody has any of such a set.
const RARE: [&[&str]; 5] = [
    &["%CSTP", "%SYS"],
    &["N%L"],
    &["TMR/s", "%TMRLATE", "%TMRREF"],
    &["%CPUSOME", "%IOFULL", "%MEMFULL"],
    &["%WAKING"],
];

/// The columns, by their place in [`COLUMNS`], that the live table shows if it has room for `room` of them. `anybody` says
/// whether any row has a value in a column. Columns without a value are dropped first, from the right, then the rightmost.
pub fn shown(anybody: impl Fn(usize) -> bool, room: usize) -> Vec<usize> {
    let place = |name: &str| COLUMNS.iter().position(|c| *c == name);
    let hidden: Vec<usize> = RARE
        .iter()
        .map(|set| set.iter().filter_map(|name| place(name)).collect::<Vec<usize>>())
        .filter(|set| !set.iter().any(|i| anybody(*i)))
        .flatten()
        .collect();
    let mut shown: Vec<usize> = (0..COLUMNS.len()).filter(|i| !hidden.contains(i)).collect();
    while shown.len() > room {
        let empty = shown.iter().rposition(|i| !anybody(*i));
        shown.remove(empty.unwrap_or(shown.len() - 1));
    }
    shown
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The VM's id, or the host part's name; rows of one VM share it.
    pub group: String,
    /// 0: a group, 1: something inside it.
    pub depth: u8,
    /// What it is called.
    pub name: String,
    /// The values behind the cells: shares, ms or rates.
    pub values: [Option<f64>; COLUMNS.len()],
    /// The column whose value is not measured but estimated.
    pub estimated: Option<usize>,
    /// Number of vCPUs over which the values are sums, at least 1.
    pub vcpus: usize,
}

impl Row {
    /// The cell of a column, `-` where nothing was measured.
    pub fn cell(&self, column: usize) -> String {
        let mut cell = String::new();
        if self.estimated == Some(column) {
            cell.push(ESTIMATE);
        }
        match self.values[column] {
            Some(value) => write_cell(&mut cell, column, value),
            None => cell.push('-'),
        }
        cell
    }
}

/// What a column's value is written as: ms, a rate, or a share as a percentage.
fn write_cell(to: &mut String, column: usize, value: f64) {
    let written = match COLUMNS[column] {
        "WAKE99ms" => write!(to, "{value:.2}"),
        "SW/s" | "IO/s" | "TMR/s" => write!(to, "{value:.0}"),
        _ => write!(to, "{:.2}", 100.0 * value),
    };
    written.expect("a String takes all");
}

fn row(
    group: &str,
    depth: u8,
    name: String,
    s: &Shares,
    wake: Option<Quantiles>,
    switches: Option<f64>,
    vm: Option<&VmModel>,
) -> Row {
    let wake_ms = wake.map(|w| w.p99_ns / 1e6);
    let of = |what: fn(&VmModel) -> Option<f64>| vm.and_then(what);
    let (io, timers) = (of(|vm| vm.io_per_s), of(|vm| vm.timers_per_s));
    let (late, refused) = (of(|vm| vm.timers_late), of(|vm| vm.timers_refused));
    let pressure = vm.map(|vm| vm.pressure).unwrap_or_default();
    let values = [
        s.used(),
        s.run,
        s.wait,
        s.costop,
        s.lag,
        s.limited,
        s.blocked,
        s.system,
        s.overlap,
        of(|vm| vm.memory_local),
        wake_ms,
        switches,
        io,
        timers,
        late,
        refused,
        pressure.cpu_some,
        pressure.io_full,
        pressure.memory_full,
        s.waking,
    ];
    Row { group: group.to_owned(), depth, name, values, estimated: None, vcpus: 1 }
}

fn thread_row(group: &str, t: &ThreadModel) -> Row {
    let name = format!("  {} (tid {})", t.role, t.tid.0);
    row(group, 1, name, &t.shares, t.wake_latency, t.switches_per_s, None)
}

/// Puts the estimated limited time, marked, where none is measured.
fn estimated(mut row: Row, vm: &VmModel) -> Row {
    let place = COLUMNS.iter().position(|c| *c == "%MLMTD").expect("it is a column");
    if let (None, Some(estimate)) = (row.values[place], vm.limited_estimate) {
        row.values[place] = Some(estimate);
        row.estimated = Some(place);
    }
    row
}

/// Group row, vCPU-sum row and thread rows of every VM.
pub fn vm_rows(model: &HostModel) -> Vec<Row> {
    model.vms.iter().flat_map(rows_of).collect()
}

fn rows_of(vm: &VmModel) -> Vec<Row> {
    let id = &vm.id.0;
    let vcpus = vm.vcpu_threads().count().max(1);
    let of_all = |row: Row| Row { vcpus, ..estimated(row, vm) };
    let all = vm.threads.iter().map(|t| t.switches_per_s).sum::<Option<f64>>();
    let switches = all.filter(|_| !vm.threads.is_empty());
    let group = row(id, 0, one_line(&vm.name), &vm.group, vm.wake_latency, switches, Some(vm));
    let mut rows = vec![of_all(group)];
    if vm.vcpu_threads().next().is_some() {
        let name = format!("  all {} vCPUs", vm.vcpu_threads().count());
        rows.push(of_all(row(id, 1, name, &vm.vcpus, vm.wake_latency, None, None)));
    }
    rows.extend(vm.threads.iter().map(|t| thread_row(id, t)));
    rows
}

/// A line for the host's pressure, where it is measured, and lines for the pCPUs: busy, user, system, interrupts, stolen; in
/// percent.
pub fn host_rows(model: &HostModel) -> Vec<String> {
    let pressure = model.pressure.measured().map(|p| {
        format!(
            "pressure  CPU some {:>6}  I/O some {:>6} full {:>6}  memory some {:>6} full {:>6}",
            percent(p.cpu_some),
            percent(p.io_some),
            percent(p.io_full),
            percent(p.memory_some),
            percent(p.memory_full)
        )
    });
    let pcpus = model.pcpus.iter().map(|p| {
        let f = p.frequency_khz.map_or_else(String::new, |k| format!("  {:.2} GHz", k as f64 / 1e6));
        format!(
            "pCPU {:<3} busy {:6.2}  user {:6.2}  system {:6.2}  interrupts {:5.2}  steal {}{f}",
            p.cpu,
            100.0 * p.busy,
            100.0 * p.user,
            100.0 * p.system,
            100.0 * p.interrupts,
            percent(p.steal)
        )
    });
    pressure.into_iter().chain(pcpus).collect()
}

/// Lines for the NUMA nodes, where there are several: busy pCPUs, and the run and ready time of the vCPUs there: by where
/// their VM is at home, else by where each was last seen. Where neither is known of some vCPU, no sum is.
pub fn node_rows(config: &HostConfig, model: &HostModel) -> Vec<String> {
    let topology = &config.topology;
    let nodes: Vec<_> = topology.nodes().iter().filter(|n| !n.cpus.is_empty()).collect();
    if nodes.len() < 2 {
        return Vec::new();
    }
    let homes: Vec<_> = model
        .vms
        .iter()
        .map(|vm| (vm, config.vm(&vm.id).and_then(|c| home(topology, c)).map(|n| n.id)))
        .collect();
    let placed = homes.iter().all(|(vm, at)| {
        at.is_some()
            || (vm.vcpu_threads().next().is_some() && vm.vcpu_threads().all(|t| t.last_cpu.is_some()))
    });
    let line = |n: &&vsteer_core::topology::NumaNode| {
        let here: Vec<_> = model.pcpus.iter().filter(|p| n.cpus.contains(p.cpu)).collect();
        let busy: f64 = here.iter().map(|p| p.busy).sum();
        let on = Shares::sum(homes.iter().flat_map(|(vm, at)| -> Vec<&Shares> {
            match at {
                Some(id) if *id == n.id => vec![vm.vcpus_or_group().0],
                Some(_) => Vec::new(),
                None => {
                    let there = |t: &&ThreadModel| t.last_cpu.is_some_and(|c| n.cpus.contains(c));
                    vm.vcpu_threads().filter(there).map(|t| &t.shares).collect()
                }
            }
        }));
        format!(
            "node {:<3} busy {busy:6.2} of {} pCPUs  vCPUs %RUN {}  %RDY {}",
            n.id.0,
            here.len(),
            percent(on.run.filter(|_| placed)),
            percent(on.wait.filter(|_| placed))
        )
    };
    nodes.iter().map(line).collect()
}

/// The header of `top -b`.
pub fn csv_header() -> String {
    format!(
        "unix_ns,vm,thread,{}",
        COLUMNS
            .map(|c| if c == "N%L" {
                "pct_local".to_owned()
            } else {
                c.to_ascii_lowercase().replace('%', "pct_")
            })
            .join(",")
    )
}

/// Adds a row as CSV, without what stands before its name; empty cells were not measured. Estimates are left out, since a
/// number of CSV has no mark.
fn write_csv(to: &mut String, r: &Row) {
    *to += &csv_cell(if r.depth == 0 { "group" } else { r.name.trim() });
    for (column, value) in r.values.iter().enumerate() {
        to.push(',');
        if let Some(value) = value.filter(|_| r.estimated != Some(column)) {
            write_cell(to, column, value);
        }
    }
    to.push('\n');
}

/// The host's pressure as a row of CSV, without a VM.
fn csv_host(unix_ns: u64, model: &HostModel) -> Option<String> {
    let p = model.pressure.measured()?;
    let value = |name: &str| match name {
        "%CPUSOME" => p.cpu_some,
        "%IOFULL" => p.io_full,
        "%MEMFULL" => p.memory_full,
        _ => None,
    };
    let cells = COLUMNS.map(|c| value(c).map_or(String::new(), |v| percent(Some(v))));
    Some(format!("{unix_ns},,host,{}", cells.join(",")))
}

/// A model with the host that it is of.
#[derive(serde::Serialize)]
struct Of<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(flatten)]
    model: &'a HostModel,
}

/// One update: CSV rows, or the model as a line of JSON. With `host`, each row and line begins with that name.
pub fn print_rows(host: Option<&str>, unix_ns: u64, model: &HostModel, json: bool) {
    if json {
        let line = serde_json::to_string(&Of { host, model }).expect("a model is plain data");
        println!("{}", visible::json(&line));
        return;
    }
    let of = host.map_or_else(String::new, |host| format!("{},", csv_cell(host)));
    let mut lines = csv_host(unix_ns, model).map_or_else(String::new, |line| format!("{of}{line}\n"));
    for vm in &model.vms {
        let begin = format!("{of}{unix_ns},{},", csv_cell(&vm.name));
        for row in rows_of(vm) {
            lines += &begin;
            write_csv(&mut lines, &row);
        }
    }
    print!("{lines}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::PressureShares;

    #[test]
    fn pressure_of_the_host_has_a_line_only_where_it_is_measured() {
        let mut model = HostModel {
            from_unix_ns: 0,
            window_ns: 1,
            vms: Vec::new(),
            pcpus: Vec::new(),
            pressure: PressureShares::default(),
            blame: None,
            collector: String::new(),
            missing: std::collections::BTreeMap::new(),
        };
        assert_eq!((csv_host(7, &model), host_rows(&model)), (None, Vec::new()));
        model.pressure = PressureShares { cpu_some: Some(0.5), io_full: Some(0.0), ..model.pressure };
        assert_eq!(
            host_rows(&model),
            ["pressure  CPU some  50.00  I/O some      - full   0.00  memory some      - full      -"]
        );
        let line = csv_host(7, &model).unwrap();
        let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let (names, cells) = (cells(&csv_header()), cells(&line));
        let of = |name: &str| cells[names.iter().position(|n| n == name).unwrap()].as_str();
        assert_eq!(names.len(), cells.len());
        assert_eq!((of("vm"), of("thread"), of("pct_run")), ("", "host", ""));
        assert_eq!((of("pct_cpusome"), of("pct_iofull"), of("pct_memfull")), ("50.00", "0.00", ""));
    }
}
