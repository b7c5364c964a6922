//! `vsteer simulate --published`: published experiments, each figure beside the simulated one.
//!
//! The files of the papers are part of the program, so it prints the same everywhere. A test checks that none in
//! `scenarios/published/` is missing here.

use super::file::File;
use super::runs;
use super::table::number;
use crate::assignment::Setting;
use crate::interrupt::Interrupt;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use vsteer_core::{Fault, FaultKind};
use vsteer_sim::scenario::Case;
use vsteer_sim::scenario::outcome::{Figure, Run};
use vsteer_sim::scenario::published::{Paper, Row, RunForm, Summary, Told, Verdict, summary};

/// Enough to decide all rows but two, which 100 do not decide either.
const SEEDS: u16 = 30;
/// A paper's own file; the others of its folder are scenarios.
const FIGURES: &str = "figures.toml";

/// A paper's folder: names and texts of its files.
type Folder = (&'static str, &'static [(&'static str, &'static str)]);

macro_rules! folder {
    ($name:literal: $($file:literal),+) => {
        ($name, &[$((
            $file,
            include_str!(concat!("../../../../scenarios/published/", $name, "/", $file)),
        )),+])
    };
}

const FOLDERS: &[Folder] = &[
    folder!("coscheduling": "figures.toml", "slots.toml"),
    folder!("vdi": "figures.toml", "host.toml"),
    folder!("xen-weights": "figures.toml", "servers.toml"),
    folder!("vit": "figures.toml", "test-application.toml", "mplayer.toml"),
    folder!("openmp-pinning": "figures.toml", "matrix.toml"),
];

/// A paper and its simulated figures.
struct Done {
    paper: Paper,
    told: Vec<Told>,
}

fn text_of(folder: &Folder, file: &str) -> Result<&'static str, Fault> {
    let found = folder.1.iter().find(|(name, _)| *name == file);
    found.map(|(_, text)| *text).ok_or_else(|| {
        Fault::new(FaultKind::BadInput, format!("{}: scenario {file:?} does not exist", folder.0))
    })
}

/// A paper, and the case of each of its runs.
fn read(folder: &Folder) -> Result<(Paper, Vec<Case>), Fault> {
    let place = Path::new("scenarios/published").join(folder.0);
    let wrong = |e: toml::de::Error| {
        Fault::new(FaultKind::BadInput, place.join(FIGURES).display().to_string()).because(e.to_string())
    };
    let paper: Paper = toml::from_str(text_of(folder, FIGURES)?).map_err(wrong)?;
    paper.check()?;
    let case = |run: &RunForm| -> Result<Case, Fault> {
        let file = File::parse(&place.join(&run.scenario), text_of(folder, &run.scenario)?.to_owned())?;
        let settings: Result<Vec<Setting>, String> = run.set.iter().map(|s| s.parse()).collect();
        let settings = settings.map_err(|why| {
            Fault::new(FaultKind::BadInput, format!("{}, run {:?}", paper.paper, run.name)).because(why)
        })?;
        Ok(file.case(&settings)?.1)
    };
    let cases: Result<Vec<Case>, Fault> = paper.runs.iter().map(case).collect();
    let cases = cases?;
    Ok((paper, cases))
}

/// The figures of a row, one per seed.
fn values(paper: &Paper, row: &Row, cases: &[Case], runs: &[Vec<Run>]) -> Result<Vec<Option<f64>>, Fault> {
    let seeds = runs.iter().map(Vec::len).min().unwrap_or(0);
    let of_seed = |seed: usize| {
        row.value.value(|name| {
            let i = paper.runs.iter().position(|r| r.name == name)?;
            Some((&cases[i], &runs[i][seed]))
        })
    };
    let values: Result<Vec<Option<f64>>, String> = (0..seeds).map(of_seed).collect();
    values.map_err(|why| {
        Fault::new(FaultKind::BadInput, format!("{}, row {:?}", paper.paper, row.what)).because(why)
    })
}

