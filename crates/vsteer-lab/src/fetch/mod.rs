//! Fetches a kernel and other packages without installing anything.
//!
//! A private apt ([`apt`]) fetches the distribution's own packages and checks them against the signed index.
//! `dpkg-deb -x` or `dpkg-source` unpacks them into the cache (`$VSTEER_CACHE`, otherwise
//! `$XDG_CACHE_HOME/vsteer`, otherwise `~/.cache/vsteer`). Beside each unpacked package is a manifest with
//! the sha256 of every file. Packages in the cache are used again without the network. Left out:
//! dependencies, except those through which a distribution names its current kernel.

pub mod apt;
pub mod kernels;
pub mod sources;

use crate::command;
use crate::files::{make_folder, remove_folder, write_file};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sources::{Stanza, Wanted};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// The disk's speed limits the unpacking.
const UNPACK_LIMIT: Duration = Duration::from_secs(300);
/// The known generic kernel packages, by distribution; the first available one is taken. `ARCH` stands for
/// dpkg's architecture. These are small kernels for VMs, without drivers for real hardware.
const KERNELS: &[&str] = &["linux-image-cloud-ARCH", "linux-image-virtual", "linux-image-ARCH"];
/// Packages through which a generic kernel package names the current version.
const KERNEL_PARTS: &[&str] = &["linux-image-", "linux-binary-", "linux-modules-"];

/// One downloaded file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedFile {
    pub file: String,
    /// The address from which it was downloaded.
    pub uri: String,
    /// The checksum, computed from the file. It equals the signed index's checksum if that is a SHA-256.
    pub sha256: String,
}

/// One package in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    /// `deb` or `deb-src`.
    pub kind: String,
    pub version: String,
    /// The names of the packages on which it depends.
    pub depends: Vec<String>,
    /// The downloaded files.
    pub files: Vec<FetchedFile>,
    /// The folder in which it is unpacked.
    pub tree: PathBuf,
}

/// A kernel that is ready to boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The compressed kernel image.
    pub vmlinuz: PathBuf,
    /// The packages that contain it, the generic one first.
    pub packages: Vec<Package>,
}

/// The cache folder of vsteer.
///
/// # Errors
/// None of the three variables is set.
pub fn cache_folder() -> Result<PathBuf, Fault> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("VSTEER_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|c| c.join("vsteer")))
        .or_else(|| var("HOME").map(|h| h.join(".cache/vsteer")))
        .ok_or_else(|| {
            Fault::new(FaultKind::Usage, "there is no place for the cache: HOME is not set")
                .help("set VSTEER_CACHE to a folder")
        })
}

/// Fetches packages into a cache folder.
pub struct Fetcher {
    cache: PathBuf,
    /// The private apt's folder in the cache.
    apt_folder: &'static str,
    stanzas: Vec<Stanza>,
    refresh: bool,
    opened: [Option<apt::Apt>; 3],
}

/// Holds the packages of the cache until it is dropped.
fn alone(packages: &Path) -> Result<std::fs::File, Fault> {
    make_folder(packages)?;
    let file = packages.join("lock");
    let told = |e: std::io::Error| Fault::io(format!("locking {}", file.display()), &e);
    let held = std::fs::File::options().create(true).append(true).open(&file).map_err(told)?;
    flock(&held, FlockOperation::LockExclusive).map_err(|e| told(e.into()))?;
    Ok(held)
}

impl Fetcher {
    /// A fetcher for the sources in this system's configuration. `refresh` asks the archive even for packages
    /// in the cache.
    pub fn of_system(cache: &Path, refresh: bool) -> Fetcher {
        Fetcher::new(cache, sources::of_system(Path::new("/etc/apt")), refresh)
    }

    /// A fetcher for the given sources.
    pub fn new(cache: &Path, stanzas: Vec<Stanza>, refresh: bool) -> Fetcher {
        Fetcher { cache: cache.to_owned(), apt_folder: "apt", stanzas, refresh, opened: [None, None, None] }
    }

    /// A fetcher for later suites of the archives in this system's configuration. Packages from there are
    /// only unpacked into the cache.
    pub fn of_later_suites(cache: &Path, refresh: bool) -> Fetcher {
        let stanzas = sources::of_later_suites(&sources::of_system(Path::new("/etc/apt")));
        Fetcher { apt_folder: "apt-later", ..Fetcher::new(cache, stanzas, refresh) }
    }

    /// A fetcher for one release of Debian in the archives of this system's configuration.
    pub fn of_release(cache: &Path, release: &str) -> Fetcher {
        let stanzas = sources::of_release(&sources::of_system(Path::new("/etc/apt")), release);
        Fetcher { apt_folder: "apt-release", ..Fetcher::new(cache, stanzas, false) }
    }

    fn apt(&mut self, wanted: Wanted) -> Result<&apt::Apt, Fault> {
        let slot = &mut self.opened[wanted as usize];
        if slot.is_none() {
            *slot =
                Some(apt::Apt::open(&self.cache.join(self.apt_folder), &self.stanzas, wanted, self.refresh)?);
        }
        Ok(slot.as_ref().expect("filled above"))
    }

