//! Finds the relevant ones among tens of thousands of columns, and the slot for each value. The result is the
//! plan for reading rows.
//!
//! vsteer reads the header once. Every VM's group, every world of a VM and every pCPU gets a range of slots.
//! A list contains each column that fills a slot, in order. To read a row, vsteer goes from one listed column
//! to the next.
//!
//! If the file shows a vCPU of a group, or another world that only VMs have, the group is a VM. If the file
//! shows only other worlds of it, it is not. If the file shows no world (esxtop without `-a`, or a group that was not expanded), the name decides.
//! Then the group is a VM if the file beside names it. If there are no names there, it is a VM unless it is
//! one of ESXi's own groups ([`super::own`]). A note lists the groups that are dropped.

use super::beside::Beside;
use super::doubts::{groups_only, holds_no_vm, list};
use super::header::{self, Column, Instance, column, vcpu_of};
use super::own::{is_doubtful, is_own};
use super::rows::shown;
use std::collections::{BTreeMap, BTreeSet};
use vsteer_core::Fault;
use vsteer_core::nouns::{Collector, Role};
use vsteer_core::plural::counted;

/// Counters of worlds and groups, in the order of a range of slots.
pub(super) const CPU: [&str; 11] = [
    "% Used",
    "% Run",
    "% System",
    "% Wait",
    "% Ready",
    "% Overlap",
    "% CoStop",
    "% Max Limited",
    "Switches/sec",
    "Migrates/sec",
    "Members",
];
pub(super) const USED: usize = 0;
pub(super) const RUN: usize = 1;
pub(super) const SYSTEM: usize = 2;
pub(super) const WAIT: usize = 3;
pub(super) const READY: usize = 4;
pub(super) const OVERLAP: usize = 5;
pub(super) const COSTOP: usize = 6;
pub(super) const LIMITED: usize = 7;
pub(super) const SWITCHES: usize = 8;
pub(super) const MIGRATES: usize = 9;
pub(super) const MEMBERS: usize = 10;

/// Counters of a group's memory.
pub(super) const MEMORY: [&str; 2] = ["Numa % Local", "Memory Size MBytes"];
pub(super) const LOCAL: usize = 0;
pub(super) const SIZE: usize = 1;

/// The most columns that spreadsheets hold.
const SPREADSHEETS_MOST: usize = 16_384;

/// A world of a VM.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) gid: u64,
    pub(super) wid: u32,
    pub(super) role: Role,
    /// The start of its slots for [`CPU`].
    pub(super) slot: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) gid: u64,
    pub(super) name: String,
    /// The start of its slots for [`CPU`]; `None` if the file has only its worlds.
    pub(super) slot: Option<usize>,
    /// The start of its slots for [`MEMORY`].
    pub(super) memory: Option<usize>,
}

/// A relevant column and the slot that it fills.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) column: u32,
    pub(super) slot: u32,
}

#[derive(Debug)]
pub(super) struct Columns {
    pub(super) wanted: Vec<Wanted>,
    count: usize,
    slots: usize,
    /// How many minutes the file's times are behind UTC.
    pub(super) bias_min: i64,
    pub(super) host: String,
    pub(super) groups: Vec<Group>,
    /// The worlds of all VMs, by VM and in order of role.
    pub(super) worlds: Vec<World>,
    /// pCPUs: number, and slot of the utilisation.
    pub(super) pcpus: Vec<(u32, usize)>,
    has: [bool; CPU.len()],
}

/// Facts about groups from the whole header.
#[derive(Default)]
struct Known<'a> {
    names: BTreeMap<u64, &'a str>,
    with_vcpus: BTreeSet<u64>,
    with_worlds: BTreeSet<u64>,
}

