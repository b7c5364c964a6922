//! What keys and the mouse do in the live table. Letters are esxtop's where esxtop has one.

use super::map::Map;
use super::table::{beside, columns, place_of, visible};
use super::zoom::Zoom;
use super::{Page, View};
use crate::text::COLUMNS;
use ratatui::crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use std::time::{Duration, Instant};
use vsteer_core::nouns::VmId;

/// The longest and the shortest interval that a person can set in the view.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// Lines of one turn of the wheel.
const WHEEL: usize = 3;
/// Lines that a page of the help moves.
const HELP_PAGE: usize = 15;
/// Characters that the pin map moves to the side.
const ASIDE: usize = 16;
/// Two clicks within this time are a double click.
const DOUBLE: Duration = Duration::from_millis(500);

/// Text that a person types, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typing {
    Filter,
    Interval,
}

/// Handles a key; true ends the view.
pub fn pressed(view: &mut View, key: KeyCode, modifiers: KeyModifiers) -> bool {
    if key == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
        return true;
    }
    if let Some(typing) = view.typing {
        typed(view, typing, key);
        return false;
    }
    if let Some(from) = view.help {
        view.help = scrolled(key, from, HELP_PAGE);
        return false;
    }
    if view.choosing.is_some() {
        choose(view, key);
        return false;
    }
    if in_page(view, key) {
        return false;
    }
    match key {
        KeyCode::Char('q') => return true,
        KeyCode::Char('h' | '?') => view.help = Some(0),
        KeyCode::Down | KeyCode::Char('j') => select(view, 1),
        KeyCode::Up | KeyCode::Char('k') => select(view, -1),
        KeyCode::PageDown => select(view, view.page()),
        KeyCode::PageUp => select(view, -view.page()),
        KeyCode::Home => view.table.select(Some(0)),
        KeyCode::End => view.table.select(visible(view).len().checked_sub(1)),
        KeyCode::Left => sort(view, Some(beside(view, false))),
        KeyCode::Right => sort(view, Some(beside(view, true))),
        KeyCode::Char('U') => sort(view, column("%USED")),
        KeyCode::Char('R') => sort(view, column("%RDY")),
        KeyCode::Char('N') => sort(view, None),
        KeyCode::Char('r') => view.reverse = !view.reverse,
        KeyCode::Char('E') => view.all_expanded = !view.all_expanded,
        KeyCode::Char('p' | 'c') => view.pcpus = !view.pcpus,
        KeyCode::Char('b') => view.blame = !view.blame,
        KeyCode::Char('i') => view.settings = !view.settings,
        KeyCode::Char('t') => view.trend = !view.trend,
        KeyCode::Char('f') => view.choosing = Some(0),
        KeyCode::Char(' ') => view.paused = !view.paused,
        KeyCode::Char('/') => view.typing = Some(Typing::Filter),
        KeyCode::Char('s') => (view.typing, view.typed) = (Some(Typing::Interval), String::new()),
        KeyCode::Esc => view.filter.clear(),
        KeyCode::Char('+') => set_interval(view, view.interval * 2),
        KeyCode::Char('-') => set_interval(view, view.interval / 2),
        KeyCode::Char('e') => expand(view),
        KeyCode::Char('z') | KeyCode::Enter => zoom(view),
        KeyCode::Char('m') => view.page = Page::Map(Map::default()),
        _ => {}
    }
    false
}

