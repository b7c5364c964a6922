//! Does the owning tool make a better setting permanent, and can it be rolled back exactly to the byte?
//!
//! `vm`: an experiment varies a vCPU's pin of a real VM and its network queues (for these, a stand-in is set
//! and read). The plan with the better setting changes libvirt's definition, and `vsteer rollback` restores
//! exactly the former one. `grub`: Debian's own update-grub, grub-mkconfig and scripts are fetched and laid
//! over this machine's `/usr` and `/etc` in a separate mount namespace and root. Only grub-probe, which reads
//! disks, is a stand-in. The experiment's log says that a kernel parameter was better (the log is derived
//! from a real one, because no machine boots here). The plan must reach the generated menu, and the rollback
//! must restore `/etc/default/grub` and the menu to the byte.
//!
//! Left out: booting from it; grubby, kernelstub and tuned (the host crate's tests have stand-ins).

use super::super::{Bench, Findings};
use crate::command;
use crate::contention::Lab;
use crate::drive::Vsteer;
use crate::fetch::Fetcher;
use crate::libvirtd;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(300);

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(path, text).map_err(|e| Fault::io(format!("writing {}", path.display()), &e))
}

fn read(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|e| Fault::io(format!("reading {}", path.display()), &e))
}

pub fn run(bench: &Bench, findings: &mut Findings) -> Result<Value, Fault> {
    bench.on_lab("idle=1x2", bench.seed, |lab, vsteer| vm(bench, findings, lab, vsteer))?;
    grub(bench, findings)?;
    Ok(json!(null))
}

fn vm(bench: &Bench, findings: &mut Findings, lab: &Lab, vsteer: &Vsteer) -> Result<(), Fault> {
    let name = lab.state().vms[0].name.clone();
    let virsh = format!("virsh --quiet --connect '{}'", lab.uri());
    let nic = bench.output.join("nic.xml");
    write(&nic, "<interface type='user'><model type='virtio'/></interface>")?;
    libvirtd::virsh(lab.dir(), &["attach-device", &name, &nic.to_string_lossy(), "--config"])?;
    let defined = || libvirtd::virsh(lab.dir(), &["dumpxml", "--inactive", &name]);
    let before = defined()?;
    let (file, queues) = (bench.output.join("lasting.toml"), bench.output.join("queues"));
    write(&queues, "1")?;
    let text = format!(
        "name = \"lasting\"\ndesign = \"one-at-a-time\"\nruns_least = 5\nruns_most = 5\n[workload]\n\
         command = {{ sh = '''n=80; [ \"{{pin}}\" = 0 ] && n=$((n-40)); [ {{queues}} = 2 ] && n=$((n-40)); sleep 0.$n''' }}\n\
         [[factor]]\nname = \"pin\"\nlevels = [\"0-1\", \"0\"]\nset = \"{virsh} vcpupin {name} 0 {{level}} --live\"\n\
         read = {{ sh = \"{virsh} vcpupin {name} --live | awk '$1 == 0 {{ print $2 }}'\" }}\nlasting = {{ pin = {{ vm = \"{name}\", vcpu = 0 }} }}\n\
         [[factor]]\nname = \"queues\"\nlevels = [\"1\", \"2\"]\nfile = \"{queues}\"\nlasting = {{ queues = {{ vm = \"{name}\" }} }}\n",
        queues = queues.display()
    );
    write(&file, &text)?;
    let folder = bench.fresh("lasting.experiment")?;
    let plan = bench.output.join("lasting-plan.json").to_string_lossy().into_owned();
    let uri = lab.uri();
    let words = ["experiment", "run", &file.to_string_lossy(), "-o", &folder, "--yes", "--connect", uri];
    vsteer.run(&words, true, LIMIT)?;
    vsteer.run(&["experiment", "report", &folder, "--plan", &plan], false, LIMIT)?;
    // The lab's libvirt has a socket of its own, which a plan may not name without consent.
    let refused =
        vsteer.run(&["apply", &plan, "--yes"], true, LIMIT).err().and_then(|f| f.cause).unwrap_or_default();
    findings.claim(
        "a connection with parameters that only the plan names is refused",
        refused.contains("does not open"),
        &refused,
    );
    vsteer.run(&["apply", &plan, "--yes", "--trust-uri", uri], false, LIMIT)?;
    let applied = defined()?;
    let (pin, driver) = ("<vcpupin vcpu='0' cpuset='0'/>", "queues='2'");
    vsteer.run(&["rollback"], false, LIMIT)?;
    let after = defined()?;
    findings.claim(
        "a pin and network queues that were better are in libvirt's definition of a real VM, and the rollback brings the former one back to the byte",
        applied.contains(pin) && applied.contains(driver) && !before.contains(pin) && !before.contains(driver) && after == before,
        format!("pin {}, queues {}, as before: {}", applied.contains(pin), applied.contains(driver), after == before),
    );
    Ok(())
}

