//! Reads a scenario file, and names the line of each mistake.
//!
//! The TOML reader finds a wrong key or type, and knows its line. What the scheduler or machine cannot do is found later, as
//! a key path; then the file is read once more with positions, to find the line.
//! `--set KEY=VALUE` changes the table before it becomes a scenario: `vm.web.weight=512`, where a part of the path may be an
//! index or a `name`.

use crate::assignment::Setting;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};
use vsteer_core::limits;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::rt_app;
use vsteer_sim::scenario::{Case, Refusal, Scenario};

/// A scenario file as it was read.
pub struct File {
    path: PathBuf,
    text: String,
    table: Table,
    /// As it stands in the file.
    pub scenario: Scenario,
}

impl File {
    /// Reads `path`.
    ///
    /// # Errors
    /// `NothingThere` without such a file, `BadInput` with the line for one that is neither a scenario nor a workload of
    /// rt-app.
    pub fn read(path: &Path) -> Result<File, Fault> {
        let text =
            vsteer_record::files::text_at_most(path, limits::TEXT_FILE).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => {
                    Fault::new(FaultKind::NothingThere, format!("scenario {} does not exist", path.display()))
                        .help("find examples in the folder scenarios/")
                }
                _ => Fault::io(format!("cannot read the scenario {}", path.display()), &e),
            })?;
        if rt_app::is_one(&text) { File::workload(path, &text) } else { File::parse(path, text) }
    }

    /// A workload of rt-app as a scenario. What it does not tell goes to standard error.
    fn workload(path: &Path, text: &str) -> Result<File, Fault> {
        let named = |fault: Fault| {
            let what = format!("{}: {}", path.display(), fault.what);
            Fault { what, ..fault }
        };
        let workload = rt_app::read(text).map_err(named)?;
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let (scenario, notes) = super::rt_app::scenario(&workload, &name).map_err(named)?;
        notes.iter().for_each(crate::text::note);
        let table = Table::try_from(&scenario).map_err(|e| {
            named(Fault::new(FaultKind::BadInput, "the workload has no form as a scenario").because(e))
        })?;
        // Without its text, messages name no line: the lines of a scenario are not those of this file.
        Ok(File { path: path.to_owned(), text: String::new(), table, scenario })
    }

    /// The same of a text; `path` is what messages call it.
    ///
    /// # Errors
    /// `BadInput` with the line for one that is no scenario.
    pub fn parse(path: &Path, text: String) -> Result<File, Fault> {
        let at = |e: &toml::de::Error| at_line(path, &text, e.span().map(|s| s.start));
        let wrong = |e: toml::de::Error| Fault::new(FaultKind::BadInput, at(&e)).because(e.message());
        let scenario: Scenario = toml::from_str(&text).map_err(wrong)?;
        let table = text.parse::<Table>().map_err(wrong)?;
        Ok(File { path: path.to_owned(), text, table, scenario })
    }

    /// What the simulator is to run, with these changes.
    ///
    /// # Errors
    /// `BadInput` with the line, or naming the change.
    pub fn case(&self, settings: &[Setting]) -> Result<(Scenario, Case), Fault> {
        if settings.is_empty() {
            return match self.scenario.case() {
                Ok(case) => Ok((self.scenario.clone(), case)),
                Err(r) => Err(self.placed(r, None)),
            };
        }
        let list: Vec<String> = settings.iter().map(|s| format!("{}={}", s.key, s.text)).collect();
        let list = list.join(" ");
        let mut root = Value::Table(self.table.clone());
        for s in settings {
            set(&mut root, &s.key, value_of(&s.text)).map_err(|why| {
                Fault::new(FaultKind::Usage, format!("--set {}={}", s.key, s.text))
                    .because(why)
                    .help("use a key of the scenario file; docs/scenarios.md describes them")
            })?;
        }
        let scenario = Scenario::deserialize(root).map_err(|e| {
            let what = format!("{} with --set {list}", self.path.display());
            Fault::new(FaultKind::BadInput, what).because(e.message())
        })?;
        let case = scenario.case().map_err(|r| self.placed(r, Some(&list)))?;
        Ok((scenario, case))
    }

    fn placed(&self, r: Refusal, settings: Option<&str>) -> Fault {
        let with = settings.map_or_else(String::new, |s| format!(" with --set {s}"));
        let place = at_line(&self.path, &self.text, self.find(&r.key));
        Fault { what: format!("{place}{with}: {}: {}", r.key, r.fault.what), ..r.fault }
    }

    /// Where in the text the deepest part of `key` that is there begins.
    fn find(&self, key: &str) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        let mut found = None;
        let mut table: Option<&DeTable<'_>> = Some(root.get_ref());
        let mut list: Option<&[Spanned<DeValue<'_>>]> = None;
        for part in parts(key) {
            let value = if let Ok(i) = part.parse::<usize>() {
                let value = list.and_then(|l| l.get(i))?;
                found = Some(value.span().start);
                value
            } else {
                let Some((k, value)) =
                    table.and_then(|t| t.iter().find(|(k, _)| k.get_ref().as_ref() == part))
                else {
                    break;
                };
                found = Some(k.span().start);
                value
            };
            (table, list) = match value.get_ref() {
                DeValue::Table(t) => (Some(t), None),
                DeValue::Array(a) => (None, Some(&a[..])),
                _ => (None, None),
            };
        }
        found
    }
}

/// `vm[2].pins[0]` and `vm.2.pins.0` alike.
fn parts(key: &str) -> impl Iterator<Item = &str> {
    key.split(['.', '[', ']']).filter(|p| !p.is_empty())
}

