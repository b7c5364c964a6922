//! Does a power limit hold the processor below its maximum power? Source: Documentation/power/powercap/powercap.rst.

use super::{Check, Finding, Tree};

pub const CHECK: Check = Check {
    name: "power_caps",
    doc: "power limits of the processors",
    rests_on: &["sys/class/powercap/"],
    look,
};

fn look(t: &Tree) -> Vec<Finding> {
    let base = "/sys/class/powercap/";
    let mut found = Vec::new();
    for (zone, limit) in t.matching(base, "/constraint_0_power_limit_uw") {
        let watts = |text: &str| text.parse::<f64>().ok().map(|uw| uw / 1e6);
        let name = t.text(&format!("{base}{zone}/name")).unwrap_or(zone);
        let most =
            t.text(&format!("{base}{zone}/constraint_0_max_power_uw")).and_then(watts).filter(|w| *w > 0.0);
        let (Some(limit), Some(most)) = (watts(limit), most) else { continue };
        let value = format!("{limit:.0} of {most:.0} W");
        found.push(if limit < 0.98 * most {
            let file = format!("{base}{zone}/constraint_0_power_limit_uw");
            Finding::bad(
                format!("power limit of {name}"),
                value,
                "the processor slows down below its maximum power",
                (
                    "uses more power and gets hotter; the limit may protect the rack",
                    format!("echo {:.0} > {file}", most * 1e6),
                    format!("echo {:.0} > {file}", limit * 1e6),
                ),
            )
        } else {
            Finding::good(
                format!("power limit of {name}"),
                value,
                "the limit is the processor's maximum power",
            )
        });
    }
    if found.is_empty() {
        vec![Finding::none("power limits", "no zone in /sys/class/powercap reports a limit")]
    } else {
        found
    }
}
