//! A dry run, an apply, a rollback and their refusals, on a plan that sets a file.

use crate::common;
use crate::place::PLACE;
use vsteer_core::setting::knob::How;

#[test]
fn a_plan_is_shown_applied_and_undone() {
    let path = PLACE.path().join("defrag").to_str().unwrap().to_owned();
    let how = How::File { path };
    let plan = common::plan("defer the compaction", "huge page defrag", how, None, ("always", "defer"));
    PLACE.write("defrag", "always");
    PLACE.write("defrag.json", &serde_json::to_string(&plan).unwrap());
    let mut all = String::new();
    let mut run = |line: &str| all += &format!("{}\n", PLACE.printed(line).replace(&plan.id, "PLAN"));
    run("apply defrag.json");
    run("apply defrag.json --yes");
    run("apply defrag.json --yes");
    run(&format!("rollback {}", plan.id));
    run(&format!("rollback {}", plan.id));
    // Somebody else changes the setting after the plan was made.
    PLACE.write("defrag", "never");
    run("apply defrag.json");
    run("apply defrag.json --yes");
    insta::assert_snapshot!("apply", all);
}
