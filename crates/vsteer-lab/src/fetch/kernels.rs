//! Finds the oldest or newest kernel in the archive that has all required features.
//!
//! A kernel's features are in its configuration file, which comes with it. So for each series (6.18, 7.3),
//! the latest package for VMs is fetched, starting at one end, until one has all required features. The
//! others are noted with the reason and deleted. The search includes later suites
//! ([`super::Fetcher::of_later_suites`]), because the features are newer than the distribution of many users.
//!
//! Left out: kernels for real hardware, which are five times as large.

use super::{Fetcher, Package, vmlinuz_in};
use crate::files::{make_folder, remove_folder, write_file};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vsteer_core::{Fault, FaultKind};

/// The `CONFIG_` options that the emulated host's kernel must have.
pub const FOR_EMULATED_HOST: &[&str] =
    &["SCHED_CLASS_EXT", "DEBUG_INFO_BTF", "DEBUG_INFO_BTF_MODULES", "KVM_AMD", "SCHEDSTATS"];
/// The options that Debian's older kernel, whose scheduler is still CFS, must have.
pub const WITH_CFS: &[&str] = &["DEBUG_INFO_BTF", "DEBUG_INFO_BTF_MODULES", "KVM_AMD", "SCHEDSTATS"];

/// Packages among which a kernel may be divided.
const PARTS: &[&str] = &["linux-binary-", "linux-modules-", "linux-base-"];

/// Which of several kernels to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// The oldest series with all features, its latest package.
    Oldest,
    Newest,
    /// The distribution's own kernel.
    Own,
    /// This series: `6.18`.
    Series(u32, u32),
}

impl std::str::FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        let series = || {
            let (major, minor) = text.split_once('.')?;
            Some(Which::Series(major.parse().ok()?, minor.parse().ok()?))
        };
        match text {
            "oldest" => Ok(Which::Oldest),
            "newest" => Ok(Which::Newest),
            "own" => Ok(Which::Own),
            _ => series().ok_or_else(|| "write oldest, newest, own, or a series such as 6.18".to_owned()),
        }
    }
}

/// A kernel with its modules and its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FullKernel {
    /// `6.18.15+deb13-cloud-amd64`.
    pub release: String,
    /// The compressed image.
    pub vmlinuz: PathBuf,
    /// Its configuration file.
    pub config: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
    /// The packages that contain it, with versions and checksums.
    pub packages: Vec<Package>,
}

impl FullKernel {
    /// The parts of one kernel in these packages; `None` if one is missing.
    pub fn of(packages: Vec<Package>) -> Option<FullKernel> {
        let trees = || packages.iter().map(|p| p.tree.as_path());
        let has_modules = |folder: &PathBuf| folder.join("kernel").is_dir();
        let modules = trees().flat_map(module_folders).find(has_modules)?;
        let release = modules.file_name()?.to_str()?.to_owned();
        let beside =
            |name: &str| trees().flat_map(module_folders).map(|f| f.join(name)).find(|f| f.is_file());
        let config = trees().map(|t| t.join(format!("boot/config-{release}"))).find(|f| f.is_file());
        let config = config.or_else(|| beside("config"))?;
        let vmlinuz = trees().find_map(|t| vmlinuz_in(&t.join("boot"))).or_else(|| beside("vmlinuz"))?;
        Some(FullKernel { release, vmlinuz, config, modules, packages })
    }

    /// The options of `needed` that it lacks.
    ///
    /// # Errors
    /// The configuration cannot be read.
    fn lacks(&self, needed: &[&str]) -> Result<Vec<String>, Fault> {
        let config = std::fs::read_to_string(&self.config)
            .map_err(|e| Fault::io(format!("reading {}", self.config.display()), &e))?;
        Ok(lacking(&config, needed))
    }
}

fn lacking(config: &str, needed: &[&str]) -> Vec<String> {
    let has = |option: &str| {
        config.lines().any(|l| {
            l.strip_prefix("CONFIG_")
                .and_then(|l| l.split_once('='))
                .is_some_and(|(name, value)| name == option && (value == "y" || value == "m"))
        })
    };
    needed.iter().filter(|o| !has(o)).map(|o| (*o).to_owned()).collect()
}

