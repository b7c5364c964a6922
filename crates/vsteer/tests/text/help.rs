//! Help of every command.

use crate::place::PLACE;

/// Every command and subcommand, as words.
pub fn commands() -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![String::new()];
    while let Some(of) = open.pop() {
        let help = PLACE.run(&format!("{of} --help"));
        let help = String::from_utf8(help.stdout).unwrap();
        let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
        // Deeper lines go on with a description.
        let names = listed.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
        let names = names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help");
        open.extend(names.map(|n| format!("{of} {n}").trim().to_owned()));
        all.push(of);
    }
    all.sort();
    all
}

#[test]
fn help_of_every_command() {
    let all = commands();
    assert!(all.len() > 25 && all.contains(&"experiment run".to_owned()), "{all:?}");
    for command in all {
        let name = if command.is_empty() { "vsteer".to_owned() } else { command.replace(' ', "_") };
        insta::assert_snapshot!(format!("help_{name}"), PLACE.printed(&format!("{command} --help")));
    }
}

/// The short help fits a screen or two, since vSphere's options do not show.
#[test]
fn short_help_is_short_and_leaves_vsphere_out() {
    for command in commands() {
        let help = String::from_utf8(PLACE.run(&format!("{command} -h")).stdout).unwrap();
        assert!(help.lines().count() <= 60, "{command}: {} lines", help.lines().count());
        assert!(!help.contains("--thumbprint"), "{command}");
    }
}
