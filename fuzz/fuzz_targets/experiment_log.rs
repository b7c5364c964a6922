//! Any bytes are an experiment's log or refused by line; of one that is read, what comes next and what it says can be asked. Half of the inputs follow a
//! first line that is good, so that what comes after it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_act::experiment::log::parse;
use vsteer_experiment::{Event, Progress, answer};

/// An experiment of two settings, begun on a host of one CPU.
const BEGUN: &[u8] = include_bytes!("experiment_log.begun.json");

fuzz_target!(|bytes: &[u8]| {
    let text = match bytes.split_first() {
        Some((first, rest)) if first & 1 == 0 => [BEGUN, rest].concat(),
        _ => bytes.to_vec(),
    };
    match parse(&text) {
        Ok((events, whole)) => {
            assert!(whole as usize <= text.len());
            let Some(Event::Begun { experiment, .. }) = events.first() else {
                assert!(events.is_empty());
                return;
            };
            let laid = experiment.laid().expect("it was checked");
            let _ = Progress::new(experiment, &laid, &events).next();
            let _ = answer(experiment, &laid, &events);
        }
        Err((line, _)) => assert!(line <= text.iter().filter(|b| **b == b'\n').count()),
    }
});
