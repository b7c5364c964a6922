//! temp
use crate::cli::Report;
use vsteer_core::Fault;
pub fn run(_a: &Report, _json: bool) -> Result<(), Fault> {
    Ok(())
}
