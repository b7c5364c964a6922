//! What the last updates showed of each VM, and bars of it.
//!
//! The idea: a bar's height is a share of a fixed full height, which the help names, so bars of different VMs compare. Bars
//! are rounded down; only what reaches the full height fills it. A terminal without UTF-8 shows tenths of the full height as
//! digits. Left out: what happened before the view began; `vsteer history` has that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use vsteer_core::model::{HostModel, VmModel};
use vsteer_core::nouns::{Batch, HISTOGRAM_BUCKETS, HostConfig, Role, Tid, VmId};

/// Heading of the column.
pub const COLUMN: &str = "RDYTREND";
/// Updates in the column.
pub const SHOWN: usize = 12;
/// Updates that are kept.
pub const KEPT: usize = 60;
/// Buckets of a histogram per doubling of the time.
pub const PER_OCTAVE: usize = 8;
const OCTAVES: usize = HISTOGRAM_BUCKETS / PER_OCTAVE;

/// Wake-ups by their time to running, one number for each doubling of the time.
pub type Octaves = [u32; OCTAVES];

/// States of a VM over one update, as shares of the time of its vCPUs (0..=1). `None`: not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moment {
    pub run: Option<f64>,
    /// Ready and limited together: `%RDY`.
    pub wait: Option<f64>,
    pub ready: Option<f64>,
    pub limited: Option<f64>,
    pub costop: Option<f64>,
    pub lag: Option<f64>,
    pub wakes: Option<Octaves>,
}

impl Moment {
    fn of(vm: &VmModel, vcpus: usize, wakes: Option<Octaves>) -> Moment {
        let (shares, _) = vm.vcpus_or_group();
        let each = |sum: Option<f64>| Some(sum? / vcpus.max(1) as f64);
        Moment {
            run: each(shares.run),
            wait: each(shares.wait),
            ready: each(shares.ready),
            limited: each(shares.limited.or(vm.limited_estimate)),
            costop: each(shares.costop),
            lag: each(shares.lag),
            wakes,
        }
    }
}

/// What the last updates of a host showed, the oldest first.
#[derive(Default)]
pub struct Past {
    vms: HashMap<VmId, VecDeque<Option<Moment>>>,
    /// Whether updates came that are not here, because the view was paused.
    pub missed: bool,
}

impl Past {
    /// Adds an update.
    pub fn see(&mut self, config: &HostConfig, model: &HostModel, [before, now]: [&Batch; 2]) {
        let mut wakes = wakes(before, now);
        // A VM that is not in this update has a gap, so the moments of all VMs stay side by side.
        // So has everyone after a pause.
        let gaps = 1 + usize::from(std::mem::take(&mut self.missed));
        self.vms.values_mut().for_each(|moments| (0..gaps).for_each(|_| push(moments, None)));
        for vm in &model.vms {
            let seen = vm.vcpu_threads().count();
            let vcpus = if seen > 0 { seen } else { config.vm(&vm.id).map_or(1, |c| c.vcpu_count()) };
            let moment = Some(Moment::of(vm, vcpus, wakes.remove(&vm.id)));
            match self.vms.get_mut(&vm.id) {
                Some(moments) => *moments.back_mut().expect("it was pushed") = moment,
                None => drop(self.vms.insert(vm.id.clone(), [moment].into())),
            }
        }
        self.vms.retain(|_, moments| moments.iter().any(Option::is_some));
    }

    /// At most `n` newest moments of a VM, the oldest first.
    pub fn of(&self, vm: &VmId, n: usize) -> Vec<Option<Moment>> {
        let all = self.vms.get(vm);
        all.map_or_else(Vec::new, |all| all.iter().skip(all.len().saturating_sub(n)).copied().collect())
    }

    /// The column of trends: ready time per vCPU.
    pub fn sparkline(&self, vm: &VmId, full: f64, ascii: bool) -> String {
        let values: Vec<Option<f64>> = self.of(vm, SHOWN).iter().map(|m| m.as_ref()?.wait).collect();
        let bar = bars(&values, full, 1, ascii).concat();
        format!("{bar:>SHOWN$}")
    }
}

fn push(moments: &mut VecDeque<Option<Moment>>, moment: Option<Moment>) {
    if moments.len() == KEPT {
        moments.pop_front();
    }
    moments.push_back(moment);
}