/// `lib/modules/RELEASE` of a tree; newer packages have `usr/lib`.
fn module_folders(tree: &Path) -> Vec<PathBuf> {
    let below = |p: &str| std::fs::read_dir(tree.join(p)).into_iter().flatten().flatten();
    let mut folders: Vec<_> = ["lib/modules", "usr/lib/modules"].iter().flat_map(|p| below(p)).collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    folders.into_iter().map(|e| e.path()).collect()
}

/// The number in `linux-image-6.18.15+deb13-cloud-amd64`; `None` for another kind of name.
fn version(name: &str, architecture: &str) -> Option<[u32; 3]> {
    let release = name.strip_prefix("linux-image-")?.strip_suffix(&format!("-cloud-{architecture}"))?;
    let number = release.split(['+', '-', '~']).next()?;
    let mut parts = number.split('.').map(str::parse);
    let (major, minor) = (parts.next()?.ok()?, parts.next()?.ok()?);
    Some([major, minor, parts.next().and_then(Result::ok).unwrap_or(0)])
}

/// The latest package of each series, oldest series first.
fn latest_of_each_series(names: &[String], architecture: &str) -> Vec<String> {
    let mut series: BTreeMap<[u32; 2], ([u32; 3], &String)> = BTreeMap::new();
    for name in names {
        let Some(version) = version(name, architecture) else { continue };
        let one = series.entry([version[0], version[1]]).or_insert((version, name));
        if (version, name) > *one {
            *one = (version, name);
        }
    }
    series.into_values().map(|(_, name)| name.clone()).collect()
}

/// Finds and fetches the kernel.
///
/// # Errors
/// No available kernel has all features; the archive does not answer.
pub fn resolve(cache: &Path, which: Which, needed: &[&str], refresh: bool) -> Result<FullKernel, Fault> {
    if which == Which::Own {
        let kernel = Fetcher::of_system(cache, refresh).kernel()?;
        let generic = kernel.packages.first().map_or_else(String::new, |p| p.name.clone());
        let full = FullKernel::of(kernel.packages).ok_or_else(|| incomplete(&generic))?;
        return match full.lacks(needed)? {
            lacks if lacks.is_empty() => Ok(full),
            lacks => Err(none(&[format!("{generic}: lacks {}", lacks.join(", "))])),
        };
    }
    let mut fetcher = Fetcher::of_later_suites(cache, refresh);
    let architecture = "amd64";
    let names = fetcher.apt(super::Wanted::Binary)?.names("linux-image-")?;
    let mut names = latest_of_each_series(&names, architecture);
    match which {
        Which::Newest => names.reverse(),
        Which::Series(major, minor) => {
            names.retain(|name| version(name, architecture).is_some_and(|v| v[..2] == [major, minor]));
        }
        Which::Oldest | Which::Own => {}
    }
    let refused_file = cache.join("kernels-refused.json");
    let mut refused: BTreeMap<String, Vec<String>> = std::fs::read_to_string(&refused_file)
        .ok()
        .and_then(|t| serde_json::from_str(&t).ok())
        .unwrap_or_default();
    let mut reasons = Vec::new();
    for name in names {
        let known = refused.get(&name).filter(|lacks| lacks.iter().any(|l| needed.contains(&l.as_str())));
        let lacks = match known {
            Some(lacks) => lacks.clone(),
            None => {
                let full = whole(&mut fetcher, &name)?;
                let lacks = full.lacks(needed)?;
                if lacks.is_empty() {
                    return Ok(full);
                }
                eprintln!("vsteer-lab: {} lacks {}", full.release, lacks.join(", "));
                for package in &full.packages {
                    remove_folder(package.tree.parent().unwrap_or(&package.tree))?;
                }
                refused.insert(name.clone(), lacks.clone());
                make_folder(cache)?;
                write_file(&refused_file, serde_json::to_string_pretty(&refused).expect("plain data"))?;
                lacks
            }
        };
        reasons.push(format!("{name}: lacks {}", lacks.join(", ")));
    }
    Err(none(&reasons))
}

