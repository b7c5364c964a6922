use super::history::tests::spell;
use super::*;
use proptest::prelude::*;

const SLOT: u32 = 1;

/// The wait of this number, on pCPU 0.
fn wait(number: u64, from: u64, to: u64, ready: u64, charged_ns: u64) -> Wait {
    Wait { slot: SLOT, tid: 7, cpu: 0, pad: 0, number, charged_ns, from, to, ready }
}

/// One thread that may run on pCPU 0 and 1, and who had them.
fn blame(zero: Vec<Runner>, one: Vec<Runner>) -> Blame {
    let mut blame = Blame::of(2);
    blame.watch(SLOT, 7, Some(&CpuSet::first(2)));
    blame.take_switches(0, (zero, 0), 0);
    blame.take_switches(1, (one, 0), 0);
    blame
}

/// A look between readings, which finds these.
fn look(blame: &mut Blame, waits: Vec<Wait>) {
    blame.begin_look();
    blame.take_waits(waits);
    blame.settle(None);
}

/// A reading. Its copy of the slot counts `waits` waits of `charged_ns` together, and one that has lasted from `open.0` to
/// `open.1`.
fn read(blame: &mut Blame, waits: u64, charged_ns: u64, open: Option<(u64, u64)>) {
    blame.begin_look();
    let open = open.map(|(from, to)| Open { cpu: 0, from, to });
    blame.settle(Some(&BTreeMap::from([(SLOT, Copied { waits, charged_ns, open })])));
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
    look(&mut blame, vec![wait(1, 10, 50, 40, 40)]);
    assert_eq!(out(&mut blame, 50), [(1, 10), (2, 15), (3, 10), (0, 5)]);
    assert_eq!(out(&mut blame, 50), []);
}

#[test]
fn a_wait_that_was_held_is_charged_for_its_last_part() {
    let mut blame = blame(vec![spell(0, 1), spell(20, 2)], vec![spell(0, 9)]);
    look(&mut blame, vec![wait(1, 10, 50, 25, 25)]);
    assert_eq!(out(&mut blame, 50), [(2, 25)]);
}

#[test]
fn an_open_wait_is_charged_once() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    read(&mut blame, 0, 0, Some((10, 30)));
    assert_eq!(out(&mut blame, 30), [(1, 20)]);
    blame.take_switches(0, (vec![spell(35, 2)], 0), 0);
    read(&mut blame, 0, 0, Some((10, 45)));
    assert_eq!(out(&mut blame, 45), [(1, 5), (2, 10)]);
    look(&mut blame, vec![wait(1, 10, 50, 40, 40)]);
    assert_eq!(out(&mut blame, 60), [(2, 5)]);
}

#[test]
fn what_a_quota_held_after_all_is_taken_back() {
    for (ready, expected) in [(5, [(1, -7), (2, -8)]), (0, [(1, -10), (2, -10)])] {
        let mut blame = blame(vec![spell(0, 1), spell(20, 2)], vec![spell(0, 9)]);
        read(&mut blame, 0, 0, Some((10, 30)));
        assert_eq!(out(&mut blame, 30), [(1, 10), (2, 10)]);
        look(&mut blame, vec![wait(1, 10, 40, ready, ready)]);
        assert_eq!(out(&mut blame, 50), expected);
    }
}

/// The wait ends, held all the time, between the copy of its slot and the reading of the ring.
#[test]
fn a_reading_charges_what_its_copies_count_and_no_more() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    blame.take_waits(vec![wait(1, 10, 20, 10, 10), wait(2, 30, 37, 0, 10)]);
    read(&mut blame, 1, 10, Some((30, 35)));
    assert_eq!(out(&mut blame, 25), [(1, 15)]);
    read(&mut blame, 2, 10, None);
    assert_eq!(out(&mut blame, 100), [(1, -5)]);
}

/// The ring of one pCPU was read before the first wait ended there, that of another after the second.
#[test]
fn a_wait_is_charged_after_the_one_before_it() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    look(&mut blame, vec![wait(2, 20, 30, 10, 20)]);
    assert_eq!(out(&mut blame, 15), []);
    look(&mut blame, vec![wait(1, 10, 20, 10, 10)]);
    assert_eq!(out(&mut blame, 30), [(1, 20)]);
}

