//! Are the settings of tuned's active profile really in force, and what does the profile cost?
//!
//! Without its daemon `tuned-adm profile` exits with 0 but does nothing. So the check reads the profile's file and
//! the profiles it includes. It compares governor, energy preference, boost, huge pages and sysctls with the values in
//! force. Of a setting that this machine does not have it says nothing, as tuned passes over it too: `acpi-cpufreq` has
//! no energy preference, and most guests have no cpufreq. Sources: tuned.conf(5); tuned 2.20, plugins/plugin_cpu.py,
//! plugin_vm.py and plugin_sysctl.py.
//!
//! Left out: other settings, and values with variables (`${...}`).

mod costs;
mod instead;
mod profile;

use super::{Check, Finding, Tree};
pub use instead::{Instead, instead};
use profile::Settings;
pub use profile::sysctls;

pub const CHECK: Check = Check {
    name: "tuned",
    doc: "tuned's profile compared with the values in force",
    rests_on: &["etc/tuned/active_profile"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let Some(active) = t.text("/etc/tuned/active_profile").filter(|p| !p.is_empty()) else {
        return vec![Finding::none("tuned", "tuned has no active profile")];
    };
    let (wanted, known) = profile::active(t);
    if !known {
        return vec![Finding::bad(
            "tuned profile",
            active,
            "the profile has no file",
            ("none", "tuned-adm list, then tuned-adm profile NAME", "tuned-adm profile with the former name"),
        )];
    }
    let mut all = vec![in_force(t, active, &wanted)];
    all.extend(costs::idle_power(active, &wanted));
    all.extend(costs::speed(t, active));
    all
}

/// Are the profile's settings in force?
fn in_force(t: &Tree, active: &str, wanted: &Settings) -> Finding {
    let (mut off, mut looked, mut passed_over) = (Vec::new(), 0, 0);
    for ((section, key), value) in wanted {
        if value.contains("${") {
            continue;
        }
        let Some(found) = profile::in_force(t, section, key) else { continue };
        if found.is_empty() {
            passed_over += 1;
            continue;
        }
        looked += 1;
        let same = |f: &&str| value.split('|').any(|wanted| profile::is_so(wanted, f));
        if let Some(other) = found.iter().find(|f| !same(f)) {
            off.push(format!("{key}={value}: the value in force is {other}"));
        }
    }
    let others = match passed_over {
        0 => String::new(),
        1 => "; this machine lacks 1 more, which tuned passes over".to_owned(),
        n => format!("; this machine lacks {n} more, which tuned passes over"),
    };
    if off.is_empty() {
        let told = format!("all {looked} checked settings of the profile are in force{others}");
        return Finding::good("tuned profile", active, told);
    }
    Finding::bad(
        "tuned profile",
        active,
        format!("the profile is active, but these settings are not in force: {}{others}", off.join("; ")),
        (
            "another service may set the same values",
            format!("start the daemon, then: tuned-adm profile {active}"),
            "tuned-adm off",
        ),
    )
}
