//! A recorded host, simulated: as it was (does the simulator give back what was measured?) and under a plan.

use crate::interrupt::Interrupt;
use crate::source::{self, progress_done, progress_of};
use crate::text::one_line;
use serde_json::{Value, json};
use std::path::Path;
use vsteer_core::model::{HostModel, ThreadModel};
use vsteer_core::nouns::HostConfig;
use vsteer_core::predict::demand::demands;
use vsteer_core::predict::fluid;
use vsteer_core::predict::replay::{Got, replay};
use vsteer_core::timeline::Switch;
use vsteer_core::{Fault, FaultKind};

/// What others may use before it is worth a note, pCPUs.
const OTHERS_TOLD: f64 = 0.02;

/// What the host's processes outside VMs used, pCPUs.
fn others_pcpus(model: &HostModel) -> f64 {
    let busy: f64 = model.pcpus.iter().map(|p| p.busy).sum();
    let vms: f64 = model.vms.iter().filter_map(|vm| vm.group.run).sum();
    (busy - vms).max(0.0)
}

/// One vCPU: measured, simulated as it was, simulated under the plan.
struct Row<'a> {
    vm: &'a str,
    vcpu: u32,
    measured: Option<&'a ThreadModel>,
    simulated: &'a Got,
    planned: Option<&'a Got>,
}

/// Simulates `folder`'s host, and once more under the plan in `plan`.
///
/// # Errors
/// As [`source::read`]; `NothingThere` for a recording without switches or wake-ups.
pub fn run(folder: &Path, plan: Option<&Path>, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let recording = source::read(folder)?;
    let (Some(first), Some(last)) = (recording.batches.first(), recording.batches.last()) else {
        return Err(Fault::new(FaultKind::NothingThere, format!("{} holds no samples", folder.display())));
    };
    let (from_ns, to_ns) = (first.mono_ns, last.mono_ns);
    let recorded = recording.switches(from_ns, to_ns)?;
    recorded.notes.iter().for_each(|n| eprintln!("vsteer: {n}"));
    enough(folder, &recorded.switches)?;
    let stretch = source::whole(recording)?;
    let config = &stretch.config;
    let threads: Vec<_> = config.vms.iter().flat_map(|vm| vm.threads.iter().map(|t| t.tid)).collect();
    let wanted = demands(&recorded.switches, &threads, from_ns, to_ns);
    let window_ns = to_ns - from_ns;
    let simulate = |config: &HostConfig, what: &str| -> Result<Vec<Got>, Fault> {
        let host = replay(config, &wanted, 1)?;
        let mut go_on = || {
            progress_of(what, 0.5, "");
            !interrupt.is_set()
        };
        let got = host.run(window_ns, window_ns, &mut go_on);
        progress_done();
        got
    };
    let as_it_was = simulate(config, "simulating")?;
    let plan = plan.map(crate::command::plan::read).transpose()?;
    let planned =
        plan.map(|p| simulate(&fluid::after(config, &p.steps), "simulating the plan")).transpose()?;
    let (whole, broken) = wanted.values().fold((0, 0), |(w, b), t| (w + t.bursts, b + t.broken));
    let mut notes = Vec::new();
    if broken > 0 {
        notes.push(format!("{broken} of {} bursts were not seen whole and are left out", whole + broken));
    }
    let model = stretch.model()?;
    let others = others_pcpus(&model);
    if others > OTHERS_TOLD {
        notes.push(format!(
            "processes outside the VMs used {others:.2} pCPUs; they are not simulated, so waits for them are missing"
        ));
    }
    let rows: Vec<Row<'_>> = as_it_was
        .iter()
        .enumerate()
        .filter_map(|(i, got)| {
            let vm = model.vm(&got.thread.vm)?;
            Some(Row {
                vm: &vm.name,
                vcpu: got.thread.role.vcpu()?,
                measured: vm.threads.iter().find(|t| t.tid == got.thread.tid),
                simulated: got,
                planned: planned.as_ref().map(|all| &all[i]),
            })
        })
        .collect();
    if json {
        let rows: Vec<Value> = rows.iter().map(value).collect();
        crate::command::print_json(&json!({
            "recording": folder, "window_ns": window_ns, "bursts": whole, "broken": broken, "notes": notes,
            "ready_error_mean": ready_error(&as_it_was, &model).map(|(mean, _)| mean), "vcpus": rows,
        }));
    } else {
        print!("{}", text(&rows));
        if let Some((mean, n)) = ready_error(&as_it_was, &model) {
            println!(
                "mean error of the ready share: {:.2} points over {n} vCPUs that waited 5 % or more",
                100.0 * mean
            );
        }
        notes.iter().for_each(|n| println!("note: {n}"));
    }
    Ok(())
}

