//! The live table: esxtop's CPU screen for this host, in a terminal.
//!
//! ```text
//! table  rows and columns         feed   where values come from
//! panels what stands around them  trend  what the last updates showed
//! zoom   one VM                   pins   where vCPUs are kept
//! map    VMs and their pCPUs      saved  columns that a person chose, in vsteer.toml
//! help   the help                 keys   keys and the mouse
//! ```
//!
//! Every update derives the table from raw samples; pausing stops the view, not the
//! counting.

mod feed;
mod help;
mod keys;
mod map;
mod panels;
mod pins;
mod saved;
mod table;
mod trend;
mod zoom;

use crate::cli::Top;
use crate::interrupt::Interrupt;
use crate::source::{Failed, Several, need_vms, only_watch, open_host};
use crate::text::{COLUMNS, Row, node_rows, one_line, vm_rows};
use feed::{Feed, One, Played};
use keys::{Typing, clicked, pressed};
use map::Map;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};
use table::{BOLD, Placed, place_of, visible};
use trend::Past;
use vsteer_core::Fault;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{Batch, HostConfig};
use vsteer_core::plural::counted;
use vsteer_core::thresholds::Thresholds;
use vsteer_host::observe::Observe;
use vsteer_host::pace::Described;
use vsteer_record::config::Config;
use zoom::Zoom;

/// How often to check for signals.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A host and what was seen of it last.
#[derive(Default)]
struct Shown {
    name: String,
    config: Option<HostConfig>,
    model: Option<HostModel>,
    nodes: Vec<String>,
    /// The rows of each VM: its own, and then those of its parts.
    rows: Vec<Vec<Rc<Row>>>,
    /// Which columns have a value in any row.
    filled: [bool; COLUMNS.len()],
    past: Past,
    /// Why nothing more comes of it.
    fault: Option<Fault>,
}

/// What is on the screen.
enum Page {
    Table,
    Zoom(Zoom),
    Map(Map),
}

struct View {
    hosts: Vec<Shown>,
    page: Page,
    expanded: BTreeSet<(usize, String)>,
    all_expanded: bool,
    /// The column that rows are sorted by; `None`: the name.
    sort: Option<usize>,
    reverse: bool,
    filter: String,
    typing: Option<Typing>,
    /// What was typed for the interval.
    typed: String,
    /// The row of the column chooser, while it is open.
    choosing: Option<usize>,
    /// What came of saving the columns.
    saved: Option<Result<PathBuf, Fault>>,
    pcpus: bool,
    blame: bool,
    settings: bool,
    /// Whether trends are wanted, and whether the screen is wide enough.
    trend: bool,
    trend_fits: bool,
    /// The first line of the help, while it is open.
    help: Option<usize>,
    paused: bool,
    interval: Duration,
    /// How many columns there is room for.
    room: usize,
    table: TableState,
    /// Where the table was drawn, and its headings: from and to which column of the screen, and what they sort by.
    area: Rect,
    headings: Vec<(u16, u16, Option<usize>)>,
    /// The last click on a row.
    clicked: Option<(Instant, Placed)>,
    notes: Vec<String>,
    look: Look,
}

/// What a person chooses once: see the configuration.
struct Look {
    thresholds: Thresholds,
    colour: bool,
    /// The terminal's locale is not UTF-8.
    ascii: bool,
    /// Columns by their place in [`COLUMNS`]; none: those that fit and have values.
    columns: Vec<usize>,
}

impl Look {
    fn of(a: &Top, config: &Config) -> Look {
        let place = |name: &String| COLUMNS.iter().position(|c| c == name);
        Look {
            thresholds: config.thresholds(),
            colour: config.text("display.colour") != "never",
            ascii: !trend::is_utf8(|name| crate::settings::variable(name)?.into_string().ok()),
            columns: a.columns.iter().filter_map(place).collect(),
        }
    }

