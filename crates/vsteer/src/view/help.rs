//! The help of the live table.

use super::{View, map, trend};
use crate::text::COLUMNS_HELP;
use ratatui::Frame;
use ratatui::layout::Constraint;
use ratatui::widgets::{Block, Clear, Paragraph};

const KEYS: &str = "  up/down, j/k   select            PgUp, PgDn a page
  Home, End      first, last       e, E       expand or close a VM, all
  z, Enter       one VM            m          the pin map
  Esc            back              left/right sort by another column
  U, R, N        sort by %USED, by %RDY, by name
  r              reverse order     /          filter by name (Esc clears)
  p, c           pCPUs on or off   b          blame of the selected VM
  space          pause             i          settings of the selected VM
  s              set the interval  + -        longer or shorter interval
  f              choose columns    t          trends on or off
  h, ?           this help         q, Ctrl-C  end
  mouse          click: select, sort; double click: one VM;
                 right button: expand; wheel: scroll";

/// The help. A small screen shows the part from the line `view.help`.
pub fn draw(f: &mut Frame<'_>, view: &mut View) {
    let trend = trend::help(view.look.trend_full(), view.look.ascii);
    let help = format!("{KEYS}\n\n{}\n\n{trend}\n{COLUMNS_HELP}", map::HELP);
    let lines = help.lines().count();
    let height = u16::try_from(lines).unwrap_or(20).saturating_add(2);
    let area = f.area().centered(Constraint::Length(76), Constraint::Length(height));
    let room = usize::from(area.height.saturating_sub(2));
    let from = view.help.unwrap_or(0).min(lines.saturating_sub(room));
    view.help = Some(from);
    let mut block = Block::bordered().title(" keys and columns ");
    if room < lines {
        let to = from + room;
        block = block
            .title_bottom(format!(" lines {} to {to} of {lines}: up, down; other keys close ", from + 1));
    }
    f.render_widget(Clear, area);
    let scroll = (u16::try_from(from).unwrap_or(0), 0);
    f.render_widget(Paragraph::new(help).scroll(scroll).block(block), area);
}
