//! May idle processors sleep deeply, and by whose choice?
//!
//! Deep states save watts and cost a wake-up their latency; a host that polls (`idle=poll`) draws full power and takes its neighbours' boost. Source:
//! Documentation/admin-guide/pm/cpuidle.rst.

use super::{Check, Finding, State, Tree};

/// See the file's head.
pub const CHECK: Check = Check { name: "idle", doc: "idle states of the processors", look };

fn look(t: &Tree) -> Vec<Finding> {
    let driver = t.text("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or("none");
    let base = "/sys/devices/system/cpu/cpu0/cpuidle/state";
    let states: Vec<(&str, &str)> = t.matching(base, "/name").collect();
    if states.is_empty() {
        let why = if t.is_guest() {
            "a guest that is idle halts, and its host decides"
        } else {
            "the kernel knows no idle states"
        };
        return vec![Finding::none(format!("idle states (driver {driver})"), why)];
    }
    let file = |state: &str, of: &str| t.text(&format!("{base}{state}/{of}"));
    let off: Vec<&str> =
        states.iter().filter(|(s, _)| file(s, "disable") == Some("1")).map(|(_, n)| *n).collect();
    let deepest = states.iter().filter_map(|(s, _)| file(s, "latency")?.parse::<u64>().ok()).max();
    let deepest = deepest.map_or_else(|| "an unknown time".to_owned(), |us| format!("{us} us"));
    let value = format!("{} states by {driver}, the deepest wakes in {deepest}", states.len());
    if !states.iter().any(|(s, _)| file(s, "disable").is_some()) {
        return vec![Finding::new(
            "idle states",
            State::DoesNotApply,
            value,
            "whether one is forbidden is not told (kernels before 3.6 cannot forbid any by themselves)",
        )];
    }
    if off.is_empty() {
        return vec![Finding::good(
            "idle states",
            value,
            "none is forbidden: idle processors save, and others may boost",
        )];
    }
    vec![Finding::bad(
        "idle states",
        format!("{value}; forbidden: {}", off.join(", ")),
        "idle processors stay awake: more watts, less boost for busy ones; wake-ups are quicker",
        (
            "wake-ups take up to the deepest state's latency",
            "echo 0 > .../cpuidle/state*/disable",
            "echo 1 > the same of those states",
        ),
    )]
}
