//! Which VM ran on which pCPU? One row per pCPU, over one second from the middle of a recording.
//!
//! With recorded context switches, each half pixel shows what ran most of its time. So the drawing has a bounded size, and
//! the shares below it are exact. Without switches, the rows show how much of each pCPU guests and the host used over the
//! whole recording.

use super::chart::{step, tick};
use super::markup::{column, esc, name, percent, table};
use super::{Colours, Excerpt, Side};
use std::collections::BTreeMap;
use std::fmt::Write;
use vsteer_core::nouns::{Batch, PcpuSample};
use vsteer_core::timeline::who_ran;

const WIDTH: f64 = 1060.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 8.0;
const AXIS: f64 = 34.0;
/// Cells of a row: half a pixel each.
const CELLS: usize = ((WIDTH - LEFT - RIGHT) * 2.0) as usize;

/// The rows' height and the gap between two, by how many there are.
fn row_height(rows: usize) -> (f64, f64) {
    match rows {
        0..=16 => (24.0, 6.0),
        17..=48 => (12.0, 3.0),
        _ => (5.0, 1.0),
    }
}

/// The figure of one recording.
pub fn figure(side: &Side, colours: &Colours) -> String {
    match &side.excerpt {
        Some(e) => from_switches(side, e, colours),
        None => from_samples(side),
    }
}

/// Who somebody is in the figure: a VM's colour, the host, idle, or nobody knows.
type Who = usize;

/// Maps numbers to VMs, host, idle and unknown.
struct Legend<'a> {
    colours: &'a Colours,
    host: Who,
    idle: Who,
    unknown: Who,
}

impl<'a> Legend<'a> {
    fn new(colours: &'a Colours) -> Legend<'a> {
        let vms = colours.len();
        Legend { colours, host: vms, idle: vms + 1, unknown: vms + 2 }
    }

    fn text(&self, who: Who) -> String {
        match who {
            w if w < self.host => format!("VM {}", self.colours.name(w)),
            w if w == self.host => "host (processes and kernel threads)".to_owned(),
            w if w == self.idle => "idle".to_owned(),
            _ => "not recorded".to_owned(),
        }
    }

    fn class(&self, who: Who) -> String {
        match who {
            w if w < self.host => self.colours.class(w),
            w if w == self.host => "host".to_owned(),
            _ => "unknown".to_owned(),
        }
    }

    fn keys(&self, any_unknown: bool) -> Vec<(String, String)> {
        let key = |who| (self.class(who), self.text(who));
        let mut keys: Vec<(String, String)> = (0..=self.host).map(key).collect();
        keys.push(("idle".to_owned(), self.text(self.idle)));
        keys.extend(any_unknown.then(|| key(self.unknown)));
        keys
    }
}

/// One pCPU's time.
struct Ran {
    /// In each cell, how much of it everybody had.
    cells: Vec<Vec<f32>>,
    /// Everybody's share of the whole.
    sums: Vec<f64>,
}

impl Ran {
    /// Who ran for most of a cell; `unknown` for an empty cell.
    fn most(&self, cell: usize, unknown: Who) -> Who {
        let had = self.cells[cell].iter().enumerate();
        let (who, had) = had.max_by(|a, b| a.1.total_cmp(b.1)).unwrap_or((0, &0.0));
        if *had > 0.0 { who } else { unknown }
    }

