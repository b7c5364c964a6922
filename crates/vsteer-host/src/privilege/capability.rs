//! Names of capabilities, and which of them this thread lacks.

use super::CapabilitySet;

/// The kernel's name: `CAP_BPF`.
pub fn name(one: CapabilitySet) -> String {
    let known = CapabilitySet::all().iter_names().find(|(_, set)| *set == one).map(|(name, _)| name);
    known.map_or_else(|| format!("capability {}", one.bits().trailing_zeros()), |name| format!("CAP_{name}"))
}

/// The names, in the kernel's order.
pub fn names(set: CapabilitySet) -> Vec<String> {
    set.iter().map(name).collect()
}

/// Those of `wanted` that this thread has no use of now. Where the kernel does not tell, none.
pub fn missing(wanted: CapabilitySet) -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |own| wanted - own.effective)
}

/// For a fault's help: `run as root, or with CAP_X`, with the names of what is missing of `wanted`, or of all of it
/// where nothing seems to be missing.
pub fn lacking(wanted: CapabilitySet) -> String {
    let missing = missing(wanted);
    let named = names(if missing.is_empty() { wanted } else { missing });
    format!("run as root, or with {}", named.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels() {
        let set = CapabilitySet::BPF | CapabilitySet::SYS_NICE | CapabilitySet::CHOWN;
        assert_eq!(names(set), ["CAP_CHOWN", "CAP_SYS_NICE", "CAP_BPF"]);
        assert_eq!(names(CapabilitySet::empty()), Vec::<String>::new());
        assert!(lacking(CapabilitySet::SYS_NICE).ends_with("with CAP_SYS_NICE"));
    }
}
