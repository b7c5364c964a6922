//! A generated profile of tuned: vsteer creates it, switches to it, checks it, switches back and removes it.
//!
//! vsteer never touches an existing folder that does not begin with its own line. `tuned-adm` exits with 0 in many
//! failures, so vsteer reads every file of the profile after the switch. After the switch back it restores the values
//! that tuned did not.
//!
//! **Untried** on a host with a running tuned: tests use a stand-in for its commands.

use super::place::Place;
use std::time::Duration;
use vsteer_core::setting::argv::Argv;

use vsteer_core::setting::lasting::{MADE, Profile, Setting, TUNED_ADM, tuned_profile};
use vsteer_core::setting::words::in_brackets;
use vsteer_core::{Fault, FaultKind};

const LIMIT: Duration = Duration::from_secs(120);

/// The active profile, where tuned's daemon runs and has one.
pub fn active(at: Place<'_>) -> Option<String> {
    ask(TUNED_ADM, at).ok().filter(|name| !name.is_empty())
}

/// The profile that tuned's tool names; empty without a profile or daemon. Without its daemon `tuned-adm profile` exits
/// with 0 but does nothing, so vsteer asks after each change.
///
/// # Errors
/// Where the tool cannot be run.
pub fn ask(program: &str, at: Place<'_>) -> Result<String, Fault> {
    let command = Argv::new([program, "active"]).map_err(|why| Fault::new(FaultKind::BadInput, why))?;
    let told = at.ask(&command, LIMIT)?;
    Ok(told
        .lines()
        .find_map(|l| l.strip_prefix("Current active profile: "))
        .unwrap_or_default()
        .trim()
        .to_owned())
}

/// Makes tuned use this profile; none if the name is empty.
///
/// # Errors
/// Where the tool refuses.
pub fn use_profile(program: &str, name: &str, at: Place<'_>) -> Result<(), Fault> {
    let command = tuned_profile(program, name).map_err(|why| Fault::new(FaultKind::BadInput, why))?;
    at.ask(&command, LIMIT).map(drop)
}

/// A profile over the active one that keeps these settings.
///
/// # Errors
/// Where the machine cannot be asked.
pub fn profile(
    experiment: &str,
    active: &str,
    settings: Vec<Setting>,
    at: Place<'_>,
) -> Result<Profile, Fault> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' };
    let name = format!("vsteer-{}", experiment.chars().map(plain).collect::<String>());
    // tuned 2.24 and later look in `profiles` first.
    let newer = "/etc/tuned/profiles";
    let base = if at.has(newer)? { newer } else { "/etc/tuned" };
    Ok(Profile {
        folder: format!("{base}/{name}"),
        name,
        includes: active.to_owned(),
        settings,
        program: TUNED_ADM.to_owned(),
    })
}

fn file(profile: &Profile) -> String {
    format!("{}/tuned.conf", profile.folder)
}

fn is_ours(profile: &Profile, at: Place<'_>) -> Result<bool, Fault> {
    Ok(at.has(&file(profile))? && at.text(&file(profile))?.starts_with(MADE))
}

/// The active profile.
///
/// # Errors
/// Where its command does not tell.
pub fn read(profile: &Profile, at: Place<'_>) -> Result<String, Fault> {
    ask(&profile.program, at)
}

/// Makes the profile, and switches to it.
///
/// # Errors
/// `Changed` where another folder of its name is there; `NotApplied` where a file does not hold what it should then.
pub fn set(profile: &Profile, name: &str, at: Place<'_>) -> Result<(), Fault> {
    if name != profile.name {
        return switch(profile, name, at);
    }
    if at.has(&profile.folder)? && !is_ours(profile, at)? {
        let what = format!("{}{at} already exists and does not come from vsteer", profile.folder);
        return Err(Fault::new(FaultKind::Changed, what).help("rename the folder or the experiment"));
    }
    at.make_folder(&profile.folder)?;
    at.replace(&file(profile), &profile.text())?;
    switch(profile, name, at)?;
    for s in &profile.settings {
        let now = value(s, at)?;
        if now != s.to {
            return Err(Fault::new(
                FaultKind::NotApplied,
                format!("tuned's profile {name} did not set {}", s.path),
            )
            .because(format!("the value should be {:?}, but is {now:?}", s.to)));
        }
    }
    Ok(())
}

fn value(s: &Setting, at: Place<'_>) -> Result<String, Fault> {
    Ok(in_brackets(&at.text(&s.path)?).to_owned())
}

fn switch(profile: &Profile, name: &str, at: Place<'_>) -> Result<(), Fault> {
    use_profile(&profile.program, name, at)
}