    /// One SVG path per owner, over the cells of which it had most. The row begins at `y`.
    fn paths(&self, y: f64, height: f64, unknown: Who) -> BTreeMap<Who, String> {
        let mut paths: BTreeMap<Who, String> = BTreeMap::new();
        let mut from = 0;
        for to in 1..=CELLS {
            if to < CELLS && self.most(to, unknown) == self.most(from, unknown) {
                continue;
            }
            let (x, w) = (LEFT + from as f64 / 2.0, (to - from) as f64 / 2.0);
            let path = paths.entry(self.most(from, unknown)).or_default();
            let _ = write!(path, "M{x} {y}h{w}v{height}h-{w}z");
            from = to;
        }
        paths
    }
}

/// Who ran on each pCPU.
fn ran(side: &Side, e: &Excerpt, legend: &Legend<'_>) -> BTreeMap<u32, Ran> {
    let span = (e.to_ns - e.from_ns) as f64;
    let each = legend.idle + 1;
    let nothing = || Ran { cells: vec![vec![0.0; each]; CELLS], sums: vec![0.0; each] };
    let mut rows: BTreeMap<u32, Ran> =
        side.stretch.config.topology.online().iter().map(|cpu| (cpu, nothing())).collect();
    for s in who_ran(&e.switches, e.from_ns, e.to_ns) {
        let Some(row) = rows.get_mut(&s.cpu) else { continue };
        let who = match e.tasks.at(s.tid, s.from_ns) {
            _ if s.tid.0 == 0 => legend.idle,
            Some(t) => t.vm.as_ref().and_then(|vm| legend.colours.of(vm)).unwrap_or(legend.host),
            None => legend.host,
        };
        let at = |ns: u64| (ns - e.from_ns) as f64 / span * CELLS as f64;
        let (a, b) = (at(s.from_ns), at(s.to_ns));
        row.sums[who] += (s.to_ns - s.from_ns) as f64 / span;
        let last = (b.ceil() as usize).min(CELLS);
        for (i, cell) in row.cells.iter_mut().enumerate().take(last).skip(a as usize) {
            cell[who] += (b.min(i as f64 + 1.0) - a.max(i as f64)) as f32;
        }
    }
    rows
}

fn from_switches(side: &Side, e: &Excerpt, colours: &Colours) -> String {
    let legend = Legend::new(colours);
    let rows = ran(side, e, &legend);
    let mut body = String::new();
    let (height, gap) = row_height(rows.len());
    for (i, (cpu, row)) in rows.iter().enumerate() {
        let y = AXIS + i as f64 * (height + gap);
        row_label(&mut body, *cpu, i, y, height);
        let paths = row.paths(y, height, legend.unknown);
        for (who, path) in paths.iter().filter(|(who, _)| **who != legend.idle) {
            let share = row.sums.get(*who).copied().unwrap_or(1.0 - row.sums.iter().sum::<f64>());
            let title = format!("pCPU {cpu}: {} {} %", legend.text(*who), percent(Some(share)));
            let _ = writeln!(
                body,
                "<path class=\"{}\" d=\"{path}\"><title>{}</title></path>",
                legend.class(*who),
                esc(&title)
            );
        }
    }
    let ms = (e.to_ns - e.from_ns) as f64 / 1e6;
    let title = format!(
        "{}: who ran, {ms:.0} ms from the middle of the recording; each half pixel shows what ran most of that time",
        side.label
    );
    let any_unknown = rows.values().any(|row| row.sums.iter().sum::<f64>() < 0.999);
    let shares: Vec<(u32, Vec<f64>)> = rows.iter().map(|(cpu, row)| (*cpu, row.sums.clone())).collect();
    let headings: Vec<String> = (0..=legend.idle).map(|who| legend.text(who)).collect();
    wrap(&title, rows.len(), ms, "ms", &body, &legend.keys(any_unknown), colours)
        + &share_table(side, &headings, &shares)
}

fn row_label(body: &mut String, cpu: u32, i: usize, y: f64, height: f64) {
    let _ = write!(
        body,
        "<rect class=\"idle\" x=\"{LEFT}\" y=\"{y}\" width=\"{}\" height=\"{height}\"/>",
        WIDTH - LEFT - RIGHT
    );
    if height >= 10.0 || i.is_multiple_of(4) {
        let _ = writeln!(
            body,
            "<text class=\"tick end\" x=\"{}\" y=\"{:.1}\">pCPU {cpu}</text>",
            LEFT - 6.0,
            y + height / 2.0 + 4.0
        );
    }
}

/// Axis, frame and legend around the rows.
fn wrap(
    title: &str,
    rows: usize,
    x_max: f64,
    unit: &str,
    body: &str,
    keys: &[(String, String)],
    colours: &Colours,
) -> String {
    let (row, gap) = row_height(rows);
    let height = AXIS + rows as f64 * (row + gap) + 2.0;
    let mut axis = String::new();
    let x_step = step(x_max, 10.0);
    let mut t = 0.0;
    while t <= x_max * 1.0001 {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * t / x_max;
        // The last label would be cut in half at the edge.
        let anchor = if t > x_max * 0.97 { "end" } else { "middle" };
        let _ = write!(
            axis,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>\
<text class=\"tick {anchor}\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            AXIS - 8.0,
            AXIS - 3.0,
            AXIS - 12.0,
            tick(t, x_step)
        );
        t += x_step;
    }
    let legend: String = keys
        .iter()
        .map(|(class, text)| {
            format!(
                "<li><svg width=\"14\" height=\"14\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"14\" \
height=\"14\" rx=\"2\"/></svg> {}</li>",
                name(text)
            )
        })
        .collect();
    format!(
        "<figure><figcaption>{0}</figcaption><ul class=\"legend\">{legend}</ul>\
<div class=\"wide\" role=\"region\" aria-label=\"{0}\" tabindex=\"0\">\
<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>{1}\
<text class=\"tick end\" x=\"{2}\" y=\"{3}\">{unit}</text>{axis}\n{body}</svg></div></figure>\n",
        esc(title),
        colours.patterns(),
        LEFT - 16.0,
        AXIS - 12.0,
    )
}

fn share_table(side: &Side, headings: &[String], shares: &[(u32, Vec<f64>)]) -> String {
    let head: String =
        std::iter::once(column("pCPU", "", "")).chain(headings.iter().map(|h| column(h, "%", "n"))).collect();
    let mut rows = String::new();
    for (cpu, of) in shares {
        let cells: String =
            of.iter().map(|s| format!("<td class=\"n\">{}</td>", percent(Some(*s)))).collect();
        let _ = writeln!(rows, "<tr><th scope=\"row\">{cpu}</th>{cells}</tr>");
    }
    let caption = format!("{}: shares of each pCPU in this excerpt", side.label);
    format!(
        "<details><summary>The same as a table</summary>{}</details>\n",
        table(&caption, "plain", &format!("<tr>{head}</tr>"), &rows)
    )
}

/// What the columns of /proc/stat tell, stacked, with their classes.
type Part = (&'static str, &'static str, fn(&PcpuSample) -> u64);
const PARTS: [Part; 4] = [
    ("k0", "user mode, guests included", |p| p.user_ns),
    ("k1", "kernel mode", |p| p.system_ns),
    ("k2", "interrupts", |p| p.irq_ns + p.softirq_ns),
    ("host", "stolen by the hypervisor below this host", |p| p.steal_ns.unwrap_or(0)),
];

fn from_samples(side: &Side) -> String {
    let batches = &side.stretch.batches;
    let (first, last) = (&batches[0], &batches[batches.len() - 1]);
    let span = last.mono_ns.saturating_sub(first.mono_ns).max(1) as f64;
    // A step is at least a pixel wide.
    let stride = batches.len().div_ceil((WIDTH - LEFT - RIGHT) as usize).max(1);
    let picked: Vec<&Batch> = batches.iter().step_by(stride).collect();
    let mut body = String::new();
    let (height, gap) = row_height(last.pcpus.len());
    for (i, pcpu) in last.pcpus.iter().enumerate() {
        let y = AXIS + i as f64 * (height + gap);
        row_label(&mut body, pcpu.cpu, i, y, height);
        let mut paths = vec![String::new(); PARTS.len()];
        for pair in picked.windows(2) {
            let find = |b: &Batch| b.pcpus.iter().find(|p| p.cpu == pcpu.cpu).cloned();
            let (Some(a), Some(b)) = (find(pair[0]), find(pair[1])) else { continue };
            let rise: Vec<f64> = PARTS.iter().map(|(.., of)| of(&b).saturating_sub(of(&a)) as f64).collect();
            let whole = rise.iter().sum::<f64>() + b.idle_ns.saturating_sub(a.idle_ns) as f64;
            let x =
                |batch: &Batch| LEFT + (WIDTH - LEFT - RIGHT) * (batch.mono_ns - first.mono_ns) as f64 / span;
            let (x, w) = (x(pair[0]), x(pair[1]) - x(pair[0]));
            let mut top = y + height;
            for (path, part) in paths.iter_mut().zip(&rise).filter(|_| whole > 0.0) {
                let h = height * part / whole;
                top -= h;
                let _ = write!(path, "M{x:.1} {top:.1}h{w:.1}v{h:.1}h-{w:.1}z");
            }
        }
        for ((class, what, _), path) in PARTS.iter().zip(&paths).filter(|(_, p)| !p.is_empty()) {
            let title = esc(&format!("pCPU {}: {what}", pcpu.cpu));
            let _ = writeln!(body, "<path class=\"{class}\" d=\"{path}\"><title>{title}</title></path>");
        }
    }
    let title = format!(
        "{}: what each pCPU did, as stacked shares (context switches were not recorded: vsteer record --events)",
        side.label
    );
    let mut keys: Vec<(String, String)> =
        PARTS.iter().map(|(class, what, _)| ((*class).to_owned(), (*what).to_owned())).collect();
    keys.push(("idle".to_owned(), "idle".to_owned()));
    wrap(&title, last.pcpus.len(), span / 1e9, "s", &body, &keys, &Colours::default())
}
