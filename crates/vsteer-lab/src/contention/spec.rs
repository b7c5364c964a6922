//! Parses the specification of a lab's VMs from the command line, such as `burn:2,periodic:2`.
//!
//! There is one group per comma: `KIND[(key=value;...)]` and a number: `:N` (N VMs with two vCPUs each) or
//! `=NxM` (N VMs with M vCPUs each). Without a number it is one VM. The kinds and parameters are
//! vsteer-guest's; its README documents them. `shares`, a setting of the host, is possible for any kind:
//! `burn(shares=8192)`. Left out: different numbers of vCPUs within a group (write two groups).

use std::fmt;
use std::str::FromStr;
use vsteer_core::{Fault, FaultKind};

/// The default number of vCPUs per VM.
pub const DEFAULT_VCPUS: u32 = 2;
/// More VMs than this are a mistake on a test machine.
const MAX_VMS: u32 = 64;
/// QEMU's q35 machine allows more; a lab does not need them.
const MAX_VCPUS: u32 = 64;
/// Kinds and their parameters, as vsteer-guest's README lists them.
const KINDS: &[(&str, &[&str])] = &[
    ("idle", &[]),
    ("burn", &[]),
    ("periodic", &["period_us", "work_units", "phase_us"]),
    ("server", &["rate_hz", "mean_units", "seed", "rates", "arrivals", "service", "burst", "burst_gap_us"]),
    ("burst", &["on_ms", "off_ms"]),
    ("sleeper", &["sleep_us", "work_units", "background_units", "call"]),
    ("flood", &["timer_us"]),
    ("waker", &["every_us", "sleep_us"]),
    ("program", &["run"]),
];

/// Parameters whose values are not numbers; the guest's own parser reports errors in these.
const WORDS: [&str; 4] = ["rates", "arrivals", "service", "run"];

/// The parameter that does not belong to the workload: the VM's CPU shares, as libvirt counts them (default
/// 1,024).
const SHARES: &str = "shares";

/// Splits a workload into the guest's part and the VM's CPU shares, if given.
pub fn split_shares(workload: &str) -> (String, Option<u32>) {
    let is_shares = |part: &&str| part.split_once('=').is_some_and(|(key, _)| key == SHARES);
    let (shares, rest): (Vec<&str>, Vec<&str>) = workload.split(',').partition(is_shares);
    let value = shares.first().and_then(|part| part.split_once('=')?.1.parse().ok());
    (rest.join(","), value)
}

/// Some VMs with the same workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The workload, as vsteer-guest reads it: `burn`, `periodic,period_us=5000`.
    pub workload: String,
    /// The number of VMs.
    pub vms: u32,
    /// The vCPUs of each VM.
    pub vcpus: u32,
}

/// All VMs of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The groups, in the order they were written.
    pub groups: Vec<Group>,
}

impl Default for Spec {
    /// Two burners and two VMs with 10 ms timers, two vCPUs each.
    fn default() -> Self {
        let group = |workload: &str| Group { workload: workload.into(), vms: 2, vcpus: DEFAULT_VCPUS };
        Spec { groups: vec![group("burn"), group("periodic")] }
    }
}

impl FromStr for Spec {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Spec, Fault> {
        let groups = text.split(',').map(|g| group(g.trim())).collect::<Result<Vec<_>, _>>();
        let groups = groups.map_err(|why| {
            Fault::new(FaultKind::Usage, format!("--vms {text}"))
                .because(why)
                .help("write for example burn:2,periodic:2 or burn=2x2,periodic(period_us=5000)=1x1")
        })?;
        let vms: u32 = groups.iter().map(|g| g.vms).sum();
        if vms > MAX_VMS {
            return Err(Fault::new(FaultKind::Usage, format!("--vms {text}"))
                .because(format!("{vms} VMs, at most {MAX_VMS} are allowed")));
        }
        Ok(Spec { groups })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, g) in self.groups.iter().enumerate() {
            let (kind, parameters) = g.workload.split_once(',').unwrap_or((&g.workload, ""));
            f.write_str(if i > 0 { "," } else { "" })?;
            f.write_str(kind)?;
            if !parameters.is_empty() {
                write!(f, "({})", parameters.replace(',', ";"))?;
            }
            write!(f, "={}x{}", g.vms, g.vcpus)?;
        }
        Ok(())
    }
}

