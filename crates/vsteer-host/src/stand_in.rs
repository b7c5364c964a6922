//! Programs that tests write and run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script. A process of its own writes it: a process that another test starts at the same time could inherit
/// this one's open file, and then the kernel refuses to run the script ("Text file busy").
pub fn script(at: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(at)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}
