//! `vsteer experiment report --published`: the published study of host tuning, computed again from its own tables.

use super::document::outcome;
use super::forest::{self, Effect, Spot};
use super::{Cell, Document, Section, Table, number, probability, text};
use std::path::Path;
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::Outcome;
use vsteer_experiment::study::{Study, StudyTold, read_again};

/// Part of the program: it tells the same wherever it runs.
const FILE: &str = include_str!("../../../../experiments/published/host-tuning.toml");

/// Reports.
///
/// # Errors
/// When a page cannot be written.
pub fn report(markdown: bool, output: Option<&Path>, json: bool) -> Result<(), Fault> {
    let study: Study = toml::from_str(FILE)
        .map_err(|e| Fault::new(FaultKind::BadInput, "experiments/published/host-tuning.toml").because(e))?;
    let told = read_again(&study)?;
    if json && output.is_none() {
        crate::text::print_json(&told);
        return Ok(());
    }
    text::put(&document(&told), markdown, output, json)
}

fn yes(agrees: bool) -> Cell {
    if agrees {
        Cell { text: "✓".into(), class: "better" }
    } else {
        Cell { text: "✗".into(), class: "worse" }
    }
}

fn document(t: &StudyTold) -> Document {
    let agree = [
        t.cells.iter().filter(|c| c.agrees).count(),
        t.comparisons.iter().filter(|c| c.agrees).count(),
        t.pairs.iter().filter(|p| p.agrees).count(),
    ];
    let right = t.comparisons.iter().filter(|c| c.right).count();
    Document {
        title: "A study of host tuning, computed again from its own tables".into(),
        facts: std::iter::once(("Source", t.citation.as_str()))
            .chain(t.testbed.iter().map(|l| l.split_once(": ").unwrap_or(("Testbed", l))))
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .collect(),
        sections: vec![
            Section {
                id: "short".into(),
                heading: "In short".into(),
                lead: vec![
                    format!(
                        "Printed figures that follow from the tables: {} of {} margins, {} of {} comparisons, {} of {} pairs of means. Verdicts as \
                         expected: {right} of {}.",
                        agree[0],
                        t.cells.len(),
                        agree[1],
                        t.comparisons.len(),
                        agree[2],
                        t.pairs.len(),
                        t.comparisons.len()
                    ),
                    "Mitigations cost where they run: the host's cost what runs on the host, the VM's what runs in the VM. No effect of the host's on the VM \
                     is seen."
                        .into(),
                ],
                notes: vec![
                    "Switching mitigations off opens a machine to attacks by speculative execution. The study measured it; vsteer \
                     never proposes it."
                        .into(),
                ],
                ..Section::default()
            },
            comparisons(t),
            ranking(t),
            margins(t),
            pairs(t),
            profiles(t),
        ],
    }
}

fn comparisons(t: &StudyTold) -> Section {
    let rows = t.comparisons.iter().map(|c| {
        let percent = c
            .percent
            .map_or("-".to_owned(), |p| format!("{:.1} % ({:.1} to {:.1})", p.likely, p.low, p.high));
        vec![
            c.compared.what.clone().into(),
            outcome(c.outcome),
            format!("{:+.1} ({:+.1} to {:+.1})", c.saved_s.likely, c.saved_s.low, c.saved_s.high).into(),
            percent.into(),
            format!("{} s, {} %: {}", c.compared.printed_s, c.compared.printed_percent, c.compared.printed)
                .into(),
            probability(Some(c.p)).into(),
            probability(Some(c.p_holm)).into(),
            format!("{:+.1}", c.hedges_g.likely).into(),
            format!("{:.1} s", c.smallest_visible_s).into(),
            yes(c.agrees && c.right),
        ]
    });
    let effects: Vec<Effect> = t
        .comparisons
        .iter()
        .filter_map(|c| {
            let p = c.percent?;
            let told = format!("{:+.1} % (printed {})", p.likely, c.compared.printed_percent);
            Some(Effect {
                name: c.compared.what.clone(),
                interval: (p.low, p.likely, p.high),
                class: outcome(c.outcome).class,
                told,
            })
        })
        .collect();
    Section {
        id: "comparisons".into(),
        heading: "Mitigations".into(),
        figure: Some(forest::effects("Time saved, % of the time after, with 95 % intervals", "%", &effects)),
        tables: vec![Table {
            caption: "Time saved (16 runs each; Welch, Holm over all five)".into(),
            head: vec![
                ("what", false),
                ("outcome", false),
                ("saved, s", true),
                ("of the time after", true),
                ("printed", false),
                ("p", true),
                ("p (Holm)", true),
                ("g", true),
                ("visible", true),
                ("✓", false),
            ],
            rows: rows.collect(),
        }],
        notes: vec![
            "\"15.5 %\" is 10.6 s of 68.0 s, which is 15.6 by the printed means. Overlapping margins do not test a difference: for the 1.2 s that the \
             text calls slightly outside the margins, p is 0.075 before any correction. \"visible\" is the smallest difference that 80 % of such \
             experiments would find."
                .into(),
        ],
        ..Section::default()
    }
}

