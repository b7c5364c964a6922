//! Applies a step on a Xen host with `xl`, for the running domain.
//!
//! Weight and cap belong to the scheduler of the domain's pool. Credit and Credit2 use different commands;
//! RTDS and ARINC 653 have neither. So vsteer reads the scheduler first, and refuses a setting that the
//! scheduler does not have. It expresses a cap as a quota: us in every 100 ms, a whole percentage of a pCPU.
//! A vCPU's hard affinity lists the pCPUs that it may use; its soft affinity lists those that it prefers.
//! vsteer sets one and leaves the other. RTDS has a reservation for each vCPU instead.
//!
//! `xl` is slow (a second), so vsteer asks once to read a step's value and once to check it.
//!
//! A change of pool is in its own file ([`super::pools`]).
//!
//! Source: xl(1) of Xen 4.17: `sched-credit`, `sched-credit2`, `sched-rtds`, `vcpu-pin`.
//!
//! Left out: a domain's configuration file, which its owner edits. RTDS is untried: no hypervisor of Debian
//! has it.

use super::config::{CAP_PERIOD_US, Listed, vm_id};
use super::listing::Domain;
use super::pools::{self, Move};
use super::tools::Place;
use super::words::{fault, shares_word};
use crate::actuate::{Actuate, Former, Restored};
use vsteer_core::nouns::{CpuPool, CpuWeight, Quota, Reserved, Role, Tid, VmId, VmThread};
use vsteer_core::setting;
use vsteer_core::setting::{Change, QuotaScope, Scope, Step};
use vsteer_core::{CpuSet, Fault, FaultKind};

const NO_DEFINITION: &str =
    "xl keeps no definition that vsteer could change: edit the domain's configuration file";
const NOT_ON_XEN: &str = "Xen has no such setting";
/// The largest weight that `xl` accepts; `sched-credit -w`, `sched-credit2 -w`.
const WEIGHT_MOST: u64 = 65_535;

/// The domain that a step changes, as the tools list it.
struct Subject<'a> {
    listed: &'a Listed,
    domain: &'a Domain,
}

