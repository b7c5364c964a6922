//! Are changes made, tried, confirmed and undone: by root, by sudo, by a service, and after the caller has ended?

use super::{On, PLAN};
use crate::installed::host::Ran;
use vsteer_core::Fault;

/// Prints all that a plan can change of both VMs, one line each. A `cpuset.cpus` that is empty and one that names all
/// pCPUs have the same effect.
const STATE: &str = r#"cat > /root/state.sh <<'END'
for vm in spin tick; do
    virsh dumpxml --inactive $vm | sed "s/^/$vm defined /"
    pid=$(cat /run/libvirt/qemu/$vm.pid)
    group=/sys/fs/cgroup$(sed 's/^0:://; s|/libvirt/.*||' /proc/$pid/cgroup)
    find "$group" -name cpu.weight -o -name cpu.max -o -name cpuset.cpus.effective -o -name cpuset.mems.effective | sort |
        while read -r file; do echo "$vm ${file##*/} $(cat "$file") (${file#"$group"/})"; done
    for task in /proc/$pid/task/*; do
        tid=${task##*/}
        echo "$vm $(cat $task/comm) on $(taskset -pc $tid | sed 's/.*: //') $(chrt -p $tid | sed 's/.*: //' | tr '\n' ' ')"
    done | sort -u
done
END"#;

/// A setting, and what of [`STATE`] it changes in the running VM and in the definition.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("weight=50", "spin cpu.weight 50 (cpu.weight)", "<shares>50</shares>"),
    ("limit=0.5", "spin cpu.max 50000 100000 (libvirt/cpu.max)", "<global_quota>50000</global_quota>"),
    ("pin.0=0", "spin CPU 0/TCG on 0 SCHED_OTHER", "<vcpupin vcpu='0' cpuset='0'/>"),
];

/// A QEMU that systemd started, in a cgroup of its own.
const BARE: &str = r#"set -eu
sector() { printf '\373\353\376'; head -c 507 /dev/zero; printf '\125\252'; head -c 65024 /dev/zero; }
sector > /root/bare.img
systemd-run -q --unit=bare --slice=vms -p CPUWeight=100 -p AllowedCPUs=0-1 /usr/bin/qemu-system-x86_64 \
    -name bare,debug-threads=on -nodefaults -display none -m 32 -drive file=/root/bare.img,format=raw,snapshot=on
sleep 2
cat > /root/bare.sh <<'END'
group=/sys/fs/cgroup/vms.slice/bare.service
for file in cpu.weight cpu.max cpuset.cpus; do echo "$file $(cat $group/$file)"; done
for task in /proc/$(systemctl show -P MainPID bare)/task/*; do taskset -pc ${task##*/} | sed 's/.*: /on /'; done | sort -u
END"#;

/// A VM of an ordinary user's own libvirt.
const SESSION: &str = r#"set -eu
head -c 65536 /dev/zero > tick.img
printf "<domain type='qemu'><name>mine</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
    <os><type arch='x86_64' machine='pc'>hvm</type></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s/tick.img'/><target dev='hda' bus='ide'/></disk>
    <memballoon model='none'/><controller type='usb' model='none'/></devices></domain>" $PWD > mine.xml
virsh -q -c qemu:///session define mine.xml
virsh -q -c qemu:///session start mine"#;

/// One setting made and undone: prints what it changed, and `undone` if nothing is left of it.
fn made_and_undone(state: &str, vm: &str, set: &str, options: &str) -> String {
    format!(
        "rm -f a b c; {state} >a; vsteer plan --for 1s --set {vm}:{set} {options} -o set.json >/dev/null && \
         vsteer apply set.json --yes >/dev/null && {state} >b && vsteer rollback --yes >/dev/null && {state} >c; \
         diff a b | grep '^>'; cmp a c && echo undone"
    )
}