fn at_line(path: &Path, text: &str, at: Option<usize>) -> String {
    match at {
        None => path.display().to_string(),
        Some(at) => {
            let before = &text.as_bytes()[..at.min(text.len())];
            let line = before.iter().filter(|b| **b == b'\n').count() + 1;
            format!("{}:{line}", path.display())
        }
    }
}

/// What was written as TOML has it; what is no TOML value is a string, so that `for=20s` needs no quotes.
fn value_of(text: &str) -> Value {
    let whole = format!("x = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
    whole.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(root: &mut Value, key: &str, value: Value) -> Result<(), String> {
    let path: Vec<&str> = parts(key).collect();
    let mut here = root;
    for (depth, part) in path.iter().enumerate() {
        here = match here {
            // A table that is not there yet is begun: `scheduler.parameters` may be left out of a file.
            Value::Table(t) => t.entry((*part).to_owned()).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(a) => {
                let names: Vec<String> =
                    a.iter().filter_map(|e| Some(e.get("name")?.as_str()?.to_owned())).collect();
                let n = a.len();
                let i = part.parse().ok().filter(|i| *i < n).or_else(|| names.iter().position(|x| x == part));
                match i {
                    Some(i) => &mut a[i],
                    None if names.is_empty() => {
                        return Err(format!("`{part}` is not an index from 0 to {}", n.saturating_sub(1)));
                    }
                    None => {
                        return Err(format!(
                            "`{part}` does not exist; there are {}",
                            crate::text::one_line(&names.join(", "))
                        ));
                    }
                }
            }
            _ => return Err(format!("`{}` has no parts", path[..depth].join("."))),
        };
    }
    *here = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::Sweep;

    const TEXT: &str = r#"title = "two"
for = "1s"
scheduler = { policy = "credit" }
machine = { cores_per_node = 1 }

[[vm]]
name = "a"
demand = "hog"

[[vm]]
name = "b"
vcpus = 2
pins = ["0", "7"]
demand = { periodic = { period = "10ms", work = "1ms" } }
"#;

    fn file(text: &str) -> Result<File, Fault> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        std::fs::write(&path, text).unwrap();
        File::read(&path)
    }

    fn case(text: &str, settings: &[&str]) -> Result<(Scenario, Case), Fault> {
        let settings: Vec<Setting> = settings.iter().map(|s| s.parse().unwrap()).collect();
        file(text)?.case(&settings)
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (from, to, line, says) in [
            ("name = \"b\"", "name = \"b\"\nwieght = 3", 12, "unknown field `wieght`"),
            ("for = \"1s\"", "for = \"-1s\"", 2, "negative"),
            ("work = \"1ms\"", "work = \"0ms\"", 14, "1ns or more"),
            ("work = \"1ms\"", "work = { exponential = \"5\" }", 14, "write a number with"),
            ("period = \"10ms\", ", "", 14, "missing field `period`"),
            ("demand = \"hog\"", "demand = \"hop\"", 8, "unknown variant `hop`"),
            ("cores_per_node = 1", "cores_per_node = -4", 4, "-4"),
            ("title = \"two\"", "title = \"two", 1, ""),
        ] {
            let fault = file(&TEXT.replace(from, to)).err().unwrap_or_else(|| panic!("{to}"));
            let text = fault.to_string();
            assert!(text.contains(&format!("s.toml:{line}")) && text.contains(says), "{to}: {text}");
        }
        for (from, to, line, says) in [
            ("", "", 10, "pCPU 7"),
            ("pins = [\"0\", \"7\"]", "pins = [\"0\"]", 13, "1 pins for 2 vCPUs"),
            ("policy = \"credit\"", "policy = \"credit9\"", 3, "credit9"),
            (
                "policy = \"credit\"",
                "policy = \"credit\", parameters = { tslice = 3 }",
                3,
                "`tslice` is not a parameter",
            ),
            ("name = \"b\"", "name = \"b\"\nweight = 0", 12, "the weight is 0"),
            ("name = \"b\"", "name = \"b\"\npool = \"x\"", 12, "\"x\" does not exist"),
            ("name = \"b\"", "name = \"a\"", 11, "is used twice"),
        ] {
            let text = if from.is_empty() { TEXT.to_owned() } else { TEXT.replace(from, to) };
            let fault = case(&text, &[]).err().unwrap_or_else(|| panic!("{to}")).to_string();
            assert!(fault.contains(&format!("s.toml:{line}")) && fault.contains(says), "{to}: {fault}");
        }
    }

    #[test]
    fn settings_find_their_place() {
        let good = TEXT.replace("pins = [\"0\", \"7\"]\n", "");
        let settings =
            ["vm.b.weight=512", "vm.0.vcpus=3", "for=20s", "scheduler.parameters.tslice_ms=5", "seed=9"];
        let (scenario, case) = case(&good, &settings).unwrap();
        assert_eq!((case.setup.vms[1].weight, case.setup.vms[0].vcpus.len()), (Some(512), 3));
        assert_eq!(
            (case.end_ns, case.setup.seed, scenario.scheduler.parameters["tslice_ms"]),
            (20_000_000_000, 9, 5)
        );
        for (bad, says) in [
            ("vm.c.weight=1", "there are a, b"),
            ("title.x=1", "has no parts"),
            ("vm.b.wieght=1", "unknown field"),
        ] {
            let fault = self::case(&good, &[bad]).err().unwrap().to_string();
            assert!(fault.contains(bad) && fault.contains(says), "{fault}");
        }
    }

    #[test]
    fn sweeps_split_at_their_own_commas() {
        let sweep: Sweep = "vm.b.pins=[\"0\",\"1\"],[\"1\",\"0\"]".parse().unwrap();
        assert_eq!(sweep.values, ["[\"0\",\"1\"]", "[\"1\",\"0\"]"]);
        assert!("x=1,,2".parse::<Sweep>().is_err() && "x".parse::<Sweep>().is_err());
    }
}