impl<'a> Subject<'a> {
    fn find(listed: &'a Listed, id: &VmId, name: &str) -> Result<Subject<'a>, Fault> {
        let domain = listed.domains.iter().find(|d| vm_id(d) == *id);
        let domain = domain.ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, format!("VM {name:?} ({id}) no longer runs here"))
                .help("observe again; the changes to an ended domain ended with the domain")
        })?;
        Ok(Subject { listed, domain })
    }

    fn pool(&self) -> Option<&'a CpuPool> {
        self.listed.share(self.domain.id).1
    }

    fn scheduler(&self) -> &'a str {
        self.pool().map_or("", |pool| pool.scheduler.as_str())
    }

    /// Why this change cannot be made in the running domain.
    fn unable(&self, change: &Change) -> Option<String> {
        match change {
            Change::Affinity(_) | Change::Preference(_) => None,
            Change::Weight(_) | Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, .. }) => {
                match shares_word(self.scheduler()) {
                    Some(_) => None,
                    None => Some(format!(
                        "the scheduler of the domain's pool, {:?}, has no weights and caps",
                        self.scheduler()
                    )),
                }
            }
            Change::Pool(_) => match self.pool() {
                Some(_) => None,
                None => Some("`xl` does not report the domain's pool".to_owned()),
            },
            // Untried, because no hypervisor of Debian has RTDS.
            Change::Reservation(_) => match self.scheduler() {
                "rtds" => None,
                other => Some(format!("the scheduler of the domain's pool, {other:?}, has no reservations")),
            },
            _ => Some(NOT_ON_XEN.to_owned()),
        }
    }

    /// Refuses a step that is not possible on this domain.
    fn check(&self, step: &Step, scope: Scope) -> Result<(), Fault> {
        let unable = self.unable(&step.change);
        if let (true, Some(why)) = (scope.live() || matches!(step.change, Change::Knob(_)), unable) {
            return Err(fault(FaultKind::Unsupported, step).because(why));
        }
        if scope.persistent() {
            return Err(fault(FaultKind::Unsupported, step)
                .because(NO_DEFINITION)
                .help("change the running domain only: --scope live"));
        }
        Ok(())
    }

    fn current(&self, step: &Step) -> Result<Change, Fault> {
        let share = || {
            self.listed.share(self.domain.id).0.ok_or_else(|| {
                fault(FaultKind::Unsupported, step).because(format!(
                    "`xl` reports no weight of the domain: its scheduler is {:?}",
                    self.scheduler()
                ))
            })
        };
        Ok(match step.change.clone() {
            Change::Weight(setting::Weight { to, .. }) => {
                Change::Weight(setting::Weight { from: CpuWeight::Credit(u64::from(share()?.weight)), to })
            }
            Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, to, .. }) => {
                Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, from: quota_of(share()?.cap), to })
            }
            Change::Affinity(setting::Affinity { role, tid, to, .. }) => {
                Change::Affinity(setting::Affinity {
                    role,
                    tid,
                    from: self.vcpu(step, role, tid)?.affinity,
                    to,
                })
            }
            Change::Preference(setting::Preference { role, tid, to, .. }) => {
                Change::Preference(setting::Preference {
                    role,
                    tid,
                    from: self.vcpu(step, role, tid)?.prefers,
                    to,
                })
            }
            Change::Reservation(setting::Reservation { role, tid, to, .. }) => {
                let from = self.vcpu(step, role, tid)?.reserved.ok_or_else(|| {
                    fault(FaultKind::Unsupported, step).because("`xl` reports no reservation of the domain")
                })?;
                Change::Reservation(setting::Reservation { role, tid, from, to })
            }
            Change::Pool(setting::Pool { to, .. }) => {
                let from = Box::new(self.pool().ok_or_else(|| fault(FaultKind::Unsupported, step))?.clone());
                let (weight, limit) = (CpuWeight::Credit(u64::from(share()?.weight)), quota_of(share()?.cap));
                Change::Pool(setting::Pool { from, to, weight, limit })
            }
            _ => return Err(fault(FaultKind::Unsupported, step).because(NOT_ON_XEN)),
        })
    }

    /// The present settings of one of the domain's vCPUs.
    fn vcpu(&self, step: &Step, role: Role, tid: Tid) -> Result<VmThread, Fault> {
        let vm = self.listed.config()?.vms.into_iter().find(|vm| vm.id == step.vm);
        let thread = vm.and_then(|vm| vm.threads.into_iter().find(|t| t.tid == tid && t.role == role));
        thread.ok_or_else(|| {
            fault(FaultKind::Changed, step)
                .because("the domain no longer has this vCPU")
                .help("observe again, then make a new plan")
        })
    }

    /// The command that makes the step.
    fn words(&self, step: &Step) -> Result<Vec<String>, Fault> {
        let id = self.domain.id.to_string();
        let shares = || {
            shares_word(self.scheduler()).ok_or_else(|| {
                fault(FaultKind::Unsupported, step).because("the domain's scheduler has no weights and caps")
            })
        };
        let words: Vec<String> = match &step.change {
            Change::Weight(setting::Weight { to, .. }) => {
                refuse_weight(step, *to)?;
                vec![shares()?.to_owned(), "-d".to_owned(), id, "-w".to_owned(), to.number().to_string()]
            }
            Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, to, .. }) => {
                vec![
                    shares()?.to_owned(),
                    "-d".to_owned(),
                    id,
                    "-c".to_owned(),
                    cap_of(to.as_ref()).to_string(),
                ]
            }
            Change::Affinity(setting::Affinity { role: Role::Vcpu(vcpu), to, .. }) => {
                vec!["vcpu-pin".to_owned(), id, vcpu.to_string(), self.pin(to), "-".to_owned()]
            }
            Change::Preference(setting::Preference { role: Role::Vcpu(vcpu), to, .. }) => {
                let soft = to.as_ref().map_or("all".to_owned(), CpuSet::to_string);
                vec!["vcpu-pin".to_owned(), id, vcpu.to_string(), "-".to_owned(), soft]
            }
            Change::Reservation(setting::Reservation { role: Role::Vcpu(vcpu), to, .. }) => {
                let Reserved { budget_us, period_us, extra_time } = to;
                let words = format!(
                    "sched-rtds -d {id} -v {vcpu} -p {period_us} -b {budget_us} -e {}",
                    u8::from(*extra_time)
                );
                words.split(' ').map(str::to_owned).collect()
            }
            _ => return Err(fault(FaultKind::Unsupported, step).because(NOT_ON_XEN)),
        };
        Ok(words)
    }

    /// A list for `vcpu-pin`. All pCPUs of the pool become "all", so that the vCPU still follows the pool
    /// when the pool changes.
    fn pin(&self, to: &CpuSet) -> String {
        if self.pool().is_some_and(|p| p.cpus.iter().all(|cpu| to.contains(cpu))) {
            "all".to_owned()
        } else {
            to.to_string()
        }
    }
}

