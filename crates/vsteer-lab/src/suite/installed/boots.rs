//! Do the units that vsteer prints work after a boot: one for VMs of a real-time class, one that continues an experiment?

use super::On;
use crate::installed::host::Ran;
use vsteer_core::Fault;

/// Both units, and an experiment of ten runs in a service of its own.
const UNITS: &str = r#"set -eu
cd /root
vsteer realtime unit --vm tick --by priority > /etc/systemd/system/vsteer-realtime.service
cat > swap.toml <<'END'
name = "swap"
seed = 1
design = "one-at-a-time"
runs_least = 5
runs_most = 5
warm_up = 0
settle_s = 0
[workload]
command = "sleep 4"
[[factor]]
name = "swappiness"
levels = ["60", "10"]
file = "/proc/sys/vm/swappiness"
END
vsteer experiment unit swap.experiment > /etc/systemd/system/vsteer-experiment.service
systemctl daemon-reload
systemctl enable -q vsteer-experiment
systemctl enable -q --now vsteer-realtime"#;

/// The class of `tick`'s vCPU, and of `spin`'s.
const CLASSES: &str = "for vm in tick spin; do for task in /proc/$(cat /run/libvirt/qemu/$vm.pid)/task/*; do case $(cat $task/comm) in 'CPU 0'*) chrt -p ${task##*/} | sed -n 's/.*policy: //p';; esac; done; done | xargs";

impl On<'_> {
    pub(super) fn boots(&mut self) -> Result<(), Fault> {
        self.claim("the printed unit for real-time VMs starts", UNITS, Ran::is_ok)?;
        let one_of_both = |r: &Ran| r.out.starts_with("SCHED_RR") && r.out.ends_with("SCHED_OTHER");
        self.claim_soon(20, "it gives its VM the class, and no other VM", CLASSES, one_of_both)?;
        self.claim(
            "an experiment runs, and a setting of it is in force",
            "cd /root && systemd-run -q --unit=first -p WorkingDirectory=/root vsteer experiment run swap.toml -o swap.experiment --yes && \
             for i in $(seq 200); do now=$(sysctl -n vm.swappiness); [ $now = 10 ] && break; sleep 0.3; done; sync; echo $now",
            |r| r.out == "10",
        )?;
        self.host.power_cut()?;
        self.claim(
            "after the power cut the unit continues the experiment to its end",
            "cd /root; for i in $(seq 60); do systemctl is-active -q vsteer-experiment || break; sleep 2; done; \
             systemctl show -P Result -P ExecMainStatus vsteer-experiment; vsteer experiment report swap.experiment",
            |r| r.out.starts_with("success\n0\n") && r.out.contains("swappiness"),
        )?;
        self.claim("its setting is as it was before", "sysctl -n vm.swappiness", |r| r.out == "60")?;
        self.claim_soon(20, "real-time VMs have their class again after the boot", CLASSES, one_of_both)?;
        self.claim(
            "stopped, the unit gives the class back",
            &format!("systemctl disable -q --now vsteer-realtime; sleep 3; {CLASSES}"),
            |r| r.out == "SCHED_OTHER SCHED_OTHER",
        )?;
        self.claim("no plan is open after that", "vsteer rollback --list", |r| {
            r.code == Some(3) && r.err.contains("no plan is applied")
        })?;
        self.host.run("systemctl disable -q vsteer-experiment; rm -rf /etc/systemd/system/vsteer-experiment.service /etc/systemd/system/vsteer-realtime.service /root/swap*; systemctl daemon-reload")?;
        Ok(())
    }
}
