//! How many watts does the machine draw?
//!
//! RAPL counts joules of the processor packages (without disks, fans and power supply). hwmon and ACPI report watts
//! from a driver, and IPMI's DCMI from the board's controller. A command prints the watts of, for example, a metered
//! plug. Idle power is the lowest reading in two minutes, because idle is what nothing disturbs (Red Hat Developer, 26
//! August 2025).
//!
//! All meters except commands are **untried** on real hardware: tests use made-up and documented output.
//!
//! Sources: Documentation/power/powercap/powercap.rst, Documentation/hwmon/{sysfs-interface,acpi_power_meter}.rst of
//! Linux 6.12; `man ipmitool`, dcmi. Left out: energy of a run (RAPL could measure it; a plug is too slow).

use crate::root::Root;
use crate::shell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vsteer_core::printed::printed;
use vsteer_core::setting::argv::Argv;
use vsteer_core::{Fault, FaultKind};

/// Interval of readings.
const EVERY: Duration = Duration::from_secs(1);
/// A meter that takes longer has gone.
const LIMIT: Duration = Duration::from_secs(30);

/// A meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meter {
    /// RAPL's packages: their folders below /sys/class/powercap.
    Rapl(Vec<String>),
    /// Files that tell microwatts: those of chips that are parts of the machine, or of its own meter (ACPI).
    Hwmon(Vec<String>),
    /// A command that prints watts, and where the number stands.
    Command(Argv, String),
}

fn none(meter: &str, why: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::Unsupported, format!("cannot use the power meter {meter:?}"))
        .because(why)
        .help("choose rapl, hwmon, acpi, ipmi, or a command that prints watts")
}

fn text(root: &Root, path: &str) -> Option<String> {
    root.bytes(path).ok().map(|b| String::from_utf8_lossy(&b).trim().to_owned())
}

impl Meter {
    /// The one of this name, or a command.
    ///
    /// # Errors
    /// `Unsupported` where this machine has none such.
    pub fn find(root: &Root, name: &str) -> Result<Meter, Fault> {
        match name {
            "rapl" => {
                let base = "/sys/class/powercap";
                let zones = root.names(base).unwrap_or_default();
                // Some processors count a package twice, by an MSR (or TPMI) and by MMIO: intel-rapl:0 and
                // intel-rapl-mmio:0 have one name and are one package.
                let mut by_name: BTreeMap<String, String> = BTreeMap::new();
                for zone in zones {
                    let name = text(root, &format!("{base}/{zone}/name"));
                    let Some(name) = name.filter(|n| n.starts_with("package")) else { continue };
                    if !zone.contains("-mmio") || !by_name.contains_key(&name) {
                        by_name.insert(name, format!("{base}/{zone}"));
                    }
                }
                let packages: Vec<String> = by_name.into_values().collect();
                if packages.is_empty() {
                    return Err(none(name, "/sys/class/powercap lists no processor package"));
                }
                Ok(Meter::Rapl(packages))
            }
            "hwmon" | "acpi" => {
                let base = "/sys/class/hwmon";
                let mut files = Vec::new();
                for chip in root.names(base).unwrap_or_default() {
                    let is_acpi =
                        text(root, &format!("{base}/{chip}/name")).is_some_and(|n| n == "power_meter");
                    // The meter of the whole machine is separate: added to its parts it would count them twice.
                    if (name == "acpi") != is_acpi {
                        continue;
                    }
                    // The average is what the driver vouches for; where there is none, the moment's.
                    let found = ["power1_average", "power1_input"]
                        .map(|f| format!("{base}/{chip}/{f}"))
                        .into_iter()
                        .find(|f| text(root, f).is_some());
                    files.extend(found);
                }
                if files.is_empty() {
                    let of = if name == "acpi" {
                        "no power_meter"
                    } else {
                        "no chip except a power_meter (choose acpi for that)"
                    };
                    return Err(none(name, format!("{of} in /sys/class/hwmon reports power")));
                }
                Ok(Meter::Hwmon(files))
            }
            "ipmi" => Ok(Meter::Command(
                Argv::parse("ipmitool dcmi power reading").expect("plain words"),
                "Instantaneous power reading:*{} Watts".into(),
            )),
            command => {
                let command = Argv::parse(command).map_err(|why| none(name, why))?;
                Ok(Meter::Command(command, "{}".into()))
            }
        }
    }

    /// One reading, W.
    ///
    /// # Errors
    /// Where it tells nothing (any more).
    pub fn watts(&self, root: &Root) -> Result<f64, Fault> {
        let gone = |what: &str| {
            Fault::new(FaultKind::NothingThere, format!("cannot read the power meter: {what} gives no value"))
        };
        let number = |path: &String| -> Result<f64, Fault> {
            text(root, path).and_then(|t| t.parse().ok()).ok_or_else(|| gone(path))
        };
        match self {
            Meter::Rapl(packages) => {
                let joules = || -> Result<Vec<f64>, Fault> {
                    packages.iter().map(|p| number(&format!("{p}/energy_uj")).map(|uj| uj / 1e6)).collect()
                };
                let (begun, before) = (Instant::now(), joules()?);
                std::thread::sleep(EVERY);
                let (after, seconds) = (joules()?, begun.elapsed().as_secs_f64());
                let mut watts = 0.0;
                for (i, (a, b)) in before.iter().zip(&after).enumerate() {
                    let range =
                        number(&format!("{}/max_energy_range_uj", packages[i])).map_or(0.0, |uj| uj / 1e6);
                    watts += turned(*a, *b, range) / seconds;
                }
                Ok(watts)
            }
            Meter::Hwmon(files) => Ok(files.iter().map(number).sum::<Result<f64, Fault>>()? / 1e6),
            Meter::Command(command, pattern) => {
                let said = shell::ask(command, None, LIMIT)?;
                let watts = printed(pattern, &said).filter(|w| (0.0..1e6).contains(w));
                watts.ok_or_else(|| {
                    gone(&command.to_string()).because(format!("it printed {:?}", said.trim()))
                })
            }
        }
    }

