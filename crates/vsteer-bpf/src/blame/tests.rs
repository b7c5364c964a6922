use super::history::tests::spell;
use super::*;
use proptest::prelude::*;

const SLOT: u32 = 1;

fn wait(from: u64, to: u64, ready: u64, charged_ns: u64) -> Wait {
    Wait { slot: SLOT, tid: 7, cpu: 0, pad: 0, from, to, ready, charged_ns }
}

/// One thread that may run on pCPU 0 and 1, and who had them.
fn blame(zero: Vec<Runner>, one: Vec<Runner>) -> Blame {
    let mut blame = Blame::of(2);
    blame.watch(SLOT, 7, Some(&CpuSet::first(2)));
    blame.take(0, (zero, 0), vec![]);
    blame.take(1, (one, 0), vec![]);
    blame
}

/// A reading: the thread's waits that ended sum up to `counted` ns.
fn read(blame: &mut Blame, now: u64, counted: u64, open: &[Open]) {
    let counted = BTreeMap::from([(SLOT, counted)]);
    blame.settle(now, Some(&counted));
    blame.settle_open(open, &counted);
}

/// What is handed out: process numbers, 0 for placement, -1 for what was not seen.
fn out(blame: &mut Blame, until: u64) -> Vec<(i64, i64)> {
    let number = |cause| match cause {
        Cause::Ran(who) => i64::from(who.id),
        Cause::Placement => 0,
        Cause::Unattributed => -1,
    };
    blame.hand_out(until).into_iter().map(|(_, cause, ns)| (number(cause), ns)).collect()
}

#[test]
fn each_runner_gets_its_part_and_idle_pcpus_are_placement() {
    let mut blame =
        blame(vec![spell(0, 1), spell(20, 2), spell(40, 3)], vec![spell(0, 9), spell(30, 0), spell(35, 9)]);
    blame.take(0, (vec![], 0), vec![wait(10, 50, 40, 40)]);
    blame.settle(100, None);
    assert_eq!(out(&mut blame, 50), [(1, 10), (2, 15), (3, 10), (0, 5)]);
    assert_eq!(out(&mut blame, 50), []);
}

#[test]
fn a_wait_that_was_held_first_is_charged_for_its_last_part() {
    let mut blame = blame(vec![spell(0, 1), spell(20, 2)], vec![spell(0, 9)]);
    blame.take(0, (vec![], 0), vec![wait(10, 50, 25, 25)]);
    blame.settle(100, None);
    assert_eq!(out(&mut blame, 50), [(2, 25)]);
}

#[test]
fn an_open_wait_is_charged_once() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    let open = |to| [Open { slot: SLOT, cpu: 0, from: 10, to }];
    read(&mut blame, 30, 0, &open(30));
    assert_eq!(out(&mut blame, 30), [(1, 20)]);
    blame.take(0, (vec![spell(35, 2)], 0), vec![]);
    read(&mut blame, 45, 0, &open(45));
    assert_eq!(out(&mut blame, 45), [(1, 5), (2, 10)]);
    blame.take(0, (vec![], 0), vec![wait(10, 50, 40, 40)]);
    blame.settle(60, None);
    assert_eq!(out(&mut blame, 60), [(2, 5)]);
}

#[test]
fn what_a_quota_held_after_all_is_taken_back() {
    let mut blame = blame(vec![spell(0, 1), spell(20, 2)], vec![spell(0, 9)]);
    read(&mut blame, 30, 0, &[Open { slot: SLOT, cpu: 0, from: 10, to: 30 }]);
    assert_eq!(out(&mut blame, 30), [(1, 10), (2, 10)]);
    blame.take(0, (vec![], 0), vec![wait(10, 40, 5, 5)]);
    blame.settle(50, None);
    assert_eq!(out(&mut blame, 50), [(1, -7), (2, -8)]);
}

#[test]
fn a_reading_charges_what_its_copies_count_and_no_more() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    blame.take(0, (vec![], 0), vec![wait(10, 20, 10, 10), wait(30, 37, 7, 17)]);
    blame.settle(100, Some(&BTreeMap::from([(SLOT, 10)])));
    assert_eq!(out(&mut blame, 25), [(1, 10)]);
    blame.settle(100, Some(&BTreeMap::from([(SLOT, 17)])));
    assert_eq!(out(&mut blame, 100), [(1, 7)]);
}

#[test]
fn a_wait_that_ended_after_the_traces_were_taken_waits_for_the_next_look() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    blame.take(0, (vec![], 0), vec![wait(10, 20, 10, 10)]);
    blame.settle(19, None);
    assert_eq!(out(&mut blame, 15), []);
    blame.settle(20, None);
    assert_eq!(out(&mut blame, 20), [(1, 10)]);
}

