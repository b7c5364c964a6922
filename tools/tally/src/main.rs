//! How did a test run end? One last line: `N passed, N failed, N skipped`.
//!
//! Each stage of a run is a command whose output and exit status are kept in a folder ([`stage`]). At the end the kept
//! output is read: the result lines of Rust's test harness ([`harness`]) and the claims of the lab ([`claims`]). A test
//! that could not run counts as skipped. In CI, a skip that the list of expected skips does not name is a failure
//! ([`expected`], [`sum`]).
//!
//! Left out: choosing stages, which is tools/test.sh's part.

mod binaries;
mod claims;
mod expected;
mod harness;
mod stage;
mod sum;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str =
    "usage: vsteer-tally run FOLDER KIND NAME COMMAND...   run one stage; KIND: gate, tests or claims
       vsteer-tally binaries CARGO ARGUMENTS...    run what `CARGO test ARGUMENTS` runs, several binaries at once
       vsteer-tally left-out FOLDER EXPECTED       arguments that leave out what no run includes
       vsteer-tally sum FOLDER EXPECTED            print what was skipped or failed, and the sums
       vsteer-tally sum FOLDER EXPECTED --unprivileged
                                                   the same after a run without the ignored tests";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run", folder, kind, name, ref command @ ..] if !command.is_empty() => {
            stage::run(Path::new(folder), kind, name, command)
        }
        ["binaries", cargo, ref arguments @ ..] => binaries::run(cargo, arguments),
        ["left-out", folder, list] => left_out(Path::new(folder), Path::new(list)),
        ["sum", folder, list] => sum_up(folder, list, false),
        ["sum", folder, list, "--unprivileged"] => sum_up(folder, list, true),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(why) => {
            eprintln!("vsteer-tally: {why}");
            ExitCode::from(2)
        }
    }
}

fn left_out(folder: &Path, list: &Path) -> Result<u8, String> {
    let (stages, expected) = (stage::kept(folder)?, expected::Expected::read(list)?);
    for name in sum::left_out(&stages, &expected) {
        println!("--skip\n{name}");
    }
    Ok(0)
}

fn sum_up(folder: &str, list: &str, unprivileged: bool) -> Result<u8, String> {
    let (stages, expected) = (stage::kept(Path::new(folder))?, expected::Expected::read(Path::new(list))?);
    let strict = std::env::var_os("CI").is_some_and(|v| v == "true");
    let sum = sum::Sum::of(&stages, &expected, strict, unprivileged);
    for line in sum.lines() {
        println!("{line}");
    }
    Ok(u8::from(sum.failed() > 0))
}
