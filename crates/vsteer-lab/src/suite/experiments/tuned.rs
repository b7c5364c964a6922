//! Adds the real tuned to a machine of the lab: Debian's packages, unpacked into its initramfs, with the bus
//! and the Python that they need.
//!
//! The packages are fetched and unpacked into the lab's cache, never installed, so the real host keeps its
//! own profile. The image gets only the files of each package that a program reads, and links become copies
//! of their targets. The bus accepts only root, with the lab's own configuration. polkit is missing; tuned
//! allows root without it.

use crate::fetch::Fetcher;
use crate::image::initramfs::{Initramfs, read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use vsteer_core::Fault;

/// tuned, the packages from its `Depends` that it imports and starts, and their libraries.
const PACKAGES: &[&str] = &[
    "tuned",
    "python3-minimal",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "python3-dbus",
    "python3-gi",
    "python3-pyudev",
    "python3-linux-procfs",
    "python3-six",
    "gir1.2-glib-2.0",
    "dbus-daemon",
    "libc6",
    "libc-bin",
    "libgcc-s1",
    "libdbus-1-3",
    "libexpat1",
    "libsystemd0",
    "libaudit1",
    "libcap-ng0",
    "libcap2",
    "libselinux1",
    "libapparmor1",
    "libglib2.0-0",
    "libgirepository-1.0-1",
    "libffi8",
    "libpcre2-8-0",
    "libmount1",
    "libblkid1",
    "libuuid1",
    "libudev1",
    "libgcrypt20",
    "libgpg-error0",
    "liblz4-1",
    "liblzma5",
    "libzstd1",
    "libbz2-1.0",
    "zlib1g",
    "libcrypt1",
    "libssl3",
];
/// The package and program behind the name `python3` in scripts.
const INTERPRETER: (&str, &str) = ("python3.11-minimal", "usr/bin/python3.11");
/// Folders that no program reads here.
const LEFT_OUT: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/lib/systemd",
    "lib/systemd",
];

const BUS: &str = r#"<busconfig>
<type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_type="*"/><allow receive_type="*"/><allow send_destination="*"/></policy>
</busconfig>
"#;

/// The commands with which the first program starts tuned, with `/state/tuned` in place of /etc/tuned, so
/// that its choice survives a reboot.
pub const BEGIN: &str = r#"mkdir -p /run/dbus /run/tuned /var/log/tuned /var/lib/dbus /sbin /usr/sbin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
# For those who ask it where a library is. No links: each name is a file.
/sbin/ldconfig -X
[ -d /state/tuned ] || cp -r /etc/tuned /state/tuned
[ -s /state/tuned/active_profile ] || { echo balanced > /state/tuned/active_profile; echo manual > /state/tuned/profile_mode; }
mount --bind /state/tuned /etc/tuned
ip link set lo up 2>/dev/null
dbus-daemon --config-file=/bus.conf --fork
tuned --daemon --log --pid
n=0; until tuned-adm active 2>/dev/null | grep -q 'Current active profile'; do sleep 0.5; n=$((n+1)); [ $n -lt 60 ] || { echo "lab: no tuned: $(tail -n 3 /var/log/tuned/tuned.log | tr '\n' ' ')"; poweroff -f; }; done
echo "lab: $(tuned-adm --version), $(tuned-adm active)"
"#;

/// Adds tuned.
///
/// # Errors
/// A package cannot be fetched or read.
pub fn put(image: &mut Initramfs, fetcher: &mut Fetcher) -> Result<(), Fault> {
    for name in PACKAGES {
        let tree = fetcher.binary(name)?.tree;
        put_tree(image, &tree, Path::new(""))?;
        if *name == INTERPRETER.0 {
            // In Debian, a link from another package.
            image.put("usr/bin/python3", 0o755, &read(&tree.join(INTERPRETER.1))?);
        }
    }
    image.put("bus.conf", 0o644, BUS.as_bytes());
    image.put("etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\n");
    image.put("etc/group", 0o644, b"root:x:0:\n");
    image.put("etc/machine-id", 0o444, b"00000000000000000000000000000001\n");
    Ok(())
}

fn put_tree(image: &mut Initramfs, tree: &Path, below: &Path) -> Result<(), Fault> {
    let folder = tree.join(below);
    let told = |e: std::io::Error| Fault::io(format!("reading {}", folder.display()), &e);
    let mut entries: Vec<_> =
        std::fs::read_dir(&folder).map_err(told)?.collect::<Result<_, _>>().map_err(told)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        if LEFT_OUT.iter().any(|out| path == Path::new(out)) {
            continue;
        }
        if entry.file_type().map_err(told)?.is_dir() {
            put_tree(image, tree, &path)?;
            continue;
        }
        // A link out of its package has no target here.
        let Ok(metadata) = entry.path().metadata() else { continue };
        if metadata.is_file() {
            image.put(&path.to_string_lossy(), metadata.permissions().mode() & 0o777, &read(&entry.path())?);
        }
    }
    Ok(())
}
