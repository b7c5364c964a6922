//! Does the package work on a real Debian host with systemd, as a person would use it?
//!
//! Each claim is a command in the host, and what it must do. They follow one another: install, look, change, undo, record,
//! reboot, lose the power, remove. The package is the newest of `make packages`.

use super::{Bench, Case, Findings, Minutes};
use crate::installed::host::{Host, Ran};
use crate::installed::image::Image;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vsteer_core::{Fault, FaultKind};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "installed",
    doc: "the package on a Debian host with systemd: install, observe, change, undo, record, reboot, remove",
    in_test: false,
    minutes: Minutes::new(8.0, 20.0),
    beside: true,
    run,
};

/// The releases; the short case takes the first.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];
/// `systemd-analyze security` rates from 0 (safe) to 10.
const EXPOSURE: f64 = 3.0;

/// Two VMs without an operating system: `spin` burns its vCPU, `tick` wakes 18 times a second. Their disks are boot
/// sectors: `sti; jmp` to itself, and `sti; hlt; jmp` to `hlt`.
const VMS: &str = r#"
set -eu
systemctl start libvirtd
cd /var/lib/libvirt/images
sector() { { printf "$1"; head -c $((510 - $2)) /dev/zero; printf '\125\252'; head -c 65024 /dev/zero; } > "$3"; }
sector '\373\353\376' 3 spin.img
sector '\373\364\353\375' 4 tick.img
for vm in spin tick; do
    printf "<domain type='qemu'><name>%s</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
    <os><type arch='x86_64' machine='pc'>hvm</type></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s/%s.img'/><target dev='hda' bus='ide'/></disk>
    <memballoon model='none'/><controller type='usb' model='none'/></devices></domain>" $vm "$PWD" $vm > /tmp/$vm.xml
    virsh -q define /tmp/$vm.xml
    virsh -q autostart $vm
    virsh -q start $vm
done
"#;
const SHARES: &str = "virsh schedinfo spin | sed -n 's/^cpu_shares *: //p'";
const PLAN: &str = "vsteer plan --for 3s --set spin:weight=50 -o /root/plan.json";

fn run(bench: &Bench) -> Result<Findings, Fault> {
    let package = package()?;
    let releases = if bench.full { &RELEASES[..] } else { &RELEASES[..1] };
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    for release in releases {
        let image = Image::of(&bench.lab.cache, release)?;
        let begun = Instant::now();
        eprintln!("vsteer-lab: installed: {release}: booting, and installing the package");
        let host = Host::boot(&image, &bench.output.join(format!("installed-{release}")))?;
        let mut on = On { host, release, findings: &mut findings };
        on.installs(&package)?;
        for (what, stage) in STAGES {
            eprintln!("vsteer-lab: installed: {release}: {what}");
            stage(&mut on)?;
        }
        figures.push(json!({ "release": release, "seconds": begun.elapsed().as_secs_f64() }));
    }
    findings.figures = json!(figures);
    Ok(findings)
}

type Stage = (&'static str, fn(&mut On<'_>) -> Result<(), Fault>);

/// What follows the installation.
const STAGES: [Stage; 5] = [
    ("observing two VMs of libvirt", |on| on.observes()),
    ("changing and undoing a weight", |on| on.changes()),
    ("recording", |on| on.records()),
    ("rebooting, and cutting the power", |on| on.survives()),
    ("removing the package", |on| on.leaves()),
];

/// The newest package of `make packages`.
fn package() -> Result<PathBuf, Fault> {
    let folder = Path::new("target/packages");
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vsteer_") && name.ends_with(".deb")
    };
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).filter(named);
    all.max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok()).ok_or_else(|| {
        Fault::new(FaultKind::NothingThere, format!("{} has no vsteer_*.deb", folder.display()))
            .help("run make packages, and this in the project's folder")
    })
}

struct On<'a> {
    host: Host,
    release: &'static str,
    findings: &'a mut Findings,
}