/// Refuses a weight that `xl` does not take.
fn refuse_weight(step: &Step, weight: CpuWeight) -> Result<(), Fault> {
    match weight {
        CpuWeight::Credit(weight) if (1..=WEIGHT_MOST).contains(&weight) => Ok(()),
        CpuWeight::Credit(_) => {
            Err(fault(FaultKind::BadInput, step).because(format!("a weight must be from 1 to {WEIGHT_MOST}")))
        }
        _ => Err(fault(FaultKind::Unsupported, step).because("the step holds a weight of Linux")),
    }
}

/// A cap in percent as a quota; a cap of 0 means no cap.
fn quota_of(cap: u32) -> Option<Quota> {
    (cap > 0).then(|| Quota { quota_us: u64::from(cap) * CAP_PERIOD_US / 100, period_us: CAP_PERIOD_US })
}

/// A quota as a cap in percent, rounded up to a whole percent because 0 would mean no cap.
pub(super) fn cap_of(quota: Option<&Quota>) -> u64 {
    quota.map_or(0, |q| (100 * q.quota_us).div_ceil(q.period_us.max(1)).max(1))
}

/// The step's change with `from` as it is in `listed`.
pub(super) fn current(listed: &Listed, step: &Step) -> Result<Change, Fault> {
    Subject::find(listed, &step.vm, &step.vm_name)?.current(step)
}

/// All values that the step will overwrite, as they are in `listed`.
pub(super) fn former(listed: &Listed, step: &Step, scope: Scope) -> Result<Former, Fault> {
    let subject = Subject::find(listed, &step.vm, &step.vm_name)?;
    subject.check(step, scope)?;
    Ok(Former { live: Some(subject.current(step)?), ..Former::default() })
}

/// The command that the step runs, and where.
pub(super) fn touches(place: &Place, listed: &Listed, step: &Step) -> Vec<String> {
    let machine = match place {
        Place::Here => None,
        Place::Ssh { target, .. } => Some(format!("machine: {target}, over ssh")),
    };
    let words = Subject::find(listed, &step.vm, &step.vm_name).and_then(|subject| subject.words(step));
    let command = match (&step.change, words) {
        (Change::Pool(pool), _) => {
            Some(format!("command: xl, for the CPU pools {} and {}", pool.from, pool.to))
        }
        (_, Ok(words)) => Some(format!("command: xl {}", words.join(" "))),
        (_, Err(_)) => None,
    };
    machine.into_iter().chain(command).collect()
}

/// Makes the step at `place`. `listed` is the present configuration.
pub(super) fn act(place: &Place, listed: &Listed, step: &Step, scope: Scope) -> Result<(), Fault> {
    let subject = Subject::find(listed, &step.vm, &step.vm_name)?;
    subject.check(step, scope)?;
    if let Change::Pool(setting::Pool { from, to, weight, limit }) = &step.change {
        refuse_weight(step, *weight)?;
        return Move { place, listed, step, id: subject.domain.id, from, to }
            .make(*weight, cap_of(limit.as_ref()));
    }
    let words = subject.words(step)?;
    let line: Vec<&str> = std::iter::once("xl").chain(words.iter().map(String::as_str)).collect();
    // One call of `xl` makes one setting, so a step is never half done.
    place.run(&line).map(drop)
}

