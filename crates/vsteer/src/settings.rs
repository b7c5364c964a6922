//! What counts for this process: the command line, read with the defaults that the configuration gives.
//!
//! The command line is read twice. The first time says which command is meant and which file `--config` names. The second
//! time has the configured values as defaults, so one parser reads an option and its key.
//!
//! A faulty file stops a command. It must not stop what undoes a change: `rollback` and the clients of the realtime service
//! then use the built-in defaults, except for the folder of the journals if the file says it well.

#[cfg(feature = "host")]
use crate::cli::RealtimeWhat;
use crate::cli::{Cli, Command};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use vsteer_core::Fault;
#[cfg(feature = "host")]
use vsteer_core::visible::message;
use vsteer_record::config::{Config, Loaded, NO_FILE, Places, Source};

/// What `--config` names, from the root.
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Where `[serve]` keeps the history, if the configuration says it.
static HISTORY: OnceLock<PathBuf> = OnceLock::new();

/// The folder of the history: as typed, else where the service of this host keeps it.
pub fn history(typed: Option<&Path>) -> PathBuf {
    let configured = || HISTORY.get().map_or(Path::new(vsteer_record::history::FOLDER), PathBuf::as_path);
    typed.map_or_else(|| configured().to_owned(), Path::to_owned)
}

/// The value of `--config`, if it was typed: for processes that this one starts.
#[cfg_attr(not(feature = "host"), allow(dead_code))]
pub fn chosen() -> Option<&'static Path> {
    CHOSEN.get().map(PathBuf::as_path)
}

/// What a command does with a faulty configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It reads none, or reads it by itself.
    Nothing,
    /// It undoes a change, so it goes on.
    #[cfg(feature = "host")]
    Lenient,
    Strict,
}

fn need(command: &Command) -> Need {
    match command {
        Command::Config(_) | Command::Completions { .. } | Command::Man { .. } | Command::ExitCodes => {
            Need::Nothing
        }
        // The agent answers others, whatever this host's users set for themselves.
        #[cfg(feature = "host")]
        Command::Other(_) | Command::Agent => Need::Nothing,
        #[cfg(feature = "host")]
        Command::Rollback(_) => Need::Lenient,
        #[cfg(feature = "host")]
        Command::Realtime(a) => match a.what {
            RealtimeWhat::Status | RealtimeWhat::Report | RealtimeWhat::Disable => Need::Lenient,
            _ => Need::Strict,
        },
        _ => Need::Strict,
    }
}

/// Asks the environment.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Reads a command line. Ends the process for `--help`, `--version` and what clap refuses.
fn parsed(command: clap::Command, words: &[OsString]) -> (Cli, ArgMatches) {
    let mut again = command.clone();
    let matches = command.get_matches_from(words);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut again).exit());
    (cli, matches)
}

fn has(command: &clap::Command, id: &str) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id)
}

/// The command line with configured defaults in place of the built-in ones of this command.
pub fn with_defaults(name: &str, config: &Config) -> clap::Command {
    let options = config.options_of(name);
    let all = Cli::command();
    if options.is_empty() || all.find_subcommand(name).is_none() {
        return all;
    }
    all.mut_subcommand(name, |command| {
        options.into_iter().fold(command, |command, (id, values)| {
            // A build that only reads files lacks options of a live host.
            if !has(&command, id) {
                return command;
            }
            // clap keeps references, and the command line is read once in the life of the process.
            let values: Vec<&'static str> =
                values.into_iter().map(|v| &*Box::leak(v.into_boxed_str())).collect();
            command.mut_arg(id, |arg| arg.default_values(values))
        })
    })
}

