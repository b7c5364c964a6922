//! Any text is a condition or refused; a condition is written as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_core::trigger::Trigger;

fuzz_target!(|text: &str| {
    if let Ok(trigger) = text.parse::<Trigger>() {
        assert_eq!(trigger.to_string().parse::<Trigger>().unwrap(), trigger);
    }
});
