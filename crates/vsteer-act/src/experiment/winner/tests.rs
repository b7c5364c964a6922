//! Checks the plan for made-up verdicts, with settings in files of these tests.

use super::*;
use vsteer_core::Interval;
use vsteer_core::setting;

/// An experiment over files of these contents: name, what is in force, levels; what else stands in the factor instead
/// of its file.
struct Made {
    _dir: tempfile::TempDir,
    experiment: Experiment,
}

fn made(design: &str, factors: &[(&str, &str, &[&str], &str)]) -> Made {
    let dir = tempfile::tempdir().unwrap();
    let mut text = format!(
        "name = \"e\"\ndesign = \"{design}\"\n[workload]\ncommand = \"true\"\n[boot]\nset = \"true\"\n"
    );
    for (name, now, levels, how) in factors {
        let file = dir.path().join(name);
        std::fs::write(&file, now).unwrap();
        let how = how.replace("FILE", &file.display().to_string());
        text += &format!("[[factor]]\nname = {name:?}\nlevels = {levels:?}\n{how}\n");
    }
    Made { _dir: dir, experiment: toml::from_str(&text).unwrap() }
}

const BY_FILE: &str = "file = \"FILE\"";

/// A verdict on the time, in per cent of it.
fn verdict(name: &str, outcome: Outcome, (low, likely, high): (f64, f64, f64)) -> Answer {
    Answer {
        name: name.to_owned(),
        interaction: name.contains(" x "),
        also: Vec::new(),
        effect: Some(Interval { low, likely, high }),
        percent: true,
        blocks: 5,
        first: 5,
        p: None,
        p_holm: None,
        p_welch: None,
        p_ranks: None,
        hedges_g: None,
        outcome,
        smallest_visible: None,
    }
}

fn better(name: &str, by: f64) -> Answer {
    verdict(name, Outcome::Better, (-by - 1.0, -by, 1.0 - by))
}

fn worse(name: &str, by: f64) -> Answer {
    verdict(name, Outcome::Worse, (by - 1.0, by, by + 1.0))
}

fn not_seen(name: &str) -> Answer {
    verdict(name, Outcome::NotSeen, (-2.0, 0.1, 2.0))
}

/// The steps, each as factor and level, with the reason; and the notes.
fn planned(made: &Made, answers: Vec<Answer>) -> (Vec<(String, String)>, String) {
    let measure = made.experiment.measured().remove(0);
    let told = MeasureTold { measure, settings: Vec::new(), answers };
    let (steps, left) = Making::of(&made.experiment, &told).all().unwrap();
    let of = |step: Step| match step.change {
        Change::Knob(setting::HostKnob { knob, to, .. }) => (format!("{}={to}", knob.name), step.reason),
        other => panic!("{other:?}"),
    };
    (steps.into_iter().map(of).collect(), left.join("\n"))
}

fn set(steps: &[(String, String)]) -> Vec<&str> {
    steps.iter().map(|(to, _)| to.as_str()).collect()
}

const PAGES: &[&str] = &["madvise", "always", "never"];

#[test]
fn the_first_level_is_planned_where_what_is_in_force_was_worse() {
    let m = made("one-at-a-time", &[("thp", "never", PAGES, BY_FILE)]);
    let (steps, left) = planned(&m, vec![not_seen("thp: always"), worse("thp: never", 12.0)]);
    assert_eq!(set(&steps), ["thp=madvise"], "{left}");
    assert!(steps[0].1.contains("+12.0 (+11.0 to +13.0) % of never, against it"), "{}", steps[0].1);
    // No step if the level is already set, or the present level was not measured to be worse.
    for now in ["madvise", "always", "something else"] {
        let m = made("one-at-a-time", &[("thp", now, PAGES, BY_FILE)]);
        let (steps, left) = planned(&m, vec![not_seen("thp: always"), worse("thp: never", 12.0)]);
        assert!(steps.is_empty() && left.is_empty(), "{now}: {steps:?} {left}");
    }
}

#[test]
fn a_level_is_planned_against_what_is_in_force() {
    let plan = |now: &str, answers: Vec<Answer>| {
        planned(&made("one-at-a-time", &[("thp", now, PAGES, BY_FILE)]), answers)
    };
    // The first is in force; one that was worse than it; one that the experiment does not know.
    for now in ["madvise", "never", "[other] never"] {
        let (steps, left) = plan(now, vec![better("thp: always", 10.0), worse("thp: never", 5.0)]);
        assert_eq!(set(&steps), ["thp=always"], "{now}: {left}");
        assert_eq!(steps[0].1.contains("% against madvise"), now != "madvise", "{now}: {}", steps[0].1);
    }
    let (steps, left) = plan("always", vec![better("thp: always", 10.0), worse("thp: never", 5.0)]);
    assert!(steps.is_empty() && left.contains("already has this value"), "{left}");
    // Both are better than the first: the better one, where the verdicts tell the two apart.
    let (steps, left) = plan("never", vec![better("thp: always", 10.0), better("thp: never", 5.0)]);
    assert_eq!(set(&steps), ["thp=always"], "{left}");
    let (steps, left) = plan("never", vec![better("thp: always", 10.0), better("thp: never", 9.0)]);
    assert!(steps.is_empty() && left.contains("not measurably better"), "{left}");
    let close = vec![better("thp: always", 2.5), not_seen("thp: never")];
    let (steps, left) = plan("never", close);
    assert!(steps.is_empty() && left.contains("make never the first level"), "{left}");
}