fn known<'a>(columns: &[Option<Column<'a>>]) -> Known<'a> {
    let mut known = Known::default();
    for c in columns.iter().flatten() {
        if let ("Group Cpu", Some(Instance::Group { gid, name })) =
            (c.object, c.instance.and_then(Instance::group))
        {
            known.names.entry(gid).or_insert(name);
        }
    }
    for c in columns.iter().flatten().filter(|c| c.object == "Vcpu") {
        if let Some((gid, wid, name)) = c.instance.and_then(|i| world(i, &known.names)) {
            known.with_worlds.insert(gid);
            // A world whose number is out of range is left out, so it does not make its group a VM.
            let is_of_vm = vcpu_of(name).is_some() || is_of_vm(name, known.names.get(&gid).copied());
            if is_of_vm && u32::try_from(wid).is_ok() {
                known.with_vcpus.insert(gid);
            }
        }
    }
    known
}

/// Is this a world that only VMs have: the monitor itself (`vmx`), or one that is called after its group
/// (`vmx-mks:web`)? Then the group is a VM, even if the file shows none of its vCPUs.
fn is_of_vm(world: &str, group: Option<&str>) -> bool {
    world == "vmx"
        || group
            .is_some_and(|g| world.strip_suffix(g).is_some_and(|kind| kind.len() > 1 && kind.ends_with(':')))
}

/// The group, number and name of a world.
fn world<'a>(instance: &'a str, names: &BTreeMap<u64, &str>) -> Option<(u64, u64, &'a str)> {
    let gid: u64 = instance.split_once(':')?.0.parse().ok()?;
    match Instance::world(instance, names.get(&gid).copied())? {
        Instance::World { gid, wid, name } => Some((gid, wid, name)),
        Instance::Group { .. } => None,
    }
}

impl Columns {
    /// Reads a header.
    ///
    /// # Errors
    /// `BadInput` if it names no VM.
    pub(super) fn of(
        cells: &[String],
        beside: &Beside,
        file: &str,
        notes: &mut Vec<String>,
    ) -> Result<Columns, Fault> {
        let parsed: Vec<Option<Column<'_>>> = cells.iter().skip(1).map(|c| column(c)).collect();
        let known = known(&parsed);
        let is_vm = |gid: u64| {
            let of_name = |name: &str| match beside.has_vms() {
                true => beside.names(gid, name),
                false => !is_own(name),
            };
            known.with_vcpus.contains(&gid)
                || (!known.with_worlds.contains(&gid) && known.names.get(&gid).is_some_and(|n| of_name(n)))
        };
        let mut plan = Columns {
            wanted: Vec::new(),
            count: cells.len(),
            slots: 0,
            bias_min: cells.first().map_or(0, |c| header::bias_min(c)),
            host: parsed.iter().flatten().next().map_or_else(String::new, |c| c.host.to_owned()),
            groups: Vec::new(),
            worlds: Vec::new(),
            pcpus: Vec::new(),
            has: [false; CPU.len()],
        };
        let mut found = Found::default();
        let (mut odd, mut hosts) = (None, BTreeSet::new());
        for (i, c) in parsed.iter().enumerate() {
            let Some(c) = c else {
                odd.get_or_insert_with(|| {
                    format!(
                        "column {}: {:?} is not the path of a counter",
                        i + 2,
                        shown(cells[i + 1].as_bytes())
                    )
                });
                continue;
            };
            hosts.insert(c.host);
            plan.want(i as u32 + 1, c, &known, &is_vm, &mut found);
        }
        notes.extend(odd.map(|odd| format!("{file}, {odd}")));
        if hosts.len() > 1 {
            notes.push(format!("{file}: columns of {} hosts, which vsteer treats as one host", hosts.len()));
        }
        plan.wanted.sort_by_key(|w| w.column);
        plan.worlds.sort_by_key(|w| (w.gid, w.role, w.wid));
        plan.pcpus.sort_unstable();
        if plan.groups.is_empty() {
            return Err(holds_no_vm(file, &parsed, &known.names));
        }
        notes.extend(plan.doubts(file, cells.len(), found.twice, &known, beside));
        if known.with_vcpus.is_empty() {
            let others = known.names.iter().filter(|(gid, _)| !is_vm(**gid)).map(|(_, name)| *name);
            notes.push(groups_only(file, others));
        }
        Ok(plan)
    }

