//! `vsteer report`: writes one HTML file about a recording, or about two and the plan between them.

use crate::cli::Report;
use crate::report::{Document, Excerpt, Side, html, past};
use crate::source;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use vsteer_core::diagnose::diagnose;
use vsteer_core::plan::Plan;
use vsteer_core::plan::limits::Limits;
use vsteer_core::thresholds::Thresholds;
use vsteer_core::verify::{Verdict, of_one_host};
use vsteer_core::{Fault, FaultKind};

/// The length of the stretch in which single switches are drawn, ns.
const EXCERPT_NS: u64 = 1_000_000_000;

/// Reports.
///
/// # Errors
/// As [`source::read`] and [`vsteer_record::files::read_plan`]; when the file cannot be written.
pub fn run(a: &Report, thresholds: Thresholds, json: bool) -> Result<(), Fault> {
    let Some(first) = &a.before else { return of_history(a, json) };
    if a.past.length.is_some() || a.past.from.is_some() || a.past.to.is_some() {
        let what = "--for, --from and --to are of the history, and a recording is named";
        return Err(Fault::new(FaultKind::Usage, what).help("leave out the recording, or these options"));
    }
    let alone = a.after.is_none();
    let before = side(first, if alone { "Recording" } else { "Before" })?;
    let after = a.after.as_deref().map(|p| side(p, "After")).transpose()?;
    let plan = match &a.plan {
        Some(path) => Some((vsteer_record::files::read_plan(path)?, false)),
        None if alone => propose(&before, thresholds).map(|p| (p, true)),
        None => None,
    };
    let verdict = match &after {
        Some(after) => {
            let plan = plan.as_ref().map(|(p, _)| p);
            of_one_host(&before.stretch.config, &after.stretch.config, plan)?;
            Some(compare(&before, after, plan)?)
        }
        None => None,
    };
    let found = |s: &Side| diagnose(&s.stretch.config, &s.model, thresholds);
    let document = Document {
        findings: found(&before),
        findings_after: after.as_ref().map(found).unwrap_or_default(),
        before,
        after,
        plan,
        verdict,
        made_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64),
    };
    write(a, &html(&document), json)
}

/// A report of what the service stored.
fn of_history(a: &Report, json: bool) -> Result<(), Fault> {
    if a.plan.is_some() {
        return Err(
            Fault::new(FaultKind::Usage, "--plan needs a recording").help("name a recording before --plan")
        );
    }
    let found = super::history::read(&a.past, None, None)?;
    write(a, &past::html(&found, super::history::now_ns()), json)
}

fn write(a: &Report, page: &str, json: bool) -> Result<(), Fault> {
    vsteer_record::files::replace(&a.output, page.as_bytes())?;
    if json {
        crate::text::print_json(&serde_json::json!({ "report": a.output, "bytes": page.len() }));
    } else {
        eprintln!("vsteer: wrote {} ({} KiB)", a.output.display(), page.len() / 1024);
    }
    Ok(())
}

fn side(path: &Path, label: &'static str) -> Result<Side, Fault> {
    let recording = source::read(path)?;
    let (manifest, events, mut notes) =
        (recording.manifest.clone(), recording.event_summary(), recording.notes.clone());
    let excerpt = match (recording.batches.first(), recording.batches.last()) {
        (Some(first), Some(last)) if recording.has_switches() => {
            let (first, last) = (first.mono_ns, last.mono_ns);
            let from_ns = (first + last) / 2 - EXCERPT_NS.min(last - first) / 2;
            let to_ns = from_ns + EXCERPT_NS.min(last - first);
            let found = recording.switches(from_ns, to_ns)?;
            notes.extend(found.notes);
            let any = found.switches.iter().any(|s| s.ns >= from_ns);
            any.then(|| Excerpt { from_ns, to_ns, switches: found.switches, tasks: recording.tasks() })
        }
        _ => None,
    };
    let stretch = source::whole(recording)?;
    let model =
        stretch.model().map_err(|f| Fault { what: format!("{}: {}", path.display(), f.what), ..f })?;
    Ok(Side { label, path: path.display().to_string(), manifest, stretch, model, excerpt, events, notes })
}

/// What `vsteer plan` would say of it.
fn propose(before: &Side, thresholds: Thresholds) -> Option<Plan> {
    let limits = Limits { thresholds, ..Limits::default() };
    super::plan::proposed(&before.stretch, &before.model, limits)
}

fn compare(before: &Side, after: &Side, plan: Option<&Plan>) -> Result<Verdict, Fault> {
    super::verify::compare(&before.stretch, &after.stretch, plan)
}
