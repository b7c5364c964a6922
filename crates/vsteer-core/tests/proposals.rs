//! Tests of each action of a plan at its limits: the steps that it proposes, and the reason where it proposes none.

mod common;

use common::Host;
use vsteer_core::forecast::Forecast;
use vsteer_core::nouns::*;
use vsteer_core::plan::Plan;
use vsteer_core::plan::limits::Limits;
use vsteer_core::setting::{self, Change, Scope, Step};
use vsteer_core::topology::{Cache, CacheKind, Core, Parts};
use vsteer_core::{CpuSet, Topology, topology};

fn busy(h: &mut Host, busy: &[f64]) {
    h.model.pcpus.iter_mut().zip(busy).for_each(|(p, busy)| p.busy = *busy);
}

fn refused(h: &Host, action: &str) -> String {
    h.told(action).unwrap_err()
}

mod quota {
    use super::*;

    /// A VM of two vCPUs with a limit of a quarter of a pCPU: for the whole VM, or with `each` for each vCPU.
    /// `idle`: the idle share of the host's pCPU.
    fn held(run: f64, limited: f64, each: bool, idle: f64) -> Host {
        let mut h = Host::new(1, 1, 1.0 - idle);
        h.vm("a", 2, 0.0, 0.0, 0.0);
        let quota = Some(Quota { quota_us: 25_000, period_us: 100_000 });
        let limits = &mut h.config.vms[0].limits;
        if each {
            limits.per_vcpu = quota
        } else {
            limits.whole_vm = quota
        }
        (h.model.vms[0].vcpus.run, h.model.vms[0].vcpus.limited) = (Some(run), Some(limited));
        h
    }

    #[test]
    fn a_limit_rises_to_a_quarter_more_than_was_asked_for() {
        let h = held(0.25, 0.15, false, 1.0);
        let step = "a: limit of whole VM: 0.25 CPUs (25000/100000 µs) -> 0.50 CPUs (50000/100000 µs)";
        assert_eq!(h.told("quota").unwrap(), [step]);
        assert_eq!(
            h.proposed("quota").unwrap()[0].reason,
            "its quota throttles it for 15 % of the time, summed over its vCPUs"
        );
        let h = held(0.5, 0.3, true, 1.0);
        let step = "a: limit of each vCPU: 0.25 CPUs (25000/100000 µs) -> 0.50 CPUs (50000/100000 µs)";
        assert_eq!(h.told("quota").unwrap(), [step]);
    }

    #[test]
    fn the_quota_of_a_slice_is_named_and_not_changed() {
        let mut h = held(0.25, 0.15, false, 1.0);
        h.config.vms[0].limits.whole_vm = None;
        assert_eq!(refused(&h, "quota"), "no quota throttles a VM", "none is known");
        let quota = Quota { quota_us: 30_000, period_us: 100_000 };
        h.config.vms[0].quotas = vec![GroupQuota { cgroup: "/machine.slice".into(), quota, shared: true }];
        let why = refused(&h, "quota");
        assert!(why.contains("cgroup /machine.slice (0.30 pCPUs) throttles VM \"a\""), "{why}");
        // It has one of its own: the counts tell which of them ran out.
        h.config.vms[0].limits.whole_vm = Some(Quota { quota_us: 25_000, period_us: 100_000 });
        assert!(h.told("quota").is_ok());
        (h.model.vms[0].throttled_per_s, h.model.vms[0].throttled_above_per_s) = (Some(0.0), Some(3.0));
        assert!(refused(&h, "quota").contains("/machine.slice"));
    }

    #[test]
    fn no_limit_is_beyond_what_the_vcpus_can_use() {
        let to = |each| {
            held(2.0, 1.0, each, 9.0).told("quota").unwrap()[0].split(" -> ").nth(1).unwrap().to_owned()
        };
        assert_eq!(to(false), "2.00 CPUs (200000/100000 µs)");
        assert_eq!(to(true), "1.00 CPUs (100000/100000 µs)");
    }

