//! What ran while a VM was ready? One row per VM that waited, one column per culprit, worst first.

use super::markup::{column, esc, name, short, table, unsigned_zero};
use super::{Document, Side};
use std::collections::BTreeMap;
use vsteer_core::nouns::{Culprit, VmId};

/// Columns of the table; the rest is summed in one more.
const COLUMNS: usize = 9;

/// A culprit as it is shown: several processes of one container, or of one name, are one column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Vm(VmId),
    Container(String),
    Process(String),
    Kernel(String),
    Placement,
    Unattributed,
}

fn column_of(c: &Culprit) -> Column {
    match c {
        Culprit::Vm(id) => Column::Vm(id.clone()),
        Culprit::Process { container: Some(name), .. } => Column::Container(name.clone()),
        Culprit::Process { comm, .. } => Column::Process(comm.clone()),
        Culprit::Kernel { comm } => {
            // kworker/0:1-events and its like are one culprit.
            Column::Kernel(comm.split(['/', ':']).next().unwrap_or(comm).to_owned())
        }
        Culprit::Placement => Column::Placement,
        Culprit::Unattributed => Column::Unattributed,
    }
}

fn heading(s: &Side, c: &Column) -> (String, &'static str) {
    match c {
        Column::Vm(id) => (s.stretch.config.name_of(id), "VM"),
        Column::Container(name) => (name.clone(), "container"),
        Column::Process(comm) => (comm.clone(), "process"),
        Column::Kernel(comm) => (comm.clone(), "kernel"),
        Column::Placement => ("placement".to_owned(), "a pCPU was idle"),
        Column::Unattributed => ("unknown".to_owned(), ""),
    }
}

fn matrix(s: &Side) -> String {
    let Some(blame) = &s.model.blame else {
        let why = s.model.missing.get("blame").map_or("", String::as_str);
        return format!(
            "<p class=\"note\">{}: not measured by the collector {}. {}</p>\n",
            s.label,
            esc(&s.model.collector),
            esc(why)
        );
    };
    let mut sums: BTreeMap<Column, f64> = BTreeMap::new();
    let mut cells: BTreeMap<(VmId, Column), f64> = BTreeMap::new();
    for b in blame {
        let c = column_of(&b.culprit);
        *sums.entry(c.clone()).or_default() += b.share;
        *cells.entry((b.victim.clone(), c)).or_default() += b.share;
    }
    let mut order: Vec<(Column, f64)> = sums.into_iter().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rest: Vec<Column> = order.iter().skip(COLUMNS).map(|(c, _)| c.clone()).collect();
    order.truncate(COLUMNS);
    let of = |vm: &VmId, c: &Column| cells.get(&(vm.clone(), c.clone())).copied().unwrap_or(0.0);
    let mut victims: Vec<(&VmId, &str, f64)> = s
        .model
        .vms
        .iter()
        .map(|v| (&v.id, v.name.as_str(), blame.iter().filter(|b| b.victim == v.id).map(|b| b.share).sum()))
        .collect();
    victims.sort_by(|a, b| b.2.total_cmp(&a.2));
    let most = cells.values().copied().fold(0.0, f64::max).max(1e-9);
    let cell = |share: f64, own: bool| {
        let own = if own { " own" } else { "" };
        if share < 0.0005 {
            return format!("<td class=\"n zero{own}\">·</td>");
        }
        // The root keeps small shares visible beside large ones; the number tells the value.
        let heat = 0.06 + 0.62 * (share / most).sqrt();
        format!("<td class=\"n heat{own}\" style=\"--heat:{heat:.2}\">{:.1}</td>", 100.0 * share)
    };
    let mut rows = String::new();
    for (id, victim, sum) in victims {
        let line: String = order.iter().map(|(c, _)| cell(of(id, c), *c == Column::Vm(id.clone()))).collect();
        let others =
            if rest.is_empty() { String::new() } else { cell(rest.iter().map(|c| of(id, c)).sum(), false) };
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th>{line}{others}<td class=\"n sum\">{:.1}</td></tr>\n",
            name(victim),
            unsigned_zero(100.0 * sum)
        ));
    }
    let mut head: String = order
        .iter()
        .map(|(c, _)| {
            let (text, kind) = heading(s, c);
            format!(
                "<th scope=\"col\" class=\"n\" title=\"{}\"><bdi>{}</bdi><br><small>{}</small></th>",
                esc(&text),
                short(&text, 16),
                esc(kind)
            )
        })
        .collect();
    if !rest.is_empty() {
        head.push_str(&format!("<th scope=\"col\" class=\"n\">{} others</th>", rest.len()));
    }
    let head = format!("<tr>{}{head}{}</tr>", column("Who waited", "", ""), column("Sum", "", "n"));
    let caption =
        format!("{}: ready while another ran, in % of one pCPU, summed over the VM's threads", s.label);
    table(&caption, "blame", &head, &rows)
}

pub fn body(d: &Document) -> String {
    let tables: String = d.sides().map(matrix).collect();
    format!(
        "{tables}<p class=\"note\">A row shows what its VM waited for; a framed cell is the VM waiting for itself. \
<b>Placement</b>: an allowed pCPU was idle, but the scheduler had not put the thread there.</p>\n"
    )
}