/// The command line of this process and the configuration that counts for it. The flag: results are wanted as JSON.
///
/// # Errors
/// As [`Loaded::strict`].
pub fn of_process() -> Result<(Cli, Config), (Fault, bool)> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let (cli, matches) = parsed(Cli::command(), &words);
    if let Some(file) = &cli.config {
        let none = file.as_os_str() == NO_FILE;
        let full = if none { Ok(file.clone()) } else { std::path::absolute(file) };
        let _ = CHOSEN.set(full.unwrap_or_else(|_| file.clone()));
    }
    let need = need(&cli.command);
    if need == Need::Nothing {
        return Ok((cli, Config::default()));
    }
    let loaded = Loaded::of(&Places::of(cli.config.as_deref(), &variable), &variable);
    loaded.notes.iter().for_each(crate::text::note);
    let config = match (loaded.fault(), need) {
        (None, _) => loaded.config,
        #[cfg(feature = "host")]
        (Some(fault), Need::Lenient) => without(&fault, &loaded.config),
        (Some(fault), _) => return Err((fault, cli.json)),
    };
    apply(&config);
    let name = matches.subcommand_name().unwrap_or_default();
    let (cli, _) = parsed(with_defaults(name, &config), &words);
    #[cfg(feature = "host")]
    let cli = connected(cli, &config);
    Ok((cli, config))
}

#[cfg(feature = "host")]
fn connected(mut cli: Cli, config: &Config) -> Cli {
    cli.command.connect(config).iter().for_each(crate::text::note);
    cli
}

#[cfg(feature = "host")]
const STATE: &str = "paths.state";

/// What counts for a command that a faulty configuration must not stop. Says so, and where it looks for journals.
#[cfg(feature = "host")]
fn without(fault: &Fault, config: &Config) -> Config {
    let only = config.only(STATE);
    eprintln!("vsteer: warning: {}", message(&fault.to_string()));
    let state = match (only.source(STATE), only.folder(STATE)) {
        (Source::File(file, line), Some(folder)) => {
            format!("{}, which {}:{line} names", folder.display(), file.display())
        }
        (Source::Variable(name), Some(folder)) => format!("{}, which {name} names", folder.display()),
        _ => {
            let journals = vsteer_record::applied::usual_folder();
            let state = journals.parent().unwrap_or(&journals);
            format!("{}, the default folder; for another one, set VSTEER_STATE", state.display())
        }
    };
    crate::text::note(format!(
        "this command goes on with built-in defaults; it looks for undo journals in {state}"
    ));
    only
}

