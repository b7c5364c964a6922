//! Does every command have an example in its help, and does each example run?

use crate::help::commands;
use crate::place::PLACE;

/// The examples of a command's help.
fn examples(command: &str) -> Vec<String> {
    let help = String::from_utf8(PLACE.run(&format!("{command} --help")).stdout).unwrap();
    let after = help.lines().skip_while(|l| !l.starts_with("Example")).skip(1);
    let lines = after.take_while(|l| l.starts_with("  vsteer "));
    // A comment stands apart from its command.
    lines.map(|l| l.trim().split("   ").next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_has_an_example_and_most_have_two() {
    let counts: Vec<(String, usize)> =
        commands().into_iter().map(|c| (c.clone(), examples(&c).len())).collect();
    let none: Vec<_> = counts.iter().filter(|(_, n)| *n == 0).collect();
    assert!(none.is_empty(), "without an example: {none:?}");
}
