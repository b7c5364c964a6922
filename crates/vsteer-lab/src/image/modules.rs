//! Finds the modules that the kernel must load, in order: the wanted ones, each after those on which it
//! depends.
//!
//! A module's `.modinfo` section lists its dependencies (`depends=a,b`). `modules.builtin` beside the modules
//! lists what is built into the kernel. A package lacks the index that `depmod` makes at installation,
//! because nothing is installed here. Compressed modules are unpacked here, because the emulated host would
//! need much longer.
//!
//! Left out: aliases, options, soft dependencies.

use crate::command;
use crate::fetch::kernels::FullKernel;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vsteer_core::{Fault, FaultKind};

/// A module's name and its ELF file.
pub type Module = (String, Vec<u8>);

/// The modules of a host that runs VMs.
pub const KVM: &[&str] = &["kvm-amd"];

/// The modules `wanted` and all their dependencies, each after its own dependencies; without those that are
/// built in.
///
/// # Errors
/// One is missing, or cannot be unpacked.
pub fn closure(kernel: &FullKernel, wanted: &[&str]) -> Result<Vec<Module>, Fault> {
    let files = files(&kernel.modules.join("kernel"));
    let built_in = std::fs::read_to_string(module_list(kernel)).unwrap_or_default();
    let built_in: Vec<String> = built_in.lines().map(|l| name_of(Path::new(l))).collect();
    let mut order: Vec<Module> = Vec::new();
    // A stack of names. Each name is seen twice: first its dependencies go above it, then it is taken.
    let mut stack: Vec<(String, bool)> = wanted.iter().rev().map(|n| (normal(n), false)).collect();
    let mut loaded: Vec<Module> = Vec::new();
    while let Some((name, needs_known)) = stack.pop() {
        let there = |all: &[Module]| all.iter().any(|(n, _)| *n == name);
        if built_in.contains(&name) || there(&order) {
            continue;
        }
        if needs_known {
            let at = loaded.iter().position(|(n, _)| *n == name).expect("it was read when it was met first");
            order.push(loaded.swap_remove(at));
            continue;
        }
        if there(&loaded) {
            continue;
        }
        let file = files.iter().find(|f| name_of(f) == name).ok_or_else(|| {
            Fault::new(FaultKind::NothingThere, format!("Linux {} has no module {name}", kernel.release))
        })?;
        let bytes = read(file)?;
        stack.push((name.clone(), true));
        stack.extend(depends(&bytes).into_iter().map(|n| (n, false)));
        loaded.push((name, bytes));
    }
    Ok(order)
}

/// Newer packages have this list in another package than the modules.
fn module_list(kernel: &FullKernel) -> PathBuf {
    let beside = |folder: &Path| folder.join("modules.builtin");
    let trees = kernel.packages.iter().map(|p| p.tree.as_path());
    let candidates = trees
        .flat_map(|t| ["lib/modules", "usr/lib/modules"].map(|m| beside(&t.join(m).join(&kernel.release))));
    let mut candidates = candidates.filter(|f| f.is_file());
    candidates.next().unwrap_or_else(|| beside(&kernel.modules))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

/// `kvm_amd` for `kernel/arch/x86/kvm/kvm-amd.ko.xz`: the kernel does not distinguish dash and underscore.
fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    normal(name.split(".ko").next().unwrap_or_default())
}

fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let rest = &module[at + KEY.len()..];
    let value = &rest[..rest.iter().position(|b| *b == 0).unwrap_or(0)];
    let value = String::from_utf8_lossy(value);
    value.split(',').filter(|n| !n.is_empty()).map(normal).collect()
}

fn read(file: &Path) -> Result<Vec<u8>, Fault> {
    let unpack = match file.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => {
            return std::fs::read(file).map_err(|e| Fault::io(format!("reading {}", file.display()), &e));
        }
    };
    command::bytes(Command::new(unpack).arg("-dc").arg("--").arg(file), Duration::from_secs(30))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{make_folder, write_file};

    fn kernel(folder: &Path, modules: &[(&str, &str)]) -> FullKernel {
        let root = folder.join("lib/modules/1.0");
        make_folder(&root.join("kernel/x")).unwrap();
        for (name, depends) in modules {
            let text = format!("ELF\0license=GPL\0depends={depends}\0vermagic=1\0");
            write_file(&root.join(format!("kernel/x/{name}.ko")), text).unwrap();
        }
        write_file(&root.join("modules.builtin"), "kernel/drivers/virtio/virtio-ring.ko\n").unwrap();
        let (vmlinuz, config, packages) = (PathBuf::new(), PathBuf::new(), Vec::new());
        FullKernel { release: "1.0".into(), vmlinuz, config, modules: root, packages }
    }

    #[test]
    fn each_comes_after_all_that_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let all = [
            ("kvm-amd", "kvm,ccp"),
            ("kvm", "irqbypass"),
            ("ccp", "irqbypass"),
            ("irqbypass", ""),
            ("virtio_blk", "virtio_ring,irqbypass"),
        ];
        let kernel = kernel(folder.path(), &all);
        let names = |m: &[Module]| m.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
        let first = closure(&kernel, &["kvm-amd"]).unwrap();
        let at = |n: &str| names(&first).iter().position(|x| x == n).unwrap();
        assert_eq!(first.len(), 4);
        assert!(at("irqbypass") < at("kvm") && at("irqbypass") < at("ccp") && at("kvm_amd") == 3);
        assert_eq!(names(&closure(&kernel, &["virtio_blk"]).unwrap()), ["irqbypass", "virtio_blk"]);
        assert_eq!(closure(&kernel, &["none"]).unwrap_err().kind, FaultKind::NothingThere);
    }
}