    fn fg(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// What fills a bar of the trend: twice the share that the table shows in red.
    fn trend_full(&self) -> f64 {
        2.0 * self.thresholds.ready_per_vcpu_critical
    }

    /// The selected row.
    fn selected(&self) -> Style {
        if self.colour {
            Style::new().bg(Color::Blue).fg(Color::White)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }
}

/// Runs until the user presses `q`.
///
/// # Errors
/// As [`open_host`]; when the terminal cannot be used.
pub fn run(a: &Top, config: &Config) -> Result<ExitCode, Fault> {
    let look = Look::of(a, config);
    if let Some(recording) = &a.recording {
        let recording = crate::source::read(recording)?;
        let notes = recording.notes.clone();
        let mut played = Played { recording, at: 0, shown: None, every_ns: a.interval.as_nanos() as u64 };
        return show_one(a, &mut played, notes, look);
    }
    if a.source.is_several() {
        return run_several(a, look);
    }
    let mut host = open_host(&a.source)?;
    need_vms(&host.config()?, &a.source)?;
    only_watch(host.as_mut())?;
    let notes = host.take_notes();
    show_one(a, host.as_mut(), notes, look)
}

fn show_one(a: &Top, host: &mut dyn Observe, notes: Vec<String>, look: Look) -> Result<ExitCode, Fault> {
    // In raw mode Ctrl-C is a key; what others send is a signal, after which the terminal is restored as well.
    let interrupt = Interrupt::listen();
    let left = a.updates.unwrap_or(u64::MAX);
    let mut view = View::new(a, vec![Shown::default()], notes, look);
    let before = host.sample()?;
    let waits = a.recording.is_some();
    show(&mut view, &mut One { host, described: Described::default(), before, left, waits }, &interrupt)?;
    Ok(ExitCode::SUCCESS)
}

/// Several hosts. Those that fail are named in the last line, and at the end.
fn run_several(a: &Top, look: Look) -> Result<ExitCode, Fault> {
    let interrupt = Interrupt::listen();
    let mut several = Several::open(&a.source, a.interval, a.updates, &interrupt)?;
    let named = |name: &String| Shown { name: one_line(name), ..Shown::default() };
    let mut view = View::new(a, several.names.iter().map(named).collect(), Vec::new(), look);
    let shown = show(&mut view, &mut several, &interrupt);
    several.end();
    let mut failed = Failed::default();
    for (name, host) in several.names.iter().zip(&view.hosts) {
        host.fault.iter().for_each(|fault| failed.say(name, fault, false));
    }
    shown.map(|()| failed.code())
}

impl View {
    fn new(a: &Top, hosts: Vec<Shown>, notes: Vec<String>, look: Look) -> View {
        View {
            hosts,
            page: Page::Table,
            expanded: BTreeSet::new(),
            all_expanded: false,
            sort: Some(2),
            reverse: false,
            filter: String::new(),
            typing: None,
            typed: String::new(),
            choosing: None,
            saved: None,
            pcpus: true,
            blame: false,
            settings: false,
            trend: true,
            trend_fits: false,
            help: None,
            paused: false,
            interval: a.interval,
            room: COLUMNS.len(),
            table: TableState::default().with_selected(0),
            area: Rect::default(),
            headings: Vec::new(),
            clicked: None,
            notes,
            look,
        }
    }

    /// Rows on one page of the table.
    fn page(&self) -> isize {
        isize::from(self.area.height.cast_signed()).saturating_sub(2).max(1)
    }

    fn is_several(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Shows new values of a host. The selection stays on its row.
    fn see(&mut self, place: usize, config: &HostConfig, samples: [&Batch; 2], model: HostModel) {
        let selected = self.table.selected().and_then(|s| visible(self).get(s).cloned());
        let host = &mut self.hosts[place];
        host.nodes = node_rows(config, &model);
        host.past.see(config, &model, samples);
        let mut rows: Vec<Vec<Rc<Row>>> = Vec::with_capacity(model.vms.len());
        for row in vm_rows(&model) {
            match rows.last_mut() {
                Some(of_vm) if row.depth > 0 => of_vm.push(Rc::new(row)),
                _ => rows.push(vec![Rc::new(row)]),
            }
        }
        host.filled = table::filled(&rows);
        host.rows = rows;
        if host.config.as_ref() != Some(config) {
            host.config = Some(config.clone());
        }
        host.model = Some(model);
        host.fault = None;
        if let Some(at) = selected.and_then(|row| place_of(&row, &visible(self))) {
            self.table.select(Some(at));
        }
    }

    fn models(&self) -> impl Iterator<Item = (usize, &HostModel)> {
        self.hosts.iter().enumerate().filter_map(|(place, h)| Some((place, h.model.as_ref()?)))
    }
}

fn show(view: &mut View, feed: &mut dyn Feed, interrupt: &Interrupt) -> Result<(), Fault> {
    crate::interrupt::at_end(Some(restore));
    let mut terminal = ratatui::init();
    // A terminal without a mouse ignores it.
    let _ = execute!(std::io::stdout(), EnableMouseCapture);
    let result = live(&mut terminal, view, feed, interrupt);
    crate::interrupt::at_end(None);
    restore();
    result
}

fn restore() {
    let _ = execute!(std::io::stdout(), DisableMouseCapture);
    ratatui::restore();
}

fn live(
    t: &mut DefaultTerminal,
    view: &mut View,
    feed: &mut dyn Feed,
    interrupt: &Interrupt,
) -> Result<(), Fault> {
    let failed = |e: std::io::Error| Fault::io("the terminal", &e);
    let mut next = Instant::now() + Duration::from_millis(300);
    let mut stale = true;
    loop {
        if std::mem::take(&mut stale) {
            t.draw(|f| draw(f, view)).map_err(failed)?;
        }
        if interrupt.is_set() {
            return Ok(());
        }
        let wait = next.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
        if event::poll(wait).map_err(failed)? {
            // Also where the window has another size.
            stale = true;
            match event::read().map_err(failed)? {
                Event::Key(key)
                    if key.kind == KeyEventKind::Press && pressed(view, key.code, key.modifiers) =>
                {
                    return Ok(());
                }
                Event::Mouse(mouse) => clicked(view, mouse, Instant::now()),
                _ => {}
            }
            continue;
        }
        let due = Instant::now() >= next;
        if due {
            next = Instant::now() + view.interval;
        }
        stale = due || view.is_several();
        if !feed.feed(view, due)? {
            // Hosts end at different times, so what came last is not shown yet.
            if view.is_several() {
                t.draw(|f| draw(f, view)).map_err(failed)?;
            }
            return Ok(());
        }
    }
}

fn draw(f: &mut Frame<'_>, view: &mut View) {
    if view.models().next().is_none() {
        let lines = std::iter::once("vsteer top: counting …".to_owned());
        let faults = view.hosts.iter().filter_map(trouble);
        f.render_widget(Paragraph::new(lines.chain(faults).collect::<Vec<_>>().join("\n")), f.area());
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)]).areas(f.area());
    // How vsteer counts, and whether the view stands still, is visible however narrow the terminal is.
    let state = state(view);
    let right = Constraint::Length(u16::try_from(state.chars().count()).unwrap_or(u16::MAX));
    let [left, right] = Layout::horizontal([Constraint::Min(0), right]).areas(head);
    f.render_widget(Paragraph::new(Span::styled(title(view), BOLD)), left);
    let style = if view.paused { BOLD.add_modifier(Modifier::REVERSED) } else { BOLD };
    f.render_widget(Paragraph::new(Span::styled(state, style)), right);
    match view.page {
        Page::Table => draw_table(f, body, view),
        Page::Zoom(_) => zoom::draw(f, body, view),
        Page::Map(_) => map::draw(f, body, view),
    }
    f.render_widget(Paragraph::new(foot_text(view)).style(view.look.fg(Color::DarkGray)), foot);
    if view.help.is_some() {
        help::draw(f, view);
    }
    if let Some(at) = view.choosing {
        panels::draw_chooser(f, view, at);
    }
}

/// The table, pCPUs above it, and below it what is wanted of the selected VM.
fn draw_table(f: &mut Frame<'_>, area: Rect, view: &mut View) {
    table::fit(view, area.width);
    let rows = visible(view);
    let count = rows.len();
    if view.table.selected().is_some_and(|s| s >= count) {
        view.table.select(count.checked_sub(1));
    }
    let host = if view.pcpus { table::pcpu_lines(view) } else { Vec::new() };
    let mut about = if view.settings { panels::settings(view, &rows) } else { Vec::new() };
    about.extend(if view.blame { panels::blame(view, &rows) } else { Vec::new() });
    let cap = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).min(f.area().height / 3);
    let [pcpus, body, below] = Layout::vertical([
        Constraint::Length(cap(host.len())),
        Constraint::Min(3),
        Constraint::Length(cap(about.len())),
    ])
    .areas(area);
    f.render_widget(Paragraph::new(host.join("\n")), pcpus);
    table::draw(f, body, &rows, view);
    f.render_widget(Paragraph::new(about), below);
}

