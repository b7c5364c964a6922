//! The results of an experiment as a document: which setting helps, by how much, how certain that is, and what did not count.

use super::forest::{self, Effect, Runs, Spot};
use super::{Cell, Document, Section, Table, number, probability};
use crate::clock;
use vsteer_act::experiment::Log;
use vsteer_core::Interval;
use vsteer_experiment::answers::{Answer, Answers, MeasureTold};
use vsteer_experiment::description::Better;
use vsteer_experiment::design::Laid;
use vsteer_experiment::{Event, Experiment, Outcome};

/// Class and word of an outcome.
pub fn outcome(o: Outcome) -> Cell {
    let (class, text) = match o {
        Outcome::Better => ("better", "▲ better"),
        Outcome::Worse => ("worse", "▼ worse"),
        Outcome::NotSeen => ("same", "= none seen"),
        Outcome::TooFew => ("same", "? too few"),
    };
    Cell { text: text.to_owned(), class }
}

/// An interval with its sign, in per cent or a unit.
fn signed(i: Interval) -> (String, String) {
    let of = |v: f64| if v.abs() < 0.005 { "0.00".to_owned() } else { format!("{v:+.2}") };
    (of(i.likely), format!("{} to {}", of(i.low), of(i.high)))
}

fn answers_table(m: &MeasureTold, which: impl Fn(&Answer) -> bool, caption: String) -> Table {
    let mut table = Table {
        caption,
        head: vec![
            ("what", false),
            ("outcome", false),
            ("effect", true),
            ("95 % interval", true),
            ("blocks", true),
            ("p (Holm)", true),
            ("Welch", true),
            ("ranks", true),
            ("g", true),
            ("visible", true),
        ],
        rows: Vec::new(),
    };
    for a in m.answers.iter().filter(|a| which(a)) {
        let unit = if a.percent { "%" } else { &m.measure.unit };
        let (effect, interval) = a.effect.map_or(("-".to_owned(), "-".to_owned()), signed);
        let name =
            if a.also.is_empty() { a.name.clone() } else { format!("{} (or {})", a.name, a.also.join(", ")) };
        table.rows.push(vec![
            name.into(),
            outcome(a.outcome),
            format!("{effect} {unit}").into(),
            format!("{interval} {unit}").into(),
            if a.first < a.blocks { format!("{} of {}", a.first, a.blocks) } else { a.blocks.to_string() }
                .into(),
            probability(a.p_holm).into(),
            probability(a.p_welch).into(),
            probability(a.p_ranks).into(),
            a.hedges_g.map_or("-".to_owned(), |g| format!("{:+.2}", g.likely)).into(),
            a.smallest_visible.map_or("-".to_owned(), |v| format!("{v:.2} {unit}")).into(),
        ]);
    }
    table
}

/// Which direction of a measure is the better one.
fn better(m: &MeasureTold) -> &'static str {
    if m.measure.better == Better::Less { "less" } else { "more" }
}

/// `, s`; nothing of a measure without a unit.
fn comma_unit(m: &MeasureTold) -> String {
    if m.measure.unit.is_empty() { String::new() } else { format!(", {}", m.measure.unit) }
}

/// Effects and runs as two forests.
fn figure(m: &MeasureTold) -> String {
    let class = |a: &Answer| outcome(a.outcome).class;
    let drawn: Vec<Effect> = m
        .answers
        .iter()
        .filter(|a| a.percent || m.answers.iter().all(|a| !a.percent))
        .filter_map(|a| {
            let i = a.effect?;
            let told = format!("{} {}", signed(i).0, if a.percent { "%" } else { &m.measure.unit });
            Some(Effect { name: a.name.clone(), interval: (i.low, i.likely, i.high), class: class(a), told })
        })
        .collect();
    let unit_of_effects = if m.answers.iter().any(|a| a.percent) { "%" } else { &m.measure.unit };
    let points: Vec<Runs> = m
        .settings
        .iter()
        .map(|s| (s.words.clone(), s.values.clone(), s.interval.map(|i| (i.low, i.likely, i.high))))
        .collect();
    let of_effects = format!("Effects on {} ({} is better), with 95 % intervals", m.measure.name, better(m));
    let of_runs = format!("Every run that counts: {}{}", m.measure.name, comma_unit(m));
    forest::effects(&of_effects, unit_of_effects, &drawn) + &forest::runs(&of_runs, &m.measure.unit, &points)
}

fn settings_table(m: &MeasureTold) -> Table {
    let mut settings = Table {
        caption: format!("Settings: {}{}, {} is better", m.measure.name, comma_unit(m), better(m)),
        head: vec![
            ("setting", false),
            ("runs", true),
            ("mean", true),
            ("95 % interval", true),
            ("deviation", true),
            ("outliers", true),
            ("front", false),
        ],
        rows: Vec::new(),
    };
    for s in &m.settings {
        let interval =
            s.interval.map_or("-".to_owned(), |i| format!("{} to {}", number(i.low), number(i.high)));
        settings.rows.push(vec![
            s.words.clone().into(),
            s.values.len().to_string().into(),
            s.summary.map_or("-".to_owned(), |x| number(x.mean)).into(),
            interval.into(),
            s.summary.map_or("-".to_owned(), |x| number(x.sd)).into(),
            s.outliers.len().to_string().into(),
            if s.on_front { "not beaten" } else { "" }.into(),
        ]);
    }
    settings
}

