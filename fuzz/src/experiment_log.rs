//! Any bytes are an experiment's log or refused by line. Of a log that is read, what comes next and what it says can be
//! asked. Half of the inputs follow a first line that is good, so that what comes after it is reached.

use vsteer_act::experiment::log::parse;
use vsteer_experiment::{Event, Progress, answer};

/// An experiment of two settings, begun on a host of one CPU.
const BEGUN: &[u8] = include_bytes!("experiment_log.begun.json");

pub fn run(bytes: &[u8]) -> bool {
    let text = match bytes.split_first() {
        Some((first, rest)) if first & 1 == 0 => [BEGUN, rest].concat(),
        _ => bytes.to_vec(),
    };
    match parse(&text) {
        Ok((events, whole)) => {
            assert!(whole as usize <= text.len());
            let Some(Event::Begun { experiment, .. }) = events.first() else {
                assert!(events.is_empty());
                return false;
            };
            let laid = experiment.laid().expect("it was checked");
            let _ = Progress::new(experiment, &laid, &events).next();
            let _ = answer(experiment, &laid, &events);
            true
        }
        Err((line, _)) => {
            assert!(line <= text.iter().filter(|b| **b == b'\n').count());
            false
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![vec![0], BEGUN.to_vec()]
}
