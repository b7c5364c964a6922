//! The pin map: which VM is pinned to which pCPUs, and where its vCPUs ran last.
//!
//! Rows are VMs in the order of the table, columns are pCPUs: siblings of a core side by side, cores of a cache, caches of a
//! node. Only the rows on the screen are made, so a host of 1,000 VMs costs no more than a small one. Of several hosts, each
//! has its own columns and its own heading. Left out: memory, which `vsteer numa` shows.

use super::pins::Pins;
use super::table::{BOLD, visible};
use super::trend::bars;
use super::{Page, Shown, View};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use std::collections::HashMap;
use vsteer_core::model::{ThreadModel, VmModel};
use vsteer_core::nouns::{Role, VmConfig, VmId};
use vsteer_core::topology::Topology;

/// Widths of a name and of the pins in words, characters.
const NAME: usize = 16;
const PINS: usize = 10;
const LEFT: usize = NAME + 1 + PINS + 1;
/// A name over many pCPUs stands again after so many characters.
const REPEAT: usize = 24;
/// What the screens for one VM and for pins show, for the help.
pub const HELP: &str = "  One VM  bars of states name their full height; left and right: other VMs
  Pin map a column for each pCPU, siblings [--] together, | between caches
          and nodes; = pinned, a digit: vCPUs that ran there last";
const LEGEND: &str = "= pinned here   1-9 + vCPUs that ran here last   . none   ? not known where";

/// What the map shows: the first row and the first character of the columns; the rows that fit and those that there are.
#[derive(Default)]
pub struct Map {
    pub down: usize,
    pub right: usize,
    pub page: usize,
    rows: usize,
    /// Characters of columns that there are and that fit.
    wide: usize,
    room: usize,
}

/// The columns of a host.
struct Columns {
    cpus: Vec<u32>,
    /// Whether a separator stands before the pCPU: another node or cache begins.
    begins: Vec<bool>,
}

impl Columns {
    fn of(topology: &Topology) -> Columns {
        let group = |cpu: u32| {
            let node = topology.node_of(cpu).map_or(u32::MAX, |n| n.id.0);
            (node, topology.llc_of(cpu).and_then(|c| c.cpus.iter().next()))
        };
        let core = |cpu: u32| topology.core_of(cpu).and_then(|c| c.cpus.iter().next());
        let mut cpus: Vec<u32> = topology.online().iter().collect();
        cpus.sort_by_key(|cpu| (group(*cpu), core(*cpu), *cpu));
        let begins = (0..cpus.len()).map(|i| i > 0 && group(cpus[i - 1]) != group(cpus[i])).collect();
        Columns { cpus, begins }
    }

    /// A line of two characters for each pCPU.
    fn line(&self, cell: impl Fn(usize, u32) -> [char; 2]) -> String {
        let mut line = String::new();
        for (i, cpu) in self.cpus.iter().enumerate() {
            if self.begins[i] {
                line.push('|');
            }
            line.extend(cell(i, *cpu));
        }
        line
    }

    /// A line of names, each over the pCPUs that it stands for, as long as these have the same one.
    fn spans(&self, name: impl Fn(u32) -> Option<String>) -> String {
        let names: Vec<Option<String>> = self.cpus.iter().map(|cpu| name(*cpu)).collect();
        let mut line: Vec<char> = self.line(|_, _| [' ', ' ']).chars().collect();
        let (mut at, mut from) = (0, 0);
        for i in 0..=names.len() {
            if i < names.len() && self.begins[i] {
                at += 1;
            }
            if i == names.len() || (i > 0 && names[i] != names[i - 1]) {
                let end = at - usize::from(i < names.len() && self.begins[i]);
                let first = if i > 0 { names[i - 1].as_deref().unwrap_or("") } else { "" };
                // Again and again, so that it is on the screen wherever the columns begin.
                for start in (from..end).step_by(REPEAT) {
                    first.chars().take(end - start).enumerate().for_each(|(k, c)| line[start + k] = c);
                }
                from = at;
            }
            at += 2;
        }
        line.into_iter().collect()
    }

