//! The table itself: which rows and columns are shown, and how they are drawn.
//!
//! Rows are made once per update. On a host of 1,000 VMs a drawing sorts the VMs and writes only the rows near the selected
//! one.

use super::trend::{self, SHOWN};
use super::{Look, Shown, View};
use crate::text::{COLUMNS, Row, host_rows, shown};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Row as Cells, Table};
use std::rc::Rc;
use vsteer_core::model::HostModel;
use vsteer_core::nouns::VmId;

/// Widths of a name and of a column, characters.
const NAME: u16 = 18;
const COLUMN: u16 = 9;
/// Width of a host's name, where there are several.
const HOST: u16 = 14;
/// The column of trends, and the narrowest screen on which it stands.
const TREND: u16 = SHOWN as u16;
const TREND_FROM: u16 = 118;

pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// A row with the place of its host in the list.
pub(super) type Placed = (usize, Rc<Row>);

/// Makes the table fit a screen of this width: how many columns have room, and whether trends are shown.
pub(super) fn fit(view: &mut View, width: u16) {
    view.trend_fits = view.trend && width >= TREND_FROM;
    // The name, and then a blank before each.
    let names = NAME + if view.is_several() { HOST + 1 } else { 0 };
    let trend = if view.trend_fits { TREND + 1 } else { 0 };
    view.room = usize::from(width.saturating_sub(names + trend)) / usize::from(COLUMN + 1);
}

/// The columns to show.
pub(super) fn columns(view: &View) -> Vec<usize> {
    if view.hosts.iter().all(|host| host.rows.is_empty()) {
        return Vec::new();
    }
    if !view.look.columns.is_empty() {
        return view.look.columns.iter().copied().take(view.room).collect();
    }
    shown(|i| view.hosts.iter().any(|host| host.filled[i]), view.room)
}

/// Which columns have a value in any row.
pub(super) fn filled(rows: &[Vec<Rc<Row>>]) -> [bool; COLUMNS.len()] {
    std::array::from_fn(|i| rows.iter().flatten().any(|row| row.values[i].is_some()))
}

/// The column beside the one that rows are sorted by: to its right or its left, or that one at the end. If that one is not
/// shown, the first column.
pub(super) fn beside(view: &View, right: bool) -> usize {
    let there = columns(view);
    let next = match there.iter().position(|i| Some(*i) == view.sort) {
        Some(at) if right => there.get(at + 1),
        Some(at) => at.checked_sub(1).and_then(|at| there.get(at)),
        None => there.first(),
    };
    next.copied().or(view.sort).unwrap_or(2)
}

/// The rows to show, VMs of all hosts sorted, each followed by its parts where expanded.
pub(super) fn visible(view: &View) -> Vec<Placed> {
    let wanted = view.filter.to_lowercase();
    let is_wanted = |rows: &&Vec<Rc<Row>>| wanted.is_empty() || rows[0].name.to_lowercase().contains(&wanted);
    let of_host = |(place, host): (usize, &'_ Shown)| {
        host.rows.iter().filter(is_wanted).map(|rows| (place, rows.clone())).collect::<Vec<_>>()
    };
    let mut groups: Vec<(usize, Vec<Rc<Row>>)> = view.hosts.iter().enumerate().flat_map(of_host).collect();
    groups.sort_by(|(_, a), (_, b)| {
        let value = |r: &Row| view.sort.map_or(0.0, |by| r.values[by].unwrap_or(f64::NEG_INFINITY));
        let order = value(&b[0]).total_cmp(&value(&a[0])).then_with(|| a[0].name.cmp(&b[0].name));
        if view.reverse { order.reverse() } else { order }
    });
    let mut all = Vec::with_capacity(groups.len());
    for (place, rows) in groups {
        let open = view.all_expanded
            || (!view.expanded.is_empty() && view.expanded.contains(&(place, rows[0].group.clone())));
        let count = if open { rows.len() } else { 1 };
        all.extend(rows.into_iter().take(count).map(|row| (place, row)));
    }
    all
}

/// Where a row of the former sample is now: a person selects a VM, not a line of the screen.
pub(super) fn place_of((place, row): &Placed, rows: &[Placed]) -> Option<usize> {
    rows.iter()
        .position(|(p, r)| (p, r.depth, &r.group, &r.name) == (place, row.depth, &row.group, &row.name))
}

