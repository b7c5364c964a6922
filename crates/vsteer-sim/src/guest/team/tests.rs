use super::*;

fn spec(schedule: Schedule) -> LoopSpec {
    LoopSpec {
        team: 0,
        iterations: 10,
        work: Times::Fixed(100),
        schedule,
        chunk: None,
        threads: None,
        overhead_ns: 0,
        wait: Waiting::Sleep,
        serial: None,
        pause: None,
    }
}

fn team(spec: &LoopSpec, n: u32) -> Team {
    spec.check("x").unwrap();
    let members: Vec<(u32, Random)> = (0..n).map(|v| (v, Random::new(1, v.into()))).collect();
    Team::new(spec, &members)
}

#[test]
fn static_chunks_go_to_threads_in_turn() {
    let mut s = spec(Schedule::Static);
    assert_eq!(s.dealt(4), [3, 3, 2, 2]);
    s.threads = Some(4);
    assert_eq!(s.dealt(2), [5, 5], "threads 0 and 2, 1 and 3");
    s.chunk = Some(4);
    assert_eq!(s.dealt(2), [6, 4], "0-3 and 8-9, 4-7");
    s.threads = None;
    s.chunk = Some(20);
    assert_eq!(s.dealt(2), [10, 0]);
}

#[test]
fn the_last_at_the_barrier_begins_the_next_region() {
    let mut t = team(&spec(Schedule::Static), 2);
    let mut pokes = Vec::new();
    assert_eq!(t.begin(0, 0, &mut pokes), NO_MORE);
    assert_eq!(t.begin(1, 5, &mut pokes).work_ns, 500);
    assert_eq!(pokes, [Poke { vcpu: 0, at_ns: 5, work_ns: 500 }]);
    pokes.clear();
    assert_eq!(t.burst_done(0, 505, &mut pokes), NO_MORE, "it sleeps at the barrier");
    assert_eq!(t.burst_done(1, 700, &mut pokes).work_ns, 500);
    assert_eq!(pokes.len(), 1);
    let jobs = t.jobs(0).unwrap();
    assert_eq!((jobs.done, jobs.response_ns, t.jobs(1)), (1, 695, None));
}

#[test]
fn dynamic_chunks_go_to_who_has_none() {
    let s = LoopSpec { chunk: Some(4), wait: Waiting::Spin, ..spec(Schedule::Dynamic) };
    let mut t = team(&s, 2);
    let mut pokes = Vec::new();
    t.begin(0, 0, &mut pokes);
    assert_eq!(t.begin(1, 0, &mut pokes).work_ns, 400);
    assert_eq!(t.burst_done(0, 400, &mut pokes).work_ns, 200, "what is left");
    assert_eq!(t.burst_done(0, 600, &mut pokes).work_ns, u64::MAX, "it spins");
    pokes.clear();
    assert_eq!(t.burst_done(1, 900, &mut pokes).work_ns, 400, "the next region");
    assert_eq!(pokes, [Poke { vcpu: 0, at_ns: 900, work_ns: 400 }]);
}

#[test]
fn the_first_thread_is_alone_between_regions() {
    let serial = Some(Times::Fixed(7));
    let s = LoopSpec { serial, pause: Some(Pause::Every(Times::Fixed(1000))), ..spec(Schedule::Static) };
    let mut t = team(&s, 2);
    let mut pokes = Vec::new();
    t.begin(0, 0, &mut pokes);
    t.begin(1, 0, &mut pokes);
    let offset_ns = pokes[0].at_ns;
    assert!(offset_ns < 1000 && pokes[0].vcpu == 0, "the seed says where in the period");
    t.burst_done(0, offset_ns + 1, &mut pokes);
    t.burst_done(0, offset_ns + 500, &mut pokes);
    pokes.clear();
    let over_ns = offset_ns + 600;
    assert_eq!(t.burst_done(1, over_ns, &mut pokes), NO_MORE);
    assert_eq!(pokes, [Poke { vcpu: 0, at_ns: over_ns, work_ns: 1 }], "the first is told");
    assert_eq!(t.burst_done(0, over_ns + 1, &mut pokes), Next { at_ns: offset_ns + 1000, work_ns: 7 });
    pokes.clear();
    assert_eq!(t.burst_done(0, offset_ns + 1007, &mut pokes).work_ns, 500);
    assert_eq!(pokes.len(), 1);
}

#[test]
fn patience_ends_in_sleep() {
    let s = LoopSpec { wait: Waiting::SpinThenSleep(30), ..spec(Schedule::Static) };
    let mut t = team(&s, 2);
    let mut pokes = Vec::new();
    t.begin(0, 0, &mut pokes);
    t.begin(1, 0, &mut pokes);
    assert_eq!(t.burst_done(0, 500, &mut pokes), Next { at_ns: 500, work_ns: 30 });
    assert_eq!(t.burst_done(0, 530, &mut pokes), NO_MORE);
}

#[test]
fn what_no_loop_is_is_refused() {
    for bad in [
        LoopSpec { iterations: 0, ..spec(Schedule::Static) },
        LoopSpec { chunk: Some(0), ..spec(Schedule::Dynamic) },
        LoopSpec { threads: Some(0), ..spec(Schedule::Static) },
        LoopSpec { work: Times::Fixed(0), ..spec(Schedule::Static) },
        LoopSpec { wait: Waiting::SpinThenSleep(0), ..spec(Schedule::Static) },
    ] {
        assert!(bad.check("x").is_err(), "{bad:?}");
    }
}