fn ranking(t: &StudyTold) -> Section {
    let rows = t.ranking.iter().map(|r| {
        let interval = r
            .interval
            .map_or("stated, without runs".to_owned(), |i| format!("{:+.1} to {:+.1} %", i.low, i.high));
        let gain = if r.outcome == Outcome::NotSeen {
            "no difference found".to_owned()
        } else {
            format!("{:.1} %", r.gain_percent)
        };
        vec![r.setting.clone().into(), gain.into(), interval.into()]
    });
    Section {
        id: "ranking".into(),
        heading: "Largest benefits".into(),
        tables: vec![Table {
            caption: "Settings by benefit".into(),
            head: vec![("setting", false), ("gain", true), ("95 % interval", true)],
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}

fn margins(t: &StudyTold) -> Section {
    let rows = t.cells.iter().map(|c| {
        vec![
            c.cell.name.clone().into(),
            c.cell.n.to_string().into(),
            c.cell.mean_s.map_or("-".to_owned(), |m| format!("{m:.1}")).into(),
            c.cell.sd_s.to_string().into(),
            c.cell.margin_s.to_string().into(),
            number(c.margin_normal_s).into(),
            yes(c.agrees),
            number(c.margin_student_s).into(),
        ]
    });
    let notes = t.cells.iter().filter_map(|c| Some(format!("{}: {}", c.cell.name, c.cell.note.as_ref()?)));
    Section {
        id: "margins".into(),
        heading: "Printed margins".into(),
        tables: vec![Table {
            caption: "Margins at 95 %, s: as printed, by 1.96 and by Student's t".into(),
            head: vec![
                ("row", false),
                ("n", true),
                ("mean", true),
                ("deviation", true),
                ("printed", true),
                ("by 1.96", true),
                ("✓", false),
                ("by t", true),
            ],
            rows: rows.collect(),
        }],
        notes: notes
            .chain([
                "1.96 takes the deviation as known: of 16 runs its interval covers 93.1 %, of 5 runs 87.8 %."
                    .to_owned(),
            ])
            .collect(),
        ..Section::default()
    }
}

fn pairs(t: &StudyTold) -> Section {
    let rows = t.pairs.iter().map(|p| {
        let printed = p.pair.printed_percent.map_or(String::new(), |v| format!(", {v} %"));
        vec![
            p.pair.what.clone().into(),
            format!("{:.1}", p.pair.small_s).into(),
            format!("{:.1}", p.pair.large_s).into(),
            format!("{:.1} s, {:.1} %", p.difference_s, p.percent).into(),
            format!("{} s{printed}", p.pair.printed_s).into(),
            yes(p.agrees),
        ]
    });
    Section {
        id: "pairs".into(),
        heading: "VM against host".into(),
        tables: vec![Table {
            caption: "Means without printed deviations, s".into(),
            head: vec![
                ("what", false),
                ("one", true),
                ("other", true),
                ("difference", true),
                ("printed", true),
                ("✓", false),
            ],
            rows: rows.collect(),
        }],
        ..Section::default()
    }
}

fn profiles(t: &StudyTold) -> Section {
    let rows = t.profiles.iter().map(|(p, on)| {
        vec![
            p.name.clone().into(),
            format!("+{:.0} %", p.slower_percent).into(),
            p.idle_watts.map_or("not stated".to_owned(), |w| format!("+{w:.0} W")).into(),
            match on {
                Some(true) => Cell { text: "not beaten".into(), class: "better" },
                Some(false) => Cell { text: "beaten".into(), class: "same" },
                None => "".into(),
            },
        ]
    });
    let points: Vec<Spot> = t
        .profiles
        .iter()
        .filter_map(|(p, on)| Some((p.name.clone(), p.slower_percent, p.idle_watts?, on.unwrap_or(false))))
        .collect();
    Section {
        id: "profiles".into(),
        heading: "Time against idle watts".into(),
        figure: Some(forest::front("Host profiles (amd_pstate off); filled: not beaten", "build in the VM, % longer than the quickest", "W", &points)),
        tables: vec![Table {
            caption: "Host profiles by the text's figures; idle watts swing by 20".into(),
            head: vec![("profile", false), ("build", true), ("idle", true), ("front", false)],
            rows: rows.collect(),
        }],
        notes: vec!["The study's choice: throughput-performance (or balanced with energy_performance_preference=performance) under amd_pstate=active, \
                     whose figures stand in charts only."
            .into()],
        ..Section::default()
    }
}
