//! May idle processors use deep sleep states?
//!
//! Deep states save power, but a wake-up takes longer. A host that polls (`idle=poll`) uses full power and leaves
//! no boost for busy processors. Source: Documentation/admin-guide/pm/cpuidle.rst.

use super::{Check, Finding, State, Tree};

pub const CHECK: Check =
    Check { name: "idle", doc: "idle states of the processors", rests_on: &["/cpu0/cpuidle/state"], look };

fn look(t: &Tree) -> Vec<Finding> {
    let driver = t.text("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or("none");
    let base = "/sys/devices/system/cpu/cpu0/cpuidle/state";
    let states: Vec<(&str, &str)> = t.matching(base, "/name").collect();
    if states.is_empty() {
        let why = if t.is_guest() {
            "an idle guest halts, and its host chooses the idle state"
        } else {
            "the kernel reports no idle states"
        };
        return vec![Finding::none(format!("idle states (driver {driver})"), why)];
    }
    let file = |state: &str, of: &str| t.text(&format!("{base}{state}/{of}"));
    let off: Vec<&str> =
        states.iter().filter(|(s, _)| file(s, "disable") == Some("1")).map(|(_, n)| *n).collect();
    let deepest = states.iter().filter_map(|(s, _)| file(s, "latency")?.parse::<u64>().ok()).max();
    let deepest = deepest.map_or_else(|| "an unknown time".to_owned(), |us| format!("{us} us"));
    let value = format!("{} states by {driver}; the deepest wakes up in {deepest}", states.len());
    if !states.iter().any(|(s, _)| file(s, "disable").is_some()) {
        return vec![Finding::new(
            "idle states",
            State::DoesNotApply,
            value,
            "the kernel does not report whether a state is disabled (Linux before 3.6)",
        )];
    }
    if off.is_empty() {
        return vec![Finding::good(
            "idle states",
            value,
            "no state is disabled, so idle processors save power and busy ones may boost",
        )];
    }
    vec![Finding::bad(
        "idle states",
        format!("{value}; disabled: {}", off.join(", ")),
        "idle processors do not sleep deeply: wake-ups are faster, but power use is higher and busy \
            processors boost less",
        (
            "wake-ups take up to the deepest state's latency",
            "echo 0 > .../cpuidle/state*/disable",
            "echo 1 > .../cpuidle/stateN/disable for each state that was disabled",
        ),
    )]
}