    #[test]
    fn a_limit_rises_only_as_far_as_the_host_idles() {
        assert!(held(0.25, 0.15, false, 0.25).told("quota").is_ok(), "just as much");
        let none = "the host has no room for a larger quota: VM \"a\" needs 0.2 more pCPUs, but only 0.1 \
            are idle";
        assert_eq!(refused(&held(0.25, 0.15, false, 0.125), "quota"), none);
        // Each of the two vCPUs gets a quarter of a pCPU more.
        assert!(held(0.5, 0.3, true, 0.5).told("quota").is_ok());
        assert!(held(0.5, 0.3, true, 0.4).told("quota").is_err());
        // The second VM cannot have the idle time that the first VM gets.
        let mut h = held(0.25, 0.15, false, 0.4);
        h.vm("b", 2, 0.0, 0.0, 0.0);
        h.config.vms[1].limits = h.config.vms[0].limits;
        h.model.vms[1].vcpus = h.model.vms[0].vcpus;
        let told = h.told("quota").unwrap();
        assert!(told.len() == 1 && told[0].starts_with("a: "), "{told:?}");
        busy(&mut h, &[0.5]);
        assert_eq!(h.told("quota").unwrap().len(), 2);
    }

    #[test]
    fn a_vm_is_held_from_2_in_100_of_its_vcpus_time_on() {
        assert!(held(0.36, 0.04, false, 1.0).told("quota").is_ok());
        let none = "no quota throttles a VM";
        assert_eq!(refused(&held(0.36, 0.039, false, 1.0), "quota"), none);
        assert_eq!(refused(&held(0.1, 0.05, false, 1.0), "quota"), none, "it asks for less than the limit");
        let mut h = held(0.36, 0.04, false, 1.0);
        h.config.vms[0].limits = vsteer_core::nouns::Limits::default();
        assert_eq!(refused(&h, "quota"), none);
    }
}

mod pin {
    use super::*;

    /// VMs of two vCPUs on two pCPUs. `run`: the run share of each vCPU. `others`: what host processes use of each
    /// pCPU.
    fn moved(vms: &[&str], run: f64, moves_per_s: f64, others: f64) -> Host {
        let mut h = Host::new(2, 1, 0.0);
        for name in vms {
            h.vm(name, 2, run, 0.0, 0.0);
        }
        for t in h.model.vms.iter_mut().flat_map(|vm| &mut vm.threads) {
            t.migrations_per_s = Some(moves_per_s);
        }
        let by_vms: f64 = h.model.vms.iter().filter_map(|vm| vm.group.run).sum();
        busy(&mut h, &[by_vms / 2.0 + others; 2]);
        h
    }

    fn within(h: &Host, move_cost_us: f64) -> Result<Vec<Step>, String> {
        h.proposed_within("pin", Limits { move_cost_ns: Some(1e3 * move_cost_us), ..Limits::default() })
    }

    fn words(steps: &[Step]) -> Vec<String> {
        steps.iter().map(|s| format!("{}: {}", s.vm_name, s.change)).collect()
    }

    #[test]
    fn vcpus_that_are_moved_often_get_a_pcpu_each() {
        let steps = within(&moved(&["a"], 0.9, 100.0, 0.0), 1_000.0).unwrap();
        assert_eq!(words(&steps), ["a: vcpu0: pCPUs 0-1 -> 0", "a: vcpu1: pCPUs 0-1 -> 1"]);
        assert_eq!(
            steps[0].reason,
            "the scheduler moves its vCPUs 200.0 times a second, at 1000 us each (--move-cost-us): 11.11 % of their run time, up to 22.22 % if they wait for each other"
        );
        // A vCPU cannot lose more than it runs.
        let steps = within(&moved(&["a"], 0.5, 900.0, 0.0), 1_000.0).unwrap();
        assert!(
            steps[0].reason.contains(
                "100.00 % of their run time, up to 100.00 \
            %"
            ),
            "{}",
            steps[0].reason
        );
    }

    #[test]
    fn pins_pay_where_moves_cost_more_than_pcpus_that_are_left_idle() {
        // Four vCPUs want a pCPU half of the time: two pCPUs work 1.625 if the vCPUs float, and 1.5 with two pinned
        // to each.
        let told = within(&moved(&["a", "b"], 0.5, 10.0, 0.0), 1_000.0).unwrap_err();
        let loss = "pins would cost 7.69 % of the work, because pCPUs idle while vCPUs wait, and would save at \
                most 2.46 %";
        assert_eq!(told, loss);
        assert_eq!(within(&moved(&["a", "b"], 0.5, 40.0, 0.0), 1_000.0).unwrap().len(), 4);
        // Host processes use part of the time that pins leave idle.
        let told = within(&moved(&["a", "b"], 0.4, 10.0, 0.1), 1_000.0).unwrap_err();
        assert_eq!(told, OTHERS);
    }