/// Answers the questions of grub-mkconfig about the disks.
const PROBE: &str = r#"#!/bin/sh
case "$*" in
*--target=device*) echo /dev/vda1;; *fs_uuid*) echo 1234-5678;; *--target=fs*) echo ext2;; *abstraction*) ;; *partmap*) echo gpt;;
*compatibility_hint*) echo hd0,gpt1;; *hints_string*) echo "--hint='hd0,gpt1'";; *) echo;; esac
"#;

/// Makes the root in a separate mount namespace, and runs the rest in it. `TREE`s and `PLACE` are filled in.
const ROOT: &str = r#"set -e
mount --make-rprivate /
mount -t tmpfs lab PLACE/m
M=PLACE/m/root
for d in u1 w1 u2 w2 root root/usr root/etc root/proc root/sys root/dev root/tmp root/boot root/boot/grub root/opt root/lab root/run; do mkdir -p PLACE/m/$d; done
mount -t overlay lab -o lowerdir=TREE_USR:/usr,upperdir=PLACE/m/u1,workdir=PLACE/m/w1 $M/usr
mount -t overlay lab -o lowerdir=TREE_ETC:/etc,upperdir=PLACE/m/u2,workdir=PLACE/m/w2 $M/etc
for l in bin sbin lib lib64; do ln -s usr/$l $M/$l; done
for d in proc sys dev; do mount --rbind /$d $M/$d; done
mount --bind PROGRAMS $M/opt
mount --bind PLACE/work $M/lab
cp $M/usr/share/grub/default/grub $M/etc/default/grub
: > $M/boot/vmlinuz-6.1.0-1-amd64; : > $M/boot/initrd.img-6.1.0-1-amd64
cp PLACE/probe $M/usr/sbin/grub-probe; chmod 755 $M/usr/sbin/grub-probe
exec chroot $M /bin/sh -e /lab/inside.sh
"#;

const INSIDE: &str = r#"export VSTEER_STATE=/lab/state HOME=/ PATH=/usr/sbin:/usr/bin
update-grub
cp /etc/default/grub /lab/grub-before; cp /boot/grub/grub.cfg /lab/menu-before
/opt/vsteer experiment report /lab/kernel.experiment --plan /lab/plan.json > /lab/report.txt
/opt/vsteer apply /lab/plan.json --yes
cp /etc/default/grub /lab/grub-applied; cp /boot/grub/grub.cfg /lab/menu-applied
/opt/vsteer rollback
cp /etc/default/grub /lab/grub-after; cp /boot/grub/grub.cfg /lab/menu-after
"#;

