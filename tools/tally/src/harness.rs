//! What do the result lines of Rust's test harness say of each test?
//!
//! Read are the lines that cargo prints before each binary, `test NAME ... OUTCOME`, and `test result:`. The sums of the
//! last are compared with the tests that were read, so that a line that something else broke cannot hide a test.

use std::collections::BTreeMap;

/// What became of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// With the reason, where the test names one.
    Skipped(String),
}

/// A test: the binary as cargo names it, and its name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    pub binary: String,
    pub name: String,
}

impl Test {
    /// Without the hash that cargo adds to the names of binaries.
    pub fn told(&self) -> String {
        let file = self.binary.rsplit('/').next().unwrap_or(&self.binary);
        let stem = file.rsplit_once('-').map_or(file, |(stem, _)| stem);
        format!("{stem}::{}", self.name)
    }
}

/// What the output of one stage holds.
#[derive(Debug, Clone, Default)]
pub struct Results {
    pub tests: BTreeMap<Test, Outcome>,
    /// What cannot be counted: each is a failure.
    pub faults: Vec<String>,
}

/// Does this line say that all is well? Such lines are for the file alone.
pub fn is_well(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test"))
        || test_line(line).and_then(|(_, _, text)| outcome(text)).is_some_and(|o| o != Outcome::Failed)
        || line.starts_with("test result: ok.")
        || line.starts_with("Running ") && line.ends_with(')')
        || line.starts_with("Doc-tests ")
}

/// The outcome that a line ends with, if it does.
fn outcome(text: &str) -> Option<Outcome> {
    // Times are behind some outcomes: `ok <0.003s>`.
    let word = text.split([' ', ',']).next().unwrap_or_default();
    match word {
        "ok" => Some(Outcome::Passed),
        "FAILED" => Some(Outcome::Failed),
        // Rust's own harness writes `ignored, REASON`, libtest-mimic `ignored (REASON)`.
        "ignored" => {
            let reason = text["ignored".len()..].trim_start_matches(',').trim();
            let inner = reason.strip_prefix('(').and_then(|r| r.strip_suffix(')'));
            Some(Outcome::Skipped(inner.unwrap_or(reason).to_owned()))
        }
        _ => None,
    }
}

/// What follows `test ` in a line that a library began: FFmpeg writes `[swscaler @ 0x55d0] ` first and the rest later, and the
/// harness may write its line in between. Only a whole name and an outcome at the line's end count.
fn after_others(line: &str) -> Option<&str> {
    let (_, rest) = line.rsplit_once(" test ")?;
    let (name, text) = rest.split_once(" ... ")?;
    (!name.contains(' ') && outcome(text).is_some()).then_some(rest)
}