/// The colour of a share of ready time over so many vCPUs.
pub(super) fn ready_style(ready: Option<f64>, vcpus: usize, look: &Look) -> Style {
    match ready.unwrap_or(0.0) / vcpus.max(1) as f64 {
        r if r > look.thresholds.ready_per_vcpu_critical => look.fg(Color::Red),
        r if r > look.thresholds.ready_per_vcpu => look.fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// Lines for nodes and pCPUs. Of several hosts, each line begins with its host.
pub(super) fn pcpu_lines(view: &View) -> Vec<String> {
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

pub(super) fn draw(f: &mut Frame<'_>, area: Rect, rows: &[Placed], view: &mut View) {
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
    view.headings = places(area, &shown, several, view.trend_fits);
    let trend = view.trend_fits.then(|| format!("{:>SHOWN$}", trend::COLUMN));
    let heading: Vec<String> = names.into_iter().chain(shown.iter().map(heading)).chain(trend).collect();
    // Rows that this screen cannot show stay empty.
    let (selected, offset) = (view.table.selected().unwrap_or(0), view.table.offset());
    let page = usize::from(area.height);
    let near = selected.min(offset).saturating_sub(page)..=selected.max(offset).saturating_add(page);
    let lines = rows.iter().enumerate().map(|(i, placed)| match near.contains(&i) {
        true => line(view, placed, &shown),
        false => Cells::default(),
    });
    let host = several.then_some(Constraint::Length(HOST));
    let values = shown.iter().map(|_| Constraint::Length(COLUMN));
    let trend = view.trend_fits.then_some(Constraint::Length(TREND));
    let widths = host.into_iter().chain([Constraint::Min(NAME)]).chain(values).chain(trend);
    let widget = Table::new(lines.collect::<Vec<_>>(), widths)
        .header(Cells::new(heading).style(Style::new().add_modifier(Modifier::REVERSED)))
        .row_highlight_style(view.look.selected());
    f.render_stateful_widget(widget, area, &mut view.table);
}

/// The cells of a row.
fn line(view: &View, (place, r): &Placed, shown: &[usize]) -> Cells<'static> {
    let host = &view.hosts[*place];
    // A part of a VM follows its VM.
    let of_host = if r.depth == 0 { host.name.clone() } else { String::new() };
    let host_name = view.is_several().then_some(of_host);
    let values = shown.iter().map(|i| format!("{:>9}", r.cell(*i)));
    let trend = view.trend_fits.then(|| match r.depth {
        0 => host.past.sparkline(&VmId(r.group.clone().into()), view.look.trend_full(), view.look.ascii),
        _ => String::new(),
    });
    let cells: Vec<String> =
        host_name.into_iter().chain([r.name.clone()]).chain(values).chain(trend).collect();
    let style = ready_style(r.values[2], r.vcpus, &view.look);
    Cells::new(cells).style(if r.depth == 0 { style.patch(BOLD) } else { style })
}

/// Where the headings are. Columns have fixed widths at the right, and the name has the rest.
fn places(area: Rect, shown: &[usize], several: bool, trend: bool) -> Vec<(u16, u16, Option<usize>)> {
    let ready = COLUMNS.iter().position(|c| *c == "%RDY");
    let trend = trend.then(|| (area.right().saturating_sub(TREND + 1), area.right(), ready));
    let end = trend.map_or(area.right(), |(from, ..)| from);
    let all = u16::try_from(shown.len()).unwrap_or(0) * (COLUMN + 1);
    let begin = end.saturating_sub(all);
    let name = (area.x + if several { HOST + 1 } else { 0 }, begin, None);
    let columns = (0_u16..).zip(shown).map(|(n, by)| {
        let from = begin + n * (COLUMN + 1);
        (from, from + COLUMN + 1, Some(*by))
    });
    std::iter::once(name).chain(columns).chain(trend).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_stays_on_its_vm() {
        let row = |place: usize, group: &str, depth: u8| {
            let row = Row {
                group: group.into(),
                depth,
                name: format!("{group} {depth}"),
                values: [None; COLUMNS.len()],
                estimated: None,
                vcpus: 1,
            };
            (place, Rc::new(row))
        };
        let rows = [row(0, "b", 0), row(0, "a", 0), row(0, "a", 1), row(1, "a", 0)];
        assert_eq!(place_of(&row(0, "a", 0), &rows), Some(1));
        assert_eq!(place_of(&row(0, "a", 1), &rows), Some(2));
        assert_eq!(place_of(&row(1, "a", 0), &rows), Some(3), "a VM of the same id on another host");
        assert_eq!(place_of(&row(0, "c", 0), &rows), None);
    }

    #[test]
    fn a_click_on_a_heading_finds_its_column() {
        let area = Rect::new(0, 3, 120, 20);
        let all = places(area, &[0, 2], false, true);
        assert_eq!(all, [(0, 87, None), (87, 97, Some(0)), (97, 107, Some(2)), (107, 120, Some(2))]);
        assert_eq!(places(area, &[0], true, false), [(15, 110, None), (110, 120, Some(0))]);
    }
}