    /// Notes about columns that may be missing, superfluous, or misunderstood.
    fn doubts(
        &self,
        file: &str,
        columns: usize,
        twice: usize,
        known: &Known<'_>,
        beside: &Beside,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if columns == SPREADSHEETS_MOST {
            notes.push(format!(
                "{file}: it has exactly {columns} columns, the most that a spreadsheet holds: others may be lost"
            ));
        }
        if twice > 0 {
            let columns = counted(twice, "column");
            notes.push(format!("{file}: {columns} repeat another one's counter: vsteer reads the first"));
        }
        let guessed = self.groups.iter().filter(|g| !known.with_vcpus.contains(&g.gid) && !beside.has_vms());
        let doubtful: Vec<&str> = guessed.map(|g| g.name.as_str()).filter(|name| is_doubtful(name)).collect();
        if !doubtful.is_empty() {
            notes.push(format!(
                "{file}: vsteer takes these groups for VMs, although their names end like those of ESXi's programs: {} \
                 (if one is not a VM, name the VMs in host.toml)",
                list(doubtful.into_iter())
            ));
        }
        notes
    }

    fn slots_for(&mut self, n: usize) -> usize {
        self.slots += n;
        self.slots - n
    }

    fn want<'a>(
        &mut self,
        at: u32,
        c: &Column<'a>,
        known: &Known<'a>,
        is_vm: &dyn Fn(u64) -> bool,
        found: &mut Found,
    ) {
        let place = |list: &[&str]| list.iter().position(|name| name.eq_ignore_ascii_case(c.counter));
        match (c.object, c.instance) {
            ("Group Cpu", Some(instance)) => {
                let (Some(Instance::Group { gid, name }), Some(k)) = (Instance::group(instance), place(&CPU))
                else {
                    return;
                };
                if is_vm(gid) {
                    let group = self.group(gid, name, found);
                    let slot = self.groups[group].slot.unwrap_or_else(|| self.slots_for(CPU.len()));
                    self.groups[group].slot = Some(slot);
                    self.has[k] = true;
                    self.fill(at, slot + k, found);
                }
            }
            ("Vcpu", Some(instance)) => {
                let Some(k) = place(&CPU[..MEMBERS]) else { return };
                let Some(gid) = instance.split_once(':').and_then(|(gid, _)| gid.parse().ok()) else {
                    return;
                };
                let group = known.names.get(&gid).copied();
                let Some(Instance::World { gid, wid, name }) = Instance::world(instance, group) else {
                    return;
                };
                let (true, Ok(wid)) = (is_vm(gid), u32::try_from(wid)) else { return };
                let called = group.map_or_else(|| group_in(instance, wid, name), str::to_owned);
                self.group(gid, &called, found);
                let slot = match found.worlds.get(&(gid, wid)) {
                    Some(slot) => *slot,
                    None => {
                        let slot = self.slots_for(CPU.len());
                        found.worlds.insert((gid, wid), slot);
                        self.worlds.push(World { gid, wid, role: role(name), slot });
                        slot
                    }
                };
                self.has[k] = true;
                self.fill(at, slot + k, found);
            }
            ("Group Memory", Some(instance)) => {
                let (Some(Instance::Group { gid, name }), Some(k)) =
                    (Instance::group(instance), place(&MEMORY))
                else {
                    return;
                };
                if is_vm(gid) {
                    let group = self.group(gid, known.names.get(&gid).copied().unwrap_or(name), found);
                    let slot = self.groups[group].memory.unwrap_or_else(|| self.slots_for(MEMORY.len()));
                    self.groups[group].memory = Some(slot);
                    self.fill(at, slot + k, found);
                }
            }
            ("Physical Cpu", Some(cpu)) if c.counter == "% Util Time" => self.want_pcpu(at, cpu, found),
            _ => {}
        }
    }

    fn want_pcpu(&mut self, at: u32, cpu: &str, found: &mut Found) {
        // `_Total` is not a pCPU.
        let Some(cpu) = cpu.parse().ok().filter(|n| *n <= vsteer_core::cpuset::MAX_CPU) else { return };
        let slot = *found.pcpus.entry(cpu).or_insert_with(|| {
            let slot = self.slots_for(1);
            self.pcpus.push((cpu, slot));
            slot
        });
        self.fill(at, slot, found);
    }

    /// A column fills a slot. Only the first one does: a second one would be of another object of the same number.
    fn fill(&mut self, column: u32, slot: usize, found: &mut Found) {
        if found.filled.insert(slot) {
            self.wanted.push(Wanted { column, slot: slot as u32 });
        } else {
            found.twice += 1;
        }
    }

    fn group(&mut self, gid: u64, name: &str, found: &mut Found) -> usize {
        *found.groups.entry(gid).or_insert_with(|| {
            self.groups.push(Group { gid, name: name.to_owned(), slot: None, memory: None });
            self.groups.len() - 1
        })
    }

    /// The number of values of a row.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Which slots have a column.
    pub(super) fn filled(&self) -> Vec<bool> {
        let mut filled = vec![false; self.slots];
        self.wanted.iter().for_each(|w| filled[w.slot as usize] = true);
        filled
    }

    /// The number of cells of a row.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Describes what the file contains, and what it lacks. `lost` says which counters have no valid cells.
    pub(super) fn collector(&self, lost: &dyn Fn(usize) -> bool) -> Collector {
        let counts = |name: &str| MEASURES.iter().any(|(what, _)| *what == name);
        let mut collector = Collector::new("esxtop", counts, "esxtop does not count it")
            .without(&["lag_ns"], "esxtop does not count it: co-stop is not the same")
            .without(&["wake_latency", "ready_spell"], "esxtop keeps sums, not distributions")
            .without(&["blame"], "esxtop does not report who ran while another waited");
        for (what, needs) in MEASURES {
            if let Some(lacking) = needs.iter().find(|k| !self.has[**k]) {
                collector =
                    collector.without(&[what], &format!("the file has no column {:?}", CPU[*lacking]));
            } else if let Some(lacking) = needs.iter().find(|k| lost(**k)) {
                let why = format!("most cells of the columns {:?} have no valid number", CPU[*lacking]);
                collector = collector.without(&[what], &why);
            }
        }
        if self.worlds.is_empty() {
            let why = "the file has only groups, which are sums over all worlds of a VM";
            collector = collector.without(&["vcpus"], why);
        }
        collector
    }
}

