//! One VM on the whole screen: its states over the last updates, its wake-ups, who made it wait, its pins and settings, its
//! threads.
//!
//! Everything comes from what the view keeps anyway, so a paused view can be zoomed. Wide screens show two columns; what does
//! not fit scrolls.

use super::pins::Pins;
use super::table::{BOLD, ready_style};
use super::trend::{KEPT, Moment, PER_OCTAVE, bars};
use super::{Page, Shown, View, panels};
use crate::text::{folded, one_line, percent};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use vsteer_core::model::{HostModel, ThreadModel, VmModel};
use vsteer_core::nouns::{Histogram, HostConfig, VmConfig, VmId};
use vsteer_core::plural::{counted, pcpus};

/// From this width on, there are two columns.
const WIDE: u16 = 150;
/// From this height on, bars of states have three lines instead of two.
const HIGH: u16 = 40;
/// Characters before a bar of states.
const LABEL: usize = 40;
/// Full heights of the bars of waiting, shares of a vCPU.
const SCALES: [f64; 5] = [0.05, 0.1, 0.2, 0.5, 1.0];
/// The longest bar of wake-ups and of blame, characters.
const BAR: usize = 24;

/// What is zoomed into.
pub struct Zoom {
    /// Place of the host in the list.
    pub place: usize,
    pub vm: VmId,
    /// The first line shown.
    pub from: usize,
    /// Lines that fit and lines that there are, as last drawn.
    pub page: usize,
    lines: usize,
}

impl Zoom {
    pub fn into(place: usize, vm: VmId) -> Zoom {
        Zoom { place, vm, from: 0, page: 1, lines: 0 }
    }
}

/// What is known of the VM.
struct Known<'a> {
    view: &'a View,
    model: &'a HostModel,
    host: &'a HostConfig,
    id: &'a VmId,
    /// `None`: the VM is not in the last update.
    vm: Option<&'a VmModel>,
    config: Option<&'a VmConfig>,
    past: Vec<Option<Moment>>,
}

impl<'a> Known<'a> {
    fn of(view: &'a View, shown: &'a Shown, id: &'a VmId) -> Option<Known<'a>> {
        let (model, host) = (shown.model.as_ref()?, shown.config.as_ref()?);
        let past = shown.past.of(id, KEPT);
        Some(Known { view, model, host, id, vm: model.vm(id), config: host.vm(id), past })
    }

    fn full(&self) -> char {
        if self.view.look.ascii { '#' } else { '█' }
    }

    fn bar(&self, part: f64) -> String {
        // What is there at all has a bar.
        std::iter::repeat_n(self.full(), (part * BAR as f64).ceil() as usize).collect()
    }
}

pub fn draw(f: &mut Frame<'_>, area: Rect, view: &mut View) {
    let Page::Zoom(zoom) = &view.page else { return };
    let shown = &view.hosts[zoom.place];
    let Some(known) = Known::of(view, shown, &zoom.vm) else {
        let why = shown
            .fault
            .as_ref()
            .map_or_else(|| "counting …".to_owned(), |fault| one_line(&fault.to_string()));
        f.render_widget(Paragraph::new(why), area);
        return;
    };
    let high = if area.height >= HIGH { 3 } else { 2 };
    let wide = area.width >= WIDE;
    let columns =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(1), Constraint::Fill(1)]).split(area);
    let width = usize::from(if wide { columns[0].width } else { area.width });
    let first = [title(&known), states(&known, width, high), wakes(&known, width)];
    let second = [blame(&known), settings(&known, width), threads(&known)];
    let joined = |sections: &[Vec<Line<'static>>]| sections.join(&Line::default());
    let parts = match wide {
        true => vec![(columns[0], joined(&first)), (columns[2], joined(&second))],
        false => vec![(area, joined(&[first, second].concat()))],
    };
    let lines = parts.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0);
    let page = usize::from(area.height);
    let from = zoom.from.min(lines.saturating_sub(page));
    for (place, lines) in parts {
        f.render_widget(Paragraph::new(lines).scroll((u16::try_from(from).unwrap_or(0), 0)), place);
    }
    if let Page::Zoom(zoom) = &mut view.page {
        (zoom.from, zoom.page, zoom.lines) = (from, page, lines);
    }
}

fn heading(text: String) -> Line<'static> {
    Line::styled(text, BOLD)
}

