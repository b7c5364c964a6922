//! Findings, plans, verdicts, tables and the report.

use crate::place::PLACE;

fn snapshot(name: &str, line: &str) {
    insta::assert_snapshot!(name, PLACE.printed(line));
}

#[test]
fn findings_of_the_example() {
    snapshot("diagnose", "diagnose before.vsteer");
}

#[test]
fn a_plan() {
    snapshot("plan", "plan before.vsteer");
    snapshot("plan_set", "plan before.vsteer --set burner-1:limit=0.5");
}

#[test]
fn a_verdict() {
    snapshot("verify", "verify before.vsteer after.vsteer --plan plan.json");
    snapshot("verify_same", "verify before.vsteer before.vsteer");
}

#[test]
fn tables_of_recordings_and_simulations() {
    snapshot("replay", "replay before.vsteer --interval 10s");
    snapshot("simulate", "simulate scenarios/noisy-neighbour.toml");
    snapshot("simulate_from", "simulate --from before.vsteer");
    snapshot("simulate_list", "simulate --list");
    snapshot(
        "headroom",
        "headroom scenarios/noisy-neighbour.toml --kind timer --level ready=20% --most 4 --seeds 2",
    );
    snapshot("numa", "numa --host 2x18 --host-memory 384G --vcpus 12 --memory 16G --esxi 7.0.2");
    snapshot("exit_codes", "exit-codes");
    snapshot("config_check", "config check good.toml");
    snapshot("config_show", "config show --config good.toml -- record --ring 2G");
    snapshot("config_example", "config example");
}

#[test]
fn an_experiment() {
    snapshot("experiment_run", "experiment run huge-pages.toml");
    snapshot("experiment_published", "experiment report --published");
}

#[test]
fn an_audit_of_a_captured_host() {
    snapshot("audit", "audit --root host/1 --all");
}

/// The report's words, without its markup.
#[test]
fn the_report() {
    let out = PLACE.run("report before.vsteer after.vsteer --plan plan.json -o report.html");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let page = std::fs::read_to_string(PLACE.path().join("report.html")).unwrap();
    let body = &page[page.find("<body>").unwrap()..];
    let (mut words, mut rest) = (String::new(), body);
    while let Some(open) = rest.find('<') {
        words += &rest[..open];
        let close = open + rest[open..].find('>').unwrap();
        let tag = &rest[open..=close];
        if ["</p>", "</h", "</tr>", "</li>", "</cap", "</fig", "</dd>", "</text>", "</title>"]
            .iter()
            .any(|t| tag.starts_with(t))
        {
            words.push('\n');
        } else if ["</td>", "</th>", "</dt>"].contains(&tag) {
            words.push_str("  ");
        }
        rest = &rest[close + 1..];
    }
    let lines: Vec<&str> =
        words.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("Made by")).collect();
    insta::assert_snapshot!("report", lines.join("\n"));
}