/// Simulates all papers, or the one of this name, and prints what came of it.
///
/// # Errors
/// `Usage` for a name that is none; `Interrupted` when it was stopped; as the runs.
pub fn run(name: &str, seeds: u16, markdown: bool, json: bool) -> Result<(), Fault> {
    let wanted: Vec<&Folder> = FOLDERS.iter().filter(|f| name.is_empty() || f.0 == name).collect();
    if wanted.is_empty() {
        let known: Vec<&str> = FOLDERS.iter().map(|f| f.0).collect();
        return Err(Fault::new(
            FaultKind::Usage,
            format!("vsteer does not know a published experiment {name:?}"),
        )
        .help(format!("there are: {}", known.join(", "))));
    }
    let interrupt = Interrupt::listen();
    let read: Vec<(Paper, Vec<Case>)> = wanted.into_iter().map(read).collect::<Result<_, _>>()?;
    let seeds = if seeds > 1 { seeds } else { SEEDS };
    let numbers: Vec<u64> = (1..=u64::from(seeds)).collect();
    let cases: Vec<Case> = read.iter().flat_map(|(_, cases)| cases.iter().cloned()).collect();
    let mut runs = runs::all(&cases, &numbers, &interrupt)?.into_iter();
    let mut done = Vec::new();
    for (paper, cases) in read {
        let runs: Vec<Vec<Run>> = runs.by_ref().take(cases.len()).collect();
        if interrupt.is_set() || runs.iter().any(|r| r.len() < numbers.len()) {
            return Err(Fault::new(FaultKind::Interrupted, "interrupted before the last run"));
        }
        let mut told = Vec::new();
        for row in &paper.rows {
            told.push(row.told(&values(&paper, row, &cases, &runs)?));
        }
        done.push(Done { paper, told });
    }
    let sum = summary(done.iter().flat_map(|d| &d.told));
    if json {
        crate::text::print_json(&value(&done, &sum, seeds));
    } else if markdown {
        print!("{}", page(&done, &sum, seeds));
    } else {
        print!("{}", text(&done, &sum, seeds));
    }
    Ok(())
}

fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Fitted => "fitted",
        Verdict::Within => "within",
        Verdict::Undecided => "undecided",
        Verdict::Explained => "explained",
        Verdict::Outside => "OUTSIDE",
    }
}

/// What, published, simulated, band, verdict. The verdict of a row that does not count stands in brackets.
fn cells(row: &Row, told: &Told) -> [String; 5] {
    let published = match &row.says {
        Some(says) => says.clone(),
        None => format!("{} {}", number(row.published), row.unit),
    };
    let simulated = match told.simulated {
        None => "never".to_owned(),
        Some(Figure { mean, half_width: Some(h) }) => format!("{} ±{} {}", number(mean), number(h), row.unit),
        Some(Figure { mean, half_width: None }) => format!("{} {}", number(mean), row.unit),
    };
    let band = row.band.map_or_else(String::new, |(l, h)| format!("{} to {}", number(l), number(h)));
    let verdict = verdict(told.verdict);
    let verdict = if told.counts || row.fit { verdict.to_owned() } else { format!("({verdict})") };
    let what = match &row.instead {
        Some(instead) => format!("{}, with {instead}", row.what),
        None => row.what.clone(),
    };
    [what, published, simulated, band, verdict]
}

fn closing(sum: &Summary, seeds: u16) -> String {
    format!(
        "{} figures, {seeds} seeds: {} served to fit, {} show a number again or under another assumption; of {} independent \
         predictions {} are within their bands ({:.0} %), {} undecided, {} outside with a known reason, {} without.",
        sum.rows,
        sum.fitted,
        sum.beside,
        sum.predicted,
        sum.within,
        100.0 * sum.within_share,
        sum.undecided,
        sum.explained,
        sum.outside
    )
}

fn text(done: &[Done], sum: &Summary, seeds: u16) -> String {
    let mut out = String::new();
    for d in done {
        writeln!(out, "{}: {}", d.paper.paper, d.paper.citation).expect("writing to a String");
        let head = ["", "published", "simulated", "accepted", ""].map(str::to_owned);
        let rows = d.paper.rows.iter().zip(&d.told).map(|(row, told)| cells(row, told));
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
        let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
        for r in &rows {
            let line: Vec<String> = (0..5).map(|i| format!("{:<w$}", r[i], w = width(i))).collect();
            writeln!(out, "  {}", line.join("  ").trim_end()).expect("writing to a String");
        }
        let explained = d.paper.rows.iter().zip(&d.told).filter(|(_, t)| t.verdict == Verdict::Explained);
        for (row, _) in explained {
            let why = row.explained.as_deref().unwrap_or_default();
            writeln!(out, "  {}: {why}", row.what).expect("writing to a String");
        }
        out.push('\n');
    }
    out + &closing(sum, seeds) + "\n"
}

