use super::super::fair::Line;
use super::*;

fn lines(weights: &[i64]) -> Lines<Earliest> {
    let mut lines = Lines {
        entities: weights.iter().map(|w| Entity::new(*w, true)).collect(),
        lines: vec![Line::new(NONE, 0, 0)],
        rules: Earliest {
            slice_ns: 3_000_000,
            kept_ns: 0,
            tick_ns: 4_000_000,
            places_anew: false,
            carries_protection: false,
            held_at_ticks: false,
            flat: false,
            hrtick: false,
        },
    };
    (0..weights.len() as u32).for_each(|e| Earliest::enter(&mut lines, 0, e));
    lines
}

/// Stoica and Abdel-Wahab 1995: the lags of all clients sum to zero at any time.
#[test]
fn lags_sum_to_zero() {
    let mut l = lines(&[1024, 2048, 512]);
    Earliest::charge(&mut l, 1, 0, 5_000_000);
    Earliest::charge(&mut l, 0, 5_000_000, 2_000_000);
    Earliest::reweigh(&mut l, 2, 1000 << 10);
    let sum: i64 = (0..3).map(|e| l.lag(e) * l.entities[e as usize].weight).sum();
    // Each lag is rounded down by less than 1.
    assert!((-(1024 + 2048 + 1000)..=0).contains(&sum), "{sum}");
}

#[test]
fn the_eligible_one_with_the_earliest_deadline_is_best() {
    let mut l = lines(&[1024, 1024]);
    Earliest::charge(&mut l, 0, 0, 1_000_000);
    assert!(!l.eligible(0) && l.eligible(1));
    assert_eq!(l.best(0), 1);
    // Protected only while it is eligible.
    l.lines[0].current = 0;
    l.entities[0].protected = true;
    assert_eq!(l.best(0), 1);
    Earliest::charge(&mut l, 1, 1_000_000, 1_500_000);
    assert_eq!(l.best(0), 0, "it has the earlier deadline as well");
}

/// The purpose of placement: an entity that returns is owed what it was owed when it left, whatever happened
/// in between.
#[test]
fn lag_survives_a_sleep() {
    for sleeper in [0, 2] {
        let mut l = lines(&[1024, 2048, 512]);
        Earliest::charge(&mut l, 0, 0, 2_000_000);
        let owed = l.lag(sleeper);
        assert!(owed != 0 && owed.abs() < 6_000_000, "{owed}: within what may be taken along");
        Earliest::leave(&mut l, sleeper, true);
        Earliest::charge(&mut l, 1, 2_000_000, 9_000_000);
        Earliest::enter(&mut l, 0, sleeper);
        assert!((l.lag(sleeper) - owed).abs() <= 3, "{} after, {owed} before", l.lag(sleeper));
    }
}

/// A slice of 3 ms with ticks of 4 ms is renewed at every tick. Skipped ticks must lead to the same deadline.
#[test]
fn ticks_made_up_for_equal_ticks_that_happened() {
    for slice_ns in [3_000_000, 7_000_000] {
        let (mut eager, mut lazy) = (lines(&[700]), lines(&[700]));
        eager.rules.slice_ns = slice_ns;
        lazy.rules.slice_ns = slice_ns;
        let mut at = 1_000_000;
        for tick in [4_000_000, 8_000_000, 12_000_000, 16_000_000, 20_000_000, 24_000_000] {
            Earliest::charge(&mut eager, 0, at, tick - at);
            at = tick;
        }
        Earliest::charge(&mut lazy, 0, 1_000_000, 23_000_000);
        let (a, b) = (&eager.entities[0], &lazy.entities[0]);
        // Virtual times are rounded once instead of six times.
        assert!((a.deadline - b.deadline).abs() <= 6, "{} {}", a.deadline, b.deadline);
        assert!((a.vruntime - b.vruntime).abs() <= 6);
    }
}

/// Two equal entities; the first is 1 ms ahead of the second and runs. Then its weight grows by 1/1,024 of a
/// unit. In one case the average stays, and so does the distance. In the other case it is placed again, with
/// itself in the average of 0.5 ms. Its lag of -0.5 ms grows by half (two in line and itself once more: 3 /
/// 2), so it is at 1.25.
#[test]
fn what_a_new_weight_does_to_the_running_one() {
    for (places_anew, carries, ahead) in
        [(false, false, 1_000_000), (true, false, 1_250_000), (true, true, 1_250_000)]
    {
        let mut l = lines(&[1024, 1024]);
        (l.rules.places_anew, l.rules.carries_protection) = (places_anew, carries);
        l.lines[0].current = 0;
        Earliest::picked(&mut l, 0);
        Earliest::charge(&mut l, 0, 0, 1_000_000);
        let left = l.entities[0].deadline - l.entities[0].vruntime;
        Earliest::reweigh(&mut l, 0, (1024 << 10) + 1);
        let e = &l.entities[0];
        assert!((e.vruntime - l.entities[1].vruntime - ahead).abs() <= 8, "{}", e.vruntime);
        assert!((e.deadline - e.vruntime - left).abs() <= 8, "what is left of its slice is left");
        assert_eq!(e.protected, carries, "as in the source");
    }
}

/// A waiting entity is not part of the average used for placing it. In both cases it keeps what it is owed,
/// in CPU time.
#[test]
fn a_new_weight_leaves_a_waiting_one_what_it_is_owed() {
    for places_anew in [false, true] {
        let mut l = lines(&[1024, 1024, 512]);
        l.rules.places_anew = places_anew;
        Earliest::charge(&mut l, 0, 0, 2_000_000);
        let owed = l.lag(1) * 1024;
        Earliest::reweigh(&mut l, 1, 300 << 10);
        assert!((l.lag(1) * 300 - owed).abs() <= 8 * 1024, "{} of {owed}", l.lag(1) * 300);
    }
}

/// A group that is in line from the start keeps its slice until a task below it wakes or goes to sleep. After
/// that, an entity that asks for less ends its protection.
#[test]
fn a_group_keeps_the_slice_that_it_asked_for() {
    let mut l = lines(&[1024, 1024]);
    l.rules.kept_ns = 6_000_000;
    Earliest::told(&mut l, 0, 0);
    assert_eq!((l.asks_ns(0), l.asks_ns(1)), (6_000_000, 3_000_000));
    l.lines[0].current = 0;
    Earliest::picked(&mut l, 0);
    Earliest::charge(&mut l, 1, 0, 1_000);
    assert!(!Earliest::preempts(&mut l, 0, 1), "it is not eligible");
    Earliest::charge(&mut l, 0, 1_000, 500_000);
    assert!(Earliest::preempts(&mut l, 0, 1) && !l.entities[0].protected);
    Earliest::told(&mut l, 0, 1);
    assert_eq!(l.asks_ns(0), 3_000_000);
}
