//! Any text is a condition of `record --trigger` or is refused. A condition is written as itself.

use vsteer_core::trigger::Trigger;

pub fn run(bytes: &[u8]) -> bool {
    let Ok(trigger) = crate::text(bytes).parse::<Trigger>() else { return false };
    assert_eq!(trigger.to_string().parse::<Trigger>().as_ref(), Ok(&trigger));
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&["ready>5%", "ready>5% and run<50% or ready>90%"])
}