fn measure_section(id: String, m: &MeasureTold) -> Section {
    let is_seen = |a: &Answer| matches!(a.outcome, Outcome::Better | Outcome::Worse);
    Section {
        id,
        heading: format!("{}: what helps", m.measure.name),
        lead: lead(m),
        figure: Some(figure(m)),
        tables: vec![
            answers_table(m, is_seen, "Differences".into()),
            answers_table(m, |a| !is_seen(a), "No difference found".into()),
            settings_table(m),
        ],
        notes: vec![
            "Effects are means over blocks; p and intervals are by Student's t on blocks, the interval's deviation is the first stage's (Stein's two \
             stages). \"visible\": the smallest effect that 80 % of such experiments would have told, before the correction for several questions."
                .into(),
        ],
    }
}

/// The answer in a sentence or two.
fn lead(m: &MeasureTold) -> Vec<String> {
    let better: Vec<String> = m
        .answers
        .iter()
        .filter(|a| a.outcome == Outcome::Better)
        .filter_map(|a| {
            let i = a.effect?;
            Some(format!("{} ({} {})", a.name, signed(i).0, if a.percent { "%" } else { &m.measure.unit }))
        })
        .collect();
    let none = m.answers.iter().filter(|a| a.outcome == Outcome::NotSeen).count();
    let mut lines = Vec::new();
    lines.push(if better.is_empty() {
        "No setting is better than the one it was compared with.".to_owned()
    } else {
        format!("Better: {}.", better.join("; "))
    });
    if none > 0 {
        lines.push(format!("{none} of {} made no difference that was found.", m.answers.len()));
    }
    lines
}

/// All of it.
pub fn of(experiment: &Experiment, laid: &Laid, log: &Log, answers: &Answers) -> Document {
    let begun = log.events().iter().find_map(|e| match e {
        Event::Begun { host, unix_ns, .. } => Some((host, *unix_ns)),
        _ => None,
    });
    let (host, when) = begun.map_or(("?".to_owned(), String::new()), |(h, ns)| {
        (format!("{}, Linux {}", h.hostname, h.kernel), clock::text(ns))
    });
    let mut sections: Vec<Section> =
        answers.measures.iter().enumerate().map(|(i, m)| measure_section(format!("m{i}"), m)).collect();
    if let [a, b, ..] = &answers.measures[..] {
        let points: Vec<Spot> = a
            .settings
            .iter()
            .zip(&b.settings)
            .filter_map(|(x, y)| Some((x.words.clone(), x.summary?.mean, y.summary?.mean, x.on_front)))
            .collect();
        sections.push(Section {
            id: "front".into(),
            heading: format!("{} against {}", a.measure.name, b.measure.name),
            figure: Some(forest::front(
                "Filled: no other setting is better in one measure without being worse in another",
                &format!("{}, {}", a.measure.name, a.measure.unit),
                &format!("{}, {}", b.measure.name, b.measure.unit),
                &points,
            )),
            ..Section::default()
        });
    }
    sections.push(accounts(answers));
    let ceiling = answers.wanted.map_or(String::new(), |w| format!(" (the margin needs {w} blocks)"));
    Document {
        title: format!("Experiment {}", experiment.name),
        facts: vec![
            ("Host".into(), host),
            ("Begun".into(), when),
            (
                "Workload".into(),
                format!(
                    "{}{}",
                    experiment.workload.command,
                    experiment.workload.on.as_ref().map_or(String::new(), |o| format!(" on {o}"))
                ),
            ),
            (
                "Design".into(),
                format!(
                    "{} settings in random blocks, seed {}{ceiling}",
                    laid.settings.len(),
                    experiment.seed
                ),
            ),
            (
                "State".into(),
                if answers.ended { "complete; settings are restored".into() } else { "not complete".into() },
            ),
        ],
        sections,
    }
}

fn accounts(a: &Answers) -> Section {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (run, why) in &a.bad {
        rows.push(vec![
            run.number.to_string().into(),
            (run.place.block + 1).to_string().into(),
            run.place.setting.to_string().into(),
            why.clone().into(),
        ]);
    }
    let mut notes: Vec<String> = a
        .given_up
        .iter()
        .map(|s| format!("Given up, because the setting did not take effect: {s}"))
        .collect();
    notes.extend(a.missing.iter().map(|m| format!("Not measured: {m}")));
    Section {
        id: "runs".into(),
        heading: "All runs".into(),
        lead: vec![format!(
            "{} runs: {} count, {} do not count, {} were warm-up; {} boots.",
            a.runs,
            a.counted,
            a.bad.len(),
            a.runs - a.counted - a.bad.len(),
            a.boots
        )],
        tables: vec![Table {
            caption: "Runs that do not count".into(),
            head: vec![("run", true), ("block", true), ("setting", true), ("why", false)],
            rows,
        }],
        notes,
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{page, text};
    use super::*;

    #[test]
    fn every_measure_is_told() {
        const MEASURES: usize = 9;
        let mut file = "name = \"e\"\ndesign = \"pair\"\n[workload]\ncommand = \"{f}\"\n[[factor]]\nname = \"f\"\nlevels = [\"a\", \"b\"]\n".to_owned();
        for i in 0..MEASURES {
            file += &format!("[[measure]]\nname = \"number {i}.\"\nof = {{ printed = \"{{}} x{i}\" }}\n");
        }
        let experiment: Experiment = toml::from_str(&file).unwrap();
        let laid = experiment.laid().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let log = Log::create(folder.path()).unwrap();
        let answers = vsteer_experiment::answer(&experiment, &laid, log.events());
        assert_eq!(answers.measures.len(), MEASURES);
        let document = of(&experiment, &laid, &log, &answers);
        let mut ids: Vec<&str> = document.sections.iter().map(|s| s.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), document.sections.len(), "links lead to one place each");
        for told in [text::text(&document), text::markdown(&document), page::html(&document)] {
            for i in 0..MEASURES {
                assert!(told.contains(&format!("number {i}.: what helps")), "{i} in {told}");
            }
        }
    }
}