fn group(text: &str) -> Result<Group, String> {
    // The number follows the parameters, whose own `=` does not count.
    let parameters_end = match (text.find('('), text.rfind(')')) {
        (Some(_), Some(close)) => close + 1,
        (Some(_), None) => return Err(format!("`{text}` lacks its `)`")),
        (None, _) => text.find([':', '=']).unwrap_or(text.len()),
    };
    let (what, count) = text.split_at(parameters_end);
    let (vms, vcpus) = match (count.strip_prefix(':'), count.strip_prefix('=')) {
        _ if count.is_empty() => (1, DEFAULT_VCPUS),
        (Some(n), _) => (number(n, MAX_VMS)?, DEFAULT_VCPUS),
        (_, Some(n)) => {
            let (n, m) = n.split_once('x').ok_or(format!("`{count}` is not =NxM"))?;
            (number(n, MAX_VMS)?, number(m, MAX_VCPUS)?)
        }
        _ => return Err(format!("`{count}` is neither :N nor =NxM")),
    };
    Ok(Group { workload: workload(what)?, vms, vcpus })
}

fn number(text: &str, most: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("`{text}` is not a number from 1 to {most}")),
    }
}

fn workload(text: &str) -> Result<String, String> {
    let (kind, inside) = match text.split_once('(') {
        Some((kind, rest)) => (kind, rest.strip_suffix(')').ok_or(format!("`{text}` lacks its `)`"))?),
        None => (text, ""),
    };
    let Some((_, allowed)) = KINDS.iter().find(|(k, _)| *k == kind) else {
        let known: Vec<&str> = KINDS.iter().map(|(k, _)| *k).collect();
        return Err(format!("`{kind}` is not a workload (there are {})", known.join(", ")));
    };
    let mut workload = kind.to_owned();
    for parameter in inside.split(';').filter(|p| !p.is_empty()) {
        let (key, value) = parameter.split_once('=').ok_or(format!("`{parameter}` is not key=value"))?;
        if key == SHARES {
            // The range of cgroup v1's cpu.shares, kernel/sched/sched.h (MIN_SHARES, MAX_SHARES).
            if !value.parse::<u32>().is_ok_and(|v| (2..=262_144).contains(&v)) {
                return Err(format!("`{parameter}` is not a whole number from 2 to 262144"));
            }
        } else if !allowed.contains(&key) {
            return Err(format!("`{kind}` has no parameter `{key}` (it has: {})", allowed.join(", ")));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "@/.-_".contains(c);
        if WORDS.contains(&key) {
            if value.is_empty() || !value.chars().all(plain) {
                return Err(format!("`{parameter}` is not of letters, digits and @ / . - _"));
            }
        } else if !value.parse::<f64>().is_ok_and(|v| v > 0.0 && v <= 1e12) {
            return Err(format!("`{parameter}` is not between 0 and 1e12"));
        }
        workload.push(',');
        workload.push_str(parameter);
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_forms() {
        assert_eq!("burn:2,periodic:2".parse::<Spec>().unwrap(), Spec::default());
        assert_eq!("burn=2x2,periodic=2x2".parse::<Spec>().unwrap(), Spec::default());
        let spec: Spec = "burn, burst(on_ms=5;off_ms=2.5):3,periodic(period_us=5000)=1x4".parse().unwrap();
        assert_eq!(spec.groups[0], Group { workload: "burn".into(), vms: 1, vcpus: 2 });
        assert_eq!(spec.groups[1], Group { workload: "burst,on_ms=5,off_ms=2.5".into(), vms: 3, vcpus: 2 });
        assert_eq!(spec.groups[2], Group { workload: "periodic,period_us=5000".into(), vms: 1, vcpus: 4 });
        let spec: Spec = "periodic(period_us=5000;shares=512)".parse().unwrap();
        let (guest, shares) = split_shares(&spec.groups[0].workload);
        assert_eq!((guest.as_str(), shares), ("periodic,period_us=5000", Some(512)));
        assert_eq!(split_shares("burn"), ("burn".to_owned(), None));
        let spec: Spec = "server(rates=15@240/45@60;arrivals=bursts)=1x2".parse().unwrap();
        assert_eq!(spec.groups[0].workload, "server,rates=15@240/45@60,arrivals=bursts");
        assert!("server(rates=1 5)".parse::<Spec>().is_err());
        assert!("burn(shares=1)".parse::<Spec>().is_err());
    }

    #[test]
    fn what_is_printed_reads_back() {
        let text = "burn=1x2,burst(on_ms=5;off_ms=2.5)=3x2,periodic=1x4";
        assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("", "not a workload"),
            ("brun:2", "brun"),
            ("burn:0", "`0`"),
            ("burn:65", "`65`"),
            ("burn:40,idle:40", "80 VMs"),
            ("burn=2", "=NxM"),
            ("burn=2x", "``"),
            ("burn(period_us=5)", "no parameter `period_us`"),
            ("periodic(period_us=-5)", "period_us=-5"),
            ("periodic(period_us=5", "lacks"),
            ("periodic(period_us=5)x", "neither"),
        ] {
            let fault = text.parse::<Spec>().unwrap_err();
            assert_eq!(fault.kind, FaultKind::Usage);
            assert!(fault.to_string().contains(named), "{text}: {fault}");
        }
    }
}
