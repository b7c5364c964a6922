//! One error of every kind, and of every kind of input that people get wrong most often.

use crate::place::PLACE;
use vsteer_core::FaultKind;

/// Command lines and the kind of error that each ends in.
const WRONG: &[(&str, FaultKind)] = &[
    ("diagnose gone.vsteer", FaultKind::NothingThere),
    ("diagnose empty.vsteer", FaultKind::NothingThere),
    ("diagnose foreign.json", FaultKind::BadInput),
    ("diagnose before.vsteer --threshold redy=8%", FaultKind::Usage),
    ("diagnose before.vsteer --at 2026-11-21T03:12:05", FaultKind::BadInput),
    ("diagnose before.vsteer --at noon", FaultKind::Usage),
    ("diagnose --at 03:12 --dir gone", FaultKind::NothingThere),
    ("diagnose --at 2026-11-20T03:12Z --dir past", FaultKind::NothingThere),
    ("history --dir gone", FaultKind::NothingThere),
    ("history nobody --dir past --from 2026-11-21T00:00Z --to 2026-11-21T01:00Z", FaultKind::NothingThere),
    ("history --dir past --from noon", FaultKind::Usage),
    ("replay before.vsteer --interval 100s", FaultKind::BadInput),
    ("plan before.vsteer --set timer-1:weight=0", FaultKind::Usage),
    ("plan before.vsteer --set nobody:weight=512", FaultKind::NothingThere),
    ("plan before.vsteer --set timer-1:colour=red", FaultKind::Usage),
    ("plan before.vsteer --by cosched", FaultKind::Usage),
    ("plan before.vsteer --only magic", FaultKind::Usage),
    ("plan before.vsteer --json --format powercli", FaultKind::Usage),
    ("apply gone.json", FaultKind::NothingThere),
    ("apply foreign.json", FaultKind::BadInput),
    ("rollback", FaultKind::NothingThere),
    ("rollback 123abc", FaultKind::NothingThere),
    ("verify before.vsteer gone.vsteer", FaultKind::NothingThere),
    ("report before.vsteer -o host", FaultKind::Usage),
    ("simulate gone.toml", FaultKind::NothingThere),
    ("simulate scenarios/two-hogs.toml --set vm.nobody.weight=3", FaultKind::Usage),
    ("simulate scenarios/two-hogs.toml --set scheduler.policy=fastest", FaultKind::BadInput),
    ("simulate scenarios/two-hogs.toml --set weight", FaultKind::Usage),
    ("simulate --published=nobody", FaultKind::Usage),
    ("simulate --from host", FaultKind::NothingThere),
    ("headroom scenarios/web-servers.toml --kind nobody --level ready=10%", FaultKind::BadInput),
    ("headroom scenarios/web-servers.toml --kind web --level speed=3", FaultKind::Usage),
    ("estimate web=gone.log --from before.vsteer", FaultKind::NothingThere),
    ("estimate web --from before.vsteer", FaultKind::Usage),
    ("numa --host 2by18 --vcpus 4", FaultKind::Usage),
    ("top before.vsteer", FaultKind::Usage),
    ("steer --sla foreign.json", FaultKind::BadInput),
    ("experiment run foreign.json", FaultKind::BadInput),
    ("experiment report before.vsteer", FaultKind::NothingThere),
    ("realtime status", FaultKind::NothingThere),
    ("record -o before.vsteer --connect tree:host", FaultKind::Usage),
    ("top --connect spice://host", FaultKind::Usage),
    ("topology --root gone", FaultKind::NothingThere),
    ("record", FaultKind::Usage),
    ("diagnose before.vsteer --config faulty.toml", FaultKind::BadInput),
    ("config check faulty.toml", FaultKind::BadInput),
    ("config show --config gone.toml", FaultKind::NothingThere),
    ("config show -- top --intervall 5s", FaultKind::Usage),
    ("rollback --config faulty.toml", FaultKind::NothingThere),
    ("apply plan.json", FaultKind::Changed),
    ("frobnicate", FaultKind::Usage),
];

#[test]
fn errors() {
    let mut all = String::new();
    let mut wrong = Vec::new();
    for (line, kind) in WRONG {
        let printed = PLACE.printed(line);
        if !printed.ends_with(&format!("[exit code {}]\n", kind.exit_code())) {
            wrong.push(printed.clone());
        }
        all += &printed;
        all.push('\n');
    }
    assert!(wrong.is_empty(), "another exit code is expected:\n{}", wrong.join("\n"));
    insta::assert_snapshot!("errors", all);
}

/// Each says one thing after `error:`, and what to do after `help:`.
#[test]
fn every_error_says_what_to_do() {
    let without: Vec<&str> = WRONG
        .iter()
        .map(|(line, _)| *line)
        .filter(|line| {
            let printed = PLACE.printed(line);
            !(printed.contains("error: ") && (printed.contains("help: ") || printed.contains("--help")))
        })
        .collect();
    assert_eq!(without, [""; 0], "no help:");
}
