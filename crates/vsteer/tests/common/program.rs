//! The program under test, which reads no configuration of this machine.

use std::process::Command;

/// The variable and its value: no file is read.
#[allow(dead_code)]
pub const NO_CONFIG: (&str, &str) = ("VSTEER_CONFIG", "none");

/// Where it is, for shells. A test that starts it there sets [`NO_CONFIG`].
#[allow(dead_code)]
pub const VSTEER: &str = env!("CARGO_BIN_EXE_vsteer");

/// A run of it.
#[allow(dead_code)]
pub fn vsteer() -> Command {
    let mut command = Command::new(VSTEER);
    command.env(NO_CONFIG.0, NO_CONFIG.1);
    command
}
