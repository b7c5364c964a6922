//! Writes a workload of rt-app.

use super::{Class, Event, Phase, Task, Workload};
use std::fmt::Write as _;

/// The text of a workload, in plain JSON. Each event of a phase has a key of its own, so that every reader of JSON takes
/// all of them.
pub fn text(workload: &Workload) -> String {
    let mut out = String::from("{\n");
    let duration = workload.duration_s.map_or_else(|| "-1".to_owned(), |s| s.to_string());
    let _ =
        writeln!(out, "  \"global\": {{ \"duration\": {duration}, \"default_policy\": \"SCHED_OTHER\" }},");
    out += "  \"tasks\": {\n";
    for (i, task) in workload.tasks.iter().enumerate() {
        write_task(&mut out, task);
        out += if i + 1 < workload.tasks.len() { ",\n" } else { "\n" };
    }
    out += "  }\n}\n";
    out
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is plain data")
}

fn rounds(rounds: Option<u64>) -> String {
    rounds.map_or_else(|| "-1".to_owned(), |n| n.to_string())
}

fn write_task(out: &mut String, task: &Task) {
    let _ = writeln!(out, "    {}: {{", quoted(&task.name));
    let _ = write!(out, "      \"instance\": {}, \"loop\": {}", task.instances, rounds(task.rounds));
    if task.delay_us > 0 {
        let _ = write!(out, ", \"delay\": {}", task.delay_us);
    }
    if let Some(cpus) = &task.cpus {
        let cpus: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
        let _ = write!(out, ", \"cpus\": [{}]", cpus.join(", "));
    }
    let (policy, priority) = match task.class {
        Class::Other(nice) => ("SCHED_OTHER", i32::from(nice)),
        Class::Fifo(priority) => ("SCHED_FIFO", i32::from(priority)),
        Class::Rr(priority) => ("SCHED_RR", i32::from(priority)),
    };
    if task.class != Class::Other(0) {
        let _ = write!(out, ", \"policy\": \"{policy}\", \"priority\": {priority}");
    }
    out.push_str(",\n      \"phases\": {\n");
    for (i, phase) in task.phases.iter().enumerate() {
        write_phase(out, i, phase);
        out.push_str(if i + 1 < task.phases.len() { ",\n" } else { "\n" });
    }
    out.push_str("      }\n    }");
}

fn write_phase(out: &mut String, number: usize, phase: &Phase) {
    let _ = write!(out, "        \"phase{number}\": {{ \"loop\": {}", rounds(phase.rounds));
    for (i, event) in phase.events.iter().enumerate() {
        out.push_str(",\n          ");
        let _ = match event {
            Event::Run(us) => write!(out, "\"run{i}\": {us}"),
            Event::Sleep(us) => write!(out, "\"sleep{i}\": {us}"),
            Event::Timer { name, period_us, absolute } => {
                let mode = if *absolute { "absolute" } else { "relative" };
                let name = quoted(name);
                write!(
                    out,
                    "\"timer{i}\": {{ \"ref\": {name}, \"period\": {period_us}, \"mode\": \"{mode}\" }}"
                )
            }
        };
    }
    out.push_str(" }");
}
