//! How does vsteer read and set a host setting that is text: a kernel file, commands, boot parameters?
//!
//! vsteer reads every setting back after it sets it, because many tools report success without effect (`tuned-adm
//! profile` without its daemon, files that round). Boot parameters take effect at a boot: vsteer reads those of the
//! running kernel and sets those of the next boot.
//!
//! Settings that persist (tuned's profiles, boot loaders, definitions of VMs) belong to [`crate::lasting`].

use crate::actuate::{Actuate, Former, Restored};
use crate::lasting::place::Place;
use crate::lasting::{boot_loader, definition, tuned};
use crate::shell;
use std::path::Path;
use std::time::Duration;
use vsteer_core::setting;
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::knob::{How, Knob};
use vsteer_core::setting::lasting::TUNED_ADM;
use vsteer_core::setting::words::{in_brackets, word_name, words_of};
use vsteer_core::setting::{Change, Scope, Step};
use vsteer_core::{Fault, FaultKind};

/// Time limit of a command that sets or reads a setting: it may restart a VM.
const LIMIT: Duration = Duration::from_secs(300);

fn of(knob: &Knob) -> String {
    let on = knob.on.as_ref().map_or(String::new(), |on| format!(" on {on}"));
    format!("the setting {:?}{on}", knob.name)
}

/// What is in force now.
///
/// # Errors
/// Where the file or command does not tell it.
pub fn read(knob: &Knob) -> Result<String, Fault> {
    let told = match (&knob.how, &knob.on) {
        (How::File { path }, on) => Place(on.as_deref()).text(path),
        (How::Commands { read, .. }, on) => shell::ask(read, on.as_deref(), LIMIT),
        (How::Tuned {}, on) => tuned::ask(TUNED_ADM, Place(on.as_deref())),
        (How::KernelWords { .. }, on) => {
            words(&["cat", "/proc/cmdline"]).and_then(|c| shell::ask(&c, on.as_deref(), LIMIT))
        }
        (How::TunedProfile { profile }, on) => tuned::read(profile, Place(on.as_deref())),
        (How::BootLoader { names, loader }, on) => boot_loader::read(loader, names, Place(on.as_deref())),
        (How::Definition { .. }, Some(on)) => Err(only_here(on)),
        (How::Definition { connect, element }, None) => definition::read(connect, element),
    };
    let told = told.map_err(|f| Fault { what: format!("cannot read {}: {}", of(knob), f.what), ..f })?;
    Ok(match &knob.how {
        How::KernelWords { names, .. } => words_of(&told, names),
        How::File { .. } => in_brackets(&told).to_owned(),
        _ => told.trim().to_owned(),
    })
}

fn words(words: &[&str]) -> Result<Argv, Fault> {
    Argv::new(words.iter().copied()).map_err(|why| Fault::new(FaultKind::BadInput, why))
}

fn only_here(on: &str) -> Fault {
    Fault::new(FaultKind::Unsupported, format!("cannot reach a VM's definition on {on}"))
        .because("for a definition, libvirt makes the connection, not vsteer's ssh")
        .help(format!("leave out `on`, and write connect = \"qemu+ssh://{on}/system\""))
}

/// Sets it. Whether it took, [`read`] tells; of words of the command line after the next boot.
///
/// # Errors
/// Where it is refused.
pub fn set(knob: &Knob, value: &str) -> Result<(), Fault> {
    let refused = |f: Fault| Fault { what: format!("cannot set {} to {value:?}: {}", of(knob), f.what), ..f };
    match (&knob.how, &knob.on) {
        (How::File { path }, on) => Place(on.as_deref()).write(path, value).map_err(refused),
        (How::Commands { set, .. }, on) => {
            shell::ask(&set.with("level", value), on.as_deref(), LIMIT).map(drop).map_err(refused)
        }
        (How::Tuned {}, on) => tuned::use_profile(TUNED_ADM, value, Place(on.as_deref())).map_err(refused),
        (How::KernelWords { names, set }, on) => {
            let command = set.with("remove", &names.join(" ")).with("add", value);
            shell::ask(&command, on.as_deref(), LIMIT).map(drop).map_err(refused)
        }
        (How::TunedProfile { profile }, on) => {
            tuned::set(profile, value, Place(on.as_deref())).map_err(refused)
        }
        (How::BootLoader { names, loader }, on) => {
            boot_loader::set(loader, names, value, Place(on.as_deref())).map_err(refused)
        }
        (How::Definition { .. }, Some(on)) => Err(refused(only_here(on))),
        (How::Definition { connect, element }, None) => {
            definition::set(connect, element, value).map_err(refused)
        }
    }
}

