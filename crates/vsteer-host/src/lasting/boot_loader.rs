//! Boot parameters of the kernel, kept by the distribution's own tool.
//!
//! vsteer recognises the tool by its files: first kernelstub's, then grubby's, then `/etc/default/grub`, because a
//! distribution with one of the first two may also have the last. If nobody else edited GRUB's files, vsteer restores
//! every byte; otherwise it restores parameter by parameter.
//!
//! Tested: Debian 12's own update-grub in a folder (the lab's case `experiment-lasting`). **Untried**: a machine that
//! boots from it, and the real grubby and kernelstub (only stand-ins).

use super::place::Place;
use crate::actuate::Former;
use std::time::Duration;
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::lasting::{Loader, grub_with, of_grubby, of_kernelstub, of_menu, words_are_plain};
use vsteer_core::{Fault, FaultKind};

/// Making a menu asks every disk.
const LIMIT: Duration = Duration::from_secs(300);

const CONFIGURATION: &str = "/etc/kernelstub/configuration";
/// Of each tool the places where distributions have it.
const KERNELSTUB: [&str; 2] = ["/usr/bin/kernelstub", "/bin/kernelstub"];
const GRUBBY: [&str; 2] = ["/usr/sbin/grubby", "/sbin/grubby"];
const UPDATE_GRUB: [&str; 2] = ["/usr/sbin/update-grub", "/sbin/update-grub"];
const MAIN: &str = "/etc/default/grub";
const BESIDES: &str = "/etc/default/grub.d/*.cfg";

/// The boot loader's tool of a machine.
///
/// # Errors
/// Where the machine cannot be asked.
pub fn detect(at: Place<'_>) -> Result<Option<Loader>, Fault> {
    let all = [&KERNELSTUB[..], &GRUBBY, &UPDATE_GRUB, &[CONFIGURATION, MAIN, BESIDES]].concat();
    Ok(of_files(&at.of(&all)?))
}

/// Which tool there is where these files are.
fn of_files(there: &[String]) -> Option<Loader> {
    let has = |path: &str| there.iter().any(|t| t == path);
    let program = |names: [&str; 2]| names.into_iter().find(|p| has(p)).map(str::to_owned);
    if let Some(program) = program(KERNELSTUB).filter(|_| has(CONFIGURATION)) {
        return Some(Loader::Kernelstub { program, configuration: CONFIGURATION.to_owned() });
    }
    if let Some(program) = program(GRUBBY) {
        return Some(Loader::Grubby { program });
    }
    let update = program(UPDATE_GRUB)?;
    let folder = BESIDES.split('*').next().unwrap_or(BESIDES);
    let mut files: Vec<String> =
        there.iter().filter(|t| t.starts_with(folder) && t.ends_with(".cfg")).cloned().collect();
    files.sort();
    if has(MAIN) {
        files.insert(0, MAIN.to_owned());
    }
    (!files.is_empty()).then(|| Loader::Grub { files, update, menu: "/boot/grub/grub.cfg".to_owned() })
}

/// A call of a boot loader's tool: a path, never words for a shell.
fn command(words: &[&str]) -> Result<Argv, Fault> {
    Argv::new(words.iter().copied()).map_err(|why| Fault::new(FaultKind::BadInput, why))
}

fn texts(files: &[String], at: Place<'_>) -> Result<Vec<(String, String)>, Fault> {
    files.iter().map(|f| Ok((f.clone(), at.text(f)?))).collect()
}

/// Words of these names that the next boot will be given.
///
/// # Errors
/// Where the tool does not tell, or its kernels are given different ones.
pub fn read(loader: &Loader, names: &[String], at: Place<'_>) -> Result<String, Fault> {
    let told = match loader {
        Loader::Grubby { program } => of_grubby(&at.ask(&command(&[program, "--info=ALL"])?, LIMIT)?, names),
        Loader::Grub { menu, .. } => of_menu(&at.text(menu)?, names),
        Loader::Kernelstub { configuration, .. } => of_kernelstub(&at.text(configuration)?, names),
    };
    told.map_err(|why| {
        Fault::new(
            FaultKind::Unsupported,
            format!("cannot read the kernel's boot parameters from {loader}{at}"),
        )
        .because(why)
    })
}

