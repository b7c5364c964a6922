//! A generated profile of tuned's: made, switched to, read back; switched from and removed.
//!
//! Its folder is ours alone: one that is there already and does not begin with our line is never touched. After switching, every file that it sets is read, since
//! `tuned-adm` answers 0 in many ways; after switching back the former values are put back where tuned did not.
//!
//! **untried** on a host whose tuned runs: tried with a stand-in for its commands.

use super::replace;
use crate::shell;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vsteer_core::experiment::description::{TUNED_READ, TUNED_SET, in_brackets};
use vsteer_core::experiment::lasting::{MADE, Profile, Setting};
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(120);

/// The active profile, where tuned's daemon runs and has one.
pub fn active() -> Option<String> {
    let told = shell::ask(TUNED_READ, None, LIMIT).ok()?;
    Some(told.trim().to_owned()).filter(|name| !name.is_empty())
}

/// A profile over the active one that keeps these settings.
pub fn profile(experiment: &str, active: &str, settings: Vec<Setting>) -> Profile {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' };
    let name = format!("vsteer-{}", experiment.chars().map(plain).collect::<String>());
    // tuned 2.24 and later look beneath `profiles` first.
    let newer = "/etc/tuned/profiles";
    let base = if Path::new(newer).is_dir() { newer } else { "/etc/tuned" };
    Profile {
        folder: format!("{base}/{name}"),
        name,
        includes: active.to_owned(),
        settings,
        set: TUNED_SET.to_owned(),
        read: TUNED_READ.to_owned(),
    }
}

fn file(profile: &Profile) -> PathBuf {
    Path::new(&profile.folder).join("tuned.conf")
}

fn is_ours(profile: &Profile) -> bool {
    std::fs::read_to_string(file(profile)).is_ok_and(|t| t.starts_with(MADE))
}

/// The active profile.
///
/// # Errors
/// Where its command does not tell.
pub fn read(profile: &Profile) -> Result<String, Fault> {
    shell::ask(&profile.read, None, LIMIT).map(|told| told.trim().to_owned())
}

/// Makes the profile, and switches to it.
///
/// # Errors
/// `Changed` where another folder of its name is there; `NotApplied` where a file does not hold what it should then.
pub fn set(profile: &Profile, name: &str) -> Result<(), Fault> {
    if name != profile.name {
        return switch(profile, name);
    }
    if Path::new(&profile.folder).exists() && !is_ours(profile) {
        let what = format!("{} is there and was not made by vsteer", profile.folder);
        return Err(Fault::new(FaultKind::Changed, what).way_out("rename it, or the experiment"));
    }
    std::fs::create_dir_all(&profile.folder)
        .map_err(|e| Fault::io(format!("making {}", profile.folder), &e))?;
    replace(&file(profile).to_string_lossy(), &profile.text())?;
    switch(profile, name)?;
    for s in &profile.settings {
        let now = value(s)?;
        if now != s.to {
            return Err(Fault::new(FaultKind::NotApplied, format!("profile {name} of tuned's: {}", s.path))
                .because(format!("{:?} should be in force, and {now:?} is", s.to)));
        }
    }
    Ok(())
}

fn value(s: &Setting) -> Result<String, Fault> {
    let text = std::fs::read_to_string(&s.path).map_err(|e| Fault::io(format!("reading {}", s.path), &e))?;
    Ok(in_brackets(&text).to_owned())
}

fn switch(profile: &Profile, name: &str) -> Result<(), Fault> {
    shell::ask(&profile.set.replace("{level}", name), None, LIMIT).map(drop)
}

/// Switches back where that is due, puts former values back where tuned did not, and removes the profile. May be called again.
///
/// # Errors
/// Where another profile than the former one is in force then, or a value does not go back.
pub fn restore(profile: &Profile, former: &str) -> Result<(), Fault> {
    let now = read(profile)?;
    // Where somebody has switched to a third one meanwhile that is his choice.
    if now == profile.name {
        switch(profile, former)?;
        let now = read(profile)?;
        if now != former {
            return Err(Fault::new(FaultKind::NotApplied, format!("switching tuned back to {former:?}"))
                .because(format!("its active profile is {now:?}")));
        }
        for s in &profile.settings {
            // What the former profile sets itself is its own; what nobody sets any more was found so.
            if value(s)? == s.to && s.from != s.to {
                std::fs::write(&s.path, &s.from).map_err(|e| Fault::io(format!("writing {}", s.path), &e))?;
            }
        }
    }
    if is_ours(profile) {
        std::fs::remove_dir_all(&profile.folder)
            .map_err(|e| Fault::io(format!("removing {}", profile.folder), &e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a file to be set, and a stand-in for tuned that applies `[sysfs]` of the profile that is named, and nothing else.
    fn place(dir: &Path, applies: bool) -> Profile {
        let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
        std::fs::write(at("value"), "madvise").unwrap();
        std::fs::write(at("active"), "virtual-host\n").unwrap();
        let apply = if applies { "sed -n 's/^# apply //p' \"$f\" | sh" } else { "true" };
        // The test's file is outside /sys, where a profile of tuned's has no place for it: the stand-in is told beside the profile.
        std::fs::write(at("beside"), format!("# apply printf never > {}\n", at("value"))).unwrap();
        Profile {
            name: "vsteer-x".into(),
            folder: at("vsteer-x"),
            includes: "virtual-host".into(),
            settings: vec![Setting { path: at("value"), from: "madvise".into(), to: "never".into() }],
            set: format!(
                "echo '{{level}}' > {}; f={}; if [ -e {}/{{level}}/tuned.conf ]; then {apply}; fi",
                at("active"),
                at("beside"),
                dir.display()
            ),
            read: format!("cat {}", at("active")),
        }
    }

    #[test]
    fn made_switched_to_and_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let p = place(dir.path(), true);
        let all = || {
            let mut names: Vec<_> =
                std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            (names, std::fs::read_to_string(dir.path().join("value")).unwrap(), read(&p).unwrap())
        };
        let before = all();
        set(&p, "vsteer-x").unwrap();
        assert_eq!(read(&p).unwrap(), "vsteer-x");
        assert_eq!(std::fs::read_to_string(file(&p)).unwrap(), p.text());
        assert_ne!(all(), before);
        restore(&p, "virtual-host").unwrap();
        assert_eq!(all(), before);
        restore(&p, "virtual-host").unwrap();
        assert_eq!(all(), before);
        // Killed between making the folder and switching.
        std::fs::create_dir(&p.folder).unwrap();
        std::fs::write(file(&p), p.text()).unwrap();
        restore(&p, "virtual-host").unwrap();
        assert_eq!(all(), before);
    }

    #[test]
    fn what_answers_and_does_nothing_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let p = place(dir.path(), false);
        let fault = set(&p, "vsteer-x").unwrap_err();
        assert_eq!(fault.kind, FaultKind::NotApplied, "{fault}");
        restore(&p, "virtual-host").unwrap();
        assert!(!Path::new(&p.folder).exists());
    }

    #[test]
    fn anothers_folder_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let p = place(dir.path(), true);
        std::fs::create_dir(&p.folder).unwrap();
        std::fs::write(file(&p), "[main]\n").unwrap();
        assert_eq!(set(&p, "vsteer-x").unwrap_err().kind, FaultKind::Changed);
        restore(&p, "virtual-host").unwrap();
        assert_eq!(std::fs::read_to_string(file(&p)).unwrap(), "[main]\n");
    }
}
