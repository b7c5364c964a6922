//! Do modules of a crate depend on each other in circles?
//!
//! At each level of a crate's tree, sibling modules must form a graph without circles. A folder counts as one
//! module with all that lies in it. A module may use what its parent declares, and the parent may use its children:
//! that is a registry and its entries.
//!
//! Paths are read from the source as text: `use` trees, and `crate::`, `super::` and `self::` paths in code.
//! Comments, and what follows `#[cfg(test)]`, do not count. Left out: names that a glob brings, which the house
//! does not use outside of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Module = Vec<String>;
/// Which sibling modules use each other, with one place as evidence, by their common parent.
type Levels = BTreeMap<Module, BTreeMap<(String, String), String>>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

fn module_of(src: &Path, file: &Path) -> Module {
    let relative = file.strip_prefix(src).unwrap().with_extension("");
    let mut parts: Module = relative.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if ["mod", "lib", "main"].contains(&parts.last().unwrap().as_str()) {
        parts.pop();
    }
    parts
}

/// The code without comments and without what is for tests alone.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expand(tree: &str, into: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        if !path.is_empty() {
            into.push(path.to_owned());
        }
        return;
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut from) = (0, 0);
    let mut parts = Vec::new();
    for (i, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    for part in parts.into_iter().filter(|p| !p.trim().is_empty()) {
        expand(&format!("{head}{}", part.trim()), into);
    }
}

/// Every path that the code names.
fn paths(code: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    for statement in code.split(';') {
        let (before, tree) = match statement.rfind("use ") {
            Some(at) if !statement[..at].ends_with(is_word) => (&statement[..at], Some(&statement[at + 4..])),
            _ => (statement, None),
        };
        tree.into_iter().for_each(|tree| expand(tree, &mut found));
        for word in before.split(|c: char| !is_word(c)) {
            if ["crate::", "super::", "self::"].iter().any(|head| word.starts_with(head)) {
                found.push(word.to_owned());
            }
        }
    }
    found
}

/// The module that a path leads to, as far as it is one of `all`.
fn target(path: &str, from: &Module, all: &BTreeSet<Module>) -> Option<Module> {
    let parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let (mut at, rest) = match parts[0] {
        "crate" => (Vec::new(), &parts[1..]),
        "super" | "self" => {
            let mut at = from.clone();
            let mut rest = &parts[..];
            while let [first @ ("super" | "self"), more @ ..] = rest {
                if *first == "super" {
                    at.pop();
                }
                rest = more;
            }
            (at, rest)
        }
        child => {
            let mut own = from.clone();
            own.push(child.to_owned());
            if !all.contains(&own) {
                return None;
            }
            (from.clone(), &parts[..])
        }
    };
    for part in rest {
        at.push((*part).to_owned());
        if !all.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

fn levels(src: &Path) -> Levels {
    let mut files = Vec::new();
    sources(src, &mut files);
    let all: BTreeSet<Module> = files.iter().map(|f| module_of(src, f)).collect();
    let mut levels = Levels::new();
    for file in &files {
        let from = module_of(src, file);
        for path in paths(&code(&std::fs::read_to_string(file).unwrap())) {
            let Some(to) = target(&path, &from, &all) else { continue };
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if shared < from.len() && shared < to.len() {
                let edge = (from[shared].clone(), to[shared].clone());
                let place = format!("{} uses {path}", from.join("/"));
                levels.entry(from[..shared].to_vec()).or_default().entry(edge).or_insert(place);
            }
        }
    }
    levels
}

/// A way from `from` back to itself.
fn circle(from: &str, edges: &BTreeMap<(String, String), String>) -> Option<Vec<String>> {
    let mut stack = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = stack.pop() {
        let last = way.last().unwrap();
        for (_, to) in edges.keys().filter(|(a, _)| a == last) {
            let mut further = way.clone();
            further.push(to.clone());
            if to == from {
                return Some(further);
            }
            if seen.insert(to.clone()) {
                stack.push(further);
            }
        }
    }
    None
}

fn circles(src: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (parent, edges) in levels(src) {
        let names: BTreeSet<&String> = edges.keys().map(|(a, _)| a).collect();
        if let Some(way) = names.iter().find_map(|name| circle(name, &edges)) {
            let places = way.windows(2).map(|w| edges[&(w[0].clone(), w[1].clone())].as_str());
            let places = places.collect::<Vec<_>>().join("; ");
            found.push(format!("{}/{}: {} ({places})", src.display(), parent.join("/"), way.join(" -> ")));
        }
    }
    found
}

#[test]
fn no_module_depends_on_itself_through_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut seen, mut found) = (0, Vec::new());
    for entry in std::fs::read_dir(crates).unwrap() {
        let src = entry.unwrap().path().join("src");
        seen += levels(&src).values().map(BTreeMap::len).sum::<usize>();
        found.extend(circles(&src));
    }
    assert!(seen > 200, "only {seen} uses were seen: the sources are elsewhere");
    assert!(found.is_empty(), "modules in circles:\n{}", found.join("\n"));
}

/// The reader itself: a circle between siblings is found, a registry and its entries are not one.
#[test]
fn a_circle_is_found() {
    let folder = std::env::temp_dir().join(format!("vsteer-circles-{}", std::process::id()));
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    std::fs::create_dir_all(folder.join("kinds")).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod kinds;\nuse kinds::ALL;");
    write("kinds/mod.rs", "mod one;\npub struct Kind;\npub const ALL: [Kind; 1] = [one::KIND];");
    write("kinds/one.rs", "use super::Kind;\npub const KIND: Kind = Kind;");
    write(
        "a.rs",
        "// use crate::b::B;\nuse crate::kinds::{Kind, ALL};\n#[cfg(test)]\nmod tests { use crate::b::B; }",
    );
    write("b.rs", "fn f() { crate::a::g(); }");
    assert_eq!(circles(&folder), [""; 0]);
    write("kinds/one.rs", "use super::Kind;\nuse std::fmt;\nuse crate::{\n    a::{self, X},\n};");
    let found = circles(&folder);
    assert!(found.len() == 1 && found[0].contains("a -> kinds -> a"), "{found:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