/// What is about to be edited.
///
/// # Errors
/// Where it cannot be read.
pub fn former(loader: &Loader, at: Place<'_>) -> Result<Vec<(String, String)>, Fault> {
    match loader {
        Loader::Grub { files, .. } => texts(files, at),
        Loader::Grubby { .. } | Loader::Kernelstub { .. } => Ok(Vec::new()),
    }
}

/// Sets the words of these names for the next boot.
///
/// # Errors
/// `BadInput` for words that would need quoting; where a tool refuses.
pub fn set(loader: &Loader, names: &[String], words: &str, at: Place<'_>) -> Result<(), Fault> {
    if !words_are_plain(words) || !names.iter().all(|n| words_are_plain(n)) {
        return Err(Fault::new(
            FaultKind::BadInput,
            format!("cannot give the boot parameters {words:?} to {loader}"),
        )
        .because("these parameters need quotes, which vsteer does not write"));
    }
    let ask = |words: &[&str]| at.ask(&command(words)?, LIMIT).map(drop);
    match loader {
        Loader::Grubby { program } => {
            let (remove, add) = (format!("--remove-args={}", names.join(" ")), format!("--args={words}"));
            let all = [program.as_str(), "--update-kernel=ALL", &remove, &add];
            ask(if words.is_empty() { &all[..3] } else { &all })
        }
        Loader::Grub { files, update, .. } => {
            let old = texts(files, at)?;
            write_grub(&old, &grub_with(&old, names, words), update, at)
        }
        Loader::Kernelstub { program, .. } => {
            let now = read(loader, names, at)?;
            if !now.is_empty() {
                ask(&[program, "--delete-options", &now])?;
            }
            if words.is_empty() { Ok(()) } else { ask(&[program, "--add-options", words]) }
        }
    }
}

fn write_grub(
    old: &[(String, String)],
    new: &[(String, String)],
    update: &str,
    at: Place<'_>,
) -> Result<(), Fault> {
    for ((path, before), (_, after)) in old.iter().zip(new) {
        if before != after {
            at.replace(path, after)?;
        }
    }
    // Also if no file differs: a killed process may have written the files without making the menu.
    at.ask(&command(&[update])?, LIMIT).map(drop)
}

/// Puts back what was there, of words that were `from` before and are `to`. May be called again, and for a step that
/// was made in part.
///
/// # Errors
/// Where it does not go back.
pub fn restore(
    loader: &Loader,
    names: &[String],
    (from, to): (&str, &str),
    former: &Former,
    at: Place<'_>,
) -> Result<(), Fault> {
    match loader {
        Loader::Grub { files, update, .. } => {
            let now = texts(files, at)?;
            let made = grub_with(&former.files, names, to);
            let of = |all: &[(String, String)], path: &str| {
                all.iter().find(|(p, _)| p == path).map(|(_, t)| t.clone())
            };
            let mine = now
                .iter()
                .all(|(path, text)| [of(&made, path), of(&former.files, path)].contains(&Some(text.clone())));
            let back = if mine { former.files.clone() } else { grub_with(&now, names, from) };
            write_grub(&now, &back, update, at)?;
        }
        Loader::Grubby { .. } | Loader::Kernelstub { .. } => {
            if read(loader, names, at)? != from {
                set(loader, names, from, at)?;
            }
        }
    }
    let now = read(loader, names, at)?;
    if now == from {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::NotApplied,
        format!("cannot restore the kernel's boot parameters in {loader}{at}"),
    )
    .because(format!("vsteer set {from:?}, but the next boot would use {now:?}")))
}

#[cfg(test)]
mod tests;
