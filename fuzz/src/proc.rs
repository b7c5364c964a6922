//! Any text that /proc or a cgroup could hold is read or passed over. What the audit keeps of a command line stays kept.

use vsteer_core::tree::Tree;
use vsteer_experiment::audit::{WANTED, audit};

use vsteer_host::kvm::command_line;
use vsteer_host::linux::{cgroups, numa_maps, pcpu, psi, schedstat, task};
use vsteer_host::tree::running;

pub fn run(bytes: &[u8]) -> bool {
    let mut any = schedstat::parse(bytes).is_some();
    let text = String::from_utf8_lossy(bytes);
    any |= task::stat(&text).is_ok() | !pcpu::parse(&text, 10_000_000).is_empty();
    any |= task::allowed_list(&text).is_some() | !numa_maps::parse(&text).is_empty();
    let _ = (cgroups::cgroup_of(&text, "cpu"), cgroups::cpu_max(&text), cgroups::throttled(&text));
    let _ = (cgroups::is_plain(&text), cgroups::lineage(&text), cgroups::common(text.lines()));
    any |= psi::parse(&psi::FILES.map(|_| Some(text.clone().into_owned()))).is_some();
    let words: Vec<String> = text.split('\0').map(str::to_owned).collect();
    any |= command_line::parse(&words).is_some();
    let mut tree = Tree::default();
    tree.files.insert("/sys/devices/system/cpu/online".into(), "0-3".into());
    tree.files.insert(
        "/etc/libvirt/qemu/x.xml".into(),
        (WANTED.kept)("/etc/libvirt/qemu/x.xml", text.clone().into_owned()),
    );
    if let Some(kept) = running::reduced(&text) {
        assert_eq!(running::reduced(&kept).as_ref(), Some(&kept), "what was kept is kept");
        tree.files.insert("/proc/5/cmdline".into(), kept);
    }
    let _ = audit(&tree);
    any
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        "123 456 7",
        "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 1 0 100 1 1 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 \
0 0 0 0 0 0 0 0 0 0",
        "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n",
        "7f0000000000 default anon=5 dirty=5 N0=3 N1=2 kernelpagesize_kB=4\n",
        "some avg10=0.06 avg60=0.60 avg300=1.23 total=424585978\nfull avg10=0.00 avg60=0.08 avg300=0.31 total=209841245\n",
        "/usr/bin/qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0-smp\x002,sockets=1\0-qmp\0unix:/tmp/q,server\0",
    ])
}
