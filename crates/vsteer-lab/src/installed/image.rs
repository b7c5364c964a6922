//! Builds the root file system: Debian's packages, three people, and a key for ssh.
//!
//! mmdebstrap installs the packages into a folder, mke2fs makes an image of it without mounting anything, and kernel and
//! initrd are copied out, so that QEMU boots without a boot loader.

use crate::command;
use crate::fetch::sources;
use crate::files::{make_folder, remove_folder, write_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// 165 MB of packages, and some minutes of unpacking.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);
const PACKAGES: &str = "systemd,systemd-sysv,udev,dbus,libpam-systemd,polkitd,linux-image-amd64,initramfs-tools,\
    libvirt-daemon-system,libvirt-daemon-driver-qemu,libvirt-clients,qemu-system-x86,openssh-server,iproute2,procps,sudo,netbase";
/// Size of the file system; only what is used takes room on the disk.
const SIZE: &str = "3G";

/// Makes the folder a host: names, network, services, people. `$1` is the folder, `$2` the public key.
const CUSTOMIZE: &str = r#"
set -eu
echo host > "$1/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 host\n' > "$1/etc/hosts"
echo 'LABEL=root / ext4 defaults,noatime 0 1' > "$1/etc/fstab"
# Filled at the first boot, as on a fresh install.
: > "$1/etc/machine-id"
mkdir -p "$1/etc/systemd/network" "$1/var/log/journal"
printf '[Match]\nType=ether\n[Network]\nAddress=10.0.2.15/24\nLinkLocalAddressing=no\n' > "$1/etc/systemd/network/10-lab.network"
chroot "$1" systemctl -q enable systemd-networkd ssh
chroot "$1" systemctl -q mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer
# Guests without ACPI would hold every reboot for minutes.
printf 'ON_BOOT=ignore\nON_SHUTDOWN=shutdown\nSHUTDOWN_TIMEOUT=3\n' > "$1/etc/default/libvirt-guests"
# One who may use libvirt, one who may not, one with sudo.
chroot "$1" useradd -m -s /bin/bash -G libvirt vmadmin
chroot "$1" useradd -m -s /bin/bash plain
chroot "$1" useradd -m -s /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' > "$1/etc/sudoers.d/lab"
for home in root home/vmadmin home/plain home/admin; do
    mkdir -p -m 700 "$1/$home/.ssh"
    install -m 600 "$2" "$1/$home/.ssh/authorized_keys"
done
for user in vmadmin plain admin; do chroot "$1" chown -R "$user:$user" "/home/$user/.ssh"; done
"#;

/// A root file system that is ready to boot.
#[derive(Debug, Clone)]
pub struct Image {
    /// The file system; never written, because hosts boot copies.
    pub disk: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    /// The private key of all people in it.
    pub key: PathBuf,
}

impl Image {
    /// The image of `release` (`bookworm`), from the cache or built now.
    ///
    /// # Errors
    /// A program is missing, the archive does not answer, or the disk is full.
    pub fn of(cache: &Path, release: &str) -> Result<Image, Fault> {
        let folder = cache.join("installed").join(release);
        let image = Image {
            disk: folder.join("root.ext4"),
            kernel: folder.join("vmlinuz"),
            initrd: folder.join("initrd"),
            key: folder.join("key"),
        };
        if folder.join("whole").exists() {
            return Ok(image);
        }
        for program in ["mmdebstrap", "mke2fs", "ssh-keygen"] {
            if command::find_program(program).is_none() {
                let what = format!("cannot build a Debian host: {program} is missing");
                return Err(Fault::new(FaultKind::Unsupported, what).help("run tools/install-missing.sh all"));
            }
        }
        eprintln!("vsteer-lab: building a Debian host ({release}) of packages: three minutes, once");
        remove_folder(&folder)?;
        make_folder(&folder)?;
        image.build(&folder, release)?;
        write_file(&folder.join("whole"), "")?;
        Ok(image)
    }

    fn build(&self, folder: &Path, release: &str) -> Result<(), Fault> {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&self.key);
        command::output(&mut keygen, BUILD_LIMIT)?;
        let (root, customize) = (folder.join("root"), folder.join("customize.sh"));
        write_file(&customize, CUSTOMIZE)?;
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap.args(["--mode=root", "--variant=apt", "--format=directory", "--skip=download/empty"]);
        for option in ["Acquire::Languages \"none\"", "APT::Install-Recommends \"false\""] {
            bootstrap.arg(format!("--aptopt={option}"));
        }
        bootstrap.args(["--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/locale/*"]);
        // An initrd of three modules is small, and quick to unpack.
        bootstrap.arg(
            "--setup-hook=mkdir -p \"$1/etc/initramfs-tools/conf.d\"; \
             printf 'MODULES=list\\nCOMPRESS=gzip\\nRESUME=none\\n' > \"$1/etc/initramfs-tools/conf.d/lab\"; \
             printf 'virtio_pci\\nvirtio_blk\\next4\\n' > \"$1/etc/initramfs-tools/modules\"",
        );
        bootstrap.arg(format!("--include={PACKAGES}"));
        let key = self.key.with_extension("pub");
        bootstrap.arg(format!("--customize-hook=sh {} \"$1\" {}", customize.display(), key.display()));
        bootstrap.arg(release).arg(&root);
        bootstrap.args(archives(release)?);
        command::output(&mut bootstrap, BUILD_LIMIT)?;
        for (from, to) in [("vmlinuz-", &self.kernel), ("initrd.img-", &self.initrd)] {
            let found = newest(&root.join("boot"), from)?;
            std::fs::copy(&found, to).map_err(|e| Fault::io(format!("copying {}", found.display()), &e))?;
        }
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-t", "ext4", "-L", "root", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d"]);
        make.arg(&root).arg(&self.disk).arg(SIZE);
        command::output(&mut make, BUILD_LIMIT)?;
        remove_folder(&root)
    }
}

/// The archives that this system uses, for another release.
fn archives(release: &str) -> Result<Vec<String>, Fault> {
    let stanzas = sources::of_system(Path::new("/etc/apt"));
    let mut lines = Vec::new();
    for stanza in &stanzas {
        let first =
            |name: &str| stanza.get(name).unwrap_or_default().split_whitespace().next().unwrap_or_default();
        let (uri, suite) = (first("URIs"), first("Suites"));
        match uri.trim_end_matches('/').rsplit('/').next() {
            Some("debian") => {
                lines.push(format!("deb {uri} {release} main"));
                lines.push(format!("deb {uri} {release}-updates main"));
            }
            Some("debian-security") if suite.ends_with("-security") => {
                lines.push(format!("deb {uri} {release}-security main"));
            }
            _ => {}
        }
    }
    lines.dedup();
    if lines.is_empty() {
        return Err(Fault::new(FaultKind::Unsupported, "this system has no archive of Debian in /etc/apt")
            .help("run this case on Debian"));
    }
    Ok(lines)
}

/// The file in `folder` whose name begins with this; the last in order of names.
fn newest(folder: &Path, begins: &str) -> Result<PathBuf, Fault> {
    let read =
        std::fs::read_dir(folder).map_err(|e| Fault::io(format!("reading {}", folder.display()), &e))?;
    let named = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begins));
    let found = read.flatten().map(|e| e.path()).filter(named).max();
    found.ok_or_else(|| Fault::new(FaultKind::NothingThere, format!("{} has no {begins}*", folder.display())))
}