impl On<'_> {
    pub(super) fn changes(&mut self) -> Result<(), Fault> {
        self.claim("a plan is made", PLAN, Ran::is_ok)?;
        self.claim("a dry run says what it would do", "vsteer apply /root/plan.json", |r| {
            r.is_ok() && r.out.contains("Dry run")
        })?;
        self.shares("a dry run changes nothing", "100")?;
        self.claim(
            "apply --try from a service succeeds",
            "systemd-run --wait --pipe --quiet vsteer apply /root/plan.json --try 20s",
            Ran::is_ok,
        )?;
        self.shares("the change outlives that service", "50")?;
        self.claim(
            "the watchdog is a unit of its own",
            "systemctl is-active 'vsteer-undo-*'; cat /proc/$(pgrep -f [_]_watchdog | tail -1)/cgroup",
            |r| r.out.starts_with("active") && r.out.contains("vsteer-undo-"),
        )?;
        self.shares_soon(60, "apply --try from a service undoes itself", "100")?;
        self.claim("the system's log names who applied and who undid", "journalctl -t vsteer -o cat", |r| {
            r.out.contains("apply result=done") && r.out.contains("try-watchdog result=undone")
        })?;
        self.claim("without systemd-run, apply --try in a service refuses before the first step",
            "systemd-run --wait --pipe --quiet -p InaccessiblePaths=/usr/bin/systemd-run vsteer apply /root/plan.json --try 8s", |r| {
            r.code == Some(8) && r.err.contains("systemd unit")
        })?;
        self.shares("nothing changed then", "100")?;
        self.claim("apply --try in a shell succeeds", "vsteer apply /root/plan.json --try 300s", Ran::is_ok)?;
        self.shares("the change is in force", "50")?;
        self.claim("the watchdog is asked to end", "pkill -TERM -f [_]_watchdog", Ran::is_ok)?;
        // The deadline is 300 s away; any command of an emulated host takes seconds.
        self.shares_soon(15, "a watchdog that is asked to end undoes at once", "100")?;
        self.claim(
            "apply --try, then confirm",
            "vsteer apply /root/plan.json --try 60s && vsteer apply /root/plan.json --confirm",
            Ran::is_ok,
        )?;
        self.claim("a package is not removed while a plan is applied", "apt-get remove -y vsteer", |r| {
            !r.is_ok() && (r.out.contains("vsteer rollback") || r.err.contains("vsteer rollback"))
        })?;
        self.claim("the program is still there", "vsteer rollback --list", |r| {
            r.is_ok() && r.out.contains("plan ")
        })?;
        self.shares("the confirmed change stays", "50")?;
        self.claim("rollback undoes it", "vsteer rollback --yes", Ran::is_ok)?;
        self.shares("the former weight is back", "100")?;
        Ok(())
    }

    pub(super) fn sets(&mut self) -> Result<(), Fault> {
        self.claim("the settings of both VMs can be read", &format!("{STATE}\nsh /root/state.sh"), |r| {
            r.is_ok() && r.out.contains("spin cpu.weight 100")
        })?;
        for (set, live, defined) in SETTINGS {
            let script = made_and_undone("sh /root/state.sh", "spin", set, "--scope live");
            self.claim(&format!("{set}: set in the running VM alone, and undone"), &script, |r| {
                r.out.contains(live) && !r.out.contains("defined") && r.out.ends_with("undone")
            })?;
            let script = made_and_undone("sh /root/state.sh", "spin", set, "--scope persistent");
            let claim = format!("{set}: set in the definition alone, and undone to the byte");
            self.claim(&claim, &script, |r| {
                let only = r.out.lines().filter(|l| l.starts_with('>')).all(|l| l.contains("defined"));
                r.out.contains(defined) && only && r.out.ends_with("undone")
            })?;
        }
        let script = made_and_undone(
            "sh /root/state.sh",
            "spin",
            "weight=50",
            "--set spin:limit=0.5 --set spin:pin.0=0 --scope both",
        );
        self.claim("all of them, in VM and definition, and undone", &script, |r| {
            SETTINGS.iter().all(|(_, live, defined)| r.out.contains(live) && r.out.contains(defined))
                && r.out.ends_with("undone")
        })?;
        self.claim(
            "a real-time class is kept, seen, and given back",
            "sh state.sh >a; vsteer realtime enable --vm tick --by priority --yes >/dev/null && sleep 3; sh state.sh >b; \
             vsteer realtime status; vsteer realtime disable >/dev/null; sh state.sh >c; diff a b | grep '^>'; cmp a c && echo undone",
            |r| r.out.contains("tick CPU 0/TCG on 0,1 SCHED_RR") && r.out.ends_with("undone"),
        )?;
        Ok(())
    }

    pub(super) fn sets_elsewhere(&mut self) -> Result<(), Fault> {
        self.claim("a QEMU runs in a service of its own", BARE, Ran::is_ok)?;
        for (set, shows) in
            [("weight=50", "cpu.weight 50"), ("limit=0.5", "cpu.max 50000 100000"), ("pin=0", "on 0")]
        {
            let script = made_and_undone("sh /root/bare.sh", "bare", set, "");
            self.claim(
                &format!("{set} of a QEMU without libvirt: set in its cgroup, and undone"),
                &script,
                |r| r.out.contains(shows) && r.out.ends_with("undone"),
            )?;
        }
        self.host.run("systemctl stop bare")?;
        self.claim_as("vmadmin", "a user's own libvirt runs a VM", SESSION, Ran::is_ok)?;
        self.claim_as(
            "vmadmin",
            "vsteer observes it as that user",
            "vsteer top -b -n 1 --connect qemu:///session",
            |r| r.is_ok() && r.out.contains("mine,vcpu0"),
        )?;
        self.claim_as(
            "vmadmin",
            "that user pins it by a plan, with the command that vsteer prints, and undoes it",
            "vsteer plan --for 1s --connect qemu:///session --set mine:pin=0 -o m.json | sed -n 's/^to apply it: //; s/--try 60s/--yes/p' | sh && \
             virsh -c qemu:///session vcpupin mine | tail -1 && vsteer rollback --yes",
            |r| r.is_ok() && r.out.contains("applied") && r.out.contains("is undone"),
        )?;
        self.claim_as(
            "vmadmin",
            "what that user cannot set is named",
            "vsteer plan --for 1s --connect qemu:///session --set mine:weight=50",
            |r| !r.is_ok() && r.err.contains("no weight of its own"),
        )?;
        self.host.run_as(
            "vmadmin",
            "virsh -q -c qemu:///session destroy mine",
            std::time::Duration::from_secs(60),
        )?;
        Ok(())
    }
}