    const OTHERS: &str = "pins would cost 6.28 % of the work, because pCPUs idle while vCPUs wait, and would save at most \
            2.69 %";

    #[test]
    fn moves_that_cost_less_than_a_thousandth_are_no_reason() {
        assert!(within(&moved(&["a"], 0.5, 1.0, 0.0), 500.0).is_ok(), "a thousandth");
        let told = within(&moved(&["a"], 0.5, 1.0, 0.0), 400.0).unwrap_err();
        assert_eq!(
            told,
            "moves between pCPUs cost each VM at most 0.080 % of its run time, at 400 us each \
                (--move-cost-us)"
        );
    }

    #[test]
    fn only_who_has_a_choice_is_pinned() {
        let often = || moved(&["a"], 0.5, 100.0, 0.0);
        let mut one = often();
        one.pin("a", "1");
        assert!(within(&one, 1_000.0).is_err(), "two of a VM would share a pCPU");
        let mut each = often();
        each.config.vms[0].threads[0].affinity = CpuSet::single(0);
        each.config.vms[0].threads[1].affinity = CpuSet::single(1);
        assert!(within(&each, 1_000.0).is_err(), "it is pinned already");
        let mut h = often();
        h.model.vms[0].threads.iter_mut().for_each(|t| t.migrations_per_s = None);
        assert!(within(&h, 1_000.0).unwrap_err().contains("were not measured"));
        assert!(h.proposed("pin").unwrap_err().contains("give it with --move-cost-us"));
    }

    #[test]
    fn the_greediest_come_first_and_siblings_of_a_core_last() {
        let mut h = moved(&["a"], 0.2, 100.0, 0.0);
        h.model.vms[0].threads[1].shares.run = Some(0.9);
        let told = words(&within(&h, 1_000.0).unwrap());
        assert_eq!(told, ["a: vcpu0: pCPUs 0-1 -> 1", "a: vcpu1: pCPUs 0-1 -> 0"]);

        let mut h = Host::new(4, 1, 0.5);
        h.config.topology = topology::machine(1, 1, 2, 2).unwrap();
        h.vm("a", 2, 0.5, 0.0, 0.0);
        h.model.vms[0].threads.iter_mut().for_each(|t| t.migrations_per_s = Some(100.0));
        let told = words(&within(&h, 1_000.0).unwrap());
        assert_eq!(told, ["a: vcpu0: pCPUs 0-3 -> 0", "a: vcpu1: pCPUs 0-3 -> 2"]);
        // A pin respects the affinity of each vCPU.
        h.config.vms[0].threads[0].affinity = "2-3".parse().unwrap();
        h.config.vms[0].threads[1].affinity = "0-1".parse().unwrap();
        let told = words(&within(&h, 1_000.0).unwrap());
        assert_eq!(told, ["a: vcpu0: pCPUs 2-3 -> 2", "a: vcpu1: pCPUs 0-1 -> 0"]);
    }

    #[test]
    fn two_vcpus_of_a_vm_share_no_pcpu_though_another_is_asked_for_less() {
        let mut h = moved(&["a"], 0.3, 300.0, 0.0);
        h.vm("b", 1, 0.9, 0.0, 0.0);
        h.model.vms[1].threads[0].migrations_per_s = Some(300.0);
        let told = words(&within(&h, 1_000.0).unwrap());
        let expected = ["a: vcpu0: pCPUs 0-1 -> 1", "a: vcpu1: pCPUs 0-1 -> 0", "b: vcpu0: pCPUs 0-1 -> 0"];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_move_costs_the_refilling_of_the_data_caches_that_one_core_has() {
        let all = CpuSet::first(2);
        let cache = |level, kind, size_bytes, cpus: &CpuSet| Cache {
            level,
            kind,
            size_bytes: Some(size_bytes),
            cpus: cpus.clone(),
        };
        let cores: Vec<CpuSet> = (0..2).map(CpuSet::single).collect();
        let own = cores.iter().flat_map(|core| {
            [
                cache(1, CacheKind::Data, 100_000, core),
                cache(1, CacheKind::Instruction, 900_000, core),
                cache(2, CacheKind::Unified, 700_000, core),
            ]
        });
        let parts = Parts {
            present: all.clone(),
            online: all.clone(),
            allowed: all.clone(),
            cores: cores.iter().map(|cpus| Core { cpus: cpus.clone(), ..Core::default() }).collect(),
            caches: own.chain([cache(3, CacheKind::Unified, 80_000_000, &all)]).collect(),
            ..Parts::default()
        };
        let mut h = moved(&["a"], 0.5, 100.0, 0.0);
        h.config.topology = Topology::new(parts).unwrap();
        // 800 kB at 8 GB/s.
        let steps = h.proposed("pin").unwrap();
        assert!(
            steps[0].reason.contains("at 100 us each (estimated from the core's private caches)"),
            "{}",
            steps[0].reason
        );
    }
}

mod realtime {
    use super::*;