fn trouble(host: &Shown) -> Option<String> {
    host.fault.as_ref().map(|fault| {
        let line = fault.to_string().lines().next().unwrap_or_default().to_owned();
        format!("{}: {}", host.name, one_line(&line))
    })
}

fn title(view: &View) -> String {
    let models: Vec<&HostModel> = view.models().map(|(_, model)| model).collect();
    let vms: usize = models.iter().map(|m| m.vms.len()).sum();
    let pcpus: usize = models.iter().map(|m| m.pcpus.len()).sum();
    // Each host's mean counts as often as it has pCPUs.
    let busy = models.iter().map(|m| m.busy_mean().map(|b| b * m.pcpus.len() as f64)).sum::<Option<f64>>();
    let busy = busy.filter(|_| pcpus > 0).map(|b| b / pcpus as f64);
    let busy = busy.map_or_else(|| "-".into(), |b| format!("{:.0} %", 100.0 * b));
    let newest = models.iter().map(|m| m.from_unix_ns.saturating_add(m.window_ns)).max().unwrap_or_default();
    let hosts = match view.hosts.len() {
        1 => String::new(),
        n => format!("{} of {}  ", models.len(), counted(n, "host")),
    };
    format!(
        "vsteer top  {}  {hosts}{}  {} {busy} busy  every {} s",
        crate::clock::text(newest),
        counted(vms, "VM"),
        counted(pcpus, "pCPU"),
        view.interval.as_secs_f64(),
    )
}

/// The collectors, and whether the view is paused.
fn state(view: &View) -> String {
    let mut collectors: Vec<&str> = view.models().map(|(_, m)| m.collector.as_str()).collect();
    collectors.sort_unstable();
    collectors.dedup();
    format!(" {}{}", collectors.join(", "), if view.paused { "  PAUSED" } else { "" })
}

fn foot_text(view: &View) -> String {
    if view.typing == Some(Typing::Interval) {
        return format!("interval in seconds: {}_", view.typed);
    }
    match &view.page {
        Page::Zoom(zoom) => return zoom::foot(zoom),
        Page::Map(map) if view.typing.is_none() => return map::foot(map),
        _ => {}
    }
    let lost = view.hosts.iter().find_map(trouble);
    match (view.typing.is_some(), view.filter.is_empty(), lost.as_ref().or(view.notes.first())) {
        (true, ..) => format!("filter: {}_", view.filter),
        (_, false, _) => format!("filter: {}   (Esc clears)", view.filter),
        (_, _, Some(note)) => note.clone(),
        _ => "h help   z one VM   m pins   e expand   / filter   b blame   f columns   q quit".to_owned(),
    }
}

#[cfg(test)]
mod tests;