fn grub(bench: &Bench, findings: &mut Findings) -> Result<(), Fault> {
    let mut fetcher = Fetcher::of_system(&bench.lab.cache, false);
    let trees: Vec<PathBuf> = ["grub-common", "grub2-common", "gettext-base"]
        .into_iter()
        .map(|name| Ok(fetcher.binary(name)?.tree))
        .collect::<Result<_, Fault>>()?;
    let lower = |under: &str| {
        let all = trees.iter().map(|t| t.join(under)).filter(|p| p.is_dir());
        all.map(|p| p.to_string_lossy().into_owned()).collect::<Vec<_>>().join(":")
    };
    let place = PathBuf::from(bench.fresh("grub")?);
    let work = place.join("work");
    for folder in ["m", "work", "work/state", "work/kernel.experiment"] {
        let folder = place.join(folder);
        std::fs::create_dir_all(&folder)
            .map_err(|e| Fault::io(format!("making {}", folder.display()), &e))?;
    }
    write(&work.join("kernel.experiment/log.jsonl"), &kernel_log(bench)?)?;
    write(&place.join("probe"), PROBE)?;
    write(&work.join("inside.sh"), INSIDE)?;
    let programs = bench.lab.program.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let script = ROOT
        .replace("PLACE", &place.to_string_lossy())
        .replace("TREE_USR", &lower("usr"))
        .replace("TREE_ETC", &lower("etc"))
        .replace("PROGRAMS", &programs);
    write(&place.join("root.sh"), &script)?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--", "/bin/sh"]).arg(place.join("root.sh"));
    let done = command::run(&mut unshare, LIMIT)?;
    if !done.status.is_some_and(|s| s.success()) {
        return Err(Fault::new(FaultKind::Failed, "keeping a kernel's word by update-grub")
            .because(done.stderr.trim()));
    }
    let at = |name: &str| read(&work.join(name));
    // Ordinary entries get the parameter; recovery entries do not.
    let given = |menu: &str| {
        let lines = menu.lines().filter(|l| l.trim_start().starts_with("linux") && l.contains("vmlinuz"));
        let (repair, ordinary): (Vec<&str>, Vec<&str>) = lines.partition(|l| l.contains(" single"));
        let has = |l: &&&str| l.split_whitespace().any(|w| w == WORD);
        (ordinary.iter().filter(has).count(), ordinary.len(), repair.iter().filter(has).count())
    };
    let (before, applied) = (given(&at("menu-before")?), given(&at("menu-applied")?));
    findings.claim(
        "a kernel's word that was better is given by every ordinary entry of the menu that Debian's update-grub makes, and by none before",
        before.0 == 0 && applied.0 == applied.1 && applied.1 > 0 && applied.2 == 0 && at("grub-applied")?.contains(WORD),
        format!("{} of {} entries, before {}", applied.0, applied.1, before.0),
    );
    let same = [("grub-before", "grub-after"), ("menu-before", "menu-after")];
    let same: Vec<bool> = same.iter().map(|(a, b)| Ok(at(a)? == at(b)?)).collect::<Result<_, Fault>>()?;
    findings.claim(
        "the rollback brings back /etc/default/grub and the menu to the byte",
        same == [true, true],
        format!("file {}, menu {}", same[0], same[1]),
    );
    Ok(())
}

const WORD: &str = "amd_pstate=active";

/// The log of a real experiment, changed so that its factor is a kernel parameter.
fn kernel_log(bench: &Bench) -> Result<String, Fault> {
    let vsteer = Vsteer { state: bench.output.join("state"), ..Vsteer::beside(&bench.lab.program)? };
    let file = bench.output.join("kernel.toml");
    write(
        &file,
        "name = \"kernel\"\ndesign = \"pair\"\nruns_least = 5\nruns_most = 5\n[workload]\ncommand = \"sleep 0.{word}\"\n\
         [[factor]]\nname = \"word\"\nlevels = [\"55\", \"15\"]\n",
    )?;
    let folder = bench.fresh("kernel.experiment")?;
    vsteer.run(&["experiment", "run", &file.to_string_lossy(), "-o", &folder, "--yes"], true, LIMIT)?;
    let text = read(&Path::new(&folder).join("log.jsonl"))?;
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let mut begun: Value = serde_json::from_str(first)
        .map_err(|e| Fault::new(FaultKind::BadInput, "the experiment's first line").because(e))?;
    let experiment = &mut begun["begun"]["experiment"];
    experiment["factor"][0]["levels"] = json!(["", WORD]);
    experiment["factor"][0]["kernel"] = json!(true);
    experiment["boot"] = json!({ "set": "true", "reboot": "true" });
    begun["begun"]["found"] = json!([""]);
    Ok(format!("{begun}\n{rest}"))
}
