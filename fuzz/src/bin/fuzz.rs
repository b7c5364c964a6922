//! Runs libFuzzer on the target that `VSTEER_FUZZ` names. With `VSTEER_FUZZ_SEEDS=FOLDER` instead: lists the targets and
//! writes the seeds of each to FOLDER/TARGET/. `tools/fuzz.sh` builds and calls this program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::OnceLock;
use vsteer_fuzz::{TARGETS, Target};

fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("VSTEER_FUZZ").expect("VSTEER_FUZZ names the target");
        TARGETS.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("{name} is not a target"))
    })
}

fn write_seeds(folder: &Path) -> std::io::Result<()> {
    for target in TARGETS {
        println!("{}", target.name);
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (i, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{i}")), seed)?;
        }
    }
    Ok(())
}

fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("VSTEER_FUZZ_SEEDS") {
            write_seeds(Path::new(&folder)).expect("the folder can be written");
            std::process::exit(0);
        }
        // libFuzzer's hook ends the program at every panic. Arrow and Parquet panic on some garbled lengths, and the
        // readers of recordings and of histories contain these panics. A panic that leaves a target still ends the program.
        if matches!(chosen().name, "recording" | "history") {
            std::panic::set_hook(Box::new(|_| {}));
        }
    },
    |bytes: &[u8]| {
        (chosen().run)(bytes);
    }
);
