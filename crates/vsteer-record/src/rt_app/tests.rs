use super::*;
use proptest::prelude::*;

const TEXT: &str = r#"{
    /* two tasks */
    "global": { "duration": 5, "calibration": "CPU0", "default_policy": "SCHED_OTHER", "gnuplot": false, },
    "tasks": {
        "timed": {
            "instance": 2, "cpus": [0, 2], "priority": -5, // a nice level
            "run": 10000,
            "timer": { "ref": "unique", "period": 100000 },
        },
        "steps": {
            "loop": 3, "delay": 500, "policy": "SCHED_FIFO", "priority": 40,
            "phases": {
                "light": { "loop": 10, "run": 1000, "sleep": 2000, "run1": 3 },
                "heavy": { "runtime": 5000, "timer1": { "ref": "t", "period": 9, "mode": "absolute" } }
            }
        }
    }
}"#;

#[test]
fn tasks_phases_and_events_are_read() {
    let workload = read(TEXT).unwrap();
    assert_eq!(workload.duration_s, Some(5));
    let [timed, steps] = &workload.tasks[..] else { panic!() };
    let name = "unique".to_owned();
    let events = vec![Event::Run(10_000), Event::Timer { name, period_us: 100_000, absolute: false }];
    assert_eq!(timed.phases, [Phase { rounds: Some(1), events }]);
    assert_eq!((timed.instances, timed.rounds, timed.class), (2, None, Class::Other(-5)));
    assert_eq!(timed.cpus.as_ref().unwrap().to_string(), "0,2");
    assert_eq!((steps.delay_us, steps.rounds, steps.class), (500, Some(3), Class::Fifo(40)));
    let light = vec![Event::Run(1_000), Event::Sleep(2_000), Event::Run(3)];
    assert_eq!(steps.phases[0], Phase { rounds: Some(10), events: light });
    assert_eq!(steps.phases[1].events[0], Event::Run(5_000));
    assert!(is_one(TEXT) && !is_one("{\"plan\": 1}") && !is_one("[vm]\nname = \"tasks\""));
}

#[test]
fn what_is_not_simulated_is_refused_by_name() {
    let with = |event: &str| format!("{{\"tasks\": {{\n\"a\": {{\n\"run\": 5,\n{event}\n}} }} }}");
    for (event, says) in [
        ("\"lock\": \"m\"", "tasks.a.lock: tasks that wait for a mutex"),
        ("\"wait\": { \"ref\": \"c\", \"mutex\": \"m\" }", "tasks.a.wait: tasks that wait for a condition"),
        ("\"mem\": 100", "tasks.a.mem: memory traffic"),
        ("\"iorun0\": 100", "tasks.a.iorun0: devices"),
        ("\"sem_wait\": \"s\"", "semaphore"),
        ("\"yield\": \"\"", "yields"),
        ("\"fork\": \"b\"", "start others"),
        ("\"taskgroup\": \"/a\"", "task groups"),
        ("\"policy\": \"SCHED_DEADLINE\"", "the class SCHED_DEADLINE"),
        ("\"dl-runtime\": 5", "SCHED_DEADLINE"),
        ("\"sleep\": -1", "-1 is not from 0"),
        ("\"sleep\": 1.5", "not a whole number"),
        ("\"sleep\": \"1\"", "it is a text, not a whole number"),
        ("\"timer\": { \"period\": 5 }", "no \"ref\""),
        ("\"timer\": { \"ref\": \"unique\" }", "no \"period\""),
        ("\"timer\": { \"ref\": \"unique\", \"period\": 5, \"mode\": \"x\" }", "neither"),
        ("\"walk\": 5", "tasks.a.walk: it is not an event"),
        ("\"loop\": 0", "do nothing"),
        ("\"cpus\": []", "empty"),
        ("\"phases\": { \"p\": { \"run\": 1 } }", "events beside them"),
    ] {
        let fault = read(&with(event)).unwrap_err();
        let text = fault.to_string();
        let line = if says.contains("beside") { 2 } else { 4 };
        assert!(text.contains(says), "{event}: {text}");
        assert!(text.starts_with(&format!("line {line}")), "{event}: {text}");
    }
    let phase =
        with("\"sleep\": 5").replace("\"run\": 5,", "\"phases\": { \"p\": { \"cpus\": [1], \"run\": 5 } }");
    assert!(
        read(&phase.replace("\"sleep\": 5", "")).unwrap_err().to_string().contains("from phase to phase")
    );
    let shared = TEXT.replace("\"unique\"", "\"x\"");
    assert!(read(&shared).unwrap_err().to_string().contains("several threads share it"));
    for (text, says) in [
        ("{}", "no object \"tasks\""),
        ("[]", "a list, not an object"),
        ("{\"tasks\": {}}", "no task"),
        ("{\"tasks\": {\"a\": {}}}", "no event"),
        ("{\"tasks\": {\"a\": {\"instance\": 0, \"run\": 1}}}", "no task"),
    ] {
        assert!(read(text).unwrap_err().to_string().contains(says), "{text}");
    }
}

fn event() -> impl Strategy<Value = Event> {
    let timer =
        ("[a-z\"\\\\ ]{0,6}", 0u64..1_000_000, any::<bool>()).prop_map(|(name, period_us, absolute)| {
            Event::Timer { name: format!("unique{name}"), period_us, absolute }
        });
    prop_oneof![(0u64..1_000_000).prop_map(Event::Run), (0u64..1_000_000).prop_map(Event::Sleep), timer]
}

fn phase() -> impl Strategy<Value = Phase> {
    let rounds = prop_oneof![Just(None), (1u64..1000).prop_map(Some)];
    (rounds, prop::collection::vec(event(), 1..6)).prop_map(|(rounds, events)| Phase { rounds, events })
}

proptest! {
    /// What is written is read back as it was.
    #[test]
    fn a_workload_survives_its_text(
        names in prop::collection::btree_set("[a-z0-9 \"\\\\/*]{1,8}", 1..4),
        phases in prop::collection::vec(phase(), 1..4),
        (delay_us, duration_s) in (0u64..1000, prop::option::of(1u64..100)),
        class in prop_oneof![(-20i8..20).prop_map(Class::Other), (1u8..100).prop_map(Class::Fifo), (1u8..100).prop_map(Class::Rr)],
        cpus in prop::option::of(prop::collection::btree_set(0u32..64, 1..5)),
    ) {
        let cpus: Option<CpuSet> = cpus.map(|all| all.into_iter().collect());
        let task = |name| Task {
            name, instances: 3, delay_us, rounds: Some(7), cpus: cpus.clone(), class, phases: phases.clone(),
        };
        let workload = Workload { duration_s, tasks: names.into_iter().map(task).collect() };
        prop_assert_eq!(read(&text(&workload)).unwrap(), workload.clone());
        // Other programs read it too.
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text(&workload)).is_ok());
    }

    #[test]
    fn no_text_makes_it_panic(at in 0usize..TEXT.len(), byte in any::<u8>()) {
        let mut bytes = TEXT.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = read(&String::from_utf8_lossy(&bytes));
        let _ = read(&TEXT[..at]);
    }
}
