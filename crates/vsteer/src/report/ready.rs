//! Did the waiting come and go? Ready time of each VM over time, before and after on one scale.

use super::chart::{Line, NAMED, lines};
use super::markup::esc;
use super::{Colours, Document, Side};
use vsteer_core::model::{Shares, series};
use vsteer_core::nouns::{Batch, VmId};

/// Points of a line at most: a chart has no more pixels.
const POINTS: usize = 300;

fn term(s: &Shares) -> Option<f64> {
    s.ready.or(s.wait)
}

/// The points of every VM.
type Lines = Vec<(VmId, Vec<(f64, f64)>)>;

/// (seconds since the beginning, percent of one pCPU), each over the time since the point before.
fn points(batches: &[Batch], vm: &VmId) -> Vec<(f64, f64)> {
    let stride = batches.len().div_ceil(POINTS).max(1);
    let picked: Vec<&Batch> = batches.iter().step_by(stride).collect();
    picked
        .windows(2)
        .filter_map(|pair| {
            let both = [pair[0].clone(), pair[1].clone()];
            let share = *series(&both, vm, term).first()?;
            let middle = (pair[0].mono_ns + pair[1].mono_ns) / 2;
            Some(((middle - batches[0].mono_ns) as f64 / 1e9, 100.0 * share))
        })
        .collect()
}

fn chart(s: &Side, colours: &Colours, named: &[VmId], y_max: f64, all: Lines) -> String {
    let title = format!("{}: ready of each VM over time", s.label);
    let lines_of = all.into_iter().map(|(id, points)| Line {
        name: s.stretch.config.name_of(&id),
        colour: named.contains(&id).then(|| colours.of(&id)).flatten(),
        points,
    });
    let lines_of: Vec<Line> = lines_of.collect();
    format!(
        "<figure><figcaption>{}</figcaption><div class=\"wide\" role=\"region\" aria-label=\"{0}\" tabindex=\"0\">{}</div></figure>",
        esc(&title),
        lines(&title, "ready, % of one pCPU", s.stretch.seconds(), y_max, &lines_of)
    )
}

pub fn body(d: &Document, colours: &Colours) -> String {
    let mut waits: Vec<(f64, VmId)> = Vec::new();
    for s in d.sides() {
        for vm in &s.model.vms {
            let ready = term(&vm.vcpus).unwrap_or(0.0);
            match waits.iter_mut().find(|(_, id)| *id == vm.id) {
                Some((most, _)) => *most = most.max(ready),
                None => waits.push((ready, vm.id.clone())),
            }
        }
    }
    waits.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named: Vec<VmId> = waits.iter().take(NAMED).map(|(_, id)| id.clone()).collect();
    let sides: Vec<(&Side, Lines)> = d
        .sides()
        .map(|s| {
            let of = |vm: &vsteer_core::model::VmModel| (vm.id.clone(), points(&s.stretch.batches, &vm.id));
            (s, s.model.vms.iter().map(of).collect())
        })
        .collect();
    let values = sides.iter().flat_map(|(_, all)| all).flat_map(|(_, p)| p).map(|p| p.1);
    let y_max = values.fold(0.0, f64::max);
    let charts: String = sides.into_iter().map(|(s, all)| chart(s, colours, &named, y_max, all)).collect();
    let rest = waits.len().saturating_sub(NAMED);
    let note = if rest > 0 {
        format!(
            "<p class=\"note\">The {NAMED} VMs that waited most are named; {rest} more are drawn in grey.</p>\n"
        )
    } else {
        String::new()
    };
    format!("<div class=\"pair\">{charts}</div>\n{note}")
}
