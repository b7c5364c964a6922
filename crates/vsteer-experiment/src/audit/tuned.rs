//! Are the settings of tuned's active profile really in force?
//!
//! Without its daemon `tuned-adm profile` exits with 0 but does nothing, and `tuned-adm verify` reports OK on a
//! machine without cpufreq (tuned 2.20). So the check reads the profile's file and the profiles it includes. It
//! compares governor, energy preference and sysctls with the values in force. Source: tuned.conf(5).
//!
//! Left out: settings of plugins other than `[cpu]` and `[sysctl]`, and values with variables (`${...}`).

use super::{Check, Finding, Tree};
use std::collections::BTreeMap;

pub const CHECK: Check = Check {
    name: "tuned",
    doc: "tuned's profile compared with the values in force",
    rests_on: &["etc/tuned/active_profile"],
    look,
};

/// Deepest chain of included profiles that is read.
const DEPTH: usize = 8;

/// Collects the settings of a profile as (section, key) and value; `false` if the profile has no file.
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
    // A profile's own settings override the included ones.
    into.extend(own);
    true
}

/// The settings of the active profiles, and whether each profile has a file.
fn wanted(t: &Tree) -> (BTreeMap<(String, String), String>, bool) {
    let mut all = BTreeMap::new();
    let active = t.text("/etc/tuned/active_profile").unwrap_or_default();
    // Reads every profile, also after one without a file.
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

/// Does the value in force match the wanted one? ">16384" means at least and "<10" at most (tuned's plugins/base.py,
/// _process_assignment_modifiers).
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
        return vec![Finding::none("tuned", "tuned has no active profile")];
    };
    let (wanted, known) = wanted(t);
    if !known {
        return vec![Finding::bad(
            "tuned profile",
            active,
            "the profile has no file",
            ("none", "tuned-adm list, then tuned-adm profile NAME", "tuned-adm profile with the former name"),
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
            off.push(format!("{key}={value}: this machine has no such setting"));
        } else if let Some(other) = found.iter().find(|f| !same(f)) {
            off.push(format!("{key}={value}: the value in force is {other}"));
        }
    }
    if off.is_empty() {
        return vec![Finding::good(
            "tuned profile",
            active,
            format!("all {looked} checked settings of the profile are in force"),
        )];
    }
    vec![Finding::bad(
        "tuned profile",
        active,
        format!("the profile is active, but these settings are not in force: {}", off.join("; ")),
        (
            "another service may set the same values",
            format!("start the daemon, then: tuned-adm profile {active}"),
            "tuned-adm off",
        ),
    )]
}
