//! The live table: esxtop's CPU screen for this host, in a terminal.
//!
//! ```text
//! keys   keys and the mouse      saved   columns that a person chose, in vsteer.toml
//! ```
//!
//! Every update derives the table from raw samples; pausing stops the view, not the
//! counting.

mod keys;
mod saved;

use crate::cli::Top;
use crate::interrupt::Interrupt;
use crate::source::{Failed, Several, need_vms, only_watch, open_host};
use crate::text::{COLUMNS, COLUMNS_HELP, Row, host_rows, node_rows, one_line, shown, vm_rows};
use keys::{KEYS, Typing, clicked, pressed};
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row as Cells, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::plural::counted;
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::observe::Observe;
use vsteer_host::pace::Described;
use vsteer_record::Recording;
use vsteer_record::config::Config;

/// Widths of a name and of a column, characters.
const NAME: u16 = 18;
const COLUMN: u16 = 9;
/// Width of a host's name, where there are several.
const HOST: u16 = 14;

/// How often to check for signals.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A host and what was seen of it last.
#[derive(Default)]
struct Shown {
    name: String,
    model: Option<HostModel>,
    nodes: Vec<String>,
    /// By a VM's id; only while they are shown.
    settings: BTreeMap<String, Vec<(&'static str, String)>>,
    /// Why nothing more comes of it.
    fault: Option<Fault>,
}

/// A row with the place of its host in the list.
type Placed = (usize, Row);

struct View {
    hosts: Vec<Shown>,
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
    help: bool,
    paused: bool,
    interval: Duration,
    /// How many columns there is room for.
    room: usize,
    table: TableState,
    /// Where the table was drawn, and its headings: from and to which column of the screen, and what they sort by.
    area: Rect,
    headings: Vec<(u16, u16, Option<usize>)>,
    notes: Vec<String>,
    look: Look,
}

/// What a person chooses once: see the configuration.
struct Look {
    thresholds: Thresholds,
    colour: bool,
    /// Columns by their place in [`COLUMNS`]; none: those that fit and have values.
    columns: Vec<usize>,
}

impl Look {
    fn of(a: &Top, config: &Config) -> Look {
        let place = |name: &String| COLUMNS.iter().position(|c| c == name);
        Look {
            thresholds: config.thresholds(),
            colour: config.text("display.colour") != "never",
            columns: a.columns.iter().filter_map(place).collect(),
        }
    }

    fn fg(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
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
    show(&mut view, &mut One { host, described: Described::default(), before, left }, &interrupt)?;
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

/// Where the view's values come from.
trait Feed {
    /// Brings what is new into the view. `due`: an interval has passed since the last time. Whether more comes.
    fn feed(&mut self, view: &mut View, due: bool) -> Result<bool, Fault>;
}

/// One host, asked each interval.
struct One<'a> {
    host: &'a mut dyn Observe,
    described: Described,
    before: Batch,
    left: u64,
}

impl Feed for One<'_> {
    fn feed(&mut self, view: &mut View, due: bool) -> Result<bool, Fault> {
        if !due {
            return Ok(true);
        }
        let now = self.host.sample()?;
        let before = std::mem::replace(&mut self.before, now.clone());
        // The end of what is played.
        if !view.paused && now.mono_ns > before.mono_ns {
            let collector = self.host.collector();
            let config = self.described.of(self.host)?;
            let model = model::derive(config, &collector, &[before, now])?;
            view.see(0, config, model);
            self.left -= 1;
        }
        Ok(self.left > 0)
    }
}

impl Feed for Several {
    fn feed(&mut self, view: &mut View, _: bool) -> Result<bool, Fault> {
        self.set_interval(view.interval);
        while let Some((place, u)) = self.next(Duration::ZERO) {
            if view.paused {
                continue;
            }
            match model::derive(&u.config, &u.collector, &[u.before, u.now]) {
                Ok(model) => view.see(place, &u.config, model),
                Err(fault) => view.hosts[place].fault = Some(fault),
            }
        }
        while let Some((place, fault)) = self.next_fault() {
            // Its last values are old.
            view.hosts[place] =
                Shown { name: view.hosts[place].name.clone(), fault: Some(fault), ..Shown::default() };
        }
        Ok(!self.is_over())
    }
}

/// A recording in place of a host. Each sample is the next one that is an interval later; at the end, the last one repeats.
struct Played {
    recording: Recording,
    at: usize,
    /// The last sample that was given.
    shown: Option<usize>,
    every_ns: u64,
}

impl Observe for Played {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        let at = self.recording.batches.get(self.at).map_or(0, |b| b.mono_ns);
        Ok(self.recording.config_at(at).clone())
    }