/// esxtop's measures as samples name them, and the columns that each needs.
const MEASURES: [(&str, &[usize]); 11] = [
    ("run_ns", &[RUN]),
    ("ready_ns", &[READY, LIMITED]),
    ("limited_ns", &[LIMITED]),
    ("wait_ns", &[READY]),
    ("costop_ns", &[COSTOP]),
    ("blocked_ns", &[WAIT]),
    ("overlap_ns", &[OVERLAP]),
    ("system_ns", &[SYSTEM]),
    ("used_ns", &[USED]),
    ("switches", &[SWITCHES]),
    ("migrations", &[MIGRATES]),
];

#[derive(Default)]
struct Found {
    groups: BTreeMap<u64, usize>,
    worlds: BTreeMap<(u64, u32), usize>,
    pcpus: BTreeMap<u32, usize>,
    filled: BTreeSet<usize>,
    /// Columns whose slot another column fills.
    twice: usize,
}

/// The role of a world in its VM.
fn role(name: &str) -> Role {
    match vcpu_of(name) {
        Some(i) => Role::Vcpu(i),
        None if name == "vmx" => Role::Emulator,
        None => Role::Worker,
    }
}

/// The name of a group of which the file has only worlds: `gid:GROUP:wid:world`.
fn group_in(instance: &str, wid: u32, world: &str) -> String {
    let rest = instance.split_once(':').map_or("", |(_, rest)| rest);
    rest.strip_suffix(&format!(":{wid}:{world}")).unwrap_or(rest).to_owned()
}
