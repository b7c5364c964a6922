//! What stands around the table: settings and blame of a VM, and the column chooser.

use super::View;
use super::table::{Placed, columns};
use crate::text::{COLUMNS, one_line};
use ratatui::Frame;
use ratatui::layout::Constraint;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use vsteer_core::model::HostModel;
use vsteer_core::nouns::{Culprit, VmId};

/// Culprits below the table.
const CULPRITS: usize = 6;
/// Characters of a bar of blame that stands for a whole pCPU.
const BAR: f64 = 40.0;

/// The list of columns: which are shown, and in which order.
pub(super) fn draw_chooser(f: &mut Frame<'_>, view: &View, at: usize) {
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

/// The settings of the selected VM.
pub(super) fn settings(view: &View, rows: &[Placed]) -> Vec<Line<'static>> {
    let Some((place, row)) = view.table.selected().and_then(|s| rows.get(s)) else { return Vec::new() };
    let host = &view.hosts[*place];
    let of_vm = |m: &HostModel| m.vms.iter().find(|v| *v.id.0 == *row.group).map(|v| one_line(&v.name));
    let name = host.model.as_ref().and_then(of_vm).unwrap_or_else(|| one_line(&row.group));
    let config = host.config.as_ref().and_then(|config| config.vm(&VmId(row.group.clone().into())));
    let settings = config.map_or_else(Vec::new, |vm| vm.settings());
    let line = |(what, is): &(&str, String)| Line::from(format!("  {what:<26} {}", one_line(is)));
    std::iter::once(Line::from(format!("Settings of {name}:"))).chain(settings.iter().map(line)).collect()
}

/// What ran while the selected VM was ready, as bars.
pub(super) fn blame(view: &View, rows: &[Placed]) -> Vec<Line<'static>> {
    let Some((place, row)) = view.table.selected().and_then(|s| rows.get(s)) else { return Vec::new() };
    let Some(model) = &view.hosts[*place].model else { return Vec::new() };
    let id = VmId(row.group.clone().into());
    let Some(culprits) = culprits(model, &id) else {
        return vec![Line::from("this collector does not measure blame")];
    };
    let name = model.vm(&id).map_or_else(|| row.group.clone(), |vm| one_line(&vm.name));
    let title = format!("While {name} was ready, these ran (% of one pCPU, all its threads together):");
    let line = |(share, who): (f64, String)| {
        let bar = "#".repeat((share * BAR).ceil().min(BAR) as usize);
        Line::from(format!("  {:>6.2} %  {who:<40} {bar}", 100.0 * share))
    };
    std::iter::once(Line::from(title)).chain(culprits.into_iter().take(CULPRITS).map(line)).collect()
}

/// Who made a VM wait, and for which share of a pCPU; the largest share first. `None`: not measured.
pub(super) fn culprits(model: &HostModel, vm: &VmId) -> Option<Vec<(f64, String)>> {
    let name = |id: &VmId| model.vm(id).map_or_else(|| id.0.clone(), |v| v.name.clone().into());
    let who = |culprit: &Culprit| match culprit {
        Culprit::Vm(id) => format!("VM {}", name(id)),
        Culprit::Process { comm, pid, container } => {
            let of = container.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
            format!("process {comm} ({pid}){of}")
        }
        Culprit::Kernel { comm } => format!("kernel {comm}"),
        Culprit::Placement => "placement: an allowed pCPU was idle".to_owned(),
        Culprit::Unattributed => "unknown".to_owned(),
    };
    let blame = model.blame.as_ref()?.iter().filter(|b| b.victim == *vm);
    Some(blame.map(|b| (b.share, one_line(&who(&b.culprit)))).collect())
}