/// Are these words of a command line the same, in whatever order?
pub fn same(knob: &Knob, a: &str, b: &str) -> bool {
    match &knob.how {
        How::KernelWords { .. } => {
            let sorted = |t: &str| {
                let mut words: Vec<(String, String)> =
                    t.split_whitespace().map(|w| (word_name(w).to_owned(), w.to_owned())).collect();
                words.sort();
                words
            };
            sorted(a) == sorted(b)
        }
        _ => a == b,
    }
}

/// Settings of the host, as steps of a plan.
#[derive(Debug, Default)]
pub struct Knobs;

impl Knobs {
    fn knob<'a>(&self, step: &'a Step) -> Result<(&'a Knob, &'a str), Fault> {
        match &step.change {
            Change::Knob(setting::HostKnob { knob, to, .. }) => Ok((knob, to)),
            _ => Err(Fault::new(
                FaultKind::Unsupported,
                format!("cannot apply {}: {}", step.whose(), step.change),
            )
            .because("the plan changes the host, but this step changes a VM")
            .help("make two plans: one for the host, one for the VMs")),
        }
    }
}

impl Actuate for Knobs {
    fn current(&mut self, step: &Step) -> Result<Change, Fault> {
        let (knob, to) = self.knob(step)?;
        Ok(Change::Knob(setting::HostKnob {
            knob: Box::new(knob.clone()),
            from: read(knob)?,
            to: to.to_owned(),
        }))
    }

    fn changed_since(&mut self, step: &Step, former: &Former) -> Option<String> {
        let (knob, to) = self.knob(step).ok()?;
        // The running kernel does not show what the next boot will get.
        if matches!(knob.how, How::KernelWords { .. }) {
            return None;
        }
        let now = read(knob).ok()?;
        let Some(Change::Knob(setting::HostKnob { from, .. })) = &former.live else { return None };
        (now != *to && now != *from).then(|| format!("{now:?}"))
    }

    fn former(&mut self, step: &Step, _scope: Scope) -> Result<Former, Fault> {
        let live = Some(self.current(step)?);
        let (knob, to) = self.knob(step)?;
        let (files, parts) = match &knob.how {
            How::BootLoader { loader, .. } => {
                (boot_loader::former(loader, Place(knob.on.as_deref()))?, Vec::new())
            }
            How::Definition { connect, element } => (Vec::new(), definition::former(connect, element, to)?),
            _ => (Vec::new(), Vec::new()),
        };
        Ok(Former { live, files, definition: parts, ..Former::default() })
    }

    fn act(&mut self, step: &Step, _scope: Scope) -> Result<(), Fault> {
        let (knob, to) = self.knob(step)?;
        set(knob, to)
    }