/// Keys of the screens for one VM and for pins. Whether the key is used up: what remains is the same on every screen.
fn in_page(view: &mut View, key: KeyCode) -> bool {
    match (&mut view.page, key) {
        (Page::Table, _) => return false,
        (_, KeyCode::Esc) | (Page::Map(_), KeyCode::Char('m')) | (Page::Zoom(_), KeyCode::Char('z')) => {
            view.page = Page::Table;
        }
        (Page::Zoom(_), KeyCode::Left) => other_vm(view, -1),
        (Page::Zoom(_), KeyCode::Right) => other_vm(view, 1),
        (Page::Map(map), KeyCode::Left) => map.right = map.right.saturating_sub(ASIDE),
        (Page::Map(map), KeyCode::Right) => map.right += ASIDE,
        (Page::Zoom(zoom), key) if scrolled(key, zoom.from, zoom.page).is_some() => {
            zoom.from = scrolled(key, zoom.from, zoom.page).unwrap_or_default();
        }
        (Page::Map(map), key) if scrolled(key, map.down, map.page).is_some() => {
            map.down = scrolled(key, map.down, map.page).unwrap_or_default();
        }
        // What these change is not on the screen.
        (_, KeyCode::Enter | KeyCode::Char('z' | 'e' | 'f' | 'i' | 'b' | 'p' | 'c' | 't')) => {}
        (Page::Zoom(_), KeyCode::Char('E' | 'U' | 'R' | 'N' | 'r' | '/')) => {}
        _ => return false,
    }
    true
}

/// The selected VM on the whole screen.
fn zoom(view: &mut View) {
    let rows = visible(view);
    if let Some((place, row)) = view.table.selected().and_then(|at| rows.get(at)) {
        view.page = Page::Zoom(Zoom::into(*place, VmId(row.group.clone().into())));
    }
}

/// The VM before or after the present one, in the order of the table.
fn other_vm(view: &mut View, by: isize) {
    let Page::Zoom(zoom) = &view.page else { return };
    let rows = visible(view);
    let vms: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].1.depth == 0).collect();
    let is_it = |at: &usize| rows[*at].0 == zoom.place && rows[*at].1.group == *zoom.vm.0;
    let now = vms.iter().position(is_it);
    let next = now.map_or(Some(0), |now| now.checked_add_signed(by));
    if let Some(at) = next.and_then(|next| vms.get(next)) {
        view.table.select(Some(*at));
        view.page = Page::Zoom(Zoom::into(rows[*at].0, VmId(rows[*at].1.group.clone().into())));
    }
}

