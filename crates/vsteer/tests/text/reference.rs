//! The reference of the documentation, from the tables in the code.

use crate::help::commands;
use crate::pictures::made;
use crate::place::PLACE;
use std::fmt::Write as _;
use vsteer_core::FaultKind;
use vsteer_core::diagnose::RULES;
use vsteer_core::nouns::{COUNTERS, HISTOGRAM_BUCKETS, Histogram, Kind, STALLS, Stall};
use vsteer_core::plan::action::ACTIONS;
use vsteer_core::thresholds::{THRESHOLDS, Thresholds, Unit};
use vsteer_experiment::audit::CHECKS;
use vsteer_host::privilege::{CapabilitySet, NEEDS, names};
use vsteer_record::config;
use vsteer_record::export::tables;

const MADE: &str = "<!-- `make pictures` writes this page from the program's own tables. -->\n";

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let cell = |text: &str| text.replace('|', "\\|").trim().trim_end_matches('.').to_owned();
    let mut out = line(&heads.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
    out += &format!("|{}\n", "---|".repeat(heads.len()));
    rows.for_each(|row| out += &line(&row.iter().map(|c| cell(c)).collect::<Vec<_>>()));
    out
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

#[test]
fn commands_page() {
    let mut page = format!("# Commands\n\n{MADE}\n`vsteer man FOLDER` writes the same as manual pages.\n");
    for command in commands().into_iter().filter(|c| !c.is_empty()) {
        let help = String::from_utf8(PLACE.run(&format!("{command} --help")).stdout).unwrap();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let _ = write!(page, "\n## vsteer {command}\n\n```text\n{}\n```\n", lines.join("\n"));
    }
    made("docs/reference/commands.md", &page);
}

#[test]
fn findings_page() {
    let mut page =
        format!("# Findings and thresholds\n\n{MADE}\n`vsteer diagnose` knows these findings:\n\n");
    page += &table(&["rule", "finding"], RULES.iter().map(|r| vec![code(r.name), r.doc.to_owned()]));
    page += "\nA finding explains what those further down the table find of the same VMs. So a pin to busy pCPUs is one finding, and\n\
             that its VM waits for another VM there stands below it. A VM above a threshold always has a line: below the cause that\n\
             explains it, or as `over_threshold`. Findings with one culprit, and one finding of three VMs and more, are one.\n";
    page += "\n## Thresholds\n\nTo replace one: `vsteer diagnose --threshold NAME=VALUE`, or for all commands `[thresholds]` in\n[vsteer.toml](configuration.md).\n\n";
    let value = |name: &str| {
        let default = serde_json::to_value(Thresholds::default()).unwrap();
        default[name].as_f64().unwrap()
    };
    let rows = THRESHOLDS.iter().map(|t| {
        let value = match t.unit {
            Unit::Share => format!("{} %", (1e4 * value(t.name)).round() / 100.0),
            Unit::Time => format!("{} ms", value(t.name) / 1e6),
        };
        vec![code(t.name), value, t.meaning.to_owned()]
    });
    page += &table(&["threshold", "default", "meaning"], rows);
    made("docs/reference/findings.md", &page);
}

#[test]
fn plans_page() {
    let mut page =
        format!("# Actions of a plan\n\n{MADE}\n`vsteer plan --only ACTION` considers one of them.\n\n");
    let rows = ACTIONS.iter().map(|a| {
        let when = if a.asked_only { "only by name" } else { "by itself" };
        vec![code(a.name), a.doc.to_owned(), when.to_owned()]
    });
    page += &table(&["action", "what it does", "considered"], rows);
    made("docs/reference/actions.md", &page);
}

#[test]
fn checks_page() {
    let mut page = format!("# Checks of the audit\n\n{MADE}\n`vsteer audit` runs these checks:\n\n");
    page +=
        &table(&["check", "what it looks at"], CHECKS.iter().map(|c| vec![code(c.name), c.doc.to_owned()]));
    made("docs/reference/checks.md", &page);
}

#[test]
fn counters_page() {
    let mut page =
        format!("# Counters\n\n{MADE}\nA recording has these counters for every thread of a VM:\n\n");
    let rows = COUNTERS.iter().map(|c| {
        let unit = match c.kind {
            Kind::Time => "ns",
            Kind::Events => "events",
        };
        vec![code(c.name), unit.to_owned(), c.meaning.to_owned()]
    });
    page += &table(&["counter", "unit", "meaning"], rows);
    page += "\n## Pressure\n\nHow long tasks stalled, as the kernel counts it (PSI). The table `vm` has these columns for each VM whose cgroup\n\
        of version 2 holds nothing else, and `pcpu` has those of the host in the row of its first pCPU. They are cumulative.\n\
        With more than 100 VMs, samples have those of VMs only every two seconds.\n\n";
    let of_kernel = |s: &Stall| format!("`{}.pressure`, `{}`", s.file, s.line);
    let rows = STALLS.iter().map(|s| vec![code(s.name), "ns".to_owned(), of_kernel(s), s.meaning.to_owned()]);
    page += &table(&["column", "unit", "kernel's", "meaning"], rows);
    page += "\n## Quotas\n\nWhat quotas did to a VM, as `cpu.stat` of its cgroups counts it: cumulative columns of the table `vm`. Where limited\n\
        time is not measured, `top`, `diagnose` and `report` estimate it from these times, and mark it with `~` or as an\n\
        estimate (`limited_estimate` in JSON, a share of one pCPU). `top -b` leaves it out.\n\n";
    let rows = [
        ["`throttled_periods`", "events", "Times that quotas of the VM's own cgroups ran out"],
        ["`throttled_above`", "events", "The same of quotas that the VM shares with others"],
        [
            "`throttled_ns`",
            "ns",
            "How long the VM's own quotas held run queues, summed over pCPUs and cgroups",
        ],
        ["`throttled_above_ns`", "ns", "The same of quotas that the VM shares with others"],
    ];
    page += &table(&["column", "unit", "meaning"], rows.iter().map(|r| r.map(str::to_owned).to_vec()));
    made("docs/reference/counters.md", &page);
}

#[test]
fn privileges_page() {
    let mut page = format!(
        "# Privileges\n\n{MADE}\nRoot can do all of this. Another user needs, on the host itself:\n\n"
    );
    let rows = NEEDS.iter().map(|n| {
        let capabilities = match n.capabilities {
            all if all == CapabilitySet::all() => "all".to_owned(),
            none if none.is_empty() => "none".to_owned(),
            some => names(some).iter().map(|c| code(c)).collect::<Vec<_>>().join(", "),
        };
        let commands: Vec<String> = n.commands.iter().map(|c| code(c)).collect();
        vec![commands.join(", "), n.way.to_owned(), capabilities, n.reach.to_owned(), n.without.to_owned()]
    });
    page += &table(&["commands", "way", "capabilities", "must reach", "without"], rows);
    page += "\nA command needs only the rows of the ways that it uses.\n";
    page += "`record` and `top` drop what they no longer need: see SECURITY.md in the source.\n";
    made("docs/reference/privileges.md", &page);
}

#[test]
fn each_command_has_its_privileges() {
    for command in commands().iter().filter_map(|c| c.split(' ').next()).filter(|c| !c.is_empty()) {
        assert!(NEEDS.iter().any(|n| n.commands.contains(&command)), "{command} is not in the table");
    }
}

#[test]
fn configuration_page() {
    let mut page = format!(
        "# vsteer.toml\n\n{MADE}\nDefaults that you set once for a host. vsteer works without the file.\n\n{}\n\n",
        config::ORDER.replace(". ", ".\n")
    );
    page += "- `--config FILE` and `VSTEER_CONFIG=FILE` replace both files; `none` reads no file.\n\
        - Root reads only files that nobody else can write; by sudo also those of the user who calls, but from root's own\n  folder. A unit refuses those.\n\
        - No key changes a host or gives consent to a change. Only `[triggers.NAME]` names programs, which the service runs.\n\
        - A faulty file stops vsteer with exit code 6, and every fault is listed with its line. `vsteer rollback` and\n  \
        `vsteer realtime disable` go on with a warning, and say in which folder they look for journals.\n\n\
        | command | does |\n|---|---|\n\
        | `vsteer config check` | checks the files; exit code 6 for a fault, 4 for a file of others |\n\
        | `vsteer config show` | prints every key, its value and where that comes from |\n\
        | `vsteer config example` | prints the file that packages install |\n";
    for (section, about) in config::SECTIONS {
        let _ = write!(page, "\n## [{section}]\n\n{about}\n\n");
        let rows = config::keys().iter().filter(|k| k.section == *section).map(|k| {
            let default = if k.kind.is_list() { "[]".to_owned() } else { format!("{:?}", k.default) };
            let before = k.overriders().split(", ").filter(|w| !w.is_empty()).map(code).collect::<Vec<_>>();
            vec![code(k.name), code(&default), k.kind.about(), before.join(", "), k.meaning.to_owned()]
        });
        page += &table(&["key", "default", "value", "overridden by", "meaning"], rows);
    }
    page += "\n## [hosts.NAME]\n\nNames of hosts, for `--connect NAME`. A name has no colon, so it never hides a URI.\n\n";
    let rows = config::HOST_KEYS.iter().map(|(name, example, meaning)| {
        vec![code(name), code(&format!("{example:?}")), (*meaning).to_owned()]
    });
    page += &table(&["key", "example", "meaning"], rows);
    page += "\n## [triggers.NAME]\n\nA trigger posts a message or runs a command when a finding begins and when it ends: see\n\
        [serve.md](../serve.md#triggers). At most 16.\n\n";
    let rows = config::TRIGGER_KEYS.iter().map(|k| {
        let default = if k.kind.is_list() { "[]".to_owned() } else { format!("{:?}", k.default) };
        vec![code(k.name), code(&default), k.kind.about(), k.meaning.to_owned()]
    });
    page += &table(&["key", "default", "value", "meaning"], rows);
    made("docs/reference/configuration.md", &page);
}

#[test]
fn exit_codes_page() {
    let mut page = format!("# Exit codes\n\n{MADE}\n");
    let ok = ["0".to_owned(), "success".to_owned()].to_vec();
    let rows = FaultKind::ALL.iter().map(|k| vec![k.exit_code().to_string(), k.meaning().to_owned()]);
    page += &table(&["code", "meaning"], std::iter::once(ok).chain(rows));
    made("docs/reference/exit-codes.md", &page);
}

#[test]
fn schedulers_page() {
    let list = String::from_utf8(PLACE.run("simulate --list").stdout).unwrap();
    let lines: Vec<&str> = list.lines().map(str::trim_end).collect();
    let page = format!(
        "# Parameters of schedulers\n\n{MADE}\n`vsteer simulate --list` prints:\n\n```text\n{}\n```\n",
        lines.join("\n")
    );
    made("docs/reference/parameters.md", &page);
}

/// Lower edges of the buckets of histograms, a row per octave.
fn buckets() -> String {
    const PER_OCTAVE: u16 = 8;
    let heads: Vec<String> = (0..PER_OCTAVE).map(|n| format!("+{n}")).collect();
    let heads: Vec<&str> = std::iter::once("bucket").chain(heads.iter().map(String::as_str)).collect();
    let rows = (0..HISTOGRAM_BUCKETS as u16 / PER_OCTAVE).map(|octave| {
        let first = octave * PER_OCTAVE;
        let edges = (first..first + PER_OCTAVE).map(|b| Histogram::lower_edge_ns(b).to_string());
        std::iter::once(first.to_string()).chain(edges).collect()
    });
    table(&heads, rows)
}

#[test]
fn exports_page() {
    let mut page = format!(
        "# Tables of an export\n\n{MADE}\n`vsteer export --to parquet` and `--to csv` write a file for each of these tables.\n\n\
        - Join samples with `config` by `vm` and the last `mono_ns` that is not later than the sample's.\n\
        - Rows of `config`, `config_thread` and `config_cgroup` with the same `mono_ns` and `vm` belong together.\n\
        - An empty cell (null) means not measured or not set, never 0.\n\
        - CSV writes a list as `a;b;c`.\n"
    );
    for exported in tables() {
        let _ = write!(page, "\n## {}\n\n{}.\n\n", exported.name, exported.about);
        let rows =
            exported.columns.into_iter().map(|c| vec![code(&c.name), c.kind, c.unit.to_owned(), c.meaning]);
        page += &table(&["column", "type", "unit", "meaning"], rows);
    }
    page += "\n## Buckets\n\nA histogram is two lists: numbers of buckets, and how many times fell into each. All histograms have the same\n\
        buckets, eight for each doubling. This table has the lower edge of each bucket in ns. The upper edge is the\n\
        lower edge of the next bucket. The first bucket also holds all shorter times, the last one all longer times.\n\n";
    page += &buckets();
    made("docs/reference/exports.md", &page);
}