    /// The headings: nodes, caches and cores where the host has them, and the numbers of pCPUs, to be read downwards.
    fn head(&self, topology: &Topology, shown: &Shown, ascii: bool) -> Vec<(String, String)> {
        let mut head = Vec::new();
        if topology.nodes().len() > 1 {
            let node = |cpu| topology.node_of(cpu).map(|n| format!("node {}", n.id));
            head.push(("node".to_owned(), self.spans(node)));
        }
        let caches = topology.caches();
        if self.begins.contains(&true) && self.cpus.iter().any(|cpu| topology.llc_of(*cpu).is_some()) {
            let number = |cpu| {
                let cache = topology.llc_of(cpu)?;
                let alike = caches.iter().filter(|c| (c.level, c.kind) == (cache.level, cache.kind));
                Some(format!("L{} {}", cache.level, alike.take_while(|c| *c != cache).count()))
            };
            head.push(("cache".to_owned(), self.spans(number)));
        }
        let siblings = |cpu: u32| topology.siblings(cpu).len();
        if self.cpus.iter().any(|cpu| siblings(*cpu) > 1) {
            let core = |i: usize, cpu: u32| {
                let same = |other: Option<&u32>| other.is_some_and(|o| topology.siblings(cpu).contains(*o));
                match (same(i.checked_sub(1).and_then(|i| self.cpus.get(i))), same(self.cpus.get(i + 1))) {
                    (false, true) => ['[', '-'],
                    (true, true) => ['-', '-'],
                    (true, false) => ['-', ']'],
                    (false, false) => [' ', ' '],
                }
            };
            head.push(("siblings".to_owned(), self.line(core)));
        }
        let most = self.cpus.iter().copied().max().unwrap_or(0);
        for unit in [1000, 100, 10, 1].into_iter().filter(|unit| *unit == 1 || *unit <= most) {
            let digit = |_, cpu: u32| {
                let digit = char::from_digit(cpu / unit % 10, 10).unwrap_or(' ');
                [' ', if unit > 1 && cpu < unit { ' ' } else { digit }]
            };
            head.push((if unit == 1 { "pCPU".to_owned() } else { String::new() }, self.line(digit)));
        }
        let busy: HashMap<u32, f64> =
            shown.model.iter().flat_map(|m| &m.pcpus).map(|p| (p.cpu, p.busy)).collect();
        let bar = |_, cpu: u32| {
            let bar = bars(&[busy.get(&cpu).copied()], 1.0, 1, ascii).concat();
            [' ', bar.chars().next().unwrap_or(' ')]
        };
        head.push(("busy".to_owned(), self.line(bar)));
        head
    }

    /// The cells of some vCPUs: where they are pinned, and how many ran last on each pCPU.
    fn row(&self, pins: &Pins, ran: &[Option<u32>]) -> String {
        let known = !ran.is_empty() && ran.iter().all(Option::is_some);
        self.line(|_, cpu| {
            let pin = if matches!(pins, Pins::To(cpus) if cpus.contains(cpu)) { '=' } else { ' ' };
            let count = ran.iter().filter(|last| **last == Some(cpu)).count();
            let last = match u32::try_from(count).unwrap_or(u32::MAX) {
                0 if known => '.',
                0 => '?',
                n => char::from_digit(n, 10).unwrap_or('+'),
            };
            [pin, last]
        })
    }
}

/// A VM of a host, or one of its vCPUs.
struct Entry {
    place: usize,
    vm: VmId,
    name: String,
    vcpu: Option<u32>,
}

/// Numbers of a VM's vCPUs: those of its threads, which may have gaps where vCPUs are not plugged.
fn vcpus_of(vm: &VmConfig) -> Vec<u32> {
    let mut numbers: Vec<u32> = vm.vcpus().filter_map(|t| t.role.vcpu()).collect();
    numbers.sort_unstable();
    if numbers.is_empty() { (0..vm.vcpu_count() as u32).collect() } else { numbers }
}

/// The rows: of each host its VMs, in the order of the table, and their vCPUs if all rows are expanded.
fn entries(view: &View) -> Vec<Entry> {
    let mut all = Vec::new();
    for (place, row) in visible(view).into_iter().filter(|(_, row)| row.depth == 0) {
        let vm = VmId(row.group.clone().into());
        let config = || view.hosts[place].config.as_ref()?.vm(&vm);
        let vcpus = if view.all_expanded { config().map(vcpus_of).unwrap_or_default() } else { Vec::new() };
        let parts = vcpus.into_iter().map(|n| Entry {
            place,
            vm: vm.clone(),
            name: format!("  vcpu{n}"),
            vcpu: Some(n),
        });
        all.push(Entry { place, name: row.name.clone(), vcpu: None, vm: vm.clone() });
        all.extend(parts);
    }
    all.sort_by_key(|entry| entry.place);
    all
}

