//! The report: one HTML file that opens anywhere, without network or scripts.
//!
//! Each section has one file with a function from values to HTML. Charts are inline SVG. Sections follow the questions of a
//! reader: summary, findings, time per VM, who ran where, waiting over time, blame, plan, verdict, measurement. Their
//! numbers come from the same functions as `diagnose`, `plan` and `verify`.
//!
//! Colours are those of Okabe and Ito, which people with any colour vision can distinguish; more VMs get the same colours
//! with hatching. Left out: everything that needs a server or a script.

mod blame;
pub mod chart;
mod findings;
pub mod markup;
mod measured;
pub mod page;
pub mod past;
mod plan;
mod ready;
mod summary;
mod timeline;
mod verdict;
mod vms;

use crate::source::Stretch;
use markup::section;
use vsteer_core::diagnose::Finding;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::VmId;
use vsteer_core::plan::Plan;
use vsteer_core::timeline::Switch;
use vsteer_core::verify::Verdict;
use vsteer_record::{EventSummary, Manifest, Tasks};

/// Recorded switches of a short stretch.
pub struct Excerpt {
    /// From then, `CLOCK_MONOTONIC`, ns.
    pub from_ns: u64,
    pub to_ns: u64,
    /// In order of time.
    pub switches: Vec<Switch>,
    /// Whose threads they are of.
    pub tasks: Tasks,
}

pub struct Side {
    /// What it is called in the report.
    pub label: &'static str,
    /// Where it was read.
    pub path: String,
    /// What it is of.
    pub manifest: Manifest,
    pub stretch: Stretch,
    /// What follows from them.
    pub model: HostModel,
    /// Who ran where, if switches were recorded.
    pub excerpt: Option<Excerpt>,
    /// What became of the switches.
    pub events: Option<EventSummary>,
    /// What of the recording was not whole.
    pub notes: Vec<String>,
}

/// All that is reported.
pub struct Document {
    /// The recording, before the changes if there are two.
    pub before: Side,
    /// The recording after.
    pub after: Option<Side>,
    /// The plan, and whether it was only proposed from this recording.
    pub plan: Option<(Plan, bool)>,
    /// What was found before.
    pub findings: Vec<Finding>,
    /// What was found after.
    pub findings_after: Vec<Finding>,
    /// Before against after.
    pub verdict: Option<Verdict>,
    /// When the report was made, ns since 1970.
    pub made_unix_ns: u64,
}

impl Document {
    /// The recordings, in order.
    fn sides(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.before).chain(&self.after)
    }
}

/// Colours of 0 and up: six, then the same six hatched, and again.
const COLOURS: usize = 6;

/// Which VM has which colour, the same everywhere in the report.
#[derive(Default)]
pub struct Colours {
    vms: Vec<(VmId, String)>,
}

impl Colours {
    fn new(document: &Document) -> Colours {
        let mut vms: Vec<(VmId, String)> = Vec::new();
        for (id, name) in document.sides().flat_map(|s| s.stretch.config.called()) {
            if vms.iter().all(|(known, _)| known != id) {
                vms.push((id.clone(), name));
            }
        }
        // By name, so that colours do not depend on the order in which VMs were started.
        vms.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
        Colours { vms }
    }

    fn len(&self) -> usize {
        self.vms.len()
    }

    fn of(&self, vm: &VmId) -> Option<usize> {
        self.vms.iter().position(|(id, _)| id == vm)
    }

    fn name(&self, i: usize) -> &str {
        &self.vms[i].1
    }

    /// The class of an area.
    fn class(&self, i: usize) -> String {
        if i < COLOURS { format!("k{i}") } else { format!("h{}", i % COLOURS) }
    }

    /// Hatched colours, for hosts with many VMs.
    fn patterns(&self) -> String {
        if self.len() <= COLOURS {
            return String::new();
        }
        let of = |i: usize| {
            format!(
                "<pattern id=\"hatch{i}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(45)\"><rect class=\"k{i}\" width=\"6\" height=\"6\"/><rect class=\"hatch\" width=\"2\" \
height=\"6\"/></pattern>"
            )
        };
        format!("<defs>{}</defs>", (0..COLOURS).map(of).collect::<String>())
    }
}

/// The whole file.
pub fn html(d: &Document) -> String {
    let colours = Colours::new(d);
    let mut sections: Vec<(&str, &str, String)> = vec![
        ("short", "In short", summary::body(d)),
        ("findings", "Findings", findings::body(d)),
        ("vms", "Where the VMs' time went", vms::body(d)),
        ("timeline", "Who ran on which pCPU", d.sides().map(|s| timeline::figure(s, &colours)).collect()),
        ("ready", "Waiting over time", ready::body(d, &colours)),
        ("blame", "Who waited for what", blame::body(d)),
    ];
    if let Some((plan, proposed)) = &d.plan {
        let heading = if *proposed { "Proposed changes" } else { "Changes" };
        sections.push(("plan", heading, plan::body(d, plan, *proposed)));
    }
    if let Some(v) = &d.verdict {
        sections.push(("verdict", "Did it help?", verdict::body(v)));
    }
    sections.push(("measured", "How it was measured", measured::body(d)));
    let contents: Vec<(&str, &str)> = sections.iter().map(|(id, h, _)| (*id, *h)).collect();
    let body: String = sections.iter().map(|(id, h, body)| section(id, h, body)).collect();
    page::page(d, &contents, &body)
}
