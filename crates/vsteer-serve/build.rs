//! Embeds the live page if `make page` has built it into `page/dist`.
//!
//! The crate must build on machines without Node, so a missing page is not an error: the list of files is then empty, and the
//! service says how to build the page.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dist = root.join("page/dist");
    // The folder always exists, because git keeps a file in it. Cargo would run this program at each build otherwise.
    println!("cargo::rerun-if-changed=page/dist");
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &mut files);
    }
    files.sort();
    let mut code = "const FILES: &[(&str, &[u8])] = &[\n".to_owned();
    for file in &files {
        let name = file.strip_prefix(&dist).expect("it is below the folder").display().to_string();
        writeln!(code, "    ({name:?}, include_bytes!({:?})),", file.display().to_string())
            .expect("a string takes all");
    }
    code.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("page.rs"), code).expect("cargo's folder can be written");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("the folder of the page can be read");
    for path in entries.map(|entry| entry.expect("the folder of the page can be read").path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.file_name().is_some_and(|name| name != ".gitignore") {
            files.push(path);
        }
    }
}