    /// The built package `name`, unpacked.
    ///
    /// # Errors
    /// No such package, no network, wrong checksum, no space: each with the package's name.
    pub fn binary(&mut self, name: &str) -> Result<Package, Fault> {
        self.fetch(name, Wanted::Binary)
    }

    /// The source package `name`, unpacked and with Debian's patches applied.
    ///
    /// # Errors
    /// As [`Fetcher::binary`], and if dpkg-source is missing.
    pub fn source(&mut self, name: &str) -> Result<Package, Fault> {
        self.fetch(name, Wanted::Source)
    }

    /// What the authors of source package `name` released, unpacked, without Debian's changes.
    ///
    /// # Errors
    /// As [`Fetcher::binary`].
    pub fn upstream(&mut self, name: &str) -> Result<Package, Fault> {
        self.fetch(name, Wanted::Upstream)
    }

    /// The distribution's current kernel for VMs.
    ///
    /// # Errors
    /// None of the known kernel packages is available, or none of them contains a kernel.
    pub fn kernel(&mut self) -> Result<Kernel, Fault> {
        let arch = command::output(Command::new("dpkg").arg("--print-architecture"), UNPACK_LIMIT)?;
        let mut first_fault = None;
        for generic in KERNELS {
            match self.kernel_from(&generic.replace("ARCH", arch.trim())) {
                Ok(kernel) => return Ok(kernel),
                Err(fault) if fault.kind == FaultKind::NothingThere => {
                    first_fault.get_or_insert(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(first_fault.expect("the table of kernels is not empty"))
    }

    /// The kernel that the package `generic` names or contains.
    ///
    /// # Errors
    /// As [`Fetcher::kernel`].
    pub fn kernel_from(&mut self, generic: &str) -> Result<Kernel, Fault> {
        let mut packages: Vec<Package> = Vec::new();
        let mut waiting = vec![generic.to_owned()];
        while let Some(name) = waiting.pop() {
            if packages.iter().any(|p| p.name == name) {
                continue;
            }
            let package = self.binary(&name)?;
            let is_part = |d: &&String| KERNEL_PARTS.iter().any(|p| d.starts_with(p));
            waiting.extend(package.depends.iter().filter(is_part).cloned());
            packages.push(package);
            let vmlinuz = packages.iter().find_map(|p| vmlinuz_in(&p.tree.join("boot")));
            if let Some(vmlinuz) = vmlinuz {
                return Ok(Kernel { vmlinuz, packages });
            }
        }
        Err(Fault::new(FaultKind::NothingThere, format!("package {generic} leads to no kernel image"))
            .help("name another kernel package with --kernel"))
    }

    fn fetch(&mut self, name: &str, wanted: Wanted) -> Result<Package, Fault> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(['-', '.']) {
            return Err(Fault::new(FaultKind::Usage, format!("`{name}` is not a package name")));
        }
        let folder = self.cache.join("packages").join(wanted.folder()).join(name);
        let manifest_file = folder.join("manifest.json");
        // A second thread or process finds what the first one has unpacked, and does not remove it.
        let _held = alone(&self.cache.join("packages"))?;
        if !self.refresh
            && let Some(package) = cached(&manifest_file)
        {
            return Ok(package);
        }
        let apt = self.apt(wanted)?;
        let offers = apt.offers(name)?;
        let (version, depends) = match wanted {
            Wanted::Binary => apt.show(name)?,
            Wanted::Source | Wanted::Upstream => (source_version(&offers), Vec::new()),
        };
        if let Some(package) = cached(&manifest_file).filter(|p| p.version == version) {
            return Ok(package);
        }
        eprintln!("vsteer-lab: fetching {name} {version}");
        // Unpacked in another place and moved when complete, so an interrupted fetch leaves nothing that
        // looks complete.
        let fresh = folder.with_extension("part");
        remove_folder(&fresh)?;
        make_folder(&fresh)?;
        apt.download(name, &fresh)?;
        let files = offers.iter().map(|o| check(name, &fresh, o)).collect::<Result<Vec<_>, _>>()?;
        unpack(name, &fresh, &files, wanted)?;
        remove_folder(&folder)?;
        std::fs::rename(&fresh, &folder)
            .map_err(|e| Fault::io(format!("putting {} in place", folder.display()), &e))?;
        let package = Package {
            name: name.to_owned(),
            kind: wanted.word().to_owned(),
            version,
            depends,
            files,
            tree: folder.join("tree"),
        };
        let text = serde_json::to_string_pretty(&package).expect("a manifest is plain data");
        write_file(&manifest_file, &text)?;
        Ok(package)
    }
}

/// The package of this manifest, if its tree exists where the manifest says.
fn cached(manifest: &Path) -> Option<Package> {
    let text = std::fs::read_to_string(manifest).ok()?;
    let package: Package = serde_json::from_str(&text).ok()?;
    package.tree.is_dir().then_some(package)
}

fn vmlinuz_in(boot: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(boot).ok()?.flatten();
    files
        .map(|e| e.path())
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz")))
}

fn check(package: &str, folder: &Path, offer: &apt::Offer) -> Result<FetchedFile, Fault> {
    let path = folder.join(&offer.file);
    let text = command::output(Command::new("sha256sum").arg("--").arg(&path), UNPACK_LIMIT)?;
    let sha256 = text.trim_start_matches('\\').split_whitespace().next().unwrap_or_default().to_owned();
    match offer.checksum.split_once(':') {
        Some(("SHA256", expected)) if expected != sha256 => Err(Fault::new(
            FaultKind::BadInput,
            format!("package {package}: {} is not what the index says", offer.file),
        )
        .because(format!("sha256 is {sha256}, the signed index says {expected}"))
        .help("fetch again with --refresh; if it persists, the mirror or a proxy alters files")),
        _ => Ok(FetchedFile { file: offer.file.clone(), uri: offer.uri.clone(), sha256 }),
    }
}

fn unpack(package: &str, folder: &Path, files: &[FetchedFile], wanted: Wanted) -> Result<(), Fault> {
    let part = match wanted {
        Wanted::Binary => ".deb",
        Wanted::Source => ".dsc",
        Wanted::Upstream => ".orig.tar.",
    };
    let Some(main) = files.iter().find(|f| f.file.contains(part)) else {
        return Err(Fault::new(FaultKind::BadInput, format!("package {package} came without a {part} file")));
    };
    let (main, tree) = (folder.join(&main.file), folder.join("tree"));
    let mut command = match wanted {
        Wanted::Binary => Command::new("dpkg-deb"),
        Wanted::Source => Command::new("dpkg-source"),
        Wanted::Upstream => Command::new("tar"),
    };
    command.arg("-x");
    if wanted == Wanted::Upstream {
        // The archive has one folder with all files.
        make_folder(&tree)?;
        command.args(["--strip-components=1", "--no-same-owner", "-f"]).arg(&main).arg("-C").arg(&tree);
    } else {
        command.arg(&main).arg(&tree);
    }
    command::output(&mut command, UNPACK_LIMIT).map(drop).map_err(|f| {
        let help = "dpkg-source is in the package dpkg-dev; also check the space left in the cache";
        Fault { what: format!("unpacking package {package}: {}", f.what), ..f }.help(help)
    })
}

/// `2.9.0-1` from `hwloc_2.9.0-1.dsc`, or `2.9.0` from `hwloc_2.9.0.orig.tar.bz2`.
fn source_version(offers: &[apt::Offer]) -> String {
    let dsc = offers.iter().find_map(|o| o.file.strip_suffix(".dsc"));
    let dsc = dsc.or_else(|| offers.iter().find_map(|o| Some(o.file.split_once(".orig.tar.")?.0)));
    dsc.and_then(|f| f.split_once('_')).map(|(_, v)| v.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached_package(cache: &Path) -> Package {
        let folder = cache.join("packages/deb/some-package");
        make_folder(&folder.join("tree/boot")).unwrap();
        write_file(&folder.join("tree/boot/vmlinuz-6.1"), "kernel").unwrap();
        let package = Package {
            name: "some-package".into(),
            kind: "deb".into(),
            version: "1".into(),
            depends: vec![],
            files: vec![],
            tree: folder.join("tree"),
        };
        write_file(&folder.join("manifest.json"), serde_json::to_string(&package).unwrap()).unwrap();
        package
    }

    #[test]
    fn what_the_cache_has_needs_no_archive() {
        let cache = tempfile::tempdir().unwrap();
        let package = cached_package(cache.path());
        // There are no sources, so any query to the archive would fail.
        let mut fetcher = Fetcher::new(cache.path(), Vec::new(), false);
        assert_eq!(fetcher.binary("some-package").unwrap(), package);
        assert!(fetcher.kernel_from("some-package").unwrap().vmlinuz.ends_with("boot/vmlinuz-6.1"));
        assert!(fetcher.binary("other-package").is_err());
    }

    #[test]
    fn a_manifest_without_its_tree_is_not_trusted() {
        let cache = tempfile::tempdir().unwrap();
        let package = cached_package(cache.path());
        std::fs::remove_dir_all(package.tree).unwrap();
        assert!(Fetcher::new(cache.path(), Vec::new(), false).binary("some-package").is_err());
    }

    #[test]
    fn a_file_that_differs_from_the_index_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write_file(&folder.path().join("a.deb"), "abc").unwrap();
        let offer =
            |checksum: &str| apt::Offer { uri: "u".into(), file: "a.deb".into(), checksum: checksum.into() };
        // FIPS 180-2, appendix B.1.
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(check("a", folder.path(), &offer(&format!("SHA256:{right}"))).unwrap().sha256, right);
        let fault = check("a", folder.path(), &offer("SHA256:00")).unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadInput);
    }

    #[test]
    fn names_that_are_options_or_paths_are_refused() {
        let cache = tempfile::tempdir().unwrap();
        for name in ["", "-o", "../x", "a b", "a=1;"] {
            let fault = Fetcher::new(cache.path(), Vec::new(), false).binary(name).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Usage, "{name}");
        }
    }
}
