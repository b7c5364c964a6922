//! How does vsteer keep a setting beyond the next boot, with the tool that owns it, and restore it exactly?
//!
//! The texts and edits are in the core (`vsteer_core::setting::lasting`). This folder reads and writes the files and
//! calls the tools. Whatever a tool answers, vsteer reads the result back: tuned's active profile and its files, the
//! boot loader's menu, libvirt's definition. On another machine it does the same over ssh ([`place`]), except for
//! definitions, because libvirt makes its own connections.

pub mod boot_loader;
pub mod definition;
pub mod place;
pub mod tuned;

use std::io::Write;
use std::path::Path;
use vsteer_core::Fault;
use vsteer_record::trusted;

/// Replaces a file as a whole, keeping its mode: a boot loader's file is never half there.
fn replace(path: &str, text: &str) -> Result<(), Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("cannot write {path}"), e);
    let file = Path::new(path);
    let beside = file.with_file_name(format!(
        ".{}.vsteer",
        file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    ));
    trusted::folder(file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let write = || -> std::io::Result<()> {
        // A run that was killed may have left one. A new one follows no link.
        let _ = std::fs::remove_file(&beside);
        let mut f = std::fs::File::create_new(&beside)?;
        f.write_all(text.as_bytes())?;
        if let Ok(old) = std::fs::metadata(file) {
            f.set_permissions(old.permissions())?;
        }
        f.sync_all()?;
        std::fs::rename(&beside, file)?;
        std::fs::File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().map_err(|e| {
        let _ = std::fs::remove_file(&beside);
        failed(&e)
    })
}
