//! What keys and the mouse do in the live table. Letters are esxtop's where esxtop has one.

use super::View;
use super::table::{beside, columns, visible};
use crate::text::COLUMNS;
use ratatui::crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use std::time::Duration;

pub const KEYS: &str = "  up/down, j/k   select            e, Enter   expand or close a VM
  PgUp, PgDn     a page            Home, End  first, last
  E              expand all        left/right sort by another column
  U, R, N        sort by %USED, by %RDY, by name
  r              reverse order     /          filter by name (Esc clears)
  p, c           pCPUs on or off   b          blame of the selected VM
  space          pause             i          settings of the selected VM
  s              set the interval  + -        longer or shorter interval
  f              choose columns    h, ?       this help
  q, Ctrl-C      end               mouse      select, sort, scroll
  t              trend of ready time on or off";

/// The longest and the shortest interval that a person can set in the view.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// Lines of one turn of the wheel.
const WHEEL: usize = 3;
/// Lines that a page of the help moves.
const HELP_PAGE: usize = 15;

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
        KeyCode::Char('e') | KeyCode::Enter => expand(view),
        _ => {}
    }
    false
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
pub fn clicked(view: &mut View, mouse: MouseEvent) {
    match mouse.kind {
        MouseEventKind::ScrollDown => select(view, WHEEL.cast_signed()),
        MouseEventKind::ScrollUp => select(view, -WHEEL.cast_signed()),
        MouseEventKind::Down(MouseButton::Left) => {
            let area = view.area;
            let inside = area.contains((mouse.column, mouse.row).into());
            if !inside || view.help.is_some() || view.choosing.is_some() {
                return;
            }
            if mouse.row == area.y {
                let heading = view.headings.iter().find(|(from, to, _)| (*from..*to).contains(&mouse.column));
                let Some((.., by)) = heading.copied() else { return };
                if view.sort == by {
                    view.reverse = !view.reverse
                } else {
                    sort(view, by)
                }
                return;
            }
            let row = view.table.offset() + usize::from(mouse.row - area.y - 1);
            if row < visible(view).len() {
                // A second click opens or closes.
                if view.table.selected() == Some(row) { expand(view) } else { view.table.select(Some(row)) }
            }
        }
        _ => {}
    }
}