/// The package and the parts that it names: image, modules, and others. If a part is no longer available, it
/// may not be needed.
fn whole(fetcher: &mut Fetcher, name: &str) -> Result<FullKernel, Fault> {
    let mut gone = None;
    let mut packages: Vec<Package> = Vec::new();
    let mut waiting = vec![name.to_owned()];
    while let Some(name) = waiting.pop() {
        if packages.iter().any(|p| p.name == name) {
            continue;
        }
        let package = match fetcher.binary(&name) {
            Ok(package) => package,
            Err(fault) if fault.kind == FaultKind::NothingThere && !packages.is_empty() => {
                gone.get_or_insert(fault);
                continue;
            }
            Err(fault) => return Err(fault),
        };
        let is_part = |d: &&String| PARTS.iter().any(|p| d.starts_with(p));
        waiting.extend(package.depends.iter().filter(is_part).cloned());
        packages.push(package);
    }
    FullKernel::of(packages).ok_or_else(|| gone.unwrap_or_else(|| incomplete(name)))
}

fn incomplete(package: &str) -> Fault {
    Fault::new(FaultKind::BadInput, format!("package {package} does not lead to a whole kernel"))
        .because("image, configuration or modules are missing in its packages")
}

fn none(reasons: &[String]) -> Fault {
    let because = if reasons.is_empty() { "none is offered".to_owned() } else { reasons.join("; ") };
    Fault::new(FaultKind::NothingThere, "no kernel that the archive offers can be the emulated host's")
        .because(because)
        .help(
            "the lab reads Debian's archive as /etc/apt names it: run it on Debian, or fetch with --refresh",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_series_the_latest() {
        let names = [
            "linux-image-6.18.9+deb13-cloud-amd64",
            "linux-image-6.18.15+deb13-cloud-amd64",
            "linux-image-6.12.90+deb12.1-cloud-amd64",
            "linux-image-6.12.90+deb12-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64-dbg",
            "linux-image-7.3.4+deb13-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-cloud-amd64",
        ]
        .map(str::to_owned);
        assert_eq!(
            latest_of_each_series(&names, "amd64"),
            [
                "linux-image-6.1.0-56-cloud-amd64",
                "linux-image-6.12.90+deb12.1-cloud-amd64",
                "linux-image-6.18.15+deb13-cloud-amd64",
                "linux-image-7.3.4+deb13-cloud-amd64"
            ]
        );
    }

    #[test]
    fn a_kernel_is_named() {
        assert_eq!("6.18".parse(), Ok(Which::Series(6, 18)));
        assert_eq!("oldest".parse(), Ok(Which::Oldest));
        assert!("6".parse::<Which>().is_err() && "6.x".parse::<Which>().is_err());
    }

    #[test]
    fn options_are_built_in_or_modules_and_whole_words() {
        let config =
            "CONFIG_KVM_AMD=m\nCONFIG_SCHEDSTATS=y\n# CONFIG_SCHED_CLASS_EXT is not set\nCONFIG_BTF_X=y\n";
        assert_eq!(
            lacking(config, &["KVM_AMD", "SCHEDSTATS", "SCHED_CLASS_EXT", "BTF"]),
            ["SCHED_CLASS_EXT", "BTF"]
        );
    }

    #[test]
    fn both_layouts_of_packages_are_whole() {
        let cache = tempfile::tempdir().unwrap();
        let package = |name: &str, files: &[&str]| {
            let tree = cache.path().join(name);
            for file in files {
                make_folder(tree.join(file).parent().unwrap()).unwrap();
                write_file(&tree.join(file), "x").unwrap();
            }
            let (name, version) = (name.to_owned(), "1".to_owned());
            Package { name, kind: "deb".into(), version, depends: vec![], files: vec![], tree }
        };
        let one = package(
            "one",
            &["boot/vmlinuz-6.18.1-x", "boot/config-6.18.1-x", "usr/lib/modules/6.18.1-x/kernel/a.ko.xz"],
        );
        let full = FullKernel::of(vec![one]).unwrap();
        assert_eq!(full.release, "6.18.1-x");
        let binary = package("binary", &["usr/lib/modules/7.3-x/vmlinuz"]);
        let base = package("base", &["usr/lib/modules/7.3-x/config"]);
        let modules = package("modules", &["usr/lib/modules/7.3-x/kernel/a.ko.xz"]);
        assert_eq!(FullKernel::of(vec![binary.clone(), base.clone()]), None);
        let full = FullKernel::of(vec![binary, base, modules]).unwrap();
        assert!(full.vmlinuz.ends_with("binary/usr/lib/modules/7.3-x/vmlinuz"));
        assert!(full.config.ends_with("base/usr/lib/modules/7.3-x/config"));
    }
}
