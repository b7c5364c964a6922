//! tuned's profiles as its files have them: tuned.conf(5).

use super::super::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Settings of a profile: (section, key) and value.
pub type Settings = BTreeMap<(String, String), String>;

/// Where profiles are: the administrator's own before the distribution's, in tuned's new and old layout.
const PLACES: [&str; 4] = ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];
/// Profiles that one profile may include, directly or not.
const INCLUDED: usize = 64;

/// The settings of a profile with those that it includes; `None` if it has no file.
pub fn settings(t: &Tree, profile: &str) -> Option<Settings> {
    let mut all = Settings::new();
    collect(t, profile, &mut BTreeSet::new(), &mut all).then_some(all)
}

/// Adds a profile's settings. A profile in `seen` is already added: a file may include itself, or two that include a third.
fn collect(t: &Tree, profile: &str, seen: &mut BTreeSet<String>, into: &mut Settings) -> bool {
    let Some(text) = PLACES.iter().find_map(|p| t.text(&format!("{p}/{profile}/tuned.conf"))) else {
        return false;
    };
    if seen.len() > INCLUDED || !seen.insert(profile.to_owned()) {
        return true;
    }
    let mut section = String::new();
    let mut own = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            if section == "main" && key == "include" {
                value.split([',', ' ']).filter(|p| !p.is_empty()).for_each(|p| {
                    collect(t, p, seen, into);
                });
            }
            own.push(((section.clone(), key.to_owned()), value.to_owned()));
        }
    }
    // A profile's own settings override the included ones.
    into.extend(own);
    true
}

/// The names of all profiles.
pub fn names(t: &Tree) -> Vec<String> {
    let of = |path: &String| {
        let folder = path.strip_suffix("/tuned.conf")?;
        let (place, name) = folder.rsplit_once('/')?;
        PLACES.contains(&place).then(|| name.to_owned())
    };
    t.files.keys().filter_map(of).collect::<BTreeSet<String>>().into_iter().collect()
}

/// The settings of the active profiles, and whether each profile has a file.
pub fn active(t: &Tree) -> (Settings, bool) {
    let active = t.text("/etc/tuned/active_profile").unwrap_or_default();
    // Reads every profile, also after one without a file.
    let mut all = Settings::new();
    let found: Vec<bool> =
        active.split_whitespace().map(|p| collect(t, p, &mut BTreeSet::new(), &mut all)).collect();
    (all, found.into_iter().all(|there| there))
}

/// The files of the sysctls that any profile names. The check needs those of the active profile, `--as` those of the others.
pub fn sysctls(t: &Tree) -> Vec<String> {
    let plain = |key: &String| {
        key.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)) && !key.contains("..")
    };
    // A capture is given to others: stable_secret, tcp_fastopen_key.
    let secret = |key: &String| key.contains("secret") || key.ends_with("_key");
    let all = names(t).into_iter().filter_map(|name| settings(t, &name)).flatten();
    let keys = all
        .map(|(place, _)| place)
        .filter(|(section, key)| section == "sysctl" && plain(key) && !secret(key));
    keys.map(|(_, key)| sysctl_file(&key)).collect::<BTreeSet<String>>().into_iter().collect()
}

fn sysctl_file(sysctl: &str) -> String {
    format!("/proc/sys/{}", sysctl.replace('.', "/"))
}

/// The values in force of a setting: one per CPU if each CPU has its own, and none if this machine lacks the setting. `None` if
/// vsteer does not read the setting.
pub fn in_force<'t>(t: &'t Tree, section: &str, key: &str) -> Option<Vec<&'t str>> {
    let each = |file: &'static str| {
        t.matching("/sys/devices/system/cpu/cpu", file).map(|(_, value)| value).collect()
    };
    match (section, key) {
        ("cpu", "governor") => Some(each("/cpufreq/scaling_governor")),
        ("cpu", "energy_performance_preference") => Some(each("/cpufreq/energy_performance_preference")),
        ("cpu", "boost") => Some(t.text("/sys/devices/system/cpu/cpufreq/boost").into_iter().collect()),
        ("vm", "transparent_hugepages" | "transparent_hugepage") => {
            let text = t.text("/sys/kernel/mm/transparent_hugepage/enabled");
            // `always [madvise] never`
            let chosen = |text: &'t str| text.split_once('[')?.1.split_once(']').map(|(word, _)| word);
            Some(text.and_then(chosen).into_iter().collect())
        }
        ("sysctl", key) => Some(t.text(&sysctl_file(key)).into_iter().collect()),
        _ => None,
    }
}

/// Does the value in force match the wanted one? ">16384" means at least and "<10" at most (tuned's plugins/base.py,
/// _process_assignment_modifiers).
pub fn is_so(wanted: &str, in_force: &str) -> bool {
    let wanted = wanted.trim().trim_matches(['"', '\'']).trim();
    let number = |text: &str| text.trim().parse::<i128>().ok();
    let (at_least, at_most) = (wanted.strip_prefix('>'), wanted.strip_prefix('<'));
    if let Some((bound, now)) = at_least.or(at_most).and_then(number).zip(number(in_force)) {
        return if at_least.is_some() { now >= bound } else { now <= bound };
    }
    let words = |v: &str| v.split_whitespace().collect::<Vec<_>>().join(" ");
    words(wanted) == words(in_force)
}