    fn restore(&mut self, step: &Step, former: &Former) -> Result<Restored, Fault> {
        let (knob, to) = self.knob(step)?;
        let Some(Change::Knob(setting::HostKnob { from, .. })) = &former.live else {
            return Ok(Restored::Back);
        };
        let at = Place(knob.on.as_deref());
        match &knob.how {
            How::TunedProfile { profile } => {
                return tuned::restore(profile, from, at).map(|()| Restored::Back);
            }
            How::BootLoader { names, loader } => {
                return boot_loader::restore(loader, names, (from, to), former, at).map(|()| Restored::Back);
            }
            How::Definition { connect, element } => {
                return definition::restore(connect, element, &former.definition).map(|()| Restored::Back);
            }
            // A device, module or process that is gone took its file along.
            How::File { path } if knob.on.is_none() && matches!(Path::new(path).try_exists(), Ok(false)) => {
                return Ok(Restored::Gone(format!("{path} no longer exists")));
            }
            How::File { .. } | How::Commands { .. } | How::Tuned {} | How::KernelWords { .. } => {}
        }
        // Also boot parameters: the running kernel does not show what the next boot will get.
        let next_boot = matches!(knob.how, How::KernelWords { .. });
        if !next_boot && read(knob).is_ok_and(|now| now == *from) {
            return Ok(Restored::Back);
        }
        set(knob, from)?;
        let now = read(knob)?;
        if next_boot || now == *from {
            return Ok(Restored::Back);
        }
        Err(Fault::new(FaultKind::NotApplied, format!("cannot restore {}", of(knob)))
            .because(format!("vsteer set {from:?}, but the value is now {now:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vsteer_core::nouns::VmId;

    fn knob(how: How) -> Knob {
        Knob { name: "k".into(), how, on: None }
    }

    fn step(knob: &Knob, from: &str, to: &str) -> Step {
        let change = Change::Knob(setting::HostKnob {
            knob: Box::new(knob.clone()),
            from: from.into(),
            to: to.into(),
        });
        Step { vm: VmId("knob:k".into()), vm_name: "host".into(), change, reason: String::new() }
    }

    #[test]
    fn files_and_commands_are_set_read_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("it's").to_string_lossy().into_owned();
        std::fs::write(&path, "always [madvise] never\n").unwrap();
        let file = knob(How::File { path: path.clone() });
        assert_eq!(read(&file).unwrap(), "madvise");
        let s = step(&file, "madvise", "never");
        let former = Knobs.former(&s, Scope::Live).unwrap();
        Knobs.act(&s, Scope::Live).unwrap();
        assert_eq!(read(&file).unwrap(), "never");
        assert_eq!(Knobs.restore(&s, &former).unwrap(), Restored::Back);
        assert_eq!(read(&file).unwrap(), "madvise");
        let lost = knob(How::File { path: dir.path().join("none").to_string_lossy().into_owned() });
        let of_lost = step(&lost, "madvise", "never");
        assert!(matches!(Knobs.restore(&of_lost, &former).unwrap(), Restored::Gone(_)));
        let commands = knob(How::Commands {
            set: Argv::new(["sh", "-c", "printf %s \"$1\" > \"$2\"", "sh", "{level}", &path]).unwrap(),
            read: Argv::new(["cat", &path]).unwrap(),
        });
        set(&commands, "two").unwrap();
        assert_eq!(read(&commands).unwrap(), "two");
        assert_eq!(
            set(&knob(How::File { path: "/nowhere/at/all".into() }), "1").unwrap_err().kind,
            FaultKind::NothingThere
        );
    }

    #[test]
    fn what_does_not_go_back_is_told() {
        let liar = knob(How::Commands {
            set: Argv::parse("true").unwrap(),
            read: Argv::parse("echo stuck").unwrap(),
        });
        let s = step(&liar, "a", "b");
        let former = Former {
            live: Some(Change::Knob(setting::HostKnob {
                knob: Box::new(liar.clone()),
                from: "a".into(),
                to: "b".into(),
            })),
            ..Former::default()
        };
        assert_eq!(Knobs.restore(&s, &former).unwrap_err().kind, FaultKind::NotApplied);
    }

    #[test]
    fn words_of_the_running_kernel() {
        let words =
            knob(How::KernelWords { names: vec!["no_such_word".into()], set: Argv::parse("true").unwrap() });
        assert_eq!(read(&words).unwrap(), "");
        assert!(same(&words, "a=1 b", "b a=1") && !same(&words, "a=1", "a=2"));
    }
}