/// Settings of the whole process.
fn apply(config: &Config) {
    #[cfg(feature = "host")]
    if let Some(folder) = config.folder(STATE) {
        vsteer_act::journal::configure(folder.to_owned());
    }
    if let Some(folder) = config.folder("serve.history").filter(|folder| folder.is_absolute()) {
        let _ = HISTORY.set(folder.to_owned());
    }
    // The system's rule for TZ is wider than a name, and the time library knows it.
    if let Source::File(..) = config.source("display.time_zone") {
        crate::clock::set_zone(config.text("display.time_zone"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use clap::parser::ValueSource;
    use vsteer_record::config::{Kind, keys, of_text};

    /// A value of the key that is not its default, as the file has it and as the option takes it.
    fn other(kind: Kind, default: &str) -> (String, &'static str) {
        let value = match kind {
            Kind::Time(_) => "7s",
            Kind::Percent => "3%",
            Kind::Size { .. } => "16M",
            Kind::Choice(words) => words.iter().find(|w| **w != default).expect("a choice has two words"),
            Kind::Words(words) => words[3],
            _ => panic!("no option takes a value of this kind"),
        };
        (if kind.is_list() { format!("[{value:?}]") } else { format!("{value:?}") }, value)
    }

    /// Every option that the table names has the configured value, unless it is typed. A row whose option does not exist, or
    /// that no command reads, fails here.
    #[test]
    fn each_key_is_the_default_of_its_options() {
        let mut all = 0;
        for key in keys() {
            // The service has a command line of its own, and the same test.
            for (command, id) in key.options.iter().filter(|(of, _)| *of != "serve") {
                if !Cli::command().find_subcommand(command).is_some_and(|of| has(of, id)) {
                    // A build that only reads files has fewer commands and options, and ignores these keys.
                    #[cfg(feature = "host")]
                    panic!("{command} has no option {id}");
                    #[cfg(not(feature = "host"))]
                    {
                        let (toml, _) = other(key.kind, key.default);
                        let text = format!("[{}]\n{} = {toml}\n", key.section, key.name);
                        let _ = with_defaults(command, &of_text(&text).config);
                        continue;
                    }
                }
                all += 1;
                let (toml, value) = other(key.kind, key.default);
                let loaded = of_text(&format!("[{}]\n{} = {toml}\n", key.section, key.name));
                assert!(loaded.wrong.is_empty(), "{:?}", loaded.wrong);
                let matches = |config: &Config, more: &[&str]| {
                    let first = ["vsteer", command].into_iter();
                    let recording = (*command == "replay").then_some("a.vsteer");
                    let words = first.chain(recording).chain(more.iter().copied());
                    let read = with_defaults(command, config).try_get_matches_from(words);
                    let (_, of) =
                        read.unwrap_or_else(|e| panic!("{e}")).remove_subcommand().expect("a command");
                    let raw: Vec<String> = of
                        .get_raw(id)
                        .map(|all| all.map(|v| v.to_string_lossy().into_owned()).collect())
                        .unwrap_or_default();
                    (raw.join(","), of.value_source(id))
                };
                let (set, source) = matches(&loaded.config, &[]);
                assert_eq!(
                    (set.as_str(), source),
                    (value, Some(ValueSource::DefaultValue)),
                    "{command} {id}"
                );
                let (plain, _) = matches(&Config::default(), &[]);
                assert_eq!(plain, key.default, "{command} {id}: the built-in default is that of the table");
                let option = format!(
                    "--{}",
                    Cli::command()
                        .find_subcommand(command)
                        .and_then(|c| c.get_arguments().find(|a| a.get_id() == id))
                        .and_then(clap::Arg::get_long)
                        .unwrap_or_else(|| panic!("{command} has no option {id}"))
                );
                assert!(key.overridden_by.is_some_and(|o| o == option), "{command} {option}");
                let text = if key.kind.is_list() { "%RUN" } else { value };
                let needs: &[&str] = match *id {
                    "event_buffer" => &["--events"],
                    "trigger_window" | "trigger_quiet" => &["--trigger", "ready>1%"],
                    _ => &[],
                };
                let typed = [needs, &[option.as_str(), text]].concat();
                let (set, source) = matches(&loaded.config, &typed);
                assert_eq!((set.as_str(), source), (text, Some(ValueSource::CommandLine)), "{command} {id}");
            }
        }
        assert!(all >= if cfg!(feature = "host") { 15 } else { 5 }, "{all} options");
    }

    #[test]
    fn what_undoes_a_change_goes_on_with_a_faulty_file() {
        let need_of =
            |line: &str| need(&Cli::try_parse_from(line.split(' ')).expect("a command line").command);
        for line in ["vsteer man a", "vsteer completions bash", "vsteer exit-codes", "vsteer config check"] {
            assert!(need_of(line) == Need::Nothing, "{line}");
        }
        for line in ["vsteer diagnose", "vsteer plan", "vsteer report a", "vsteer numa"] {
            assert!(need_of(line) == Need::Strict, "{line}");
        }
        #[cfg(feature = "host")]
        for (line, expected) in [
            ("vsteer rollback", Need::Lenient),
            ("vsteer realtime disable", Need::Lenient),
            ("vsteer realtime enable --vm a --yes", Need::Strict),
            ("vsteer apply plan.json", Need::Strict),
            ("vsteer __watchdog a b c", Need::Nothing),
            ("vsteer lab run", Need::Nothing),
            ("vsteer agent", Need::Nothing),
        ] {
            assert!(need_of(line) == expected, "{line}");
        }
    }
}