impl On<'_> {
    /// A claim about one command.
    fn claim(&mut self, claim: &str, script: &str, holds: impl Fn(&Ran) -> bool) -> Result<Ran, Fault> {
        self.claim_as("root", claim, script, holds)
    }

    fn claim_as(
        &mut self,
        user: &str,
        claim: &str,
        script: &str,
        holds: impl Fn(&Ran) -> bool,
    ) -> Result<Ran, Fault> {
        let ran = self.host.run_as(user, script, Duration::from_secs(180))?;
        let held = holds(&ran);
        let found = if held { ran.told() } else { format!("`{}`: {}", script.trim(), ran.told()) };
        self.findings.claim(format!("{}: {claim}", self.release), held, found);
        Ok(ran)
    }

    fn shares(&mut self, claim: &str, wanted: &str) -> Result<(), Fault> {
        self.claim(claim, SHARES, |r| r.out == wanted).map(|_| ())
    }

    fn installs(&mut self, package: &Path) -> Result<(), Fault> {
        self.claim(
            "the host has systemd, cgroup v2 and no failed unit",
            "systemctl is-system-running; stat -fc %T /sys/fs/cgroup; systemctl --failed --no-legend",
            |r| r.out == "running\ncgroup2fs",
        )?;
        self.host.copy(package, "/tmp/vsteer.deb")?;
        let begun = Instant::now();
        self.claim(
            "the package installs with what the host has",
            "apt-get install -y --no-install-recommends /tmp/vsteer.deb",
            Ran::is_ok,
        )?;
        let took = begun.elapsed().as_secs_f64();
        self.claim("it installs within a minute", "true", |_| took < 60.0)?;
        self.claim("the program runs", "vsteer --version", |r| r.out.starts_with("vsteer "))?;
        self.claim(
            "the program has manual pages and completions",
            "ls /usr/share/man/man1/vsteer-apply.1.gz /usr/share/bash-completion/completions/vsteer",
            Ran::is_ok,
        )?;
        self.claim(
            "the install starts and enables nothing",
            "systemctl is-active vsteer-record; systemctl is-enabled vsteer-record; pgrep -x vsteer",
            |r| r.out == "inactive\ndisabled",
        )?;
        for unit in ["vsteer-record.service", "vsteer-steer@web.service"] {
            let script = format!("systemd-analyze security {unit} | sed -n 's/.*: \\([0-9.]*\\) .*/\\1/p'");
            self.claim(&format!("systemd rates the exposure of {unit} at most {EXPOSURE}"), &script, |r| {
                r.out.parse::<f64>().is_ok_and(|e| e > 0.0 && e <= EXPOSURE)
            })?;
        }
        Ok(())
    }

    fn observes(&mut self) -> Result<(), Fault> {
        self.claim(
            "two VMs of libvirt run below machine.slice",
            &format!("{VMS}\ncat /proc/$(cat /run/libvirt/qemu/spin.pid)/cgroup"),
            |r| r.is_ok() && r.out.contains("machine.slice"),
        )?;
        let names_both = |r: &Ran| r.is_ok() && r.out.contains("spin") && r.out.contains("tick");
        let begun = Instant::now();
        self.claim("top names both VMs", "vsteer top -b -n 1", names_both)?;
        let took = begun.elapsed().as_secs_f64();
        self.claim("top's first rows come within 10 s", "true", |_| took < 10.0)?;
        self.claim("diagnose runs to its end", "vsteer diagnose --for 3s", |r| {
            r.is_ok() && r.out.contains("finding")
        })?;
        self.claim_as("admin", "top by sudo names both VMs", "sudo vsteer top -b -n 1", names_both)?;
        self.claim_as(
            "vmadmin",
            "a user of group libvirt sees both VMs, or vsteer says what is missing",
            "vsteer top -b -n 1 --connect qemu:///system",
            |r| names_both(r) || (r.code == Some(4) && r.err.contains("help:")),
        )?;
        self.claim_as(
            "plain",
            "a user without rights sees both VMs, and vsteer says what it cannot count",
            "vsteer top -b -n 1 --connect qemu:///system",
            |r| names_both(r) && r.err.contains("schedstat instead of eBPF"),
        )?;
        Ok(())
    }

    fn changes(&mut self) -> Result<(), Fault> {
        self.claim("a plan is made", PLAN, Ran::is_ok)?;
        self.claim("a dry run says what it would do", "vsteer apply /root/plan.json", |r| {
            r.is_ok() && r.out.contains("Dry run")
        })?;
        self.shares("a dry run changes nothing", "100")?;
        self.claim(
            "apply --try from a service succeeds",
            "systemd-run --wait --pipe --quiet vsteer apply /root/plan.json --try 8s",
            Ran::is_ok,
        )?;
        self.shares("the change outlives that service", "50")?;
        self.claim(
            "the watchdog is a unit of its own",
            "systemctl is-active 'vsteer-undo-*'; cat /proc/$(pgrep -f [_]_watchdog | tail -1)/cgroup",
            |r| r.out.starts_with("active") && r.out.contains("vsteer-undo-"),
        )?;
        self.host.run("sleep 12")?;
        self.shares("apply --try from a service undoes itself", "100")?;
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
        self.claim("the watchdog is asked to end", "pkill -TERM -f [_]_watchdog; sleep 3", Ran::is_ok)?;
        self.shares("a watchdog that is asked to end undoes at once", "100")?;
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

    fn records(&mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        self.claim(
            "the recorder starts, and says so once it records",
            "systemctl start vsteer-record && systemctl is-active vsteer-record",
            |r| r.out == "active",
        )?;
        let took = begun.elapsed().as_secs_f64();
        self.claim("it does so within 90 s", "true", |_| took < 90.0)?;
        self.claim(
            "it has recorded both VMs",
            "sleep 5; vsteer replay /var/lib/vsteer-record/current.vsteer",
            |r| r.out.contains("spin") && r.out.contains("tick"),
        )?;
        self.claim(
            "a restart keeps the former recording",
            "systemctl restart vsteer-record && ls /var/lib/vsteer-record",
            |r| r.out.contains("current.vsteer") && r.out.contains("former.vsteer"),
        )?;
        self.claim("killed, systemd starts it again", "systemctl kill -s KILL vsteer-record; sleep 45; systemctl is-active vsteer-record; systemctl show -P NRestarts vsteer-record", |r| {
            r.out == "active\n1"
        })?;
        self.claim(
            "the recording that was cut short can be read",
            "vsteer diagnose /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        self.claim(
            "it is enabled",
            "systemctl enable -q vsteer-record && systemctl is-enabled vsteer-record",
            |r| r.out == "enabled",
        )?;
        Ok(())
    }

    fn survives(&mut self) -> Result<(), Fault> {
        self.host.reboot()?;
        let running = "systemctl is-active vsteer-record; systemctl --failed --no-legend; virsh -q list --name | sort | xargs";
        self.claim(
            "after a reboot the recorder runs, no unit failed, and the VMs are there",
            running,
            |r| r.out == "active\nspin tick",
        )?;
        self.claim(
            "it has recorded the VMs that started after it",
            "sleep 20; vsteer replay /var/lib/vsteer-record/current.vsteer",
            |r| r.out.contains("spin") && r.out.contains("tick"),
        )?;
        self.claim(
            "the recording before the reboot can be read",
            "vsteer diagnose /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        self.claim(
            "a plan is applied again",
            &format!("{PLAN} >/dev/null && vsteer apply /root/plan.json --yes && sync"),
            Ran::is_ok,
        )?;
        self.host.power_cut()?;
        self.claim(
            "after a power cut the recorder runs and no unit failed",
            "systemctl is-active vsteer-record; systemctl --failed --no-legend",
            |r| r.out == "active",
        )?;
        self.claim("the journal names the plan that was applied", "vsteer rollback --list", |r| {
            r.is_ok() && r.out.contains("plan ")
        })?;
        self.claim("rollback closes it", "vsteer rollback", Ran::is_ok)?;
        self.shares("the weight is the former one", "100")?;
        self.claim(
            "the recording that the power cut ended can be read",
            "vsteer replay /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        Ok(())
    }

    fn leaves(&mut self) -> Result<(), Fault> {
        self.claim("systemctl clean removes recordings and no journal", "systemctl stop vsteer-record; systemctl clean --what=state vsteer-record; ls /var/lib | grep vsteer; ls /var/lib/vsteer/journal | wc -l", |r| {
            r.out.lines().next() == Some("vsteer") && r.out.lines().last().is_some_and(|n| n != "0")
        })?;
        self.claim("installing the same package again keeps state", "apt-get install -y --no-install-recommends --reinstall /tmp/vsteer.deb >/dev/null; ls /var/lib/vsteer/journal | wc -l", |r| r.out != "0")?;
        self.claim(
            "it is removed",
            "apt-get remove -y vsteer >/dev/null; systemctl is-active vsteer-record; command -v vsteer",
            |r| r.out == "inactive",
        )?;
        self.claim("purge leaves nothing", "apt-get purge -y vsteer >/dev/null; find / -xdev -name '*vsteer*' -not -path '/tmp/*' -not -path '/root/*' -not -path '/var/log/*' -not -path '/proc/*' -not -path '/sys/*'", |r| r.out.is_empty())?;
        Ok(())
    }
}
