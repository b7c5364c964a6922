//! When does a delay matter? Every threshold of vsteer, by name, in one table.
//!
//! `diagnose` and `plan` ask the same questions of the same values (`delay.rs`), `top` colours by them, and `--threshold NAME=VALUE`
//! reaches each. Two public sets exist for ready and co-stop, and both are here: per vCPU (VMware: 5 and 10 % ready, 0.1, 1 and 3 %
//! co-stop) and per VM group (J. Park 2022, doi:10.6109/jkiice.2022.26.10.1432: 10 % ready, 5 % co-stop).
//!
//! To add a threshold, add a row. Left out: what a single rule needs to tell two causes apart, which stands in that rule's file.

use crate::span::duration;
use crate::{Fault, FaultKind};
use serde::{Deserialize, Serialize};

/// What a threshold counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A part of one pCPU or of a whole: stored as 0.05, written as 5 %.
    Share,
    /// A time: stored in ns, written in ms.
    Time,
}

/// A row of the table.
pub struct Threshold {
    /// Its name, in `--threshold` and in JSON.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What it counts.
    pub unit: Unit,
    of: fn(&mut Thresholds) -> &mut f64,
}

macro_rules! thresholds {
    ($($unit:ident $name:ident = $value:literal, $meaning:literal;)*) => {
        /// A value for each threshold: shares as parts of 1, times in ns.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Thresholds {
            $(#[doc = $meaning] pub $name: f64,)*
        }

        impl Default for Thresholds {
            fn default() -> Thresholds {
                Thresholds { $($name: $value,)* }
            }
        }

        /// Every threshold.
        pub const THRESHOLDS: &[Threshold] = &[
            $(Threshold { name: stringify!($name), meaning: $meaning, unit: Unit::$unit, of: |t| &mut t.$name },)*
        ];
    };
}

thresholds! {
    Share ready_per_vcpu = 0.05, "Ready, averaged over a VM's vCPUs: a VM above it waits too long, and `top` shows it in yellow.";
    Share ready_per_vcpu_critical = 0.10, "Ready, averaged over a VM's vCPUs: `top` shows a VM above it in red.";
    Share ready_sleeper = 0.01, "Ready and co-stop, averaged over the vCPUs of a VM that mostly sleeps: above it the VM waits too long.";
    Share ready_group = 0.10, "Ready, summed over all worlds of a VM.";
    Share costop_per_vcpu = 0.01, "Co-stop, averaged over a VM's vCPUs.";
    Share costop_group = 0.05, "Co-stop, summed over all worlds of a VM.";
    Share lag_group = 0.05, "Lag, summed over a VM's vCPUs.";
    Share limited_per_vcpu = 0.05, "Limited, averaged over a VM's vCPUs.";
    Time wake_p99_ns = 5e6, "From wake-up to running, 99th percentile: what a person notices in a desktop or a call.";
    Time wake_p99_sleeper_ns = 2e6, "From wake-up to running, 99th percentile, of a VM that mostly sleeps: above it the VM waits too long.";
    Share sleeper_run = 0.35, "A VM mostly sleeps if no vCPU runs for more than this.";
    Share sleeper_asleep = 0.40, "A VM mostly sleeps if every vCPU sleeps for at least this.";
    Share wakes_matter_run = 0.50, "Report late wake-ups of a VM if its vCPUs run for less than this share of the time.";
    Share pcpu_busy = 0.90, "A pCPU that is busy for more than this is full.";
    Share pressure_full = 0.05, "I/O or memory pressure (full) of a VM's cgroup. The VM stands still meanwhile, so the value is that of ready per vCPU.";
    Share steal = 0.02, "Time stolen from a pCPU.";
    Share memory_local = 0.80, "Local share of a VM's memory; a VM below it has remote memory (VMware's warning level).";
}

/// A value as a person writes it: `8%` or `8` is 0.08, `3ms` is 3e6.
///
/// # Errors
/// What is wrong with the text, for the person who wrote it.
pub fn value(text: &str) -> Result<f64, String> {
    let text = text.trim();
    if text.ends_with('s') {
        return Ok(duration(text)?.as_nanos() as f64);
    }
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    let percent =
        number.ok().filter(|p| p.is_finite()).ok_or_else(|| format!("{text:?} is not a percentage"))?;
    Ok(percent / 100.0)
}

impl Unit {
    /// The largest value, as it is stored.
    pub const fn most(self) -> f64 {
        match self {
            Unit::Share => 100.0,
            Unit::Time => 3.6e12,
        }
    }

    /// Does the text end in this unit?
    pub fn is_of(self, text: &str) -> bool {
        match self {
            Unit::Share => text.trim().ends_with('%'),
            Unit::Time => text.trim().ends_with('s'),
        }
    }

    /// A stored value as a person writes it: 0.08 is `8%`, 3e6 is `3ms`.
    pub fn written(self, value: f64) -> String {
        match self {
            Unit::Share => format!("{}%", (1e4 * value).round() / 100.0),
            Unit::Time => format!("{}ms", value / 1e6),
        }
    }
}

impl Thresholds {
    /// The threshold of a row.
    pub fn of(&self, row: &Threshold) -> f64 {
        *(row.of)(&mut self.clone())
    }

    /// Sets the threshold of this name: to a share (0.1 is 10 %), or to a time in ns.
    ///
    /// # Errors
    /// `Usage`: there is no such threshold, or the value cannot be one.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), Fault> {
        let Some(row) = THRESHOLDS.iter().find(|t| t.name == name) else {
            let known: Vec<&str> = THRESHOLDS.iter().map(|t| t.name).collect();
            return Err(Fault::new(FaultKind::Usage, format!("{name:?} is not the name of a threshold"))
                .help(format!("known thresholds: {}", known.join(", "))));
        };
        let most = row.unit.most();
        if !(0.0..=most).contains(&value) {
            return Err(Fault::new(FaultKind::Usage, format!("{name}: {value} is out of range"))
                .because(format!("a value lies between 0 and {most}")));
        }
        *(row.of)(self) = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_reaches_its_own_value() {
        for (i, row) in THRESHOLDS.iter().enumerate() {
            let mut t = Thresholds::default();
            let before = *(row.of)(&mut t);
            t.set(row.name, 0.123).unwrap();
            assert!(before != 0.123 && *(row.of)(&mut t) == 0.123);
            let others = THRESHOLDS.iter().enumerate().filter(|(k, _)| *k != i);
            let mut plain = Thresholds::default();
            assert!(others.into_iter().all(|(_, o)| *(o.of)(&mut t) == *(o.of)(&mut plain)), "{}", row.name);
        }
        let t = Thresholds::default();
        for row in THRESHOLDS {
            let text = row.unit.written(t.of(row));
            assert!(
                row.unit.is_of(&text) && value(&text).is_ok_and(|v| (v - t.of(row)).abs() < 1e-9),
                "{text}"
            );
        }
        let mut t = Thresholds::default();
        assert!(t.set("ready", 0.1).unwrap_err().to_string().contains("ready_per_vcpu"));
        assert!(t.set("steal", -0.1).is_err() && t.set("steal", f64::NAN).is_err());
    }
}