/// The first line after a key that scrolls; `None` for another key.
fn scrolled(key: KeyCode, from: usize, page: usize) -> Option<usize> {
    match key {
        KeyCode::Down | KeyCode::Char('j') => Some(from.saturating_add(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(from.saturating_sub(1)),
        KeyCode::PageDown => Some(from.saturating_add(page)),
        KeyCode::PageUp => Some(from.saturating_sub(page)),
        KeyCode::Home => Some(0),
        // Drawing limits it to what there is.
        KeyCode::End => Some(usize::MAX),
        _ => None,
    }
}

fn column(name: &str) -> Option<usize> {
    COLUMNS.iter().position(|c| *c == name)
}

/// Sorts by a column, the largest first; `None`: by name.
fn sort(view: &mut View, by: Option<usize>) {
    (view.sort, view.reverse) = (by, false);
}

fn set_interval(view: &mut View, interval: Duration) {
    view.interval = interval.clamp(INTERVALS.0, INTERVALS.1);
}

fn select(view: &mut View, by: isize) {
    let at = view.table.selected().unwrap_or(0).saturating_add_signed(by);
    view.table.select(Some(at.min(visible(view).len().saturating_sub(1))));
}

fn expand(view: &mut View) {
    let Some(selected) = view.table.selected() else { return };
    if let Some((place, row)) = visible(view).get(selected) {
        let group = (*place, row.group.clone());
        if !view.expanded.remove(&group) {
            view.expanded.insert(group);
        }
    }
}

fn typed(view: &mut View, typing: Typing, key: KeyCode) {
    let text = if typing == Typing::Filter { &mut view.filter } else { &mut view.typed };
    match key {
        KeyCode::Esc => {
            text.clear();
            view.typing = None;
        }
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) => text.push(c),
        KeyCode::Enter => {
            view.typing = None;
            // Seconds, as in esxtop. What is not a number changes nothing.
            let seconds = view.typed.trim().trim_end_matches('s').parse::<f64>().ok();
            let seconds = seconds.filter(|s| typing == Typing::Interval && s.is_finite() && *s > 0.0);
            if let Some(seconds) = seconds {
                set_interval(view, Duration::from_secs_f64(seconds.min(INTERVALS.1.as_secs_f64())));
            }
        }
        _ => {}
    }
}

/// Keys of the column chooser.
fn choose(view: &mut View, key: KeyCode) {
    let Some(at) = view.choosing else { return };
    match key {
        KeyCode::Down | KeyCode::Char('j') => view.choosing = Some((at + 1).min(COLUMNS.len() - 1)),
        KeyCode::Up | KeyCode::Char('k') => view.choosing = Some(at.saturating_sub(1)),
        KeyCode::Char(' ') | KeyCode::Enter => {
            // The first choice begins with what is shown now.
            if view.look.columns.is_empty() {
                view.look.columns = columns(view);
            }
            let chosen = &mut view.look.columns;
            match chosen.iter().position(|c| *c == at) {
                Some(place) => drop(chosen.remove(place)),
                None => chosen.push(at),
            }
        }
        KeyCode::Char('a') => view.look.columns.clear(),
        KeyCode::Char('w' | 'W') => view.saved = Some(super::saved::save(&view.look.columns)),
        KeyCode::Esc | KeyCode::Char('f' | 'q') => view.choosing = None,
        _ => {}
    }
}

/// Handles the mouse: a click selects a row, or sorts by a heading; the wheel scrolls.
pub fn clicked(view: &mut View, mouse: MouseEvent, now: Instant) {
    match mouse.kind {
        MouseEventKind::ScrollDown => (0..WHEEL).for_each(|_| wheel(view, KeyCode::Down)),
        MouseEventKind::ScrollUp => (0..WHEEL).for_each(|_| wheel(view, KeyCode::Up)),
        MouseEventKind::Down(button @ (MouseButton::Left | MouseButton::Right)) => {
            let area = view.area;
            let inside = area.contains((mouse.column, mouse.row).into());
            let covered = view.help.is_some() || view.choosing.is_some() || !matches!(view.page, Page::Table);
            if !inside || covered {
                return;
            }
            match mouse.row - area.y {
                0 => heading(view, mouse.column),
                line => row(view, view.table.offset() + usize::from(line - 1), button, now),
            }
        }
        _ => {}
    }
}

/// One line of the wheel, wherever it is turned.
fn wheel(view: &mut View, key: KeyCode) {
    if let Some(from) = view.help {
        view.help = scrolled(key, from, 1);
    } else if view.choosing.is_some() {
        choose(view, key);
    } else if !in_page(view, key) {
        select(view, if key == KeyCode::Down { 1 } else { -1 });
    }
}

/// A click on a heading sorts by it; a second one reverses.
fn heading(view: &mut View, column: u16) {
    let heading = view.headings.iter().find(|(from, to, _)| (*from..*to).contains(&column));
    let Some((.., by)) = heading.copied() else { return };
    if view.sort == by { view.reverse = !view.reverse } else { sort(view, by) }
}

/// A click on a row selects it, the right button also expands it, a double click zooms into its VM.
fn row(view: &mut View, at: usize, button: MouseButton, now: Instant) {
    let rows = visible(view);
    let Some(clicked) = rows.get(at) else { return };
    view.table.select(Some(at));
    if button == MouseButton::Right {
        expand(view);
        return;
    }
    let former = view.clicked.replace((now, clicked.clone()));
    // Rows move between two clicks when values change: both must mean the same VM.
    let is_double = |(then, row)| now.duration_since(then) <= DOUBLE && place_of(&row, &rows) == Some(at);
    if former.is_some_and(is_double) {
        view.clicked = None;
        zoom(view);
    }
}
