//! Connection URIs that stand in files: which of them may be opened?
//!
//! A libvirt URI can name a program to run (`?command=`), a socket to talk to (`?socket=`), keys, proxies, or switch
//! checks off (`?no_verify=1`). A file must not decide that, so vsteer refuses parameters of URIs in files, unless the
//! person typed the same URI. Parameters: libvirt's docs/uri.rst.

use crate::{Fault, FaultKind};

/// Why a URI from a file is not opened, if so. `typed`: URIs that the person gave on the command line.
///
/// # Errors
/// `BadInput` for a URI with parameters that was not typed, or with a control character.
pub fn from_file(uri: &str, typed: &[&str]) -> Result<(), Fault> {
    if typed.contains(&uri) {
        return Ok(());
    }
    let refused = |why: String| {
        Fault::new(FaultKind::BadInput, format!("vsteer does not open {uri:?}, which a file names"))
            .because(why)
            .help("if you want this connection, type the whole URI: --connect URI or --trust-uri URI")
    };
    if uri.chars().any(char::is_control) {
        return Err(refused("it contains a control character".to_owned()));
    }
    match uri.split_once('?') {
        None => Ok(()),
        Some((_, parameters)) => {
            let name = parameters.split(['=', '&']).next().unwrap_or_default();
            Err(refused(format!("its parameter {name:?} can run a program or redirect the connection")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_refused_unless_typed() {
        for uri in ["qemu:///system", "qemu+ssh://root@host/system", "vsphere://user@host"] {
            assert!(from_file(uri, &[]).is_ok(), "{uri}");
        }
        for uri in [
            "qemu+ext:///system?command=/tmp/x",
            "qemu+unix:///system?socket=/tmp/s",
            "qemu+ssh://h/system?no_verify=1",
            "qemu:///system?",
            "qemu:///sys\ntem",
        ] {
            assert_eq!(from_file(uri, &["qemu:///system"]).unwrap_err().kind, FaultKind::BadInput, "{uri}");
            assert!(from_file(uri, &[uri]).is_ok());
        }
    }
}
