//! What remains after the policy, a VM, a vCPU or a pCPU disappears.

use super::jobs::{COUNTED, MOVED};
use super::{Boot, of, vms};
use crate::suite::Findings;
use serde_json::Value;
use vsteer_core::{Fault, model};
use vsteer_record::Recording;

/// The least part that they keep of what they do alone: two VMs that ask for a third each and one that
/// computes, under EEVDF.
const KEPT_LEAST: f64 = 0.3;
/// 185 units after each sleep of 30 ms; they take 3.7 ms.
const MOVED_ALONE_UNITS_PER_S: f64 = 185.0 / 33.7e-3;
/// The least part of that: the VM stands still for some ms while it moves, and two that end together wait for
/// each other.
const MOVED_KEPT_LEAST: f64 = 0.97;

impl Boot {
    /// The policy is killed, and then a VM while its timer is armed.
    pub(super) fn faults(&self, kernel: &str, findings: &mut Findings) -> Result<(), Fault> {
        let status = std::fs::read_to_string(self.options.output.join("policy-killed/command.status"));
        let status = status.unwrap_or_default().trim().to_owned();
        let kept: Vec<f64> = [("rt", "sleeper-alone"), ("other", "sleeper-alone"), ("job", "job-alone")]
            .iter()
            .map(|(vm, alone)| {
                let name = if *vm == "other" { "rt" } else { vm };
                self.units("policy-killed", vm) / self.units(alone, name)
            })
            .collect();
        let said = self.said("guest-killed");
        findings.claim(
            format!("{kernel}: a killed policy leaves the host to the kernel's scheduler: VMs go on, and the next policy can be loaded"),
            status == "signal 9" && kept.iter().all(|k| *k >= KEPT_LEAST) && said.is_ok(),
            format!("{status}; of what each does alone the VMs did {kept:.2?}"),
        );
        let said = said?;
        let honoured = |said: &Value, vm: &str| (of(said, vm, "honoured"), of(said, vm, "expired"));
        let (rt, back) = (honoured(&said, "rt"), honoured(&said, "other"));
        findings.claim(
            format!("{kernel}: where a VM is killed while its timer is armed, the other one's are honoured as before, and its own once it is there again"),
            vms(&said).count() == 2
                && rt.1 > 200.0
                && rt.0 > 0.95 * rt.1
                && (30.0..100.0).contains(&back.1)
                && back.0 > 0.95 * back.1,
            format!("{} of {} before and after, {} of {} since it is back", rt.0, rt.1, back.0, back.1),
        );
        let said = self.said("vcpu-unplugged")?;
        let (rt, rest) = (honoured(&said, "rt"), honoured(&said, "other"));
        // Two vCPUs for 8 s of 24, one until the end, beside one that does the same all the time.
        let due = rt.1 * (2.0 * 8.0 + 16.0) / 24.0;
        findings.claim(
            format!("{kernel}: where a vCPU is unplugged while its timer is armed, the timers of its VM's other one are honoured, and other VMs'"),
            rt.1 > 200.0 && rt.0 > 0.9 * rt.1 && rest.0 > 0.9 * rest.1 && (due / rest.1 - 1.0).abs() < 0.15,
            format!("{} of {}, of the VM's {} of {}, {due:.0} are due", rt.0, rt.1, rest.0, rest.1),
        );
        Ok(())
    }

    /// A VM that moves away, live, with armed timers, and counts as a new VM at its destination.
    pub(super) fn moved(&self, kernel: &str, findings: &mut Findings) -> Result<(), Fault> {
        let said = self.said(MOVED)?;
        let names: Vec<&str> = vms(&said).filter_map(|vm| vm["name"].as_str()).collect();
        let served =
            |vm: &str| (of(&said, vm, "honoured") + of(&said, vm, "running"), of(&said, vm, "expired"));
        let (come, other) = (served("rt-moved"), served("other"));
        // What a VM of this kind does alone, for a moved one and one that is not moved.
        let kept = ["rt", "other"].map(|vm| self.units(MOVED, vm) / MOVED_ALONE_UNITS_PER_S);
        findings.claim(
            format!("{kernel}: a VM with Linux that is moved away, live, is nobody's any more; where it has come to its timers are honoured, and the other one's all the time"),
            names.iter().all(|name| ["rt-moved", "other"].contains(name))
                && come.1 > 800.0
                && come.0 > 0.95 * come.1
                && other.1 > 1_400.0
                && other.0 > 0.95 * other.1
                && kept.iter().all(|kept| *kept > MOVED_KEPT_LEAST),
            format!(
                "{names:?}; {} of {} since it has come, {} of {}; of what each does alone they did {kept:.2?}",
                come.0, come.1, other.0, other.1
            ),
        );
        Ok(())
    }

    /// A pCPU that goes offline and online: the policy continues.
    pub(super) fn comings(&self, kernel: &str, findings: &mut Findings) -> Result<(), Fault> {
        let said = self.said("pcpu-goes")?;
        let (honoured, expired) = (of(&said, "rt", "honoured"), of(&said, "rt", "expired"));
        findings.claim(
            format!("{kernel}: when a pCPU goes or comes the policy restarts and honours VMs' timers again"),
            said["begun_again"].is_string() && expired > 100.0 && honoured > 0.9 * expired,
            format!(
                "{honoured} of {expired} since; {}",
                said["begun_again"].as_str().unwrap_or("never restarted")
            ),
        );
        Ok(())
    }

    /// Threads of hardly any weight run now and then, and so the policy goes on.
    pub(super) fn starved(&self, kernel: &str, findings: &mut Findings) -> Result<(), Fault> {
        let said = self.said("starved")?;
        let (seconds, light) = (said["seconds"].as_f64().unwrap_or(0.0), of(&said, "light", "cpu_s"));
        findings.claim(
            format!("{kernel}: three vCPUs of weight 1 beside a VM of weight 10,000 all run, and the policy goes on"),
            seconds > 110.0 && light > 0.0 && light < 0.02 * seconds,
            format!("for {seconds:.0} s, of which they had {light:.2}; {}", said["fault"]["cause"]),
        );
        Ok(())
    }

    /// An observer counts while the policy schedules.
    pub(super) fn counted(&self, kernel: &str, findings: &mut Findings) -> Result<(), Fault> {
        for (name, beside) in COUNTED.iter().zip(["a VM that computes", "nobody"]) {
            let case = self.ran.cases.iter().find(|c| c.name == *name);
            let recording =
                case.and_then(|c| c.recording.as_deref()).unwrap_or_else(|| panic!("{name} is recorded"));
            let r = Recording::open(recording)?;
            let model = model::derive(r.config_at(u64::MAX), &r.manifest.collector, &r.batches)?;
            let rt = model.vms.iter().find(|vm| vm.name == "rt");
            let per_s = rt.and_then(|vm| vm.timers_per_s).unwrap_or(f64::NAN);
            let (late, refused) = rt.map_or((None, None), |vm| (vm.timers_late, vm.timers_refused));
            findings.claim(
                format!("{kernel}: who observes the host counts VMs' timers too, and none that is refused, beside {beside}"),
                // It sleeps for 30 ms and works for 3.7 ms.
                (25.0..32.0).contains(&per_s) && refused == Some(0.0) && late.is_some_and(|late| late < 0.1),
                format!("{per_s:.1} timers a second, late {late:.3?}, refused {refused:.3?}"),
            );
        }
        Ok(())
    }
}
