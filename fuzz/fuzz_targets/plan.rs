//! Any bytes are a plan or refused; a plan is written and read as the same plan, and can be shown and compared.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vsteer_core::plan::Plan;

fuzz_target!(|bytes: &[u8]| {
    let Ok(plan) = serde_json::from_slice::<Plan>(bytes) else { return };
    let text = serde_json::to_vec(&plan).unwrap();
    // Compared as text: a forecast may hold what is not equal to itself.
    let again: Plan = serde_json::from_slice(&text).unwrap();
    assert_eq!(serde_json::to_vec(&again).unwrap(), text);
    assert!(plan.parent.differences(&plan.parent).is_empty());
    let _ = plan.parent.fingerprint();
    for step in &plan.steps {
        let _ = (step.change.to_string(), step.change.undo(), step.change.irreversible());
    }
});