/// What the row of a VM or vCPU says: its pins in words, and the cells.
fn row(shown: &Shown, columns: &Columns, entry: &Entry) -> Option<(String, String)> {
    let (host, model) = (shown.config.as_ref()?, shown.model.as_ref()?);
    let is_it = |role: Role| entry.vcpu.is_none_or(|n| role == Role::Vcpu(n));
    let pins = host.vm(&entry.vm).map_or(Pins::NotKnown, |vm| match entry.vcpu {
        None => Pins::of_vm(host, vm),
        Some(_) => Pins::of(host, vm, vm.vcpus().filter(|t| is_it(t.role))),
    });
    let vcpus = |vm: &VmModel| -> Vec<Option<u32>> {
        let here = |t: &&ThreadModel| is_it(t.role);
        vm.vcpu_threads().filter(here).map(|t| t.last_cpu).collect()
    };
    let ran = model.vm(&entry.vm).map_or_else(Vec::new, vcpus);
    Some((pins.text(), columns.row(&pins, &ran)))
}

/// `text` in exactly `width` columns of the screen; what is cut ends with `…`, or with `~` where that cannot be written.
fn cut(text: &str, width: usize, ascii: bool) -> String {
    let wide = |text: &str| Span::raw(text.to_owned()).width();
    let mut kept = text.to_owned();
    if wide(text) > width {
        // Some characters are two columns wide.
        while wide(&kept) >= width {
            kept.pop();
        }
        kept.push(if ascii { '~' } else { '…' });
    }
    let blanks = width.saturating_sub(wide(&kept));
    kept + &" ".repeat(blanks)
}

/// The heading of a host.
fn head(view: &View, shown: &Shown, columns: Option<&Columns>) -> Vec<(String, String)> {
    let name = view.is_several().then(|| (format!("host {}", shown.name), String::new()));
    let parts = columns.zip(shown.config.as_ref());
    let head = parts.map(|(columns, config)| columns.head(&config.topology, shown, view.look.ascii));
    name.into_iter().chain(head.into_iter().flatten()).collect()
}

/// The first row of the last page: from there on, all rows and the headings of their hosts fit below the legend.
fn last_page(entries: &[Entry], heads: &[usize], height: usize) -> usize {
    let (mut lines, mut first) = (1, None);
    for (i, entry) in entries.iter().enumerate().rev() {
        let head = if first == Some(entry.place) { 0 } else { heads[entry.place] };
        first = Some(entry.place);
        lines += 1 + head;
        if lines > height {
            return (i + 1).min(entries.len() - 1);
        }
    }
    0
}

pub fn draw(f: &mut Frame<'_>, area: Rect, view: &mut View) {
    let Page::Map(map) = &view.page else { return };
    let ascii = view.look.ascii;
    let of_host = |shown: &Shown| shown.config.as_ref().map(|config| Columns::of(&config.topology));
    let columns: Vec<Option<Columns>> = view.hosts.iter().map(of_host).collect();
    let entries = entries(view);
    let room = usize::from(area.width).saturating_sub(LEFT);
    let wide = columns.iter().flatten().map(|c| c.line(|_, _| [' ', ' ']).chars().count()).max().unwrap_or(0);
    let right = map.right.min(wide.saturating_sub(room));
    let heads: Vec<usize> = (view.hosts.iter().zip(&columns))
        .map(|(shown, columns)| head(view, shown, columns.as_ref()).len())
        .collect();
    let down = map.down.min(last_page(&entries, &heads, usize::from(area.height)));
    let line = |name: &str, pins: &str, cells: &str| {
        let cells: String = cells.chars().skip(right).take(room).collect();
        format!("{} {} {cells}", cut(name, NAME, ascii), cut(pins, PINS, ascii))
    };
    let mut lines = vec![Line::raw(LEGEND)];
    let (mut last, mut page) = (None, 0);
    for entry in &entries[down..] {
        let shown = &view.hosts[entry.place];
        let Some(columns) = &columns[entry.place] else { continue };
        if last != Some(entry.place) {
            last = Some(entry.place);
            let head = head(view, shown, Some(columns));
            lines.extend(head.iter().map(|(name, cells)| Line::styled(line(name, "", cells), BOLD)));
        }
        if lines.len() >= usize::from(area.height) {
            break;
        }
        page += 1;
        if let Some((pins, cells)) = row(shown, columns, entry) {
            lines.push(Line::raw(line(&entry.name, &pins, &cells)));
        }
    }
    let rows = entries.len();
    f.render_widget(Paragraph::new(lines), area);
    view.page = Page::Map(Map { down, right, page, rows, wide, room });
}

