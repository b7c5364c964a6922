//! Is a captured machine audited as a person would who looked at its files?
//!
//! `audit/cloud-guest`: the files that `vsteer audit --capture` wrote on a development machine of vsteer's, a Firecracker guest of a cloud with two vCPUs (November
//! 2026), unchanged but for the names of hosts and the words of its boot that say where it runs.
//! More machines, captured by others: the lab's case `audit`. GAP(audit-trees): no Threadripper and no EPYC of Zen 4 with all files that the audit reads.

use std::path::Path;
use vsteer_core::audit::{State, audit};
use vsteer_host::root::Root;

#[test]
fn a_cloud_guest() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/audit/cloud-guest");
    let tree = vsteer_host::audit::read(&Root::open(folder).unwrap());
    assert!(tree.is_guest() && tree.cpus() == Some(2), "{:?}", tree.text("/proc/cpuinfo"));
    let found = audit(&tree);
    let state = |check: &str, setting: &str| {
        let one = found.iter().find(|f| f.check == check && f.setting.starts_with(setting));
        one.unwrap_or_else(|| panic!("{check} says nothing of {setting}: {found:#?}")).state
    };
    // A guest scales no frequencies and has no power limits; tuned was not set up.
    for (check, setting) in
        [("scaling", "scaling"), ("power_caps", "power"), ("tuned", "tuned"), ("boost", "boost")]
    {
        assert_eq!(state(check, setting), State::DoesNotApply, "{check}");
    }
    assert_eq!(state("clocksource", "clocksource"), State::AsItShould);
    assert_eq!(state("idle", "idle states"), State::AsItShould);
    // What its kernel says itself of a processor of which its host shows it no more.
    assert_eq!(state("mitigations", "spec_store_bypass"), State::Not);
    assert_eq!(state("mitigations", "spectre_v2"), State::AsItShould);
    assert_eq!(state("mitigations", "meltdown"), State::DoesNotApply);
    assert_eq!(state("queues", "queues of vda"), State::Not);
    assert!(found.iter().filter(|f| f.check == "mitigations").count() > 10);
}