/// If the step's domain or vCPU no longer exists in the tools' lists, returns that reason.
fn gone(listed: &Listed, step: &Step) -> Result<Option<String>, Fault> {
    let Ok(subject) = Subject::find(listed, &step.vm, &step.vm_name) else {
        return Ok(Some("the domain has ended".to_owned()));
    };
    match &step.change {
        Change::Affinity(setting::Affinity { role, tid, .. })
        | Change::Preference(setting::Preference { role, tid, .. })
        | Change::Reservation(setting::Reservation { role, tid, .. }) => {
            match subject.vcpu(step, *role, *tid) {
                Err(fault) if fault.kind == FaultKind::Changed => {
                    Ok(Some("the domain no longer has this vCPU".to_owned()))
                }
                other => other.map(|_| None),
            }
        }
        _ => Ok(None),
    }
}

/// Undoes the step.
pub(super) fn restore(
    place: &Place,
    listed: &Listed,
    step: &Step,
    former: &Former,
) -> Result<Restored, Fault> {
    if let Some(why) = gone(listed, step)? {
        return Ok(Restored::Gone(why));
    }
    let Some(undo) = former.live.as_ref().and_then(Change::undo) else { return Ok(Restored::Back) };
    act(place, listed, &Step { change: undo, ..step.clone() }, Scope::Live)?;
    // A step that failed in the middle may have left pCPUs in no pool.
    if let Change::Pool(setting::Pool { from, to, .. }) = &step.change {
        pools::give_back(place, &to.cpus, from)?;
    }
    Ok(Restored::Back)
}