#[test]
fn lost_traces_leave_the_sum_right() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    // Of two waits of 10 and 30 ns the first left no trace.
    look(&mut blame, vec![wait(2, 50, 80, 30, 40)]);
    look(&mut blame, vec![]);
    assert_eq!(out(&mut blame, 100), [(1, 30), (-1, 10)]);
    // Nor did a third, which a reading counts.
    read(&mut blame, 3, 45, None);
    assert_eq!(out(&mut blame, 200), [(-1, 5)]);
    // Of the last one, 20 ns had been charged while it lasted.
    read(&mut blame, 3, 45, Some((210, 230)));
    read(&mut blame, 4, 70, None);
    assert_eq!(out(&mut blame, 300), [(1, 20), (-1, 5)]);
}

#[test]
fn a_slot_that_another_thread_has_now_is_not_charged_for_the_former_one() {
    let mut blame = blame(vec![spell(0, 1)], vec![spell(0, 9)]);
    blame.take_waits(vec![wait(1, 10, 20, 10, 10)]);
    blame.forget(&BTreeSet::from([SLOT]));
    blame.watch(SLOT, 8, None);
    look(&mut blame, vec![wait(2, 20, 30, 10, 20)]);
    assert_eq!(out(&mut blame, 100), []);
    look(&mut blame, vec![Wait { tid: 8, ..wait(1, 30, 40, 10, 10) }]);
    assert_eq!(out(&mut blame, 100), [(1, 10)]);
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
    blame.forget(&(0..100).collect());
    assert_eq!(blame.affinities.len(), 0);
}

/// What happens to the thread between two of its waits.
#[derive(Debug, Clone, Copy)]
struct Turn {
    before: u64,
    length: u64,
    held: u64,
    runner: u32,
    other_pcpu: bool,
    /// The trace: 0 is lost, 1 comes late, else it comes at once.
    trace: u8,
    lost_switch: bool,
    /// 0, 1: a look, or a reading, while the wait lasts. 2, 3: the same after it.
    looks: u8,
    /// The copy of a reading after the wait was made while it lasted.
    old_copy: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let times = (0_u64..20, 1_u64..50, 0_u64..60, 0_u32..4);
    let flags = (any::<bool>(), 0_u8..6, any::<bool>(), 0_u8..5, any::<bool>());
    (times, flags).prop_map(
        |((before, length, held, runner), (other_pcpu, trace, lost_switch, looks, old_copy))| Turn {
            before,
            length,
            held,
            runner,
            other_pcpu,
            trace,
            lost_switch,
            looks,
            old_copy,
        },
    )
}

proptest! {
    /// Whatever is lost, late or looked at meanwhile: at each reading, the charges sum up to the time that its copy says.
    #[test]
    fn charges_sum_up_to_ready_time(turns in prop::collection::vec(turn(), 1..60)) {
        let mut blame = Blame::of(2);
        blame.watch(SLOT, 7, Some(&CpuSet::first(2)));
        let (mut now, mut ready, mut handed) = (0, 0, 0_i64);
        let mut late = Vec::new();
        for (number, t) in (1..).zip(&turns) {
            let from = now + t.before;
            let cpu = u32::from(t.other_pcpu);
            let lost = u32::from(t.lost_switch);
            blame.take_switches(cpu, (vec![spell(from + t.length / 2, t.runner)], lost), now);
            blame.take_waits(std::mem::take(&mut late));
            let half = from + t.length / 2;
            let mut reading = |blame: &mut Blame, waits, ready, open: Option<(u64, u64)>, now| {
                read(blame, waits, ready, open);
                handed += blame.hand_out(now).iter().map(|(_, _, ns)| ns).sum::<i64>();
                let lasts = open.map_or(0, |(from, to)| to - from);
                assert_eq!(handed, (ready + lasts) as i64);
            };
            let open = (half > from).then_some((from, half));
            match t.looks {
                0 => look(&mut blame, vec![]),
                1 => reading(&mut blame, number - 1, ready, open, half),
                _ => {}
            }
            let before = ready;
            now = from + t.length;
            let part = t.length.saturating_sub(t.held);
            ready += part;
            let trace = Wait { cpu, ..wait(number, from, now, part, ready) };
            match t.trace {
                0 => {}
                1 => late.push(trace),
                _ => blame.take_waits(vec![trace]),
            }
            match t.looks {
                2 => look(&mut blame, vec![]),
                3 if t.old_copy => reading(&mut blame, number - 1, before, open, half),
                3 => {
                    // A reading takes all traces before its copy.
                    blame.take_waits(std::mem::take(&mut late));
                    reading(&mut blame, number, ready, None, now);
                }
                _ => {}
            }
        }
        blame.take_waits(late);
        read(&mut blame, turns.len() as u64, ready, None);
        handed += blame.hand_out(now).iter().map(|(_, _, ns)| ns).sum::<i64>();
        prop_assert_eq!(handed, ready as i64);
    }
}
