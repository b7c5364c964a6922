//! For how long may a VM have priority over all others without slowing them down?
//!
//! The kernel has no class that charges a real-time thread for its time, so vsteer keeps the account. A VM's credit
//! fills at the rate that its weight entitles it to, and empties by its use. A VM that uses less than its
//! entitlement always has credit and runs at once. A VM that uses more runs out of credit and is then scheduled by
//! weight. In any time t a VM gets at most its entitlement for t plus the credit's limit (token bucket: Cruz, "A
//! calculus for network delay", IEEE Trans. Inf. Theory 37(1), 1991).
//!
//! On cgroup v1 with RT_GROUP_SCHED the kernel also has a real-time budget per cgroup and period, and throttles a
//! cgroup that exceeds it. [`granted`] computes budgets that avoid this, and the credit keeps VMs within them.
//!
//! Left out: `GAP(rt-charge)`: vsteer cannot separate the urgent work of a VM that asks for more than its
//! entitlement, so that work has no priority. The sched_ext policy can.

use crate::nouns::RtBudget;
use std::collections::BTreeMap;

/// Part of the entitlement that fills the credit. Less than 1, because the known entitlement is a little old.
const FILLS: f64 = 0.95;
/// Part of the limit that must refill before a VM has priority again, because changing a class costs time.
const AGAIN_AT: f64 = 0.5;

/// Largest part of a cgroup's real-time budget that a VM may use at a steady rate. Together with the part for
/// bursts it is less than 1.
pub const KERNEL_RATE: f64 = 0.75;
/// Largest part of a cgroup's real-time budget that a VM may use in a burst.
pub const KERNEL_AT_ONCE: f64 = 0.2;

/// Budgets of cgroups, us per period, parents before children, so that each of `leaves` may run for its share of
/// every pCPU in real time. `known`: budgets of all cgroups from the root's children to the leaves. Cgroups without
/// leaves are left out.
pub fn granted<'a>(
    known: &BTreeMap<&str, &'a RtBudget>,
    leaves: &BTreeMap<&str, f64>,
) -> Vec<(&'a RtBudget, i64)> {
    // The kernel compares rounded ratios: a parent gets a little more than its children for each cgroup below it.
    const ROUNDING_US: u64 = 1_000;
    // A path sorts before those below it.
    let grant = |(group, budget): (&&str, &&'a RtBudget)| {
        let share: f64 =
            leaves.iter().filter(|(leaf, _)| is_within(leaf, group)).map(|(_, share)| share).sum();
        let below = known.keys().filter(|other| is_within(other, group) && *other != group).count() as u64;
        let to_us = (share * budget.period_us as f64) as u64 + ROUNDING_US * below;
        (share > 0.0).then_some((*budget, i64::try_from(to_us).ok()?))
    };
    known.iter().filter_map(grant).collect()
}

/// Is `path` the cgroup `group` or below it?
fn is_within(path: &str, group: &str) -> bool {
    path == group || (path.starts_with(group) && path.as_bytes().get(group.len()) == Some(&b'/'))
}

/// Credit that fills at a rate, up to a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credit {
    /// Credit, ns, at most `limit_ns`. Debt is bounded too, because a VM owes nothing for use without priority.
    now_ns: f64,
    limit_ns: f64,
    used_up: bool,
}

impl Credit {
    /// A full credit of `limit_ns`.
    pub fn new(limit_ns: f64) -> Credit {
        Credit { now_ns: limit_ns, limit_ns, used_up: false }
    }

    /// Accounts for `elapsed_ns`, in which the VM used `used_ns` and was entitled to `due` pCPUs.
    pub fn passes(&mut self, elapsed_ns: f64, due: f64, used_ns: f64) {
        let now = self.now_ns + FILLS * due * elapsed_ns - used_ns;
        self.now_ns = now.clamp(-self.limit_ns, self.limit_ns);
        if self.now_ns <= 0.0 {
            self.used_up = true;
        } else if self.now_ns >= AGAIN_AT * self.limit_ns {
            self.used_up = false;
        }
    }

    /// Least time that the credit lasts if the VM uses `pcpus` pCPUs at once, ns.
    pub fn lasts_ns(&self, due: f64, pcpus: f64) -> f64 {
        self.now_ns.max(0.0) / (pcpus - FILLS * due).max(0.1)
    }

    /// Is there any left?
    pub fn is_left(&self) -> bool {
        !self.used_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: f64 = 1e6;

    #[test]
    fn a_parent_has_what_its_children_have_and_a_little() {
        let budget =
            |cgroup: &str| RtBudget { cgroup: cgroup.to_owned(), runtime_us: 0, period_us: 1_000_000 };
        let all = ["/m", "/m/a", "/m/a/vcpu0", "/m/a/vcpu1", "/m/b", "/other"].map(budget);
        let known = all.iter().map(|b| (b.cgroup.as_str(), b)).collect();
        let leaves = BTreeMap::from([("/m/a/vcpu0", 0.25), ("/m/a/vcpu1", 0.25), ("/m/b", 0.125)]);
        let told: Vec<(&str, i64)> =
            granted(&known, &leaves).into_iter().map(|(b, us)| (b.cgroup.as_str(), us)).collect();
        let expected = [
            ("/m", 629_000),
            ("/m/a", 502_000),
            ("/m/a/vcpu0", 250_000),
            ("/m/a/vcpu1", 250_000),
            ("/m/b", 125_000),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn who_asks_for_less_than_its_due_is_put_first_always() {
        let mut credit = Credit::new(20.0 * MS);
        for i in 0..1_000 {
            // 4 of 10 ms, due 5; in one piece.
            credit.passes(1.0 * MS, 0.5, if i % 10 < 4 { MS } else { 0.0 });
            assert!(credit.is_left());
        }
    }

    #[test]
    fn who_takes_all_is_soon_one_among_others_and_stays_it() {
        let mut credit = Credit::new(20.0 * MS);
        let mut first = 0.0;
        for _ in 0..10_000 {
            let used = if credit.is_left() { 1.0 } else { 1.0 / 3.0 };
            first += if credit.is_left() { 1.0 } else { 0.0 };
            credit.passes(MS, 1.0 / 3.0, used * MS);
        }
        // 20 ms of credit last 30 ms if the VM gets back a third of what it uses.
        assert!((28.0..=33.0).contains(&first), "{first}");
    }

    #[test]
    fn it_lasts_as_long_as_is_said() {
        let mut credit = Credit::new(20.0 * MS);
        let lasts = credit.lasts_ns(0.5, 2.0);
        credit.passes(0.99 * lasts, 0.5, 2.0 * 0.99 * lasts);
        assert!(credit.is_left());
        credit.passes(0.02 * lasts, 0.5, 2.0 * 0.02 * lasts);
        assert!(!credit.is_left() && credit.lasts_ns(0.5, 2.0) == 0.0);
    }

    proptest! {
        /// However it alternates, put first it uses all that there is, else its due at most.
        #[test]
        fn no_more_than_its_due_and_the_limit(wants in proptest::collection::vec(any::<bool>(), 1..600)) {
            let (due, limit, step) = (0.25, 20.0 * MS, MS);
            let mut credit = Credit::new(limit);
            let mut beyond = 0.0f64;
            for wants in wants {
                let used = match (wants, credit.is_left()) {
                    (false, _) => 0.0,
                    (true, true) => step,
                    (true, false) => due * step,
                };
                credit.passes(step, due, used);
                beyond = (beyond + used - due * step).max(0.0);
                prop_assert!(beyond <= limit + 2.0 * step, "{}", beyond / MS);
            }
        }
    }
}
