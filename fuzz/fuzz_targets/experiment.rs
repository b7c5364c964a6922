//! Any text is an experiment that can be laid out, or refused; one that was written as a log's line is the same experiment again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_act::experiment::file::parse;
use vsteer_experiment::Experiment;

fuzz_target!(|text: &str| {
    let Ok(experiment) = parse(text) else { return };
    let laid = experiment.laid().expect("it was checked");
    for levels in &laid.settings {
        let _ = experiment.with_levels(&experiment.workload.command, levels);
    }
    for factor in &experiment.factors {
        factor.knob(experiment.boot.as_ref()).expect("it was checked");
    }
    let line = serde_json::to_string(&experiment).unwrap();
    let again: Experiment = serde_json::from_str(&line).expect("what was written is read");
    again.check().expect("it is the same");
    assert_eq!(again.laid().unwrap(), laid);
});