/// `test [KIND] NAME ... TEXT`, where the kind, which not all have, is the reason of a test that was skipped.
fn test_line(line: &str) -> Option<(String, &str, &str)> {
    let (name, text) = line.strip_prefix("test ").or_else(|| after_others(line))?.split_once(" ... ")?;
    let name = name.trim();
    let (kind, name) = match name.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((kind, name)) => (kind, name.trim()),
        None => ("", name),
    };
    Some((name.strip_suffix(" - should panic").unwrap_or(name).to_owned(), kind, text.trim()))
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; ...`: the three.
fn sums(line: &str) -> Option<[usize; 3]> {
    let words: Vec<&str> = line.strip_prefix("test result: ")?.split_whitespace().collect();
    let before = |what: &str| words.iter().position(|w| *w == what).and_then(|at| words[at - 1].parse().ok());
    Some([before("passed;")?, before("failed;")?, before("ignored;")?])
}

/// A binary whose tests are being read.
#[derive(Default)]
struct Open {
    binary: String,
    begun: bool,
    tests: BTreeMap<String, Outcome>,
    /// A test whose outcome another line has.
    pending: Option<String>,
}

impl Results {
    /// Reads the output of `cargo test`.
    pub fn of(output: &str) -> Results {
        let (mut results, mut open) = (Results::default(), Open::default());
        for line in output.lines() {
            let words = line.trim();
            if let Some(binary) = header(words) {
                results.close(&mut open, None);
                open.binary = binary;
            } else if words.starts_with("running ") && is_well(words) {
                open.begun = true;
            } else if let Some(sums) = sums(words) {
                results.close(&mut open, Some(sums));
            } else if let Some((name, kind, text)) = test_line(words) {
                match outcome(text) {
                    Some(Outcome::Skipped(why)) => {
                        let why = if why.is_empty() { kind.trim().to_owned() } else { why };
                        open.tests.insert(name, Outcome::Skipped(why));
                    }
                    Some(outcome) => drop(open.tests.insert(name, outcome)),
                    None => open.pending = Some(name),
                }
            } else if let Some((name, outcome)) = open.pending.clone().zip(outcome(words)) {
                open.tests.insert(name, outcome);
                open.pending = None;
            }
        }
        results.close(&mut open, None);
        results
    }

    fn close(&mut self, open: &mut Open, sums: Option<[usize; 3]>) {
        let binary = open.binary.clone();
        let of = |is: fn(&Outcome) -> bool| open.tests.values().filter(|o| is(o)).count();
        let read = [
            of(|o| *o == Outcome::Passed),
            of(|o| *o == Outcome::Failed),
            of(|o| matches!(o, Outcome::Skipped(_))),
        ];
        match sums {
            None if open.begun => self.faults.push(format!("{binary} ended before its last test")),
            Some(sums) if sums != read => self.faults.push(format!(
                "{binary} says {} passed, {} failed, {} ignored; its lines say {}, {}, {}",
                sums[0], sums[1], sums[2], read[0], read[1], read[2]
            )),
            _ => {}
        }
        let tests = std::mem::take(&mut open.tests);
        self.tests.extend(tests.into_iter().map(|(name, o)| (Test { binary: binary.clone(), name }, o)));
        // Tests of a library's documentation come in several groups under one line.
        (open.begun, open.pending) = (false, None);
    }
}

/// `Running unittests src/lib.rs (target/debug/deps/x-0123)` or `Doc-tests x`.
fn header(line: &str) -> Option<String> {
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("documentation of {name}"));
    }
    let (_, file) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once('(')?;
    Some(file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "   Compiling x v0.1.0
     Running unittests src/lib.rs (target/debug/deps/x-0123abc)

running 4 tests
test a::one ... ok
test b - should panic ... ok
test two ... ignored, needs root: it loads eBPF
test three ... FAILED

failures:

---- three stdout ----
test four ... it says

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

     Running tests/machine.rs (target/debug/deps/machine-99)

running 3 tests
test                 free   ... ok
test [needs root   ] kept   ... ignored
test [needs a group] groups ... ignored (no group can be made)
test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests x

running 1 test
test src/lib.rs - f (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn told(results: &Results) -> Vec<String> {
        results.tests.iter().map(|(t, o)| format!("{} {o:?}", t.told())).collect()
    }

    #[test]
    fn a_line_that_a_library_began_still_counts() {
        let broken = OUTPUT.replace("\ntest a::one", "\n[swscaler @ 0x7fcd] test a::one");
        assert_ne!(broken, OUTPUT);
        assert_eq!(told(&Results::of(&broken)), told(&Results::of(OUTPUT)));
        assert_eq!(Results::of(&broken).faults, Vec::<String>::new());
        // Words that only look like it are nobody's test.
        assert_eq!(test_line("we said test it now ... ok"), None);
        assert_eq!(test_line("we said test it ... well"), None);
    }

    #[test]
    fn each_test_has_its_outcome() {
        let results = Results::of(OUTPUT);
        // What a failed test prints may look like a result: the sums show it.
        let text = OUTPUT.replace("test four ... it says", "words");
        assert_eq!(Results::of(&text).faults, Vec::<String>::new());
        assert_eq!(results.faults, Vec::<String>::new());
        assert_eq!(
            told(&results),
            [
                "documentation of x::src/lib.rs - f (line 3) Passed",
                "machine::free Passed",
                "machine::groups Skipped(\"no group can be made\")",
                "machine::kept Skipped(\"needs root\")",
                "x::a::one Passed",
                "x::b Passed",
                "x::three Failed",
                "x::two Skipped(\"needs root: it loads eBPF\")",
            ]
        );
    }

    #[test]
    fn what_cannot_be_counted_is_a_fault() {
        let lost = OUTPUT.replace("test a::one ... ok\n", "");
        assert!(Results::of(&lost).faults[0].contains("says 2 passed, 1 failed, 1 ignored"));
        let crashed = OUTPUT.split("test two").next().unwrap();
        assert_eq!(Results::of(crashed).faults, ["target/debug/deps/x-0123abc ended before its last test"]);
    }

    #[test]
    fn an_outcome_on_a_line_of_its_own_is_found() {
        let text = OUTPUT.replace("test a::one ... ok", "test a::one ... it prints\nok");
        assert_eq!(Results::of(&text).faults, Vec::<String>::new());
    }

    #[test]
    fn the_terminal_sees_what_is_not_well() {
        let shown: Vec<&str> = OUTPUT.lines().filter(|l| !is_well(l)).collect();
        assert_eq!(shown.len(), 6, "{shown:?}");
        assert!(shown[1].contains("three ... FAILED") && shown[5].starts_with("test result: FAILED"));
    }
}