    /// A VM whose vCPUs run briefly and wait, beside a VM that never sleeps.
    fn ticking(vcpus: u32, run: f64, pcpus: u32) -> Host {
        let mut h = Host::new(pcpus, 1, 1.0);
        h.vm("tick", vcpus, run, 0.2, 1_000.0);
        h.vm("burn", 2, 0.8, 0.2, 0.0);
        h
    }

    #[test]
    fn budgets_are_four_times_what_threads_used_and_5_in_100_at_least() {
        let h = ticking(1, 0.04, 2);
        assert_eq!(
            h.told("realtime").unwrap(),
            [
                "tick: real-time budget of cgroup /m: 0 -> 213000 µs",
                "tick: real-time budget of cgroup /m/tick: 0 -> 212000 µs",
                "tick: real-time budget of cgroup /m/tick/emulator: 0 -> 50000 µs",
                "tick: real-time budget of cgroup /m/tick/vcpu0: 0 -> 160000 µs",
                "tick: vcpu0: class other -> rr(1)",
                "tick: emulator: class other -> rr(1)",
            ]
        );
        let reason = &h.proposed("realtime").unwrap()[4].reason;
        assert_eq!(reason, "the VM uses 5 % of a pCPU and must run as soon as it wakes");
    }

    #[test]
    fn a_budget_that_suffices_or_has_no_limit_stays() {
        let mut h = ticking(1, 0.04, 2);
        for budget in &mut h.config.vms[0].rt_budgets {
            budget.runtime_us = match budget.cgroup.as_str() {
                "/m" => -1,
                "/m/tick" => 212_000,
                "/m/tick/vcpu0" => 159_999,
                _ => 50_000,
            };
        }
        let told = h.told("realtime").unwrap();
        let budgets: Vec<&String> = told.iter().filter(|t| t.contains("budget")).collect();
        assert_eq!(budgets, ["tick: real-time budget of cgroup /m/tick/vcpu0: 159999 -> 160000 µs"]);
        h.config.vms[0].rt_budgets.clear();
        assert_eq!(h.told("realtime").unwrap().len(), 2, "the kernel keeps no budgets");
    }

    #[test]
    fn budgets_shrink_together_to_what_the_kernel_has_and_not_below_half_as_much_again() {
        // The threads use 60 % of a pCPU. The kernel has 90 % to give, which is 1.5 times as much.
        let h = ticking(2, 0.295, 4);
        let told = h.told("realtime").unwrap();
        assert!(told[0].starts_with("tick: real-time budget of cgroup /m: 0 -> 90"), "{told:?}");
        let h = ticking(2, 0.31, 4);
        assert_eq!(
            refused(&h, "realtime"),
            "the real-time budget is too small: the delayed VMs already \
            use 63 % of a pCPU"
        );
    }

    #[test]
    fn vms_that_use_more_than_half_of_the_host_are_not_put_above_everybody() {
        let mut h = ticking(1, 0.04, 2);
        h.model.vms[0].group.run = Some(1.0);
        assert!(h.told("realtime").is_ok());
        h.model.vms[0].group.run = Some(1.1);
        let none = "the delayed VMs use 1.1 of 2 pCPUs together, too much for a real-time class";
        assert_eq!(refused(&h, "realtime"), none);
    }

    #[test]
    fn who_is_in_a_real_time_class_stays_and_workers_are_left_out() {
        let mut h = ticking(1, 0.04, 2);
        h.config.vms[0].rt_budgets.clear();
        h.config.vms[0].threads[0].class = Some(SchedClass::Fifo(5));
        assert_eq!(h.told("realtime").unwrap(), ["tick: emulator: class other -> rr(1)"]);
        h.config.vms[0].threads[1].role = Role::Worker;
        assert!(refused(&h, "realtime").contains("in a class below real-time"));
        h.config.vms[0].threads[0].class = None;
        assert!(refused(&h, "realtime").contains("in a class below real-time"));
    }

