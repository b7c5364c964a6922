//! Any text is an experiment that can be laid out, or is refused. One that was written as a log's line is the same again.

use vsteer_act::experiment::file::parse;
use vsteer_experiment::Experiment;

pub fn run(bytes: &[u8]) -> bool {
    let Ok(experiment) = parse(crate::text(bytes)) else { return false };
    let laid = experiment.laid().expect("it was checked");
    for levels in &laid.settings {
        let _ = experiment.with_levels(&experiment.workload.command, levels);
    }
    for factor in &experiment.factors {
        factor.knob(experiment.boot.as_ref()).expect("it was checked");
    }
    let line = serde_json::to_string(&experiment).expect("an experiment is plain data");
    let again: Experiment = serde_json::from_str(&line).expect("what was written is read");
    again.check().expect("it is the same");
    assert_eq!(again.laid().expect("it is the same"), laid);
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        crate::project_file("experiments/examples/nic-queues.toml"),
        b"name = \"e\"\ndesign = \"pair\"\n[workload]\ncommand = \"true {f}\"\n[[factor]]\nname = \"f\"\n\
levels = [\"a\", \"b\"]\n"
            .to_vec(),
    ]
}