#[test]
fn what_more_is_better_of_is_held_apart_the_other_way() {
    let mut m = made("one-at-a-time", &[("thp", "never", PAGES, BY_FILE)]);
    m.experiment.measures = m.experiment.measured();
    m.experiment.measures[0].better = Better::More;
    let more = |name: &str, by: f64| verdict(name, Outcome::Better, (by - 1.0, by, by + 1.0));
    let (steps, left) = planned(&m, vec![more("thp: always", 10.0), more("thp: never", 5.0)]);
    assert_eq!(set(&steps), ["thp=always"], "{left}");
}

#[test]
fn interactions_are_of_whole_names_and_of_what_they_cannot_be_told_from() {
    let two: &[&str] = &["a", "b"];
    let four = ["f0", "f1", "f2", "f3"].map(|name| (name, "a", two, BY_FILE));
    let mut together = worse("f0 x f1", 4.0);
    together.also = vec!["f2 x f3".into()];
    let main = ["f0: b", "f1: b", "f2: b", "f3: b"].map(|name| better(name, 10.0));
    let (steps, left) = planned(&made("fractional", &four), [&main[..], &[together]].concat());
    assert!(steps.is_empty(), "{steps:?}");
    for name in ["f0: b", "f1: b", "f2: b", "f3: b"] {
        assert!(left.contains(&format!("{name}: not planned")), "{name}: {left}");
    }
    // A factor that was not seen stops no other.
    let (steps, _) = planned(&made("fractional", &four), [&main[..], &[not_seen("f0 x f1")]].concat());
    assert_eq!(set(&steps), ["f0=b", "f1=b", "f2=b", "f3=b"]);
    // A name that is part of another is not it; by levels, as a full design names them.
    let full = [("pin", "a", two, BY_FILE), ("pinning", "a", two, BY_FILE), ("boost", "a", two, BY_FILE)];
    let answers =
        vec![better("pin: b", 10.0), better("pinning: b", 9.0), worse("pinning: b x boost: b", 4.0)];
    let (steps, left) = planned(&made("full", &full), answers);
    assert_eq!(set(&steps), ["pin=b"], "{left}");
    assert!(left.contains("pinning: b: not planned"), "{left}");
}

#[test]
fn what_an_effect_cannot_be_told_from_is_told_beside_its_plan() {
    let two: &[&str] = &["a", "b"];
    let three = ["f0", "f1", "f2"].map(|name| (name, "a", two, BY_FILE));
    let mut mixed = better("f0: b", 10.0);
    mixed.also = vec!["f1 x f2".into()];
    let (steps, left) = planned(&made("fractional", &three), vec![mixed]);
    assert_eq!(set(&steps), ["f0=b"]);
    assert!(steps[0].1.contains("(or f1 x f2)") && left.contains("f0: b: planned, but"), "{left}");
}

#[test]
fn mitigations_are_never_switched_off_however_a_factor_says_it() {
    let by_commands = "set = \"grubby --update-kernel=ALL --args=mitigations={level}\"\nread = \"cat FILE\"";
    let by_script = "set = \"./switch {level}\"\nread = \"cat FILE\"";
    let kept = "set = \"./switch {level}\"\nread = \"cat FILE\"\nlasting = { commands = { set = \"./keep retbleed={level}\", read = \"cat FILE\" } }";
    let cases: &[(&str, &[&str], &str)] = &[
        ("k", &["mitigations=auto", "mitigations=off"], "kernel = true"),
        ("k", &["", "nopti"], "kernel = true"),
        ("k", &["", "quiet retbleed=off"], "kernel = true"),
        ("k", &["spectre_v2=on", "spectre_v2=off"], "kernel = true"),
        ("k", &["auto", "off"], by_commands),
        ("k", &["auto", "off"], kept),
        ("mitigations", &["auto", "off"], by_script),
        ("mitigations", &["auto", "off"], BY_FILE),
        ("host-mitigations", &["with", "without"], by_script),
        ("retbleed", &["auto", "off"], by_script),
        ("k", &["all", "no-mitigations"], by_script),
        ("k", &["safe", "nopti"], by_script),
    ];
    for (name, levels, how) in cases {
        let m = made("pair", &[(*name, levels[0], *levels, *how)]);
        let (steps, left) = planned(&m, vec![better(&format!("{name}: {}", levels[1]), 10.0)]);
        assert!(
            steps.is_empty() && left.contains("SECURITY: never planned"),
            "{name} {levels:?} {how}: {steps:?} {left}"
        );
    }
    // Nor where it would be gone back to, though what is in force was worse.
    let m = made("pair", &[("mitigations", "auto", &["off", "auto"], by_script)]);
    let (steps, left) = planned(&m, vec![worse("mitigations: auto", 10.0)]);
    assert!(steps.is_empty() && left.contains("SECURITY: never planned"), "{left}");
    // Switching them on is planned, and what has nothing to do with them.
    let m = made("pair", &[("mitigations", "off", &["off", "auto"], by_script)]);
    assert_eq!(set(&planned(&m, vec![better("mitigations: auto", 10.0)]).0), ["mitigations=auto"]);
    let m = made("pair", &[("mode", "auto", &["auto", "off"], by_script)]);
    assert_eq!(set(&planned(&m, vec![better("mode: off", 10.0)]).0), ["mode=off"]);
}

#[test]
fn a_second_thread_of_a_core_is_planned_with_a_warning() {
    let by_script = "set = \"./switch {level}\"\nread = \"cat FILE\"";
    let m = made("pair", &[("words", "nosmt quiet", &["nosmt quiet", "quiet"], by_script)]);
    let (steps, left) = planned(&m, vec![better("words: quiet", 40.0)]);
    assert_eq!(set(&steps), ["words=quiet"]);
    assert!(left.contains("SECURITY: VMs can then learn from each other"), "{left}");
}
