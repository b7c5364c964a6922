//! A plan as a person reads it before anything happens: the diff, why, and what is expected.

use super::one_line;
use vsteer_core::plan::{Forecast, Plan};

fn forecast(f: &Forecast) -> String {
    let mut out = format!(
        "   expected ({}), sums over vCPUs in % of one pCPU:\n   {:<22} {:>8}    {:>24} {:>8}    {:>24}  work\n",
        f.method, "VM", "ready", "-> ready", "run", "-> run"
    );
    for v in &f.vms {
        let (r, u) = (v.ready_after, v.run_after);
        out.push_str(&format!(
            "   {:<22} {:>8.1} -> {:>8.1} [{:>5.1}, {:>5.1}] {:>9.1} -> {:>8.1} [{:>5.1}, {:>5.1}]  {:>4.0} %\n",
            one_line(&v.name),
            100.0 * v.ready_before,
            100.0 * r.likely,
            100.0 * r.low,
            100.0 * r.high,
            100.0 * v.run_before,
            100.0 * u.likely,
            100.0 * u.low,
            100.0 * u.high,
            100.0 * v.work_ratio()
        ));
    }
    out
}

/// The whole plan.
pub fn plan(p: &Plan) -> String {
    let mut out = format!("plan {}: {}\n", p.id, p.title);
    let mut vm = "";
    for s in &p.steps {
        if s.vm_name != vm {
            out.push_str(&format!("  VM {:?}\n", s.vm_name));
            vm = &s.vm_name;
        }
        out.push_str(&format!("     {}\n        because {}\n", s.change, s.reason));
    }
    for line in &p.irreversible {
        out.push_str(&format!("  not to be undone: {line}\n"));
    }
    out.push_str(&forecast(&p.forecast));
    if !p.alternatives.is_empty() {
        out.push_str("   considered and not chosen:\n");
        for a in &p.alternatives {
            out.push_str(&format!("     {}: {}\n", a.title, one_line(&a.why_not)));
        }
    }
    out
}
