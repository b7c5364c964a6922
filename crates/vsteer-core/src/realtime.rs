//! For how long may a VM be put before everybody else, without anybody's paying for it?
//!
//! Where the kernel has no class that charges a real-time thread for its time, whoever puts a VM first has to keep the account. A VM has
//! a credit: it fills at the rate that the VM is due by its weight and empties by what it uses. Who asks for less than it is due
//! has credit always, and is served at once, as a static priority would; who asks for more has used up its credit after a while, and
//! is from then on served by weight like everybody else. Over any time t the VM has no more than its due of t and the
//! credit's limit, however it behaves (the token bucket's bound: Cruz, "A calculus for network delay", IEEE Trans. Inf. Theory 37(1),
//! 1991), and no less than without.
//!
//! The second account is the kernel's own: on cgroup v1 with RT_GROUP_SCHED a cgroup has a budget of real time per period, and who
//! exhausts it stands still until the next. It must never come to that: [`granted`] says which budgets let VMs be put first at all, and a
//! credit of their own keeps them inside.
//!
//! Left out: `GAP(rt-charge)`: work of a VM that asks for more than its due is not told apart, so its urgent part is not put first; that takes
//! the policy of sched_ext.

use crate::nouns::RtBudget;
use std::collections::BTreeMap;

/// Of what a VM is due, how much fills its credit: what it is due is known from a while ago, and is not to be exceeded.
const FILLS: f64 = 0.95;
/// Once used up, so much of the limit must have come back before the VM is put first again: changing a class costs.
const AGAIN_AT: f64 = 0.5;

/// Of what a cgroup may run in real time per period, what a VM is put first for, at most: at a steady rate and at once. The two together
/// are less than the whole.
pub const KERNEL_RATE: f64 = 0.75;
/// See [`KERNEL_RATE`].
pub const KERNEL_AT_ONCE: f64 = 0.2;

/// Budgets of cgroups, parents before children, so that each of `leaves` may run for its share of every pCPU in real time. `known`: the
/// budgets of all cgroups from the root's children down to the leaves; those that hold none of them are left out. us per period.
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
    /// ns; at most `limit_ns`. Debt is bounded likewise: who used more than its due while nobody put it first owes nothing for it.
    now_ns: f64,
    limit_ns: f64,
    used_up: bool,
}

impl Credit {
    /// Full, of at most `limit_ns`.
    pub fn new(limit_ns: f64) -> Credit {
        Credit { now_ns: limit_ns, limit_ns, used_up: false }
    }

    /// `elapsed_ns` have passed, in which the VM used `used_ns` and was due `due` pCPUs.
    pub fn passes(&mut self, elapsed_ns: f64, due: f64, used_ns: f64) {
        let now = self.now_ns + FILLS * due * elapsed_ns - used_ns;
        self.now_ns = now.clamp(-self.limit_ns, self.limit_ns);
        if self.now_ns <= 0.0 {
            self.used_up = true;
        } else if self.now_ns >= AGAIN_AT * self.limit_ns {
            self.used_up = false;
        }
    }

    /// For how long what is left lasts, at least, if the VM uses `pcpus` of them at once, ns.
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
        // 20 ms of credit last 30 ms where a third of what is used comes back.
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
