//! Any text that /proc or a cgroup could hold is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_core::tree::Tree;
use vsteer_experiment::audit::{WANTED, audit};
use vsteer_host::tree::running;
use vsteer_host::kvm::command_line;
use vsteer_host::linux::{cgroups, numa_maps, pcpu, schedstat, task};

fuzz_target!(|bytes: &[u8]| {
    let _ = schedstat::parse(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = (
        task::stat(&text),
        task::allowed_list(&text),
        pcpu::parse(&text, 10_000_000),
        numa_maps::parse(&text),
    );
    let _ = (cgroups::cgroup_of(&text, "cpu"), cgroups::cpu_max(&text), cgroups::nr_throttled(&text));
    let _ = (cgroups::is_plain(&text), cgroups::lineage(&text), cgroups::common(text.lines()));
    let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
    let _ = command_line::parse(&words);
    let mut tree = Tree::default();
    tree.files.insert("/sys/devices/system/cpu/online".into(), "0-3".into());
    tree.files.insert("/etc/libvirt/qemu/x.xml".into(), (WANTED.kept)("/etc/libvirt/qemu/x.xml", text.clone().into_owned()));
    if let Some(kept) = running::reduced(&text) {
        assert_eq!(running::reduced(&kept).as_ref(), Some(&kept), "what was kept is kept");
        tree.files.insert("/proc/5/cmdline".into(), kept);
    }
    let _ = audit(&tree);
});
