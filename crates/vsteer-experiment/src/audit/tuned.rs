//! Is tuned's active profile really in force?
//!
//! `tuned-adm profile` without its daemon answers 0 and does nothing, and `tuned-adm verify` says OK where there is no cpufreq to look at (tuned 2.20). So the profile's
//! own file is read, with those that it includes, and what it names is compared: governor, energy preference, sysctls. Source: tuned.conf(5).
//!
//! Left out: what plugins other than `[cpu]` and `[sysctl]` set; variables (`${...}`), which are told as not looked at.

use super::{Check, Finding, Tree};
use std::collections::BTreeMap;

/// See the file's head.
pub const CHECK: Check = Check { name: "tuned", doc: "tuned's profile against what is in force", look };

/// Profiles include each other; not deeper than this.
const DEPTH: usize = 8;

/// What a profile sets: section and key, value.
fn settings(t: &Tree, profile: &str, depth: usize, into: &mut BTreeMap<(String, String), String>) -> bool {
    let places = ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];
    let Some(text) = places.iter().find_map(|p| t.text(&format!("{p}/{profile}/tuned.conf"))) else {
        return false;
    };
    let mut section = String::new();
    let mut own = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            if section == "main" && key == "include" && depth < DEPTH {
                value.split([',', ' ']).filter(|p| !p.is_empty()).for_each(|p| {
                    settings(t, p, depth + 1, into);
                });
            }
            own.push(((section.clone(), key.to_owned()), value.to_owned()));
        }
    }
    // Its own win over those that it includes.
    into.extend(own);
    true
}

/// The active profile's settings; is there a file of each profile?
fn wanted(t: &Tree) -> (BTreeMap<(String, String), String>, bool) {
    let mut all = BTreeMap::new();
    let active = t.text("/etc/tuned/active_profile").unwrap_or_default();
    // Every profile's, also after one that is not there.
    let found: Vec<bool> = active.split_whitespace().map(|p| settings(t, p, 0, &mut all)).collect();
    (all, found.into_iter().all(|there| there))
}

fn file_of(sysctl: &str) -> String {
    format!("/proc/sys/{}", sysctl.replace('.', "/"))
}

/// The files of the sysctls that the active profile names.
pub fn sysctls(t: &Tree) -> Vec<String> {
    let plain = |key: &String| {
        key.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)) && !key.contains("..")
    };
    wanted(t)
        .0
        .into_keys()
        .filter(|(section, key)| section == "sysctl" && plain(key))
        .map(|(_, key)| file_of(&key))
        .collect()
}

/// Is this in force what a profile wants, or one of its choices ("schedutil|ondemand": the first that there is)? ">16384" is at least, "<10" at most: tuned sets
/// it where what it finds is less, or more (its plugins' base.py, _process_assignment_modifiers).
fn is_so(wanted: &str, in_force: &str) -> bool {
    let wanted = wanted.trim().trim_matches(['"', '\'']).trim();
    let number = |text: &str| text.trim().parse::<i128>().ok();
    let (at_least, at_most) = (wanted.strip_prefix('>'), wanted.strip_prefix('<'));
    if let Some((bound, now)) = at_least.or(at_most).and_then(number).zip(number(in_force)) {
        return if at_least.is_some() { now >= bound } else { now <= bound };
    }
    let words = |v: &str| v.split_whitespace().collect::<Vec<_>>().join(" ");
    words(wanted) == words(in_force)
}

fn look(t: &Tree) -> Vec<Finding> {
    let Some(active) = t.text("/etc/tuned/active_profile").filter(|p| !p.is_empty()) else {
        return vec![Finding::none("tuned", "it is not set up here")];
    };
    let (wanted, known) = wanted(t);
    if !known {
        return vec![Finding::bad(
            "tuned profile",
            active,
            "there is no file of that profile",
            ("none", "tuned-adm list, then tuned-adm profile NAME", "tuned-adm profile of the former one"),
        )];
    }
    let mut off = Vec::new();
    let mut looked = 0;
    for ((section, key), value) in &wanted {
        if value.contains("${") {
            continue;
        }
        let base = "/sys/devices/system/cpu/cpu";
        let found: Vec<&str> = match (section.as_str(), key.as_str()) {
            ("cpu", "governor") => t.matching(base, "/cpufreq/scaling_governor").map(|(_, g)| g).collect(),
            ("cpu", "energy_performance_preference") => {
                t.matching(base, "/cpufreq/energy_performance_preference").map(|(_, g)| g).collect()
            }
            ("sysctl", key) => t.text(&file_of(key)).into_iter().collect(),
            _ => continue,
        };
        looked += 1;
        let same = |f: &&str| value.split('|').any(|wanted| is_so(wanted, f));
        if found.is_empty() {
            off.push(format!("{key}={value}: nothing here can be set so"));
        } else if let Some(other) = found.iter().find(|f| !same(f)) {
            off.push(format!("{key}={value}: in force is {other}"));
        }
    }
    if off.is_empty() {
        return vec![Finding::good(
            "tuned profile",
            active,
            format!("{looked} of its settings were looked at and are in force"),
        )];
    }
    vec![Finding::bad(
        "tuned profile",
        active,
        format!("it is active by its name, and not in force: {}", off.join("; ")),
        (
            "other services may set the same",
            format!("start the daemon, then: tuned-adm profile {active}"),
            "tuned-adm off",
        ),
    )]
}