/// Is there what demands are made of?
fn enough(folder: &Path, switches: &[Switch]) -> Result<(), Fault> {
    let without = |what: &str, way_out: &str| {
        Err(Fault::new(FaultKind::NothingThere, format!("{} has no {what}", folder.display()))
            .way_out(way_out))
    };
    if !switches.iter().any(Switch::is_switch) {
        return without("context switches", "record with --events");
    }
    if !switches.iter().any(|s| s.woken().is_some()) {
        return without("wake-ups", "record with --events, by a vsteer that records them");
    }
    Ok(())
}

/// The mean error of the ready share over the vCPUs that wait at all (one that never does is easy to foretell), and how
/// many these are.
fn ready_error(got: &[Got], model: &HostModel) -> Option<(f64, usize)> {
    let error = |got: &Got| {
        got.thread.role.vcpu()?;
        let thread = model.vm(&got.thread.vm)?.threads.iter().find(|t| t.tid == got.thread.tid)?;
        let ready = thread.shares.ready?;
        (ready.max(got.ready) >= 0.05).then(|| (got.ready - ready).abs())
    };
    let errors: Vec<f64> = got.iter().filter_map(error).collect();
    Some((vsteer_core::stats::mean(&errors)?, errors.len()))
}

fn value(row: &Row<'_>) -> Value {
    let told = |g: &Got| {
        json!({ "run": g.run, "ready": g.ready, "limited": g.limited, "wake_p99_ns": g.wake.quantile_ns(0.99),
            "wake_ups": g.wake.total() })
    };
    let measured = row.measured.map(|m| {
        json!({ "run": m.shares.run, "ready": m.shares.ready, "limited": m.shares.limited,
            "wake_p99_ns": m.wake_latency.map(|q| q.p99_ns), "wake_ups": m.wake_latency.map(|q| q.count) })
    });
    json!({ "vm": row.vm, "vcpu": row.vcpu, "measured": measured, "simulated": told(row.simulated),
        "planned": row.planned.map(told) })
}

fn text(rows: &[Row<'_>]) -> String {
    let ms = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e6));
    let percent = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{:.2}", 100.0 * x));
    let cells = |run, ready, wake| format!("  {:>7} {:>7} {:>9}", percent(run), percent(ready), ms(wake));
    let of = |g: &Got| cells(Some(g.run), Some(g.ready), g.wake.quantile_ns(0.99));
    let any_plan = rows.iter().any(|r| r.planned.is_some());
    let groups =
        if any_plan { &["measured", "simulated", "with the plan"][..] } else { &["measured", "simulated"] };
    let mut out = format!("{:<22} {:>4}", "", "");
    groups.iter().for_each(|g| out += &format!("  {g:>25}"));
    out += &format!("\n{:<22} {:>4}", "VM", "vCPU");
    groups.iter().for_each(|_| out += &format!("  {:>7} {:>7} {:>9}", "run %", "ready %", "wake p99"));
    out += "  (ms)\n";
    for row in rows {
        out += &format!("{:<22} {:>4}", one_line(row.vm), row.vcpu);
        out += &match row.measured {
            Some(m) => cells(m.shares.run, m.shares.ready, m.wake_latency.map(|q| q.p99_ns)),
            None => cells(None, None, None),
        };
        out += &of(row.simulated);
        out += &row.planned.map_or_else(String::new, of);
        out += "\n";
    }
    out
}
