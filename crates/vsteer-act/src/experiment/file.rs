//! Reads an experiment's file (TOML, docs/experiments.md).
//!
//! Left out: what its commands do, because the person writes them.

use std::path::Path;
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};
use vsteer_experiment::Experiment;

/// Reads an experiment from text.
///
/// # Errors
/// `BadInput`: it is not a valid experiment, or cannot run.
pub fn parse(text: &str) -> Result<Experiment, Fault> {
    let experiment: Experiment = toml::from_str(text).map_err(|e| {
        Fault::new(FaultKind::BadInput, "not a valid experiment")
            .because(e)
            .help("correct the file; docs/experiments.md describes its format")
    })?;
    experiment.check()?;
    Ok(experiment)
}

/// Reads an experiment from a file.
///
/// # Errors
/// As [`parse`], with the file's name; if vsteer cannot read the file.
pub fn read(file: &Path) -> Result<Experiment, Fault> {
    let text = vsteer_record::files::text_at_most(file, limits::TEXT_FILE)
        .map_err(|e| Fault::io(format!("cannot read {}", file.display()), &e))?;
    parse(&text).map_err(|f| Fault { what: format!("{}: {}", file.display(), f.what), ..f })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &str = include_str!("../../../../experiments/examples/nic-queues.toml");

    #[test]
    fn an_example_is_read() {
        let e = parse(FILE).unwrap();
        assert_eq!(e.factors[0].levels.len(), 4);
        assert!(parse("name = 3").unwrap_err().cause.is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}", at in any::<prop::sample::Index>(), other in "[\\PC\n]{0,6}") {
            let _ = parse(&text);
            // Files that differ slightly from a valid one.
            let cut: Vec<usize> = FILE.char_indices().map(|(i, _)| i).collect();
            let i = cut[at.index(cut.len())];
            if let Ok(e) = parse(&format!("{}{other}{}", &FILE[..i], &FILE[i..])) {
                prop_assert!(e.check().is_ok() && e.laid().is_ok());
                let again: Experiment = serde_json::from_str(&serde_json::to_string(&e).unwrap()).unwrap();
                prop_assert!(again.check().is_ok());
                prop_assert_eq!(again.laid().unwrap(), e.laid().unwrap());
            }
        }
    }
}
