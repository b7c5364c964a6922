//! Reads what topology needs from `/proc/cpuinfo`: the CPUs, and on x86 their cores and packages.
//!
//! On kernels without sysfs topology this is the only source. It is also the only source of the CPU model.
//! The model decides whether "thread siblings" are threads of one core or the two cores of an AMD compute
//! unit.
//!
//! Source: `arch/x86/kernel/cpu/proc.c`, `arch/s390/kernel/processor.c`, Linux 6.12. Left out: everything
//! else in that file.

use std::collections::BTreeMap;
use vsteer_core::CpuSet;
use vsteer_core::cpuset::MAX_CPU;

/// One CPU in `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Processor {
    pub package: Option<u32>,
    pub core: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CpuInfo {
    pub processors: BTreeMap<u32, Processor>,
    /// True for AMD families 15h and 16h, whose kernels called the two cores of a compute unit thread
    /// siblings.
    pub amd_compute_units: bool,
}

impl CpuInfo {
    /// The CPUs it lists.
    pub fn cpus(&self) -> CpuSet {
        self.processors.keys().copied().collect()
    }

    /// The CPUs that are alike `cpu` (same package, or same core), if the file says so.
    pub fn same(&self, cpu: u32, alike: impl Fn(&Processor, &Processor) -> bool) -> Option<CpuSet> {
        let this = self.processors.get(&cpu)?;
        let set: CpuSet = self.processors.iter().filter(|(_, p)| alike(this, p)).map(|(c, _)| *c).collect();
        (!set.is_empty()).then_some(set)
    }
}

/// Parses the text; skips lines that it does not understand.
pub(super) fn parse(text: &str) -> CpuInfo {
    let mut info = CpuInfo::default();
    let (mut current, mut amd, mut unit_family) = (None, false, false);
    for line in text.lines() {
        if line.trim().is_empty() {
            current = None;
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        // s390 writes "processor 0: version = 00, ...", all others write "processor : 0".
        let number = match key.strip_prefix("processor") {
            Some("") => value.parse().ok(),
            Some(n) => n.trim().parse().ok(),
            None => None,
        };
        if let Some(cpu) = number.filter(|n| *n <= MAX_CPU) {
            info.processors.insert(cpu, Processor::default());
            current = Some(cpu);
        }
        let here = current.and_then(|cpu| info.processors.get_mut(&cpu));
        match (key, here) {
            ("physical id", Some(p)) => p.package = value.parse().ok(),
            ("core id", Some(p)) => p.core = value.parse().ok(),
            ("vendor_id", _) => amd |= value == "AuthenticAMD",
            ("cpu family", _) => unit_family |= value == "21" || value == "22",
            _ => {}
        }
    }
    info.amd_compute_units = amd && unit_family;
    info
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x86_and_s390() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nphysical id\t: 1\ncore id\t\t: 3\n\n\
                   processor\t: 4\nphysical id\t: 1\ncore id\t\t: 3\n";
        let info = parse(x86);
        assert!(info.amd_compute_units);
        assert_eq!(info.cpus().to_string(), "0,4");
        let core = info.same(0, |a, b| a.package == b.package && a.core == b.core);
        assert_eq!(core.unwrap().to_string(), "0,4");
        let s390 = parse(
            "vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = 00\nprocessor 1: version = 00\n",
        );
        assert_eq!(s390.cpus().to_string(), "0-1");
        assert!(!s390.amd_compute_units);
    }

    proptest! {
        #[test]
        fn any_text_is_read(s in "(processor|core id|physical id|\\PC)?[: \\t]{0,2}\\PC{0,12}\n?(\\PC{0,20}\n){0,3}") {
            let info = parse(&s);
            prop_assert_eq!(info.cpus().len(), info.processors.len());
        }
    }
}
