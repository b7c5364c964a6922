//! `vsteer experiment ab -- A -- B`: which of two commands is faster? An experiment of one factor without a file.
//!
//! The commands take turns in an order that a seed draws, so that what else the machine does meets both alike.

use crate::cli::Ab;
use serde_json::json;
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::Experiment;
use vsteer_experiment::answers::{Answers, Outcome};

/// The experiment of two commands.
///
/// # Errors
/// `Usage` if the words are not two different commands; `BadInput` if an option is out of range.
pub(super) fn experiment(a: &Ab) -> Result<Experiment, Fault> {
    let levels = commands(&a.commands)?;
    let of = a.printed.as_ref().map_or_else(|| json!("time"), |printed| json!({ "printed": printed }));
    let mut measure = json!({ "name": if a.printed.is_some() { "printed" } else { "time" }, "of": of });
    if a.more {
        measure["better"] = json!("more");
    }
    let mut workload = json!({ "command": ["sh", "-c", "{command}"] });
    if let Some(prepare) = &a.prepare {
        workload["prepare"] = json!({ "sh": prepare });
    }
    let mut all = json!({
        "name": "ab", "design": "pair", "seed": a.seed, "runs_least": a.runs, "runs_most": a.most.max(a.runs),
        "warm_up": a.warm_up, "workload": workload, "measure": [measure],
        "factor": [{ "name": "command", "levels": levels }],
    });
    if let Some(margin) = a.margin {
        all["margin_percent"] = json!(margin);
    }
    let experiment: Experiment = serde_json::from_value(all)
        .map_err(|e| Fault::new(FaultKind::Usage, "these options make no experiment").because(e))?;
    experiment.check()?;
    Ok(experiment)
}

/// The two commands, each as text for a shell.
fn commands(words: &[String]) -> Result<[String; 2], Fault> {
    let sides: Vec<&[String]> = words.split(|word| word == "--").collect();
    let wrong = |what: &str| {
        Fault::new(FaultKind::Usage, what)
            .help("write: vsteer experiment ab -- 'gzip -1 < big.txt' -- 'gzip -9 < big.txt'")
    };
    let [a, b] = sides[..] else { return Err(wrong("ab compares two commands, each after its own --")) };
    if a.is_empty() || b.is_empty() {
        return Err(wrong("ab compares two commands, and one of them is empty"));
    }
    let (a, b) = (text(a), text(b));
    if a == b {
        return Err(wrong("both commands are the same")
            .because("a comparison of equal commands shows only how much this machine varies"));
    }
    Ok([a, b])
}

/// One word is text for a shell already; several are passed on as they are.
fn text(words: &[String]) -> String {
    match words {
        [one] => one.clone(),
        several => several.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" "),
    }
}

/// The word, so that a shell reads it as it is.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+%@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Who won, in one line.
///
/// # Errors
/// `Failed` if there are too few good runs to tell.
pub(super) fn verdict(a: &Ab, answers: &Answers) -> Result<String, Fault> {
    let [first, second] = commands(&a.commands)?;
    let told = answers.measures.first().and_then(|m| m.answers.first());
    let Some((answer, effect)) = told.and_then(|t| Some((t, t.effect.as_ref()?))) else {
        return Err(too_few(answers));
    };
    let unit = if answer.percent { " %" } else { "" };
    let by = format!("{:+.1}{unit} ({:+.1} to {:+.1})", effect.likely, effect.low, effect.high);
    match answer.outcome {
        Outcome::Better => Ok(format!("Better: {second}, with {by} against {first}")),
        Outcome::Worse => Ok(format!("Better: {first}; {second} has {by}")),
        Outcome::NotSeen => Ok(format!("No difference found: {second} has {by} against {first}")),
        Outcome::TooFew => Err(too_few(answers)),
    }
}

fn too_few(answers: &Answers) -> Fault {
    let fault = Fault::new(FaultKind::Failed, "too few runs count to compare the two commands");
    match answers.bad.first() {
        Some((_, why)) => {
            fault.because(why).help("run the command by itself to see its error, and correct it")
        }
        None => fault.help("use more --runs"),
    }
}

/// `ab.experiment`, or the first `ab-N.experiment` that is not there yet.
pub(super) fn folder(output: Option<&Path>) -> PathBuf {
    let numbered = || (2..).map(|n| PathBuf::from(format!("ab-{n}.experiment")));
    let first = std::iter::once(PathBuf::from("ab.experiment"));
    output.map_or_else(
        || first.chain(numbered()).find(|folder| !folder.exists()).expect("there are endless names"),
        Path::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<[String; 2], String> {
        commands(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()).map_err(|f| f.what)
    }

    #[test]
    fn two_commands_each_after_its_own_dashes() {
        assert_eq!(of(&["a | b", "--", "c"]).unwrap(), ["a | b", "c"]);
        let several = of(&["printf", "%s $x", "it's", "--", "sort", "-S", "1M", ""]).unwrap();
        assert_eq!(several, ["printf '%s $x' 'it'\\''s'", "sort -S 1M ''"]);
        for wrong in [&["a"][..], &["a", "--"], &["--", "a"], &["a", "--", "b", "--", "c"], &["a", "--", "a"]]
        {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
