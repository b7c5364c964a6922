//! Is the package installed, upgraded, removed and purged as people expect?

use super::On;
use super::{EXPOSURE, FORMER, PLAN};
use crate::command;
use crate::files::{make_folder, remove_folder, write_file};
use crate::installed::host::Ran;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::Fault;

/// For packing and unpacking.
const LIMIT: Duration = Duration::from_secs(300);

impl On<'_> {
    pub(super) fn installs(&mut self, former: &Path, package: &Path) -> Result<(), Fault> {
        self.claim(
            "the host has systemd, cgroup v2 and no failed unit",
            "systemctl is-system-running; stat -fc %T /sys/fs/cgroup; systemctl --failed --no-legend",
            |r| r.out == "running\ncgroup2fs",
        )?;
        self.host.copy(package, "/root/vsteer.deb")?;
        self.host.copy(former, "/root/former.deb")?;
        self.claim_within(
            60.0,
            "the package installs with what the host has",
            "apt-get install -y --no-install-recommends /root/former.deb",
            Ran::is_ok,
        )?;
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
        for (unit, most) in EXPOSURE {
            let script = format!("systemd-analyze security {unit} | sed -n 's/.*: \\([0-9.]*\\) .*/\\1/p'");
            self.claim(&format!("systemd rates the exposure of {unit} at most {most}"), &script, |r| {
                r.out.parse::<f64>().is_ok_and(|e| e > 0.0 && e <= most)
            })?;
        }
        Ok(())
    }

    pub(super) fn leaves(&mut self) -> Result<(), Fault> {
        self.claim("systemctl clean removes recordings and no journal", "systemctl stop vsteer-record; systemctl clean --what=state vsteer-record; ls /var/lib | grep vsteer; ls /var/lib/vsteer/journal | wc -l", |r| {
            r.out.lines().next() == Some("vsteer") && r.out.lines().last().is_some_and(|n| n != "0")
        })?;
        self.claim("installing the package again keeps state", "apt-get install -y --no-install-recommends --reinstall /root/vsteer.deb >/dev/null; ls /var/lib/vsteer/journal | wc -l", |r| r.out != "0")?;
        self.claim(
            "it is removed",
            "apt-get remove -y vsteer >/dev/null; systemctl is-active vsteer-record; command -v vsteer",
            |r| r.out == "inactive",
        )?;
        self.claim("purge leaves nothing", "apt-get purge -y vsteer >/dev/null; find / -xdev -name '*vsteer*' -not -path '/tmp/*' -not -path '/root/*' -not -path '/home/*' -not -path '/var/log/*' -not -path '/proc/*' -not -path '/sys/*'", |r| r.out.is_empty())?;
        Ok(())
    }

    pub(super) fn upgrades(&mut self) -> Result<(), Fault> {
        let script = format!(
            "{PLAN} >/dev/null && vsteer apply /root/plan.json --yes >/dev/null && echo '# mine' >> /etc/vsteer/vsteer.toml; ls /var/lib/vsteer/journal | wc -l"
        );
        self.claim("a plan is applied, and the recorder runs, before the upgrade", &script, |r| {
            r.is_ok() && r.out != "0"
        })?;
        self.claim(
            "the package is upgraded",
            "apt-get install -y --no-install-recommends /root/vsteer.deb >/dev/null && dpkg-query -W -f '${Version} ${Status}' vsteer",
            |r| r.is_ok() && !r.out.starts_with(FORMER) && r.out.ends_with("install ok installed"),
        )?;
        self.claim_soon(
            20,
            "the recorder runs again, by the new program",
            "systemctl is-active vsteer-record; ls -l /proc/$(systemctl show -P MainPID vsteer-record)/exe",
            |r| r.out.starts_with("active") && !r.out.contains("deleted"),
        )?;
        self.claim(
            "the recording from before can be read",
            "vsteer diagnose /var/lib/vsteer-record/former.vsteer",
            Ran::is_ok,
        )?;
        self.claim(
            "what the administrator wrote is still there",
            "tail -1 /etc/vsteer/vsteer.toml; vsteer config check",
            |r| r.is_ok() && r.out.starts_with("# mine"),
        )?;
        self.claim("after the upgrade, rollback undoes the plan", "vsteer rollback --yes", Ran::is_ok)?;
        self.shares("the weight is as it was before the upgrade", "100")
    }
}

/// The same package with another version, in `folder`.
///
/// # Errors
/// dpkg-deb is missing, or the disk is full.
pub(super) fn with_version(package: &Path, version: &str, folder: &Path) -> Result<PathBuf, Fault> {
    let (tree, made) = (folder.join("former"), folder.join("vsteer_former.deb"));
    remove_folder(&tree)?;
    make_folder(folder)?;
    command::output(Command::new("dpkg-deb").arg("-R").arg(package).arg(&tree), LIMIT)?;
    let control = tree.join("DEBIAN/control");
    let text = std::fs::read_to_string(&control)
        .map_err(|e| Fault::io(format!("reading {}", control.display()), &e))?;
    let lines = text.lines().map(|line| match line.strip_prefix("Version: ") {
        Some(_) => format!("Version: {version}\n"),
        None => format!("{line}\n"),
    });
    write_file(&control, lines.collect::<String>())?;
    command::output(
        Command::new("dpkg-deb").args(["-b", "-Zgzip", "--root-owner-group"]).arg(&tree).arg(&made),
        LIMIT,
    )?;
    remove_folder(&tree)?;
    Ok(made)
}