/// The last line of the screen.
pub fn foot(map: &Map) -> String {
    let mut parts = vec!["Esc back".to_owned()];
    if map.rows > map.page {
        let to = (map.down + map.page).min(map.rows);
        parts.push(format!("rows {} to {to} of {}", map.down + 1, map.rows));
    }
    if map.wide > map.room {
        let to = (map.right + map.room).min(map.wide);
        parts.push(format!("pCPUs {} to {} %", 100 * map.right / map.wide, 100 * to / map.wide));
    }
    if parts.len() > 1 {
        parts.push("arrows scroll".to_owned());
    }
    parts.extend(["E vCPUs".to_owned(), "h help".to_owned()]);
    // What does not fit is left out, from the right.
    while parts.join("   ").len() > LEFT + map.room && parts.pop().is_some() {}
    parts.join("   ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::pins::tests::host;
    use vsteer_core::CpuSet;
    use vsteer_core::topology::{Cache, CacheKind, Core, NodeId, NumaNode, Parts};

    #[test]
    fn siblings_stand_side_by_side() {
        let columns = Columns::of(&host(2, Vec::new()).topology);
        assert_eq!(columns.cpus, [0, 2, 1, 3]);
        let head = columns.head(&host(2, Vec::new()).topology, &Shown::default(), false);
        let lines: Vec<String> = head.iter().map(|(name, cells)| format!("{name}:{cells}")).collect();
        assert_eq!(lines, ["siblings:[--][--]", "pCPU: 0 2 1 3", "busy: - - - -"]);
    }

    #[test]
    fn nodes_and_caches_are_apart() {
        let all = CpuSet::first(8);
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let node = |id: u32, cpus: &str| NumaNode {
            id: NodeId(id),
            cpus: set(cpus),
            nearest_cpus: CpuSet::new(),
            memory_bytes: None,
            distances: Default::default(),
            initiators: Vec::new(),
            gpu: None,
            allowed: true,
            assumed: false,
        };
        let cache =
            |cpus: &str| Cache { level: 3, kind: CacheKind::Unified, size_bytes: None, cpus: set(cpus) };
        let parts = Parts {
            online: all.clone(),
            present: all.clone(),
            allowed: all.clone(),
            cores: all.iter().map(|n| Core { cpus: CpuSet::single(n), ..Core::default() }).collect(),
            caches: ["0-1", "4-5", "2-3,6-7"].map(cache).to_vec(),
            nodes: vec![node(0, "0-1,4-5"), node(1, "2-3,6-7")],
            ..Parts::default()
        };
        let topology = Topology::new(parts).unwrap();
        let columns = Columns::of(&topology);
        let head = columns.head(&topology, &Shown::default(), true);
        let cells: Vec<&str> = head.iter().map(|(_, cells)| cells.trim_end()).collect();
        assert_eq!(cells[..3], ["node 0   |node 1", "L3 0|L3 2|L3 1", " 0 1| 4 5| 2 3 6 7"]);
    }

    #[test]
    fn pins_and_the_last_pcpu_are_told_apart() {
        let columns = Columns::of(&host(2, Vec::new()).topology);
        let to = Pins::To("0-1".parse().unwrap());
        assert_eq!(columns.row(&to, &[Some(0), Some(0)]), "=2 .=. .");
        assert_eq!(columns.row(&Pins::Free, &[Some(3)]), " . . . 1");
        assert_eq!(columns.row(&Pins::NotKnown, &[None]), " ? ? ? ?", "not known is not nowhere");
        assert_eq!(columns.row(&Pins::Free, &[Some(1); 12]), " . . + .");
        let cut = |text, ascii| cut(text, 4, ascii);
        assert_eq!([cut("abcdef", false), cut("abcdef", true), cut("ab", true)], ["abc…", "abc~", "ab  "]);
        assert_eq!(cut("\u{4e2d}\u{4e2d}\u{4e2d}", true), "\u{4e2d}~ ", "two columns each");
    }
}