    /// The lowest of its readings during `length`.
    ///
    /// # Errors
    /// As [`Meter::watts`], where any reading fails: a lowest of what is left would be of other moments.
    pub fn idle_watts(
        &self,
        root: &Root,
        length: Duration,
        stopped: &dyn Fn() -> bool,
    ) -> Result<f64, Fault> {
        let end = Instant::now() + length;
        let mut lowest = f64::INFINITY;
        loop {
            lowest = lowest.min(self.watts(root)?);
            if Instant::now() >= end {
                return Ok(lowest);
            }
            if stopped() {
                return Err(Fault::new(FaultKind::Interrupted, "interrupted while reading the power meter"));
            }
            std::thread::sleep(EVERY.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

/// The energy between two counts of a counter that begins again at `range`.
fn turned(before: f64, after: f64, range: f64) -> f64 {
    if after >= before { after - before } else { after + range - before }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn sysfs_meters_are_read() {
        // Made up after the kernel's documents: no such machine was at hand.
        let (_dir, root) = tree(&[
            ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n"),
            ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
            ("sys/class/hwmon/hwmon0/name", "power_meter\n"),
            ("sys/class/hwmon/hwmon0/power1_average", "123400000\n"),
            ("sys/class/hwmon/hwmon1/name", "k10temp\n"),
        ]);
        assert_eq!(
            Meter::find(&root, "rapl").unwrap(),
            Meter::Rapl(vec!["/sys/class/powercap/intel-rapl:0".into()])
        );
        let acpi = Meter::find(&root, "acpi").unwrap();
        assert!((acpi.watts(&root).unwrap() - 123.4).abs() < 1e-9);
        assert_eq!((turned(5.0, 7.0, 100.0), turned(99.0, 1.0, 100.0)), (2.0, 2.0));
        let (_dir, bare) = tree(&[("sys/class/hwmon/hwmon1/name", "k10temp\n")]);
        assert!(Meter::find(&bare, "rapl").is_err() && Meter::find(&bare, "hwmon").is_err());
    }

    #[test]
    fn nothing_is_counted_twice() {
        let zone = |zone: &str, file: &str| format!("sys/class/powercap/{zone}/{file}");
        let (msr, mmio) = ("intel-rapl:0", "intel-rapl-mmio:0");
        let files = [
            (zone(msr, "name"), "package-0\n"),
            (zone(mmio, "name"), "package-0\n"),
            (zone("intel-rapl:1", "name"), "package-1\n"),
        ];
        let of = |files: &[(String, &str)]| {
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (_dir, root) = tree(&files);
            Meter::find(&root, "rapl").unwrap()
        };
        let packages =
            |zones: &[&str]| Meter::Rapl(zones.iter().map(|z| format!("/sys/class/powercap/{z}")).collect());
        assert_eq!(of(&files), packages(&[msr, "intel-rapl:1"]));
        // Where it is the only one it is the meter.
        assert_eq!(of(&files[1..]), packages(&[mmio, "intel-rapl:1"]));

        let (_dir, root) = tree(&[
            ("sys/class/hwmon/hwmon0/name", "power_meter\n"),
            ("sys/class/hwmon/hwmon0/power1_average", "200000000\n"),
            ("sys/class/hwmon/hwmon1/name", "amdgpu\n"),
            ("sys/class/hwmon/hwmon1/power1_average", "30000000\n"),
            ("sys/class/hwmon/hwmon2/name", "fam15h_power\n"),
            ("sys/class/hwmon/hwmon2/power1_input", "40000000\n"),
        ]);
        let watts = |name: &str| Meter::find(&root, name).unwrap().watts(&root).unwrap();
        assert_eq!((watts("hwmon"), watts("acpi")), (70.0, 200.0));
    }

    #[test]
    fn commands_tell_watts_or_that_they_do_not() {
        let (dir, root) = tree(&[("x", "")]);
        // As ipmitool's manual and source (lib/ipmi_dcmi.c) lay it out.
        let dcmi = "    Instantaneous power reading:                   182 Watts\n    Minimum during sampling period:                  4 Watts\n";
        assert_eq!(printed("Instantaneous power reading:*{} Watts", dcmi), Some(182.0));
        let meter = |c: &str| Meter::find(&root, c).unwrap();
        assert_eq!(meter("echo 41.5").watts(&root).unwrap(), 41.5);
        assert!(meter("echo none").watts(&root).is_err() && meter("false").watts(&root).is_err());
        assert!(Meter::find(&root, "cat watts | head -n 1").is_err());
        let falling = format!(
            "sh -c 'n=$(cat {0}/n 2>/dev/null || echo 0); echo $((n+1)) > {0}/n; echo $((50-n))'",
            dir.path().display()
        );
        let lowest = meter(&falling).idle_watts(&root, Duration::from_millis(1200), &|| false).unwrap();
        assert!((47.0..50.0).contains(&lowest), "{lowest}");
        assert!(meter("false").idle_watts(&root, Duration::from_secs(60), &|| false).is_err());
    }
}