    #[test]
    fn nobody_who_runs_long_at_a_time_and_nobody_where_nobody_waits() {
        let mut h = ticking(1, 0.04, 2);
        h.model.vms[0].threads[0].wakeups_per_s = Some(39.0);
        assert!(refused(&h, "realtime").contains("known to run only briefly"));
        h.model.vms[0].threads[0].wakeups_per_s = Some(40.0);
        assert!(h.told("realtime").is_ok(), "1 ms at a time");
        let mut calm = Host::new(2, 1, 0.1);
        calm.vm("a", 1, 0.04, 0.0, 100.0);
        for action in ["realtime", "separate"] {
            assert_eq!(refused(&calm, action), "no VM that mostly sleeps waits too long");
        }
        assert_eq!(refused(&calm, "weights"), "no VM waits too long");
    }
}

mod separate {
    use super::*;

    /// A delayed VM beside a VM that never sleeps, on two nodes with two cores of two threads each. `used`: what
    /// the delayed VM runs.
    fn host(used: f64) -> Host {
        let mut h = Host::new(8, 2, 1.0);
        h.config.topology = topology::machine(2, 1, 2, 2).unwrap();
        h.vm("tick", 1, 0.04, 0.2, 100.0).vm("burn", 1, 0.8, 0.2, 0.0);
        h.model.vms[0].group.run = Some(used);
        h
    }

    #[test]
    fn the_fewest_whole_cores_that_are_60_in_100_full_the_last_first() {
        for (used, own, rest) in [(0.05, "6-7", "0-5"), (1.2, "6-7", "0-5"), (1.3, "4-7", "0-3")] {
            let expected = ["tick: vcpu0", "tick: emulator", "burn: vcpu0", "burn: emulator"]
                .iter()
                .zip([own, own, rest, rest])
                .map(|(who, to)| format!("{who}: pCPUs 0-7 -> {to}"))
                .collect::<Vec<_>>();
            assert_eq!(host(used).told("separate").unwrap(), expected, "{used}");
        }
        let none = "the delayed VMs need 6.7 pCPUs of their own, which leaves none for the other VMs";
        assert_eq!(refused(&host(4.0), "separate"), none);
        let mut apart = host(0.05);
        apart.pin("tick", "6-7").pin("burn", "0-5");
        assert_eq!(refused(&apart, "separate"), "the delayed VMs have pCPUs of their own already");
    }
}

mod unpin {
    use super::*;

    /// What `unpin` proposes for a VM that is pinned to pCPUs 0 and 1 of four. `waits`: its ready share. `use_of`:
    /// how busy each pCPU is.
    fn pinned(waits: f64, use_of: [f64; 4]) -> Result<Vec<Step>, String> {
        let mut h = Host::new(4, 1, 1.0);
        h.vm("a", 2, 0.4, 0.3, 0.0).pin("a", "0-1");
        h.model.vms[0].vcpus.ready = Some(waits);
        busy(&mut h, &use_of);
        h.proposed("unpin")
    }

    #[test]
    fn a_pin_goes_where_its_pcpus_are_busy_and_others_have_room_for_most_of_the_wait() {
        let steps = pinned(0.625, [0.86, 0.9, 0.5, 1.0]).unwrap();
        let told: Vec<String> = steps.iter().map(|s| s.change.to_string()).collect();
        let wider = ["vcpu0: pCPUs 0-1 -> 0-3", "vcpu1: pCPUs 0-1 -> 0-3", "emulator: pCPUs 0-1 -> 0-3"];
        assert_eq!(told, wider);
        assert_eq!(steps[0].reason, "busy: pCPUs 0-1; idle time: 0.5 pCPUs on pCPUs 2-3");
        for (waits, use_of, why) in [
            (0.625, [0.85, 0.9, 0.5, 1.0], "one of its pCPUs is not busy"),
            (0.63, [0.9, 0.9, 0.5, 1.0], "room for less than 80 % of the wait"),
            (0.3, [0.9, 0.9, 0.51, 0.51], "no pCPU is idle for half of the time"),
            (0.08, [0.9, 0.9, 0.0, 0.0], "it does not wait too long"),
        ] {
            let told = pinned(waits, use_of).unwrap_err();
            assert_eq!(told, "no pin keeps a waiting VM away from idle pCPUs", "{why}");
        }
        assert!(pinned(1.6, [0.9, 0.9, 0.0, 1.0]).is_ok(), "a whole pCPU is room enough for whatever wait");
    }