    fn collector(&self) -> Collector {
        self.recording.manifest.collector.clone()
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        let batches = &self.recording.batches;
        let Some(now) = batches.get(self.at) else {
            return Err(Fault::new(FaultKind::BadInput, "the recording has no complete sample"));
        };
        let later = |b: &Batch| b.mono_ns >= now.mono_ns + self.every_ns;
        let next = batches.iter().skip(self.at).position(later).map(|i| self.at + i);
        let mut sample = now.clone();
        // Blame is since the sample before, all else since counting began: what is skipped is this one's.
        sample.blame = batches[self.shown.map_or(self.at, |shown| shown + 1)..=self.at]
            .iter()
            .flat_map(|b| b.blame.clone())
            .collect();
        self.shown = Some(self.at);
        self.at = next.unwrap_or(batches.len() - 1);
        Ok(sample)
    }
}

impl View {
    fn new(a: &Top, hosts: Vec<Shown>, notes: Vec<String>, look: Look) -> View {
        View {
            hosts,
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
            help: false,
            paused: false,
            interval: a.interval,
            room: COLUMNS.len(),
            table: TableState::default().with_selected(0),
            area: Rect::default(),
            headings: Vec::new(),
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
    fn see(&mut self, place: usize, config: &HostConfig, model: HostModel) {
        let selected = self.table.selected().and_then(|s| visible(self).get(s).cloned());
        self.hosts[place].nodes = node_rows(config, &model);
        let wanted = config.vms.iter().filter(|_| self.settings);
        self.hosts[place].settings = wanted.map(|vm| (vm.id.0.clone(), vm.settings())).collect();
        self.hosts[place].model = Some(model);
        self.hosts[place].fault = None;
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
                Event::Mouse(mouse) => clicked(view, mouse),
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

/// The columns to show.
fn columns(view: &View) -> Vec<usize> {
    let rows: Vec<Row> = view.models().flat_map(|(_, model)| vm_rows(model)).collect();
    match rows.is_empty() {
        true => Vec::new(),
        false if view.look.columns.is_empty() => shown(&rows, view.room),
        false => view.look.columns.iter().copied().take(view.room).collect(),
    }
}

/// The column beside the one that rows are sorted by: to its right or its left, or that one at the end. If that one is not
/// shown, the first column.
fn beside(view: &View, right: bool) -> usize {
    let there = columns(view);
    let next = match there.iter().position(|i| Some(*i) == view.sort) {
        Some(at) if right => there.get(at + 1),
        Some(at) => at.checked_sub(1).and_then(|at| there.get(at)),
        None => there.first(),
    };
    next.copied().or(view.sort).unwrap_or(2)
}

/// The rows to show, VMs of all hosts sorted, each followed by its parts where expanded.
fn visible(view: &View) -> Vec<Placed> {
    let rows: Vec<Placed> = view
        .models()
        .flat_map(|(place, model)| vm_rows(model).into_iter().map(move |row| (place, row)))
        .collect();
    let wanted = view.filter.to_lowercase();
    let is_wanted = |(_, r): &&Placed| r.depth == 0 && r.name.to_lowercase().contains(&wanted);
    let mut groups: Vec<&Placed> = rows.iter().filter(is_wanted).collect();
    groups.sort_by(|(_, a), (_, b)| {
        let value = |r: &Row| view.sort.map_or(0.0, |by| r.values[by].unwrap_or(f64::NEG_INFINITY));
        let order = value(b).total_cmp(&value(a)).then_with(|| a.name.cmp(&b.name));
        if view.reverse { order.reverse() } else { order }
    });
    groups
        .into_iter()
        .flat_map(|of| {
            let (place, g) = of;
            let open = view.all_expanded || view.expanded.contains(&(*place, g.group.clone()));
            let is_part = move |(p, r): &&Placed| open && r.depth > 0 && (p, &r.group) == (place, &g.group);
            std::iter::once(of).chain(rows.iter().filter(is_part)).cloned()
        })
        .collect()
}

/// Where a row of the former sample is now: a person selects a VM, not a line of the screen.
fn place_of((place, row): &Placed, rows: &[Placed]) -> Option<usize> {
    let key = |place: usize, r: &Row| (place, r.depth, r.group.clone(), r.name.clone());
    rows.iter().position(|(p, r)| key(*p, r) == key(*place, row))
}

fn ready_style(model: &HostModel, row: &Row, look: &Look) -> Style {
    let vcpus = model.vms.iter().find(|v| v.id.0 == row.group).map_or(1, |v| v.vcpu_threads().count().max(1));
    let per_vcpu = row.values[2].unwrap_or(0.0) / if row.depth == 0 { vcpus as f64 } else { 1.0 };
    match per_vcpu {
        r if r > look.thresholds.ready_per_vcpu_critical => look.fg(Color::Red),
        r if r > look.thresholds.ready_per_vcpu => look.fg(Color::Yellow),
        _ => Style::new(),
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

fn draw(f: &mut Frame<'_>, view: &mut View) {
    if view.models().next().is_none() {
        let lines = std::iter::once("vsteer top: counting …".to_owned());
        let faults = view.hosts.iter().filter_map(trouble);
        f.render_widget(Paragraph::new(lines.chain(faults).collect::<Vec<_>>().join("\n")), f.area());
        return;
    }
    // The name, and then a blank before each.
    let names = NAME + if view.is_several() { HOST + 1 } else { 0 };
    view.room = usize::from(f.area().width.saturating_sub(names)) / usize::from(COLUMN + 1);
    let rows = visible(view);
    let count = rows.len();
    if view.table.selected().is_some_and(|s| s >= count) {
        view.table.select(count.checked_sub(1));
    }
    let host = if view.pcpus { pcpu_lines(view) } else { Vec::new() };
    let mut about = if view.settings { settings_lines(view, &rows) } else { Vec::new() };
    about.extend(if view.blame { blame_lines(view, &rows) } else { Vec::new() });
    let cap = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).min(f.area().height / 3);
    let [head, pcpus, table, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(cap(host.len())),
        Constraint::Min(3),
        Constraint::Length(cap(about.len())),
        Constraint::Length(1),
    ])
    .areas(f.area());

    // How vsteer counts, and whether the view stands still, is visible however narrow the terminal is.
    let state = state(view);
    let right = Constraint::Length(u16::try_from(state.chars().count()).unwrap_or(u16::MAX));
    let [left, right] = Layout::horizontal([Constraint::Min(0), right]).areas(head);
    f.render_widget(Paragraph::new(Span::styled(title(view), BOLD)), left);
    let style = if view.paused { BOLD.add_modifier(Modifier::REVERSED) } else { BOLD };
    f.render_widget(Paragraph::new(Span::styled(state, style)), right);
    f.render_widget(Paragraph::new(host.join("\n")), pcpus);
    draw_table(f, table, &rows, view);
    f.render_widget(Paragraph::new(about), below);
    f.render_widget(Paragraph::new(foot_text(view)).style(view.look.fg(Color::DarkGray)), foot);
    if view.help {
        draw_help(f);
    }
    if let Some(at) = view.choosing {
        draw_chooser(f, view, at);
    }
}

/// Lines for nodes and pCPUs. Of several hosts, each line begins with its host.
fn pcpu_lines(view: &View) -> Vec<String> {
    let of = |(place, model): (usize, &HostModel)| {
        let host = &view.hosts[place];
        let begin = if view.is_several() {
            format!("{:<width$} ", host.name, width = usize::from(HOST))
        } else {
            String::new()
        };
        let lines = [host.nodes.clone(), host_rows(model)].concat();
        lines.into_iter().map(move |line| format!("{begin}{line}"))
    };
    view.models().flat_map(of).collect()
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
    let newest = models.iter().map(|m| m.from_unix_ns + m.window_ns).max().unwrap_or_default();
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

fn draw_table(f: &mut Frame<'_>, area: Rect, rows: &[Placed], view: &mut View) {
    let shown = columns(view);
    let several = view.is_several();
    let heading = |i: &usize| {
        let c = COLUMNS[*i];
        let mark = if Some(*i) != view.sort {
            ""
        } else if view.reverse {
            "^"
        } else {
            "v"
        };
        format!("{:>9}", format!("{mark}{c}"))
    };
    let names = if several { vec!["HOST".to_owned(), "NAME".to_owned()] } else { vec!["NAME".to_owned()] };
    view.area = area;
    view.headings = places(area, &shown, several);
    let heading: Vec<String> = names.into_iter().chain(shown.iter().map(heading)).collect();
    let hosts = &view.hosts;
    let lines = rows.iter().map(|(place, r)| {
        let host = &hosts[*place];
        // A part of a VM follows its VM.
        let name = several.then(|| if r.depth == 0 { host.name.clone() } else { String::new() });
        let values = shown.iter().map(|i| format!("{:>9}", r.cell(*i)));
        let cells: Vec<String> = name.into_iter().chain([r.name.clone()]).chain(values).collect();
        let style = host.model.as_ref().map_or(Style::new(), |model| ready_style(model, r, &view.look));
        Cells::new(cells).style(if r.depth == 0 { style.patch(BOLD) } else { style })
    });
    let host = several.then_some(Constraint::Length(HOST));
    let values = shown.iter().map(|_| Constraint::Length(COLUMN));
    let widths = host.into_iter().chain([Constraint::Min(NAME)]).chain(values);
    let widget = Table::new(lines, widths)
        .header(Cells::new(heading).style(Style::new().add_modifier(Modifier::REVERSED)))
        .row_highlight_style(view.look.selected());
    f.render_stateful_widget(widget, area, &mut view.table);
}

/// Where the headings are. Columns have fixed widths at the right, and the name has the rest.
fn places(area: Rect, shown: &[usize], several: bool) -> Vec<(u16, u16, Option<usize>)> {
    let all = u16::try_from(shown.len()).unwrap_or(0) * (COLUMN + 1);
    let begin = area.right().saturating_sub(all);
    let name = (area.x + if several { HOST + 1 } else { 0 }, begin, None);
    let columns = (0_u16..).zip(shown).map(|(n, by)| {
        let from = begin + n * (COLUMN + 1);
        (from, from + COLUMN + 1, Some(*by))
    });
    std::iter::once(name).chain(columns).collect()
}

/// The list of columns: which are shown, and in which order.
fn draw_chooser(f: &mut Frame<'_>, view: &View, at: usize) {
    let chosen = if view.look.columns.is_empty() { columns(view) } else { view.look.columns.clone() };
    let line = |(i, name): (usize, &&str)| {
        let place = chosen.iter().position(|c| *c == i).map_or("  ".to_owned(), |n| format!("{:>2}", n + 1));
        let style = if i == at { view.look.selected() } else { Style::new() };
        Line::styled(format!(" {place}  {name:<10}"), style)
    };
    let mut lines: Vec<Line<'_>> = COLUMNS.iter().enumerate().map(line).collect();
    let about = match &view.saved {
        None => "space shows or hides   a automatic   w save   Esc close".to_owned(),
        Some(Ok(file)) => format!("saved to {}", one_line(&file.display().to_string())),
        Some(Err(fault)) => one_line(&fault.to_string()),
    };
    lines.push(Line::raw(""));
    lines.push(Line::raw(format!(" {about}")));
    let height = u16::try_from(lines.len()).unwrap_or(20) + 2;
    let area = f.area().centered(Constraint::Length(60), Constraint::Length(height));
    // A small terminal shows the part around the selected line.
    let room = usize::from(area.height.saturating_sub(2));
    let scroll = u16::try_from((at + 4).saturating_sub(room)).unwrap_or(0);
    f.render_widget(Clear, area);
    let title = " columns, in their order ";
    f.render_widget(Paragraph::new(lines).scroll((scroll, 0)).block(Block::bordered().title(title)), area);
}

fn foot_text(view: &View) -> String {
    if view.typing == Some(Typing::Interval) {
        return format!("interval in seconds: {}_", view.typed);
    }
    let lost = view.hosts.iter().find_map(trouble);
    match (view.typing.is_some(), view.filter.is_empty(), lost.as_ref().or(view.notes.first())) {
        (true, ..) => format!("filter: {}_", view.filter),
        (_, false, _) => format!("filter: {}   (Esc clears)", view.filter),
        (_, _, Some(note)) => note.clone(),
        _ => "h help   e expand   / filter   b blame   i settings   f columns   q quit".to_owned(),
    }
}

fn draw_help(f: &mut Frame<'_>) {
    let help = format!("{KEYS}\n\n{}", COLUMNS_HELP);
    let lines = u16::try_from(help.lines().count()).unwrap_or(20) + 2;
    let area = f.area().centered(Constraint::Length(76), Constraint::Length(lines));
    f.render_widget(Clear, area);
    f.render_widget(Paragraph::new(help).block(Block::bordered().title(" keys and columns ")), area);
}

/// The settings of the selected VM.
fn settings_lines(view: &View, rows: &[Placed]) -> Vec<Line<'static>> {
    let Some((place, row)) = view.table.selected().and_then(|s| rows.get(s)) else { return Vec::new() };
    let host = &view.hosts[*place];
    let of_vm = |m: &HostModel| m.vms.iter().find(|v| v.id.0 == row.group).map(|v| one_line(&v.name));
    let name = host.model.as_ref().and_then(of_vm).unwrap_or_else(|| one_line(&row.group));
    let Some(settings) = host.settings.get(&row.group) else {
        return vec![Line::from(format!("Settings of {name}: with the next update"))];
    };
    let line = |(what, is): &(&str, String)| Line::from(format!("  {what:<26} {}", one_line(is)));
    std::iter::once(Line::from(format!("Settings of {name}:"))).chain(settings.iter().map(line)).collect()
}

/// What ran while the selected VM was ready, as bars.
fn blame_lines(view: &View, rows: &[Placed]) -> Vec<Line<'static>> {
    let Some((place, row)) = view.table.selected().and_then(|s| rows.get(s)) else { return Vec::new() };
    let Some(model) = &view.hosts[*place].model else { return Vec::new() };
    let Some(blame) = &model.blame else {
        return vec![Line::from("this collector does not measure blame")];
    };
    let name = |id: &str| model.vms.iter().find(|v| v.id.0 == id).map_or(id.to_owned(), |v| v.name.clone());
    let mut lines = vec![Line::from(format!(
        "While {} was ready, these ran (% of one pCPU, all its threads together):",
        name(&row.group)
    ))];
    for b in blame.iter().filter(|b| b.victim.0 == row.group).take(6) {
        let bar = "#".repeat((b.share * 40.0).ceil().min(40.0) as usize);
        let who = match &b.culprit {
            vsteer_core::nouns::Culprit::Vm(id) => format!("VM {}", name(&id.0)),
            vsteer_core::nouns::Culprit::Process { comm, pid, container } => {
                let of = container.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
                format!("process {comm} ({pid}){of}")
            }
            vsteer_core::nouns::Culprit::Kernel { comm } => format!("kernel {comm}"),
            vsteer_core::nouns::Culprit::Placement => "placement: an allowed pCPU was idle".to_owned(),
            vsteer_core::nouns::Culprit::Unattributed => "unknown".to_owned(),
        };
        lines.push(Line::from(format!("  {:>6.2} %  {who:<40} {bar}", 100.0 * b.share)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::CpuSet;
    use vsteer_core::nouns::{BlameSample, CgroupLayout, Culprit, PressureShares, Role, VmId};
    use vsteer_core::topology::{Parts, Topology};

    #[test]
    fn the_selection_stays_on_its_vm() {
        let row = |place: usize, group: &str, depth: u8| {
            let row = Row {
                group: group.into(),
                depth,
                name: format!("{group} {depth}"),
                values: [None; COLUMNS.len()],
                estimated: None,
            };
            (place, row)
        };
        let rows = [row(0, "b", 0), row(0, "a", 0), row(0, "a", 1), row(1, "a", 0)];
        assert_eq!(place_of(&row(0, "a", 0), &rows), Some(1));
        assert_eq!(place_of(&row(0, "a", 1), &rows), Some(2));
        assert_eq!(place_of(&row(1, "a", 0), &rows), Some(3), "a VM of the same id on another host");
        assert_eq!(place_of(&row(0, "c", 0), &rows), None);
    }

    #[test]
    fn what_a_person_chooses_for_the_live_table() {
        use clap::{CommandFactory, FromArgMatches};
        let look = |text: &str, words: &[&str]| {
            let config = vsteer_record::config::of_text(text).strict().unwrap();
            let all = ["vsteer", "top"].iter().chain(words);
            let matches = crate::settings::with_defaults("top", &config).get_matches_from(all);
            let crate::cli::Command::Top(a) = crate::cli::Cli::from_arg_matches(&matches).unwrap().command
            else {
                panic!("top was asked for");
            };
            Look::of(&a, &config)
        };
        crate::cli::Cli::command().debug_assert();
        let plain = look("", &[]);
        assert!(plain.colour && plain.columns.is_empty() && plain.fg(Color::Red).fg == Some(Color::Red));
        let chosen = look("[display]\ncolour = \"never\"\n[top]\ncolumns = [\"%RDY\", \"%USED\"]\n", &[]);
        assert_eq!((chosen.colour, &chosen.columns), (false, &vec![2, 0]));
        assert!(chosen.fg(Color::Red) == Style::new() && chosen.selected().bg.is_none());
        assert_eq!(look("[top]\ncolumns = [\"%RDY\"]\n", &["--columns", "%RUN,SW/s"]).columns, [1, 11]);
        // Ready at 7 % of a pCPU: yellow by default, red with another threshold.
        let mut row = Row {
            group: "web".into(),
            depth: 1,
            name: "vCPU 0".into(),
            values: [None; COLUMNS.len()],
            estimated: None,
        };
        row.values[2] = Some(0.07);
        let model = HostModel {
            from_unix_ns: 0,
            window_ns: 1,
            vms: Vec::new(),
            pcpus: Vec::new(),
            pressure: PressureShares::default(),
            blame: None,
            collector: String::new(),
            missing: BTreeMap::new(),
        };
        let colour = |look: &Look| ready_style(&model, &row, look).fg;
        assert_eq!(colour(&plain), Some(Color::Yellow));
        assert_eq!(colour(&look("[thresholds]\nready_per_vcpu_critical = \"6%\"\n", &[])), Some(Color::Red));
        assert_eq!(colour(&look("[thresholds]\nready_per_vcpu = \"8%\"\n", &[])), None);
        assert_eq!(colour(&chosen), None);
    }

    /// Recorded each second and played at two: blame is since the sample before, also since one that is not shown.
    #[test]
    fn what_is_not_shown_of_a_recording_is_blamed_all_the_same() {
        let all = CpuSet::first(1);
        let parts = Parts { online: all.clone(), present: all.clone(), allowed: all, ..Parts::default() };
        let config = HostConfig {
            hostname: "h".into(),
            machine_id: None,
            kernel: "6.18".into(),
            topology: Topology::new(parts).unwrap(),
            cgroups: CgroupLayout::V2,
            contenders: Vec::new(),
            scheduler: None,
            vms: Vec::new(),
        };
        let batch = |s: u64| Batch {
            mono_ns: s * 1_000_000_000,
            blame: vec![BlameSample {
                victim: VmId("web".into()),
                role: Role::Vcpu(0),
                culprit: Culprit::Placement,
                ns: 10_i64.pow(s as u32),
            }],
            ..Batch::default()
        };
        let collector = Collector { name: "ebpf".into(), missing: BTreeMap::new() };
        let batches = (0..7).map(batch).collect();
        let recording = Recording::foreign("a".as_ref(), config, collector, batches, Vec::new());
        let mut played = Played { recording, at: 0, shown: None, every_ns: 2_000_000_000 };
        let mut blamed = || played.sample().unwrap().blame.iter().map(|b| b.ns).sum::<i64>();
        assert_eq!([blamed(), blamed(), blamed(), blamed()], [1, 110, 11_000, 1_100_000]);
        // At the end the last one again, of which nothing is new.
        assert_eq!(blamed(), 0);
    }
}
