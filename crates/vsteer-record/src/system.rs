//! What differs between operating systems when files are opened and written.
//!
//! Both modules have the same functions. On Linux vsteer runs as root beside other users, so it opens a file first and then
//! checks what it opened. Elsewhere it only reads and writes files for the user who calls it, so a check by name is enough.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

/// The fault of a file that vsteer does not read.
pub(crate) fn not_read(why: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, why)
}