    /// pCPUs outside a VM's CPU pool idle in vain.
    #[test]
    fn a_pin_goes_no_further_than_the_pool() {
        let told = |pool: &str| {
            let mut h = Host::new(4, 1, 1.0);
            h.vm("a", 2, 0.4, 0.3, 0.0).pin("a", "0-1");
            let (name, scheduler) = ("own".to_owned(), "credit".to_owned());
            let cpus = pool.parse().unwrap();
            h.config.vms[0].pool = Some(CpuPool { name, scheduler, cpus, parameters: Default::default() });
            h.model.vms[0].vcpus.ready = Some(0.4);
            busy(&mut h, &[0.9, 0.9, 0.0, 0.0]);
            h.told("unpin")
        };
        assert_eq!(told("0-2").unwrap()[0], "a: vcpu0: pCPUs 0-1 -> 0-2");
        assert!(told("0-1").is_err());
    }

    #[test]
    fn vms_do_not_change_places_across_pools() {
        let mut h = common::contended();
        let told = |h: &Host| refused(h, "separate");
        let everywhere = h.config.topology.usable();
        let pool = |cpus: CpuSet| {
            let (name, scheduler) = ("own".to_owned(), "credit".to_owned());
            Some(CpuPool { name, scheduler, cpus, parameters: Default::default() })
        };
        h.config.vms[0].pool = pool(everywhere);
        assert!(h.told("separate").is_ok());
        h.config.vms[0].pool = pool(CpuSet::first(1));
        let name = h.config.vms[0].name.clone();
        assert_eq!(told(&h), format!("VM {name:?} is in CPU pool \"own\", which has pCPUs 0 alone"));
    }

    #[test]
    fn a_vhost_thread_gets_a_step_where_the_emulator_stays_and_the_manager_can_place_it() {
        let told = |manager: Manager| {
            let mut h = Host::new(4, 1, 0.05);
            h.vm("a", 2, 0.4, 0.3, 0.0).pin("a", "0");
            let vm = &mut h.config.vms[0];
            vm.manager = manager;
            let vhost = VmThread { tid: Tid(500), role: Role::Vhost, ..vm.threads[2].clone() };
            vm.threads[2].affinity = CpuSet::first(4);
            vm.threads.push(vhost);
            busy(&mut h, &[1.0]);
            h.told("unpin").unwrap()
        };
        let [vcpu0, vcpu1, vhost] =
            ["vcpu0", "vcpu1", "vhost"].map(|role| format!("a: {role}: pCPUs 0 -> 0-3"));
        assert_eq!(told(Manager::Bare), [vcpu0.clone(), vcpu1.clone(), vhost]);
        // libvirt places it with nothing else.
        assert_eq!(told(Manager::Libvirt(String::new())), [vcpu0, vcpu1]);
    }
}

mod weights {
    use super::*;

    #[test]
    fn a_weight_rises_to_eight_times_the_usual_once() {
        let of = |weight: Option<CpuWeight>| {
            let mut h = Host::new(2, 1, 1.0);
            h.vm("tick", 2, 0.04, 0.2, 100.0).vm("burn", 2, 0.8, 0.2, 0.0);
            h.config.vms[0].weight = weight;
            h.told("weights")
        };
        let to = |weight| of(Some(weight)).unwrap();
        assert_eq!(to(CpuWeight::Shares(1024)), ["tick: CPU weight: 1024 shares -> 8192 shares"]);
        assert_eq!(to(CpuWeight::Shares(8191)), ["tick: CPU weight: 8191 shares -> 8192 shares"]);
        // ESXi's shares are for all vCPUs together: 1000 for each vCPU are normal.
        assert_eq!(to(CpuWeight::Esxi(15_999)), ["tick: CPU weight: 15999 shares -> 16000 shares"]);
        for none in [Some(CpuWeight::Shares(8192)), Some(CpuWeight::Esxi(16_000)), None] {
            assert_eq!(of(none).unwrap_err(), "no delayed VM has a weight that vsteer can raise with effect");
        }
    }
}

mod node {
    use super::*;

