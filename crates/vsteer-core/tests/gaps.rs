//! Is every known gap, `GAP(id)` in the code, a row of SPEC.md, and the other way round?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Ids of `GAP(id)` in a text. The placeholder `id` is none.
fn ids(text: &str) -> BTreeSet<String> {
    let named = text.split("GAP(").skip(1).filter_map(|rest| rest.split_once(')')).map(|(id, _)| id);
    let plain = |id: &&str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    named.filter(plain).filter(|id| *id != "id").map(str::to_owned).collect()
}

fn read_all(of: &Path, found: &mut BTreeSet<String>) {
    if of.is_dir() {
        if of.file_name().is_some_and(|n| n == "target") {
            return;
        }
        for entry in std::fs::read_dir(of).unwrap() {
            read_all(&entry.unwrap().path(), found);
        }
    } else if !of.ends_with("gaps.rs") && of.extension().is_none_or(|e| e != "md") {
        found.extend(ids(&std::fs::read_to_string(of).unwrap_or_default()));
    }
}

#[test]
fn gaps_in_the_code_and_in_the_specification_are_the_same() {
    let mut code = BTreeSet::new();
    for of in ["crates", "tools", "fuzz", "scenarios", "Makefile", "Cargo.toml"] {
        read_all(&project().join(of), &mut code);
    }
    let spec = ids(&std::fs::read_to_string(project().join("SPEC.md")).unwrap());
    let (only_code, only_spec): (Vec<_>, Vec<_>) =
        (code.difference(&spec).collect(), spec.difference(&code).collect());
    assert!(code.len() > 60, "{} gaps in the code", code.len());
    assert!(
        only_code.is_empty() && only_spec.is_empty(),
        "only in the code: {only_code:?}; only in SPEC.md: {only_spec:?}"
    );
}
