//! Fuzz targets: what must hold for any bytes that somebody else wrote?
//!
//! One function for each reader of foreign input. A target returns whether the bytes were read or refused, and panics
//! if more is wrong than that. `make check` runs every target on its seeds; `tools/fuzz.sh` lets libFuzzer choose the
//! bytes. A target works in memory, because a disk would limit it to some hundred runs a second.
//!
//! Left out: answers of vSphere, libvirt and QEMU's guest agent beyond their texts, because they need a connection.

mod access_log;
mod agent_answer;
mod boot_loader;
mod captured_host;
mod configuration;
mod cpu_list;
mod esxtop;
mod esxtop_beside;
mod experiment;
mod experiment_log;
mod exposition;
mod gzip;
mod history;
mod journal;
mod libvirt_xml;
mod plan;
mod proc;
mod qmp;
mod recording;
mod rt_app;
mod scenario;
mod sched_trace;
mod service_levels;
mod sniff;
mod trigger;
mod words;
mod xen_listing;
mod xentrace;

/// A reader with what must hold for it.
pub struct Target {
    /// Its name, which is that of its file.
    pub name: &'static str,
    /// Reads the bytes. Returns false if they were refused.
    pub run: fn(&[u8]) -> bool,
    /// Bytes that are read. libFuzzer starts from them.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name::run, seeds: $name::seeds }),*];
    };
}

targets!(
    access_log,
    agent_answer,
    boot_loader,
    captured_host,
    configuration,
    cpu_list,
    esxtop,
    esxtop_beside,
    experiment,
    experiment_log,
    exposition,
    gzip,
    history,
    journal,
    libvirt_xml,
    plan,
    proc,
    qmp,
    recording,
    rt_app,
    scenario,
    sched_trace,
    service_levels,
    sniff,
    trigger,
    words,
    xen_listing,
    xentrace,
);

/// Bytes as text; an empty one if they are not UTF-8, as most readers refuse them then.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Texts as seeds.
fn seeds_of(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}

/// A file of this project as a seed. `path` starts at the project's folder.
fn project_file(path: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_seed_is_read() {
        let mut refused = Vec::new();
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has no seed", target.name);
            let of = seeds.iter().enumerate().filter(|(_, seed)| !(target.run)(seed));
            refused.extend(of.map(|(i, _)| format!("{} {i}", target.name)));
        }
        assert!(refused.is_empty(), "refused seeds: {refused:?}");
    }

    /// Each seed cut short, with one byte changed, and with one byte doubled.
    #[test]
    fn damaged_seeds_end_no_target() {
        for target in TARGETS {
            for seed in (target.seeds)() {
                let step = (seed.len() / 20).max(1);
                for at in (0..seed.len()).step_by(step) {
                    (target.run)(&seed[..at]);
                    let mut changed = seed.clone();
                    changed[at] ^= 0x55;
                    (target.run)(&changed);
                    changed[at] = 0xff;
                    changed.insert(at, seed[at]);
                    (target.run)(&changed);
                }
            }
        }
    }

    #[test]
    fn every_file_is_a_target() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "rs") && !p.ends_with("lib.rs"))
            .map(|p| p.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let named: BTreeSet<String> = TARGETS.iter().map(|t| t.name.to_owned()).collect();
        assert_eq!(files, named);
    }
}