#[test]
fn lost_traces_leave_the_sum_right() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    // Of two waits of 10 and 30 ns the first left no trace.
    blame.take(0, (vec![], 0), vec![wait(50, 80, 30, 40)]);
    blame.settle(100, None);
    assert_eq!(out(&mut blame, 100), [(1, 30), (-1, 10)]);
    // Nor did a third, which a reading counts.
    blame.settle(200, Some(&BTreeMap::from([(SLOT, 45)])));
    assert_eq!(out(&mut blame, 200), [(-1, 5)]);
    // Of the last one, 20 ns had been charged while it lasted.
    read(&mut blame, 230, 45, &[Open { slot: SLOT, cpu: 0, from: 210, to: 230 }]);
    read(&mut blame, 300, 70, &[]);
    assert_eq!(out(&mut blame, 300), [(1, 20), (-1, 5)]);
}

#[test]
fn a_slot_that_another_thread_has_now_is_not_charged_for_the_former_one() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    blame.take(0, (vec![], 0), vec![wait(10, 20, 10, 10)]);
    blame.forget(SLOT);
    blame.watch(SLOT, 8, None);
    blame.take(0, (vec![], 0), vec![wait(20, 30, 10, 20)]);
    blame.settle(100, None);
    assert_eq!(out(&mut blame, 100), []);
}

#[test]
fn affinities_are_given_back() {
    let mut blame = Blame::of(4);
    for slot in 0..100 {
        blame.watch(slot, slot, Some(&CpuSet::first(2 + slot % 3)));
    }
    assert_eq!(blame.wide_affinities(), 3);
    (0..100).for_each(|slot| blame.watch(slot, slot, Some(&CpuSet::first(3))));
    assert_eq!(blame.wide_affinities(), 1);
    (0..100).for_each(|slot| blame.forget(slot));
    assert_eq!(blame.affinities.len(), 0);
}

#[test]
fn many_processes_become_few_causes_of_the_same_sum() {
    let runners = (0..900).map(|i| {
        let mut runner = spell(10 * i, i as u32 + 1);
        // Two long ones, many of one name, and more names than are told apart.
        runner.since += if i > 1 { 1_000 } else { 0 };
        let name = if i % 2 == 0 { *b"true" } else { [b'a', 48 + (i / 30) as u8, 0, 0] };
        runner.who.comm[..4].copy_from_slice(&name);
        runner
    });
    let mut blame = blame(runners.collect(), vec![spell(0, 9)]);
    blame.take(0, (vec![], 0), vec![wait(0, 10_000, 10_000, 10_000)]);
    blame.settle(10_000, None);
    blame.bound();
    blame.join_lesser();
    let out = blame.hand_out(10_000);
    let name = |cause: &Cause| match cause {
        Cause::Ran(who) => (who.id, String::from_utf8_lossy(&who.comm).trim_end_matches('\0').to_owned()),
        _ => panic!("all was seen"),
    };
    assert_eq!(out.iter().map(|(.., ns)| ns).sum::<i64>(), 10_000);
    assert!(out.len() <= PROCESSES + NAMES + 1, "{out:?}");
    let all: BTreeMap<(u32, String), i64> = out.iter().map(|(_, cause, ns)| (name(cause), *ns)).collect();
    assert_eq!(all[&(2, "a0".to_owned())], 1_010);
    assert!(all[&(0, "true".to_owned())] > 4_000 && all.contains_key(&(0, "(others)".to_owned())), "{all:?}");
}

proptest! {
    /// Whatever is lost, late or looked at meanwhile: the charges sum up to the time that the thread was ready.
    #[test]
    fn charges_sum_up_to_ready_time(
        events in prop::collection::vec((1_u64..50, 0_u32..4, 0_u64..30, any::<[bool; 5]>()), 1..60),
    ) {
        let mut blame = Blame::of(2);
        blame.watch(SLOT, 7, Some(&CpuSet::first(2)));
        let (mut now, mut ready, mut sum) = (0, 0, 0_i64);
        let mut handed = |blame: &mut Blame, now| sum += blame.hand_out(now).iter().map(|(_, _, ns)| ns).sum::<i64>();
        for (gap, who, held, [lost, look, reads, other, ends]) in events {
            let from = now;
            now += gap;
            blame.take(u32::from(other), (vec![spell(now, who)], u32::from(lost)), vec![]);
            if reads {
                read(&mut blame, now, ready, &[Open { slot: SLOT, cpu: 0, from, to: now }]);
                handed(&mut blame, now);
            }
            let span = gap + if ends { 10 } else { 0 };
            now = from + span;
            let part = span - held.min(span);
            ready += part;
            if !lost {
                blame.take(0, (vec![], 0), vec![Wait { cpu: u32::from(other), ..wait(from, now, part, ready) }]);
            }
            if look {
                blame.settle(now, None);
            }
        }
        read(&mut blame, now, ready, &[]);
        handed(&mut blame, now);
        prop_assert_eq!(sum, ready as i64);
    }
}
