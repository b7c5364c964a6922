//! Words of the kernel's command line, kept by the distribution's own tool.
//!
//! Which tool there is, is told by its files beneath the root: kernelstub's before grubby's before `/etc/default/grub`, since a distribution that has one of the
//! former may carry the latter's file besides. GRUB's files are put back to the byte where nobody else edited them meanwhile, else word by word.
//!
//! Tried: Debian 12's own update-grub in a folder of its own (the lab's case `experiment-lasting`). **untried**: a machine that boots from it; grubby and kernelstub
//! but for a stand-in.

use super::replace;
use crate::actuate::Former;
use crate::root::Root;
use crate::shell;
use std::time::Duration;
use vsteer_core::experiment::lasting::{
    Loader, grub_with, of_grubby, of_kernelstub, of_menu, words_are_plain,
};
use vsteer_core::{Fault, FaultKind};

/// Making a menu asks every disk.
const LIMIT: Duration = Duration::from_secs(300);

/// The boot loader's tool of this machine.
pub fn detect(root: &Root) -> Option<Loader> {
    let there = |path: &str| root.bytes(path).is_ok();
    let program = |names: [&str; 2]| names.into_iter().find(|p| there(p)).map(str::to_owned);
    let configuration = "/etc/kernelstub/configuration";
    if let Some(program) =
        program(["/usr/bin/kernelstub", "/bin/kernelstub"]).filter(|_| there(configuration))
    {
        return Some(Loader::Kernelstub { program, configuration: configuration.to_owned() });
    }
    if let Some(program) = program(["/usr/sbin/grubby", "/sbin/grubby"]) {
        return Some(Loader::Grubby { program });
    }
    let update = program(["/usr/sbin/update-grub", "/sbin/update-grub"])?;
    let main = "/etc/default/grub";
    let folder = "/etc/default/grub.d";
    let mut files: Vec<String> = root.names(folder).unwrap_or_default();
    files.retain(|name| name.ends_with(".cfg"));
    files.sort();
    let mut files: Vec<String> = files.into_iter().map(|name| format!("{folder}/{name}")).collect();
    if there(main) {
        files.insert(0, main.to_owned());
    }
    (!files.is_empty()).then(|| Loader::Grub { files, update, menu: "/boot/grub/grub.cfg".to_owned() })
}

fn text(path: &str) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|e| Fault::io(format!("reading {path}"), &e))
}

fn texts(files: &[String]) -> Result<Vec<(String, String)>, Fault> {
    files.iter().map(|f| Ok((f.clone(), text(f)?))).collect()
}

/// Words of these names that the next boot will be given.
///
/// # Errors
/// Where the tool does not tell, or its kernels are given different ones.
pub fn read(loader: &Loader, names: &[String]) -> Result<String, Fault> {
    let told = match loader {
        Loader::Grubby { program } => {
            of_grubby(&shell::ask(&format!("{program} --info=ALL"), None, LIMIT)?, names)
        }
        Loader::Grub { menu, .. } => of_menu(&text(menu)?, names),
        Loader::Kernelstub { configuration, .. } => of_kernelstub(&text(configuration)?, names),
    };
    told.map_err(|why| {
        Fault::new(FaultKind::Unsupported, format!("the kernel's words by {loader}")).because(why)
    })
}

/// What is about to be edited.
///
/// # Errors
/// Where it cannot be read.
pub fn former(loader: &Loader) -> Result<Vec<(String, String)>, Fault> {
    match loader {
        Loader::Grub { files, .. } => texts(files),
        Loader::Grubby { .. } | Loader::Kernelstub { .. } => Ok(Vec::new()),
    }
}

/// Sets the words of these names for the next boot.
///
/// # Errors
/// `BadInput` for words that would need quoting; where a tool refuses.
pub fn set(loader: &Loader, names: &[String], words: &str) -> Result<(), Fault> {
    if !words_are_plain(words) || !names.iter().all(|n| words_are_plain(n)) {
        return Err(Fault::new(FaultKind::BadInput, format!("words {words:?} for {loader}"))
            .because("they would need quoting"));
    }
    let ask = |line: String| shell::ask(&line, None, LIMIT).map(drop);
    match loader {
        Loader::Grubby { program } => {
            let remove = format!("--remove-args=\"{}\"", names.join(" "));
            let add = if words.is_empty() { String::new() } else { format!(" --args=\"{words}\"") };
            ask(format!("{program} --update-kernel=ALL {remove}{add}"))
        }
        Loader::Grub { files, update, .. } => {
            let old = texts(files)?;
            write_grub(&old, &grub_with(&old, names, words), update)
        }
        Loader::Kernelstub { program, .. } => {
            let now = read(loader, names)?;
            if !now.is_empty() {
                ask(format!("{program} --delete-options \"{now}\""))?;
            }
            if words.is_empty() { Ok(()) } else { ask(format!("{program} --add-options \"{words}\"")) }
        }
    }
}

fn write_grub(old: &[(String, String)], new: &[(String, String)], update: &str) -> Result<(), Fault> {
    for ((path, before), (_, after)) in old.iter().zip(new) {
        if before != after {
            replace(path, after)?;
        }
    }
    // Also where no file differs: whoever was killed may have written them and not made the menu.
    shell::ask(update, None, LIMIT).map(drop)
}

/// Puts back what was there. May be called again, and for a step that was made in part.
///
/// # Errors
/// Where it does not go back.
pub fn restore(
    loader: &Loader,
    names: &[String],
    from: &str,
    to: &str,
    former: &Former,
) -> Result<(), Fault> {
    match loader {
        Loader::Grub { files, update, .. } => {
            let now = texts(files)?;
            let made = grub_with(&former.files, names, to);
            let of = |all: &[(String, String)], path: &str| {
                all.iter().find(|(p, _)| p == path).map(|(_, t)| t.clone())
            };
            let mine = now
                .iter()
                .all(|(path, text)| [of(&made, path), of(&former.files, path)].contains(&Some(text.clone())));
            let back = if mine { former.files.clone() } else { grub_with(&now, names, from) };
            write_grub(&now, &back, update)?;
        }
        Loader::Grubby { .. } | Loader::Kernelstub { .. } => {
            if read(loader, names)? != from {
                set(loader, names, from)?;
            }
        }
    }
    let now = read(loader, names)?;
    if now == from {
        return Ok(());
    }
    Err(Fault::new(FaultKind::NotApplied, format!("putting the kernel's words back by {loader}"))
        .because(format!("{from:?} was set, the next boot would be given {now:?}")))
}

#[cfg(test)]
mod tests;