    /// Two VMs of 4 vCPUs that want 2.8 cores each, on the first of two nodes of 4 cores.
    fn crowded() -> Host {
        let mut h = Host::new(8, 2, 0.0);
        h.config.topology = topology::machine(2, 1, 4, 1).unwrap();
        h.vm("a", 4, 0.4, 0.3, 0.0).vm("b", 4, 0.4, 0.3, 0.0).pin("a", "0-3").pin("b", "0-3");
        // The emulators take 1 % each.
        busy(&mut h, &[0.805, 0.805, 0.805, 0.805, 0.0, 0.0, 0.0, 0.0]);
        h
    }

    #[test]
    fn a_vm_moves_with_its_threads_and_a_binding_of_its_memory() {
        let mut h = crowded();
        h.config.vms.iter_mut().for_each(|vm| vm.memory_nodes = Some(CpuSet::single(0)));
        let told = h.told("node").unwrap();
        assert_eq!(told.len(), 6, "{told:?}");
        assert!(told[..5].iter().all(|t| t.ends_with(": pCPUs 0-3 -> 4-7")), "{told:?}");
        assert!(told[5].contains("0 -> 1"), "{told:?}");
        let reason = &h.proposed("node").unwrap()[0].reason;
        assert!(reason.starts_with("node 0 has 4 cores, and its VMs need 5.6 on average"), "{reason}");
        assert!(reason.ends_with("node 1 has room for this VM's 2.8"), "{reason}");
        // Memory that is not bound, or bound there, gets no step.
        for bound in [None, Some(CpuSet::single(1))] {
            h.config.vms.iter_mut().for_each(|vm| vm.memory_nodes = bound.clone());
            assert_eq!(h.told("node").unwrap().len(), 5);
        }
    }

    #[test]
    fn why_no_vm_moves_is_told() {
        let none = "no VM waits on an overloaded NUMA node";
        let mut one = crowded();
        one.config.topology = topology::machine(1, 1, 8, 1).unwrap();
        assert_eq!(refused(&one, "node"), "this host has one NUMA node");
        let mut apart = crowded();
        apart.pin("b", "4-7");
        busy(&mut apart, &[0.4; 8]);
        assert_eq!(refused(&apart, "node"), none);
        let mut content = crowded();
        for vm in &mut content.model.vms {
            (vm.vcpus.ready, vm.vcpus.wait) = (Some(0.0), Some(0.0));
        }
        assert_eq!(refused(&content, "node"), none, "nobody waits");
        let mut full = crowded();
        full.vm("c", 4, 0.7, 0.0, 0.0).vm("d", 4, 0.7, 0.0, 0.0).pin("c", "4-7").pin("d", "4-7");
        busy(&mut full, &[1.0; 8]);
        assert!(
            refused(&full, "node").starts_with(
                "no moves give every node \
            room"
            ),
            "{}",
            refused(&full, "node")
        );
    }

    fn on_esxi(h: &mut Host, home: Option<u32>) {
        for vm in &mut h.config.vms {
            vm.manager = Manager::Vsphere("vm-1".into());
            vm.vsphere = Some(VsphereVm { home_nodes: home.map(CpuSet::single), ..VsphereVm::default() });
        }
    }

    #[test]
    fn on_vsphere_a_vm_is_kept_on_the_node_once_its_home_is_known() {
        let mut h = crowded();
        on_esxi(&mut h, Some(0));
        let told = h.told("node").unwrap();
        assert!(told.len() == 1 && told[0].ends_with(": NUMA node affinity: any -> 1"), "{told:?}");
        h.pin("a", "0-7").pin("b", "0-7");
        on_esxi(&mut h, None);
        assert!(refused(&h, "node").starts_with("vsteer does not know the home NUMA nodes"));
        h.model.vms.iter_mut().for_each(|vm| vm.vcpus.ready = Some(0.0));
        assert!(refused(&h, "node").starts_with("no VM waits"), "nobody waits");
    }