/// Switches back where that is due, puts former values back where tuned did not, and removes the profile. May be
/// called again.
///
/// # Errors
/// Where another profile than the former one is in force then, or a value does not go back.
pub fn restore(profile: &Profile, former: &str, at: Place<'_>) -> Result<(), Fault> {
    let now = read(profile, at)?;
    // Where somebody has switched to a third one meanwhile that is his choice.
    if now == profile.name {
        switch(profile, former, at)?;
        let now = read(profile, at)?;
        if now != former {
            return Err(Fault::new(FaultKind::NotApplied, format!("cannot switch tuned back to {former:?}"))
                .because(format!("its active profile is {now:?}")));
        }
        for s in &profile.settings {
            // What the former profile sets itself is its own; what nobody sets any more was found so.
            if value(s, at)? == s.to && s.from != s.to {
                at.write(&s.path, &s.from)?;
            }
        }
    }
    if is_ours(profile, at)? {
        at.remove_folder(&profile.folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const HERE: Place<'_> = Place(None);

    /// A folder with a file to be set, and a stand-in for tuned that applies `[sysfs]` of the profile that is named,
    /// and nothing else.
    fn place(dir: &Path, applies: bool) -> Profile {
        let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
        std::fs::write(at("value"), "madvise").unwrap();
        std::fs::write(at("active"), "virtual-host\n").unwrap();
        let apply = if applies { "sed -n 's/^# apply //p' \"$f\" | sh" } else { "true" };
        // The test's file is outside /sys, where a profile of tuned's has no place for it: the stand-in is told beside
        // the profile.
        std::fs::write(at("beside"), format!("# apply printf never > {}\n", at("value"))).unwrap();
        Profile {
            name: "vsteer-x".into(),
            folder: at("vsteer-x"),
            includes: "virtual-host".into(),
            settings: vec![Setting { path: at("value"), from: "madvise".into(), to: "never".into() }],
            program: {
                let text = format!(
                    "#!/bin/sh\ncase $1 in\nactive) echo \"Current active profile: $(cat {0})\";;\n\
                     profile) echo \"$2\" > {0}; f={1}; if [ -e {2}/$2/tuned.conf ]; then {apply}; fi;;\nesac\n",
                    at("active"),
                    at("beside"),
                    dir.display()
                );
                let program = dir.join("tuned-adm");
                // Another process makes it: a program that this one is writing could be inherited by what another test
                // starts, and then cannot be run ("text file busy").
                std::fs::write(at("program.txt"), text).unwrap();
                let made = std::process::Command::new("install")
                    .args(["-m", "755"])
                    .args([at("program.txt").as_str(), &program.to_string_lossy()])
                    .status();
                assert!(made.unwrap().success());
                std::fs::remove_file(at("program.txt")).unwrap();
                program.to_string_lossy().into_owned()
            },
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
            (names, std::fs::read_to_string(dir.path().join("value")).unwrap(), read(&p, HERE).unwrap())
        };
        let before = all();
        set(&p, "vsteer-x", HERE).unwrap();
        assert_eq!(read(&p, HERE).unwrap(), "vsteer-x");
        assert_eq!(std::fs::read_to_string(file(&p)).unwrap(), p.text());
        assert_ne!(all(), before);
        restore(&p, "virtual-host", HERE).unwrap();
        assert_eq!(all(), before);
        restore(&p, "virtual-host", HERE).unwrap();
        assert_eq!(all(), before);
        // Killed between making the folder and switching.
        std::fs::create_dir(&p.folder).unwrap();
        std::fs::write(file(&p), p.text()).unwrap();
        restore(&p, "virtual-host", HERE).unwrap();
        assert_eq!(all(), before);
    }

    #[test]
    fn what_answers_and_does_nothing_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let p = place(dir.path(), false);
        let fault = set(&p, "vsteer-x", HERE).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NotApplied, "{fault}");
        restore(&p, "virtual-host", HERE).unwrap();
        assert!(!Path::new(&p.folder).exists());
    }

    #[test]
    fn anothers_folder_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let p = place(dir.path(), true);
        std::fs::create_dir(&p.folder).unwrap();
        std::fs::write(file(&p), "[main]\n").unwrap();
        assert_eq!(set(&p, "vsteer-x", HERE).unwrap_err().kind, FaultKind::Changed);
        restore(&p, "virtual-host", HERE).unwrap();
        assert_eq!(std::fs::read_to_string(file(&p)).unwrap(), "[main]\n");
    }
}