/// Asks Xen's tools for everything at each call.
impl Actuate for Place {
    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        current(&Listed::ask(self)?, step)
    }

    fn touches(&mut self, step: &Step) -> Vec<String> {
        Listed::ask(self).map_or_else(|_| Vec::new(), |listed| touches(self, &listed, step))
    }

    fn former(&mut self, step: &Step, scope: Scope) -> Result<Former, Fault> {
        former(&Listed::ask(self)?, step, scope)
    }

    fn act(&mut self, step: &Step, scope: Scope) -> Result<(), Fault> {
        act(self, &Listed::ask(self)?, step, scope)
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        restore(self, &Listed::ask(self)?, step, former)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Texts, tid};
    use super::*;

    const INFO: &str = "nr_cpus : 2\ncpu: core socket node\n 0: 0 0 0\n 1: 1 0 0\n";

    /// What Xen 4.17.7 printed for a pool of Credit and one of Credit2, shortened.
    fn listed(scheduler: &str) -> Listed {
        let shares = "Cpupool lab: tslice=30ms ratelimit=1000us migration-delay=0us\nName                                ID Weight  Cap\nweb                                  3    256   40\n";
        Listed::of(&Texts {
            info: INFO.into(),
            domains: "Name                                        ID   Mem VCPUs\tState\tTime(s)   UUID                            Reason-Code\tSecurity Label\nweb                                          3     8     1     -b----       1.2 5b6f4b51-1c2d-4f66-8f2a-d9a3c1a4f001        -                -\n".into(),
            vcpus: "Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)\nweb                                  3     0    1   -b-       1.2  1 / all\n".into(),
            pools: format!("Name               CPUs   Sched     Active   Domain count\nlab                  2    {scheduler}       y          1\n"),
            pools_with_cpus: "Name               CPU list\nlab                0,1\n".into(),
            shares: shares.to_owned(),
            reservations: "web  3  0  10000  4000  yes\n".into(),
        })
    }

    fn step(listed: &Listed, change: Change) -> Step {
        let d = &listed.domains[0];
        Step { vm: vm_id(d), vm_name: d.name.clone(), change, reason: String::new() }
    }

    fn line(listed: &Listed, change: Change) -> Result<String, Fault> {
        let step = step(listed, change);
        Subject::find(listed, &step.vm, "web")?.words(&step).map(|w| w.join(" "))
    }

    #[test]
    fn a_step_is_one_line_of_xl() {
        let l = listed("credit");
        let weight =
            |to| Change::Weight(setting::Weight { from: CpuWeight::Credit(256), to: CpuWeight::Credit(to) });
        assert_eq!(line(&l, weight(512)).unwrap(), "sched-credit -d 3 -w 512");
        assert_eq!(line(&listed("credit2"), weight(512)).unwrap(), "sched-credit2 -d 3 -w 512");
        assert!(line(&listed("rtds"), weight(512)).is_err());
        assert_eq!(line(&l, weight(70_000)).unwrap_err().kind, FaultKind::BadInput);
        let cap =
            |us| Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, from: None, to: us_quota(us) });
        assert_eq!(line(&l, cap(55_000)).unwrap(), "sched-credit -d 3 -c 55");
        assert_eq!(line(&l, cap(100)).unwrap(), "sched-credit -d 3 -c 1", "0 would be none");
        assert_eq!(line(&l, cap(0)).unwrap(), "sched-credit -d 3 -c 0");
        let pin = |to: &str| {
            Change::Affinity(setting::Affinity {
                role: Role::Vcpu(0),
                tid: tid(3, 0),
                from: CpuSet::single(1),
                to: to.parse().unwrap(),
            })
        };
        assert_eq!(line(&l, pin("1")).unwrap(), "vcpu-pin 3 0 1 -");
        assert_eq!(line(&l, pin("0-1")).unwrap(), "vcpu-pin 3 0 all -");
        let (role, tid) = (Role::Vcpu(0), tid(3, 0));
        let prefer =
            |to: Option<CpuSet>| Change::Preference(setting::Preference { role, tid, from: None, to });
        assert_eq!(line(&l, prefer(Some(CpuSet::single(1)))).unwrap(), "vcpu-pin 3 0 - 1");
        assert_eq!(line(&l, prefer(None)).unwrap(), "vcpu-pin 3 0 - all");
        let reserved = |budget_us, extra_time| Reserved { budget_us, period_us: 10_000, extra_time };
        let reserve = Change::Reservation(setting::Reservation {
            role,
            tid,
            from: reserved(4_000, true),
            to: reserved(5_000, false),
        });
        assert_eq!(line(&l, reserve).unwrap(), "sched-rtds -d 3 -v 0 -p 10000 -b 5000 -e 0");
    }

    fn us_quota(us: u64) -> Option<Quota> {
        (us > 0).then_some(Quota { quota_us: us, period_us: 100_000 })
    }

    #[test]
    fn what_is_in_force_is_read_and_what_is_not_offered_refused() {
        let l = listed("credit");
        let of = |change| {
            let step = step(&l, change);
            Subject::find(&l, &step.vm, "web").unwrap().current(&step)
        };
        let weight = Change::Weight(setting::Weight { from: CpuWeight::Credit(1), to: CpuWeight::Credit(9) });
        assert_eq!(
            of(weight.clone()).unwrap(),
            Change::Weight(setting::Weight { from: CpuWeight::Credit(256), to: CpuWeight::Credit(9) })
        );
        let cap = Change::Quota(setting::Quota { scope: QuotaScope::WholeVm, from: None, to: None });
        let Change::Quota(setting::Quota { from, .. }) = of(cap).unwrap() else { panic!() };
        assert_eq!(from, us_quota(40_000));
        let (role, vcpu) = (Role::Vcpu(0), tid(3, 0));
        let Change::Preference(setting::Preference { from: None, .. }) =
            of(Change::Preference(setting::Preference {
                role,
                tid: vcpu,
                from: Some(CpuSet::single(0)),
                to: None,
            }))
            .unwrap()
        else {
            panic!("its soft affinity is `all`")
        };
        let none = Reserved { budget_us: 1, period_us: 1, extra_time: false };
        let reserve = Change::Reservation(setting::Reservation { role, tid: vcpu, from: none, to: none });
        let Change::Reservation(setting::Reservation { from, .. }) = of(reserve.clone()).unwrap() else {
            panic!()
        };
        assert_eq!(from, Reserved { budget_us: 4_000, period_us: 10_000, extra_time: true });
        let subject = Subject::find(&l, &vm_id(&l.domains[0]), "web").unwrap();
        let refused = subject.check(&step(&l, reserve), Scope::Live).unwrap_err();
        assert!(refused.to_string().contains("has no reservations"), "{refused}");
        let rtds = listed("rtds");
        let refused = step(&rtds, weight.clone());
        let subject = Subject::find(&rtds, &refused.vm, "web").unwrap();
        assert_eq!(subject.check(&refused, Scope::Live).unwrap_err().kind, FaultKind::Unsupported);
        let subject = Subject::find(&l, &refused.vm, "web").unwrap();
        assert!(subject.check(&refused, Scope::Both).unwrap_err().to_string().contains("configuration file"));
        assert!(Subject::find(&l, &VmId("xen:gone".into()), "x").is_err());
    }
}