    #[test]
    fn on_vsphere_a_plan_has_no_other_action() {
        let mut h = crowded();
        on_esxi(&mut h, Some(0));
        let vsphere_has_none = "vsteer cannot make this change on vSphere";
        for action in ["unpin", "weights", "realtime", "separate", "quota", "pool", "pin"] {
            assert_eq!(refused(&h, action), vsphere_has_none, "{action}");
        }
        assert!(h.told("node").is_ok() && h.told("topology").is_ok());
    }
}

#[test]
fn guests_see_the_fewest_sockets_that_fit_a_node_and_fill_evenly() {
    let of = |vcpus: u32, topology: Topology, now: Option<GuestTopology>| {
        let mut h = Host::new(8, 1, 0.1);
        h.config.topology = topology;
        h.vm("a", vcpus, 0.1, 0.0, 0.0);
        h.config.vms[0].guest_topology = now;
        h.told("topology").map(|told| told[0].split(" -> ").nth(1).unwrap()[..5].to_owned())
    };
    let nodes_of_4 = || topology::machine(2, 1, 4, 1).unwrap();
    assert_eq!(of(4, nodes_of_4(), None).unwrap(), "1x4x1");
    assert_eq!(of(6, nodes_of_4(), None).unwrap(), "2x3x1");
    assert!(of(5, nodes_of_4(), None).unwrap_err().contains("does not divide evenly"), "5 vCPUs on 2 nodes");
    assert!(of(9, nodes_of_4(), None).unwrap_err().contains("more than the host's 8 cores"));
    // A core counts once, however many threads it has.
    assert_eq!(of(4, topology::machine(2, 1, 2, 2).unwrap(), None).unwrap(), "2x2x1");
    let now = Some(GuestTopology { sockets: 1, cores: 4, threads: 1 });
    assert_eq!(of(4, nodes_of_4(), now).unwrap_err(), "no guest's sockets need to change");
}

#[test]
fn which_of_several_pools_there_shall_be_is_for_a_person_to_say() {
    let mut h = Host::new(4, 1, 1.0);
    let pool = CpuPool {
        name: "Pool-0".into(),
        scheduler: "credit".into(),
        cpus: CpuSet::first(4),
        parameters: [].into(),
    };
    for (name, cpus, weight) in [("a", "0", 256), ("b", "0", 512), ("c", "1-2", 256), ("d", "1-2", 512)] {
        h.vm(name, 1, 0.5, 0.5, 0.0).pin(name, cpus);
        let vm = h.config.vms.last_mut().unwrap();
        (vm.manager, vm.weight, vm.pool) =
            (Manager::Xen, Some(CpuWeight::Credit(weight)), Some(pool.clone()));
    }
    let told = refused(&h, "pool");
    assert_eq!(told, "2 sets of VMs are pinned to the same pCPUs each; vsteer makes a pool for one set only");
    // VMs that may also use another pCPU keep that one.
    h.pin("c", "0,3").pin("d", "0,3");
    h.config.vms[3].weight = Some(CpuWeight::Credit(256));
    assert!(h.told("pool").unwrap().iter().all(|t| t.starts_with("a: ") || t.starts_with("b: ")));
    // A VM of another pool does not count, even if it is pinned to the same pCPU numbers.
    h.pin("c", "0");
    h.config.vms[2].pool.as_mut().unwrap().name = "Pool-1".into();
    assert!(h.told("pool").is_ok());
}

#[test]
fn steps_that_need_the_vm_off_are_told_with_whether_it_was_on() {
    let topology = Change::Topology(setting::Topology {
        from: None,
        to: GuestTopology { sockets: 1, cores: 2, threads: 1 },
    });
    let affinity = Change::NodeAffinity(setting::NodeAffinity { from: None, to: Some(CpuSet::single(1)) });
    let of = |powered_on: Option<bool>, manager: Manager| {
        let mut h = Host::new(2, 1, 0.1);
        h.vm("a", 2, 0.1, 0.0, 0.0);
        h.config.vms[0].manager = manager;
        h.config.vms[0].vsphere = Some(VsphereVm { powered_on, ..VsphereVm::default() });
        let step = |change: &Change| Step {
            vm: VmId("a".into()),
            vm_name: "a".into(),
            change: change.clone(),
            reason: String::new(),
        };
        let none = Forecast { method: String::new(), vms: Vec::new() };
        let steps = vec![step(&affinity), step(&affinity), step(&topology)];
        Plan::new(h.config.clone(), "t".into(), steps, Scope::Persistent, none).needs_vms_off()
    };
    for on in [None, Some(true), Some(false)] {
        assert_eq!(of(on, Manager::Vsphere("vm-1".into())), [(2, on)]);
    }
    assert_eq!(of(Some(true), Manager::Bare), [], "it goes into the definition");
}