/// Made by the command, so that it cannot say anything else than the command does.
fn page(done: &[Done], sum: &Summary, seeds: u16) -> String {
    let mut out = String::from(
        "# Published figures and what the simulator says\n\n\
         `vsteer simulate --published --markdown` writes this page from the files in `scenarios/published/`. Each row has a\n\
         band, in which the result must lie; it was set before the first run. From a row marked `fitted` vsteer chose parameters\n\
         that the paper does not state, so this row is not a prediction. A row outside its band is kept, with the reason if it is\n\
         known. Intervals are 95 %, over random seeds. A row is within or outside if its 99.9 % interval is, otherwise undecided, so\n\
         more seeds hardly change a verdict. A verdict in brackets does not count: the row compares a simulated number a second time,\n\
         or under another assumption than the paper's other rows.\n\n",
    );
    out += &closing(sum, seeds);
    out += "\n";
    for d in done {
        write!(out, "\n## {}\n\n{}\n\n", d.paper.paper, d.paper.citation).expect("writing to a String");
        d.paper.parameters.iter().for_each(|p| out += &format!("- {p}\n"));
        out += "\n| figure | published | simulated | accepted | | why so wide, or what was fitted |\n|---|---|---|---|---|---|\n";
        for (row, told) in d.paper.rows.iter().zip(&d.told) {
            let cells = cells(row, told).map(|c| c.replace('|', "\\|"));
            writeln!(out, "| {} | {} |", cells.join(" | "), row.why).expect("writing to a String");
        }
        for (row, told) in d.paper.rows.iter().zip(&d.told) {
            if let (Verdict::Explained, Some(why)) = (told.verdict, &row.explained) {
                write!(out, "\nOutside its band, {}: {why}\n", row.what).expect("writing to a String");
            }
        }
        if !d.paper.not_simulated.is_empty() {
            out += "\nNot simulated:\n";
            d.paper.not_simulated.iter().for_each(|n| out += &format!("- {n}\n"));
        }
    }
    out + NOT_SIMULATED
}

/// What has no folder, and why.
const NOT_SIMULATED: &str = "
## Not simulated

Red Hat Developer, \"A VM tuning case study: Balancing power and performance on AMD processors\", 26 August 2025: build times
under power profiles, mitigations and numbers of network queues, and idle power. None of its figures is one of scheduling:
one VM of 32 vCPUs has a host of 64 logical CPUs for itself, and what is changed is frequency, mitigations and devices.
";

fn value(done: &[Done], sum: &Summary, seeds: u16) -> Value {
    let rows = done.iter().flat_map(|d| {
        d.paper.rows.iter().zip(&d.told).map(|(row, told)| {
            json!({
                "paper": d.paper.paper, "what": row.what, "published": row.published, "says": row.says,
                "unit": row.unit, "fit": row.fit, "counts": told.counts,
                "same_as": row.same_as, "instead": row.instead,
                "simulated": told.simulated,
                "band": row.band, "why": row.why, "explained": row.explained, "verdict": told.verdict,
                "within": if row.fit { Value::Null } else { json!(told.verdict == Verdict::Within) },
            })
        })
    });
    let papers = done.iter().map(|d| json!({ "paper": d.paper.paper, "citation": d.paper.citation }));
    json!({
        "seeds": seeds, "papers": papers.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(), "summary": sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_of_the_folder_is_forgotten() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/published");
        let names = |path: &Path| {
            let entries = std::fs::read_dir(path).unwrap();
            let mut names: Vec<String> =
                entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let mut folders: Vec<&str> = FOLDERS.iter().map(|f| f.0).collect();
        folders.sort_unstable();
        assert_eq!(names(&place), folders);
        for folder in FOLDERS {
            let mut files: Vec<&str> = folder.1.iter().map(|(name, _)| *name).collect();
            files.sort_unstable();
            assert_eq!(names(&place.join(folder.0)), files);
        }
    }

    #[test]
    fn every_paper_is_whole_and_every_run_can_be_simulated() {
        for folder in FOLDERS {
            let (paper, cases) = read(folder).unwrap_or_else(|f| panic!("{}: {f}", folder.0));
            assert_eq!(paper.paper, folder.0);
            assert_eq!(cases.len(), paper.runs.len());
            assert!(paper.rows.iter().all(|r| !r.why.is_empty()), "{}: a band without a reason", folder.0);
        }
    }
}