fn title(of: &Known<'_>) -> Vec<Line<'static>> {
    let called = of.vm.map(|vm| &vm.name).or(of.config.map(|vm| &vm.name));
    let name = called.map_or_else(|| one_line(&of.id.0), |name| one_line(name));
    let vcpus = of.config.map_or(0, VmConfig::vcpu_count);
    let vcpus = if vcpus > 0 { format!(", {}", counted(vcpus, "vCPU")) } else { String::new() };
    let on = one_line(&of.host.hostname);
    let gone = if of.vm.is_none() { ", not in the last update" } else { "" };
    vec![heading(format!("{name}{vcpus}, on host {on}{gone}"))]
}

/// Shares of the vCPUs' time in each state, one bar for each update.
fn states(of: &Known<'_>, width: usize, high: usize) -> Vec<Line<'static>> {
    type Share = fn(&Moment) -> Option<f64>;
    let moments = &of.past[of.past.len().saturating_sub(width.saturating_sub(LABEL).max(1))..];
    let measured = |share: Share| moments.iter().flatten().any(|m| share(m).is_some());
    let ready: (&str, Share) =
        if measured(|m| m.ready) { ("ready", |m| m.ready) } else { ("ready + limited", |m| m.wait) };
    // Marked as in the table.
    let is_estimate = of.vm.is_some_and(|vm| vm.limited().is_some_and(|(_, estimate)| estimate));
    let limited = if is_estimate { "~limited" } else { "limited" };
    let waiting: [(&str, Share); 4] =
        [ready, (limited, |m| m.limited), ("co-stop", |m| m.costop), ("lag (of ready)", |m| m.lag)];
    let highest = |share: Share| moments.iter().flatten().filter_map(share).fold(0.0, f64::max);
    let most = waiting.iter().map(|(_, share)| highest(*share)).fold(0.0, f64::max);
    let scale = SCALES.into_iter().find(|scale| most <= *scale).unwrap_or(1.0);
    let updates = counted(moments.len(), "update");
    let mut lines = vec![heading(format!(
        "{:<15}{:>7}{:>8}{:>8}  last {updates}, newest right",
        "% of a vCPU", "now", "mean", "highest"
    ))];
    let mut state = |name: &str, share: Share, full: f64| {
        let values: Vec<Option<f64>> = moments.iter().map(|m| share(m.as_ref()?)).collect();
        let some: Vec<f64> = values.iter().flatten().copied().collect();
        let mean = (!some.is_empty()).then(|| some.iter().sum::<f64>() / some.len() as f64);
        let now = values.last().copied().flatten();
        let top = some.iter().copied().reduce(f64::max);
        let mut rows = bars(&values, full, high, of.view.look.ascii);
        let last = rows.pop().unwrap_or_default();
        for (i, row) in rows.into_iter().enumerate() {
            let about = if i == 0 { format!("full height {:.0} %", 100.0 * full) } else { String::new() };
            lines.push(Line::raw(format!("{about:>38}  {row}")));
        }
        let (now, mean, top) = (percent(now), percent(mean), percent(top));
        lines.push(Line::raw(format!("{name:<15}{now:>7}{mean:>8}{top:>8}  {last}")));
    };
    state("run", |m| m.run, 1.0);
    waiting.iter().filter(|(_, share)| measured(*share)).for_each(|(name, share)| state(name, *share, scale));
    let missing: Vec<&str> =
        waiting.iter().filter(|(_, share)| !measured(*share)).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        lines.push(Line::raw(format!("not measured: {}", missing.join(", "))));
    }
    lines
}

/// A time with its unit.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// How long wake-ups took until the vCPU ran.
fn wakes(of: &Known<'_>, width: usize) -> Vec<Line<'static>> {
    let mut octaves: Vec<u64> = Vec::new();
    let mut updates = 0;
    for counts in of.past.iter().flatten().filter_map(|m| m.wakes.as_ref()) {
        updates += 1;
        octaves.resize(counts.len(), 0);
        octaves.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(*count));
    }
    if updates == 0 {
        let why = of.model.missing.get("wake_latency").map_or("no vCPU was counted", String::as_str);
        let why = folded(&format!("not measured: {}", one_line(why)), "  ", width);
        let lines = why.lines().map(|line| Line::raw(line.to_owned()));
        return std::iter::once(heading("Wake-up to running".into())).chain(lines).collect();
    }
    let all: u64 = octaves.iter().sum();
    let times = counted(all as usize, "wake-up");
    let mut lines =
        vec![heading(format!("Wake-up to running: {times} in the last {}", counted(updates, "update")))];
    if let Some(q) = of.vm.and_then(|vm| vm.wake_latency) {
        let [p50, p95, p99, max] = [q.p50_ns, q.p95_ns, q.p99_ns, q.max_ns].map(time);
        lines.push(Line::raw(format!("  last update: median {p50}, 95 % {p95}, 99 % {p99}, longest {max}")));
    }
    let used = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (octaves.iter().position(used), octaves.iter().rposition(used)) else {
        return lines;
    };
    let most = octaves.iter().copied().max().unwrap_or(1).max(1);
    for (i, count) in octaves.iter().enumerate().take(last + 1).skip(first) {
        let edge = |octave: usize| time(Histogram::lower_edge_ns((octave * PER_OCTAVE) as u16) as f64);
        // A gap of several rows is one row.
        if *count == 0 {
            if octaves[i + 1] > 0 {
                lines.push(Line::raw(format!("  none to {:>8}", edge(i + 1))));
            }
            continue;
        }
        let part = 100.0 * *count as f64 / all as f64;
        let bar = of.bar(*count as f64 / most as f64);
        lines.push(Line::raw(format!("  below {:>9} {count:>9} {part:>6.2} %  {bar}", edge(i + 1))));
    }
    lines
}

/// Who made it wait.
fn blame(of: &Known<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![heading("Ran while it was ready, last update (% of one pCPU, of its wait)".into())];
    match panels::culprits(of.model, of.id) {
        None => lines.push(Line::raw("  this collector does not measure blame")),
        Some(who) if who.is_empty() => lines.push(Line::raw("  nobody: it did not wait")),
        Some(who) => {
            let all: f64 = who.iter().map(|(share, _)| share).sum();
            lines.extend(who.into_iter().map(|(share, who)| {
                let part = if all > 0.0 { share / all } else { 0.0 };
                let (of_pcpu, of_wait) = (100.0 * share, 100.0 * part);
                Line::raw(format!("  {of_pcpu:>7.2} {of_wait:>5.1} %  {who:<30} {}", of.bar(part)))
            }));
        }
    }
    lines
}

/// Pins, and the settings that are set.
fn settings(of: &Known<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![heading("Pins and settings".into())];
    let Some(config) = of.config else {
        lines.push(Line::raw("  not known: the VM is not in the host's configuration"));
        return lines;
    };
    let pins = match Pins::of_vm(of.host, config) {
        Pins::To(cpus) => pcpus(&cpus),
        pins => pins.text(),
    };
    // The affinity of threads is below, where each thread has a line.
    let others = config.settings().into_iter().filter(|(name, _)| *name != "pCPUs");
    for (name, value) in std::iter::once(("pins of vCPUs", pins)).chain(others) {
        let text = folded(&one_line(&value), "", width.saturating_sub(30).max(20));
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        lines.extend(names.zip(text.lines()).map(|(name, text)| Line::raw(format!("  {name:<26} {text}"))));
    }
    lines
}

/// The threads of the VM, vCPUs first.
fn threads(of: &Known<'_>) -> Vec<Line<'static>> {
    let columns = ["%RUN", "%RDY", "%MLMTD", "%CSTP", "%LAG"].map(|name| format!("{name:>7}")).concat();
    let mut lines =
        vec![heading(format!("  {:<11}{columns} {:>8} {:>5}  PINS", "THREAD", "WAKE99ms", "pCPU"))];
    let Some(vm) = of.vm else { return lines };
    if vm.threads.is_empty() {
        lines.push(Line::raw("  this collector counts the VM as a whole"));
    }
    let pins = |t: &ThreadModel| {
        let config = of.config?;
        let own = config.threads.iter().find(|c| (c.role, c.tid) == (t.role, t.tid))?;
        Some(Pins::of(of.host, config, [own].into_iter()).text())
    };
    lines.extend(vm.threads.iter().map(|t| {
        let s = &t.shares;
        let values =
            [s.run, s.wait, s.limited, s.costop, s.lag].map(|v| format!("{:>7}", percent(v))).concat();
        let wake = t.wake_latency.map_or("-".to_owned(), |w| format!("{:.2}", w.p99_ns / 1e6));
        let cpu = t.last_cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        let pins = pins(t).unwrap_or_else(|| "not known".to_owned());
        let line = format!("  {:<11}{values} {wake:>8} {cpu:>5}  {pins}", t.role.to_string());
        Line::styled(line, ready_style(s.wait, 1, &of.view.look))
    }));
    lines
}

/// The last line of the screen.
pub fn foot(zoom: &Zoom) -> String {
    let to = zoom.from.saturating_add(zoom.page).min(zoom.lines);
    let lines = match zoom.lines > zoom.page {
        true => format!("   lines {} to {to} of {}: up, down", zoom.from.saturating_add(1), zoom.lines),
        false => String::new(),
    };
    format!("Esc back   h help   left, right other VM{lines}")
}
