use super::*;
use vsteer_core::nouns::VmId;
use vsteer_core::topology::machine;

fn host(weights: &[(&str, Option<CpuWeight>)]) -> HostConfig {
    let vm = |(name, weight): &(&str, Option<CpuWeight>)| VmConfig {
        weight: *weight,
        ..VmConfig::new(VmId((*name).into()), *name, 1)
    };
    HostConfig {
        vms: weights.iter().map(vm).collect(),
        ..HostConfig::new("h", "6.12", machine(1, 1, 2, 1).unwrap())
    }
}

fn outcome(decision: Decision) -> Outcome {
    Outcome {
        seen: Vec::new(),
        violations: Vec::new(),
        pooled: 1,
        shifted: false,
        decision,
        why: "web takes 1.20 of its level".into(),
    }
}

fn set(weights: &[f64]) -> Outcome {
    outcome(Decision::Set { weights: weights.to_vec(), worst: 0.9 })
}

fn to(steps: &[Step]) -> Vec<(&str, String)> {
    steps.iter().map(|s| (s.vm_name.as_str(), s.change.to_string())).collect()
}

const W: fn(u64) -> Option<CpuWeight> = |n| Some(CpuWeight::Weight(n));

#[test]
fn together_they_weigh_what_they_weighed() {
    let config = host(&[("a", W(100)), ("b", W(300)), ("c", W(500))]);
    let (all, loss) = steps(&config, &["a", "b", "c"], &set(&[3.0, 1.0, 5.0]));
    let weights: Vec<u64> = all
        .iter()
        .map(|s| match s.change {
            Change::Weight(setting::Weight { to, .. }) => to.number(),
            _ => panic!("{s:?}"),
        })
        .collect();
    // c keeps its weight and has no step.
    assert_eq!((weights, loss), (vec![300, 100], 0.0));
    assert_eq!(to(&all), [("a", "CPU weight: 100 -> 300".into()), ("b", "CPU weight: 300 -> 100".into())]);
    assert!(all.iter().all(|s| s.reason.contains("1.20")));
}

#[test]
fn who_cannot_be_weighed_gets_no_step() {
    let config = host(&[("a", W(100)), ("b", None)]);
    assert!(to(&steps(&config, &["a", "b"], &outcome(Decision::Keep)).0).is_empty());
    // One VM alone keeps the sum, so its weight stays.
    assert!(steps(&config, &["a", "b"], &set(&[4.0, 4.0])).0.is_empty());
    assert!(steps(&config, &["gone", "b"], &set(&[4.0, 4.0])).0.is_empty());
    let esxi = host(&[("a", Some(CpuWeight::Esxi(1000))), ("b", Some(CpuWeight::Esxi(1000)))]);
    assert!(steps(&esxi, &["a", "b"], &set(&[2.0, 0.5])).0.is_empty());
    let same = host(&[("a", W(100)), ("b", W(100))]);
    assert!(steps(&same, &["a", "b"], &set(&[1.0, 1.0])).0.is_empty());
}

#[test]
fn rounding_that_matters_is_told() {
    assert_eq!(lossy(0.01), None);
    assert!(lossy(0.034).unwrap().contains("by 3.4 %"));
    let config = host(&[("a", W(3)), ("b", W(3))]);
    let (_, loss) = steps(&config, &["a", "b"], &set(&[0.015, 0.045]));
    assert!(loss > 0.1, "1.5 of 6 is not a whole number: {loss}");
}

#[test]
fn a_weight_that_somebody_else_set_is_told_once() {
    let names = ["a", "b"];
    let (steps, _) = steps(&host(&[("a", W(100)), ("b", W(300))]), &names, &set(&[3.0, 1.0]));
    let mut last = LastSet::default();
    last.remember(&steps);
    assert!(last.no_longer_holds(&host(&[("a", W(300)), ("b", W(100))])).is_empty());
    // A VM that is not there says nothing, and comes back as it was set.
    assert!(last.no_longer_holds(&host(&[("a", W(300))])).is_empty());
    let notes = last.no_longer_holds(&host(&[("a", W(300)), ("b", W(700))]));
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("b: it now has weight 700, not the weight that vsteer set"), "{notes:?}");
    assert!(last.no_longer_holds(&host(&[("a", W(300)), ("b", W(700))])).is_empty());
    // What is set again is looked at again.
    last.remember(&steps);
    assert_eq!(last.no_longer_holds(&host(&[("b", W(700))])).len(), 1);
}