/// Wake-ups of each VM's vCPUs between two samples.
fn wakes<'a>(before: &Batch, now: &'a Batch) -> HashMap<&'a VmId, Octaves> {
    let mut all: HashMap<&VmId, Octaves> = HashMap::new();
    let mut by_key: Option<BTreeMap<(&VmId, Role, Tid), usize>> = None;
    for (i, t) in now.threads.iter().enumerate().filter(|(_, t)| t.role.vcpu().is_some()) {
        let Some(counts) = &t.counters.wake_latency else { continue };
        let key = (&t.vm, t.role, t.tid);
        // Mostly a thread has the same place in both samples.
        let same = before.threads.get(i).filter(|e| (&e.vm, e.role, e.tid) == key);
        let earlier = same.or_else(|| {
            let index =
                || before.threads.iter().enumerate().map(|(i, e)| ((&e.vm, e.role, e.tid), i)).collect();
            by_key.get_or_insert_with(index).get(&key).map(|i| &before.threads[*i])
        });
        let Some(earlier) = earlier.and_then(|e| e.counters.wake_latency.as_ref()) else { continue };
        let octaves = all.entry(&t.vm).or_default();
        for (bucket, count) in counts.since(earlier).counts {
            let at = (usize::from(bucket) / PER_OCTAVE).min(OCTAVES - 1);
            octaves[at] = octaves[at].saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
    all
}

/// Bars of these heights, `rows` lines from the top: `full` fills them. `-`: not measured.
pub fn bars(values: &[Option<f64>], full: f64, rows: usize, ascii: bool) -> Vec<String> {
    let blocks = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let cell = |value: &Option<f64>, from_bottom: usize| {
        let Some(value) = value else { return if from_bottom == 0 { '-' } else { ' ' } };
        let part = (value / full).clamp(0.0, 1.0);
        if ascii && rows == 1 {
            return char::from(b'0' + ((part * 10.0 + 1e-9) as u8).min(9));
        }
        let eighths = (part * 8.0 * rows as f64 + 1e-9) as usize;
        match (eighths.saturating_sub(8 * from_bottom).min(8), from_bottom) {
            (n, 0) if ascii => {
                if n >= 4 {
                    '#'
                } else {
                    '_'
                }
            }
            (n, _) if ascii => {
                if n >= 4 {
                    '#'
                } else {
                    ' '
                }
            }
            // A measured 0 differs from nothing.
            (n, 0) => blocks[n.max(1)],
            (n, _) => blocks[n],
        }
    };
    (0..rows).rev().map(|row| values.iter().map(|value| cell(value, row)).collect()).collect()
}

/// What the column is, for the help.
pub fn help(full: f64, ascii: bool) -> String {
    let percent = 100.0 * full;
    let how = if ascii {
        format!("0 to 9: tenths of {percent:.0} %; 9 is {:.0} % and more", percent * 0.9)
    } else {
        format!("a full bar is {percent:.0} % and more, the lowest below {:.0} %", percent / 4.0)
    };
    format!(
        "  RDYTREND ready time per vCPU in the last {SHOWN} updates, newest right:\n          {how}\n          \
         (where the screen has 118 columns; key t hides it)"
    )
}

/// Does the locale write UTF-8? The first of these variables that is set decides, as in locale(7).
pub fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| variable(name));
    let locale = set.filter(|value| !value.is_empty()).map(|value| value.to_lowercase()).next();
    locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_only_where_the_value_is() {
        let values: Vec<Option<f64>> = [0.0, 0.049, 0.05, 0.1, 0.199, 0.2, 0.9].map(Some).to_vec();
        assert_eq!(bars(&values, 0.2, 1, false), ["▁▁▂▄▇██"]);
        assert_eq!(bars(&values, 0.2, 1, true), ["0225999"]);
        assert_eq!(bars(&[None, Some(0.0)], 0.2, 1, false), ["-▁"]);
        assert_eq!(bars(&[None, Some(0.0), Some(0.5), Some(1.0)], 1.0, 2, false), ["   █", "-▁██"]);
        assert_eq!(bars(&[None, Some(0.0), Some(0.5), Some(1.0)], 1.0, 2, true), ["   #", "-_##"]);
    }

    #[test]
    fn the_first_variable_that_is_set_decides_the_locale() {
        let of = |set: &'static [(&str, &str)]| {
            is_utf8(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(of(&[("LANG", "de_DE.UTF-8")]) && of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(!of(&[]) && !of(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
    }

    #[test]
    fn wake_ups_are_those_between_the_samples() {
        use vsteer_core::nouns::{Histogram, ThreadCounters, ThreadSample};
        let thread = |vm: &str, vcpu: u32, counts: &[(u16, u64)]| ThreadSample {
            vm: VmId(vm.into()),
            role: Role::Vcpu(vcpu),
            tid: Tid(vcpu),
            counters: ThreadCounters {
                wake_latency: Some(Histogram { counts: counts.to_vec() }),
                ..ThreadCounters::default()
            },
            last_cpu: None,
            waiting_ns: None,
        };
        let before = Batch { threads: vec![thread("a", 0, &[(8, 5)])], ..Batch::default() };
        let now = Batch {
            threads: vec![thread("new", 0, &[(9, 1)]), thread("a", 0, &[(8, 7), (15, 1), (16, 2)])],
            ..Batch::default()
        };
        let all = wakes(&before, &now);
        assert_eq!(all.len(), 1, "a thread without an earlier sample counts from the next one");
        assert_eq!(all[&VmId("a".into())][..4], [0, 3, 2, 0]);
    }
}
