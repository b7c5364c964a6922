//! What the program says about itself and the machine: topology, completions, manual pages, exit codes; and the
//! programs beside it that are run as its commands.

use crate::cli::{Cli, TopologyArgs};
use clap::CommandFactory;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::root::Root;

/// `vsteer topology`.
///
/// # Errors
/// When the machine's files cannot be read.
pub fn topology(a: &TopologyArgs, json: bool) -> Result<(), Fault> {
    let root = Root::open(&a.root)?;
    let t = vsteer_host::linux::topology::read(&root)?;
    if json {
        crate::text::print_json(&t);
        return Ok(());
    }
    println!("pCPUs     online {}   offline {}   allowed {}", t.online(), t.offline(), t.allowed());
    for p in t.packages() {
        println!("package   {:<4} pCPUs {}", p.id.map_or("?".to_owned(), |i| i.to_string()), p.cpus);
    }
    for n in t.nodes() {
        let memory =
            n.memory_bytes.map_or("?".to_owned(), |b| format!("{:.1} GiB", b as f64 / f64::from(1 << 30)));
        println!("node      {:<4} pCPUs {:<14} memory {memory}", n.id.0, n.cpus.to_string());
    }
    for c in t.caches() {
        let size = c.size_bytes.map_or("?".to_owned(), |b| format!("{} KiB", b / 1024));
        println!("cache     L{} {:<12} {size:<12} pCPUs {}", c.level, format!("{:?}", c.kind), c.cpus);
    }
    for c in t.cores() {
        println!("core      {:<4} pCPUs {}", c.id.map_or("?".to_owned(), |i| i.to_string()), c.cpus);
    }
    for o in t.oddities() {
        println!("odd       {}: {}", o.place, o.what);
    }
    Ok(())
}

/// `vsteer completions SHELL`.
///
/// # Errors
/// None.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Fault> {
    clap_complete::generate(shell, &mut Cli::command(), "vsteer", &mut std::io::stdout());
    Ok(())
}

/// `vsteer man FOLDER`.
///
/// # Errors
/// When the folder cannot be written.
pub fn man(folder: &Path) -> Result<(), Fault> {
    let failed = |e: &std::io::Error| Fault::io(format!("writing manual pages to {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(|e| failed(&e))
}

/// `vsteer exit-codes`.
///
/// # Errors
/// None.
pub fn exit_codes(json: bool) -> Result<(), Fault> {
    if json {
        let all: Vec<_> = FaultKind::ALL
            .iter()
            .map(|k| serde_json::json!({ "code": k.exit_code(), "kind": k, "meaning": k.meaning() }))
            .collect();
        crate::text::print_json(&all);
    } else {
        println!("{:>4}  done", 0);
        for k in FaultKind::ALL {
            println!("{:>4}  {}", k.exit_code(), k.meaning());
        }
    }
    Ok(())
}

/// `vsteer X …` runs `vsteer-X …`, beside this program or on the PATH; `demo` is the lab's.
///
/// # Errors
/// `Usage` when there is no such program.
pub fn other(words: &[String], json: bool) -> Result<ExitCode, Fault> {
    let Some((name, rest)) = words.split_first() else { return Ok(ExitCode::SUCCESS) };
    if name == super::apply::WATCHDOG {
        super::apply::watchdog(words)?;
        return Ok(ExitCode::SUCCESS);
    }
    if name == super::steer::GUARD {
        super::steer::guard()?;
        return Ok(ExitCode::SUCCESS);
    }
    let (program, first) = if name == "demo" { ("lab", Some("demo")) } else { (name.as_str(), None) };
    let beside: Option<PathBuf> = std::env::current_exe()
        .ok()
        .and_then(|p| Some(p.parent()?.join(format!("vsteer-{program}"))))
        .filter(|p| p.is_file());
    let mut command = Command::new(beside.unwrap_or_else(|| PathBuf::from(format!("vsteer-{program}"))));
    command.args(first).args(rest);
    if json {
        command.arg("--json");
    }
    let error = command.exec();
    Err(Fault::new(
        FaultKind::Usage,
        format!("no command {name:?}, and no program vsteer-{program} to run for it"),
    )
    .because(error)
    .way_out("vsteer --help lists the commands"))
}
