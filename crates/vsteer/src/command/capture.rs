//! `vsteer capture`: copies what vsteer reads of this host, to observe it elsewhere.

use crate::cli::Capture;
use crate::interrupt::Interrupt;
use std::path::Path;
use std::time::Instant;
use vsteer_core::Fault;
use vsteer_core::plural::counted;
use vsteer_experiment::audit::WANTED;
use vsteer_host::captured::capture::{Asked, capture};
use vsteer_host::pace::Pace;

/// Captures.
///
/// # Errors
/// As [`capture`].
pub fn run(a: &Capture, json: bool) -> Result<(), Fault> {
    let interrupt = Interrupt::listen();
    let asked = Asked {
        root: Path::new("/"),
        folder: &a.output,
        redact: a.redact,
        apart: a.length,
        vms: &a.vms,
        wanted: &WANTED,
    };
    let captured = capture(&asked, &mut |apart| interrupt.sleep_until(Instant::now() + apart))?;
    if json {
        crate::text::print_json(&serde_json::json!({
            "folder": a.output, "files": captured.files, "bytes": captured.bytes, "vms": captured.vms,
            "redacted": a.redact, "unread": captured.unread,
        }));
        return Ok(());
    }
    let kb = captured.bytes.div_ceil(1024);
    eprintln!(
        "vsteer: captured {} in {}, {kb} KB, in {}",
        counted(captured.vms, "VM"),
        counted(captured.files, "file"),
        a.output.display()
    );
    captured.unread.iter().for_each(|u| eprintln!("vsteer: cannot read {u}"));
    eprintln!("vsteer: to observe it: vsteer diagnose --connect tree:{}", a.output.display());
    Ok(())
}
