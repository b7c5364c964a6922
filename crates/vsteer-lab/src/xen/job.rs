//! The job of an emulated Xen: cases, each a set of domains whose scheduling is traced.
//!
//! People write TOML; Domain-0's first program reads a line-based text (crates/vsteer-guest/README.md). An
//! unknown key is an error. Several cases in one boot share the cost of the boot.
//!
//! With the wall clock, several pCPUs may be busy, and domains may run Linux with a program.
//!
//! Left out: Linux with one of vsteer-guest's workloads.

use crate::emulated::job::{is_file, is_name};
use crate::image::programs::COMPILED;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use vsteer_core::{Fault, FaultKind};

/// pCPUs of a host, unless the job says 1: Domain-0 has the first one, the domains the second.
pub const PCPUS: u32 = 2;
const DOMAINS_PCPU: u32 = 1;
/// The most vCPUs of a Linux domain.
const VCPUS_MOST: u32 = 8;

/// Everything to do in one boot.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    #[serde(default)]
    pub scheduler: Scheduler,
    /// The clock of the emulated host.
    #[serde(default)]
    pub clock: Clock,
    /// The host's memory, MiB; Domain-0 has half of it.
    #[serde(default = "memory")]
    pub memory_mib: u32,
    /// pCPUs: 2, or 1, which Domain-0 then shares with the domains.
    #[serde(default = "pcpus")]
    pub pcpus: u32,
    /// Files below /files/ for commands, with their content.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The cases, executed in order.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// The length of an emulated second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// A fixed number of instructions: exact, with one busy pCPU.
    #[default]
    Virtual,
    /// A second of this machine, which must emulate every pCPU in that time.
    Wall,
}

/// The schedulers in Debian's hypervisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    #[default]
    Credit,
    /// Credit2.
    Credit2,
}

impl Scheduler {
    /// The name in Xen and xl.
    pub fn word(self) -> &'static str {
        match self {
            Scheduler::Credit => "credit",
            Scheduler::Credit2 => "credit2",
        }
    }
}

/// One set-up and its trace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, also the name of its folder.
    pub name: String,
    /// Time before the trace, virtual s.
    #[serde(default = "three")]
    pub settle_s: u32,
    /// Length of the trace, virtual s.
    #[serde(default = "twenty")]
    pub record_s: u32,
    /// How long `vsteer record` then observes from Domain-0, virtual s; 0: not at all.
    #[serde(default)]
    pub observe_s: u32,
    /// How long it then does so without a trace (`--collector sampled`), virtual s; 0: not at all.
    #[serde(default)]
    pub sample_s: u32,
    /// How long the service (`vsteer-serve`) then observes, virtual s; 0: not at all.
    #[serde(default)]
    pub serve_s: u32,
    /// Commands that then run in Domain-0, in order, each a list of words. Their output and exit status are
    /// in `command-1.out`, `.txt` and `.status` and so on.
    #[serde(default)]
    pub commands: Vec<Vec<String>>,
    /// A separate pool with the domains' pCPU. Without it, the domains are pinned to that pCPU in Domain-0's
    /// pool, where weights have no effect. With one pCPU there is only one pool for all.
    #[serde(default = "yes")]
    pub pool: bool,
    /// Credit's time slice, ms.
    pub tslice_ms: Option<u32>,
    /// The shortest time before a vCPU may be preempted, us.
    pub ratelimit_us: Option<u32>,
    /// Domains.
    #[serde(default, rename = "domain")]
    pub domains: Vec<Domain>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    pub name: String,
    /// The workload, in the form of vsteer-guest's README; empty if it runs a program.
    #[serde(default)]
    pub workload: String,
    /// It runs Linux and one of [`COMPILED`], with these words after the name. Only with the wall clock.
    #[serde(default)]
    pub program: Vec<String>,
    /// vCPUs; more than 1 only if it runs a program.
    #[serde(default = "one")]
    pub vcpus: u32,
    #[serde(default = "weight")]
    pub weight: u32,
    /// Its cap, percent of a pCPU; 0 means none.
    #[serde(default)]
    pub cap: u32,
    /// The requests to its server come from Domain-0, which logs the answers (`CASE/NAME.log`), and not from
    /// inside the domain.
    #[serde(default)]
    pub asked: bool,
}

fn memory() -> u32 {
    1024
}
fn pcpus() -> u32 {
    PCPUS
}
fn three() -> u32 {
    3
}
fn twenty() -> u32 {
    20
}
fn yes() -> bool {
    true
}
fn one() -> u32 {
    1
}
fn weight() -> u32 {
    256
}

impl Domain {
    fn check(&self, clock: Clock) -> Result<(), Fault> {
        let bad = |what: String| Err(Fault::new(FaultKind::BadInput, what));
        let Some(program) = self.program.first() else {
            if self.workload.is_empty() || self.workload.contains(char::is_whitespace) {
                return bad(format!("workload = {:?}", self.workload));
            }
            return if self.vcpus == 1 {
                Ok(())
            } else {
                bad(format!("vcpus = {}: a workload has one", self.vcpus))
            };
        };
        if clock != Clock::Wall {
            return bad("a program has several busy pCPUs: clock = \"wall\"".to_owned());
        }
        if !COMPILED.iter().any(|(name, _)| name == program) || !self.workload.is_empty() || self.asked {
            return bad(format!("program = {program:?}: unknown, or there is a workload beside it"));
        }
        if self.program.iter().any(|w| w.is_empty() || w.contains(|c: char| c == ',' || c.is_whitespace())) {
            return bad(format!("program = {:?}: words without commas and blanks", self.program));
        }
        if !(1..=VCPUS_MOST).contains(&self.vcpus) {
            return bad(format!("vcpus = {}: 1 to {VCPUS_MOST}", self.vcpus));
        }
        Ok(())
    }
}

impl Job {
    /// Does any domain run Linux?
    pub fn has_linux(&self) -> bool {
        self.cases.iter().flat_map(|c| &c.domains).any(|d| !d.program.is_empty())
    }

    /// Reads a job.
    ///
    /// # Errors
    /// `BadInput` with line and key, as the TOML parser reports it, or with what is impossible.
    pub fn parse(text: &str) -> Result<Job, Fault> {
        let job: Job = toml::from_str(text).map_err(|e| {
            Fault::new(FaultKind::BadInput, "this is not a job for an emulated Xen").because(e)
        })?;
        job.check()?;
        Ok(job)
    }

    fn check(&self) -> Result<(), Fault> {
        let bad = |what: String| Err(Fault::new(FaultKind::BadInput, what));
        if !(768..=8192).contains(&self.memory_mib) {
            return bad(format!("memory_mib = {}: between 768 and 8192", self.memory_mib));
        }
        if self.cases.is_empty() {
            return bad("the job has no case".to_owned());
        }
        if !(1..=PCPUS).contains(&self.pcpus) {
            return bad(format!("pcpus = {}: 1 or {PCPUS}", self.pcpus));
        }
        if let Some(path) = self.files.keys().find(|path| !is_file(path)) {
            return bad(format!("files: {path:?} is not a plain path below /files/"));
        }
        for (i, case) in self.cases.iter().enumerate() {
            let name = &case.name;
            if !is_name(name) || self.cases[..i].iter().any(|c| c.name == *name) {
                return bad(format!("case {name:?}: not of letters, digits, - _ and ., or there twice"));
            }
            if case.domains.is_empty() || case.record_s == 0 {
                return bad(format!("case {name:?}: it needs a domain, and record_s above 0"));
            }
            if self.pcpus == 1 && case.pool {
                return bad(format!(
                    "case {name:?}: one pCPU makes no pool of the domains' own: pool = false"
                ));
            }
            let words = || case.commands.iter().flatten();
            if case.commands.iter().any(Vec::is_empty)
                || words().any(|w| w.is_empty() || w.contains(char::is_whitespace))
            {
                return bad(format!("case {name:?}: commands are lists of words without blanks"));
            }
            if case.tslice_ms.is_some() && self.scheduler != Scheduler::Credit {
                return bad(format!("case {name:?}: tslice_ms is Credit's alone"));
            }
            for (j, d) in case.domains.iter().enumerate() {
                let twice = case.domains[..j].iter().any(|other| other.name == d.name);
                if !is_name(&d.name) || d.name == "Domain-0" || twice {
                    return bad(format!("case {name:?}: the domain's name {:?} cannot be", d.name));
                }
                d.check(self.clock)
                    .map_err(|f| Fault { what: format!("case {name:?}: {}: {}", d.name, f.what), ..f })?;
                if !(1..=65_535).contains(&d.weight) || d.cap > 100 {
                    return bad(format!(
                        "case {name:?}: {}: weight is 1 to 65535, cap 0 to 100 percent of its pCPU",
                        d.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// The text that Domain-0 reads.
    pub fn for_guest(&self) -> String {
        let mut text = format!("scheduler {}\n", self.scheduler.word());
        for case in &self.cases {
            let _ =
                writeln!(text, "case {}\nsettle_s {}\nrecord_s {}", case.name, case.settle_s, case.record_s);
            if case.observe_s > 0 {
                let _ = writeln!(text, "observe_s {}", case.observe_s);
            }
            if case.sample_s > 0 {
                let _ = writeln!(text, "sample_s {}", case.sample_s);
            }
            if case.serve_s > 0 {
                let _ = writeln!(text, "serve_s {}", case.serve_s);
            }
            for words in &case.commands {
                let _ = writeln!(text, "command {}", words.join(" "));
            }
            if case.pool {
                let _ = writeln!(text, "pool {DOMAINS_PCPU}");
            }
            if let Some(ms) = case.tslice_ms {
                let _ = writeln!(text, "parameter -t {ms}");
            }
            if let Some(us) = case.ratelimit_us {
                let _ = writeln!(text, "parameter -r {us}");
            }
            for d in &case.domains {
                let what = match d.program.is_empty() {
                    true => format!("workload={}", d.workload),
                    false => format!("program={} vcpus={}", d.program.join(","), d.vcpus),
                };
                let _ = write!(text, "domain name={} {what} weight={} cap={}", d.name, d.weight, d.cap);
                if !case.pool && self.pcpus > 1 && self.clock == Clock::Virtual {
                    let _ = write!(text, " cpus={DOMAINS_PCPU}");
                }
                if d.asked {
                    text.push_str(" asked=yes");
                }
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "scheduler = \"credit\"\n[[case]]\nname = \"a\"\ntslice_ms = 5\nobserve_s = 7\nsample_s = 8\nserve_s = 9\ncommands = [[\"xl\", \"list\"]]\n\
        [[case.domain]]\nname = \"x\"\nworkload = \"burn\"\nweight = 512\ncap = 30\n\
        [[case]]\nname = \"b\"\npool = false\n[[case.domain]]\nname = \"x\"\nworkload = \"burn\"\n";

    #[test]
    fn toml_becomes_domain_0s_text() {
        assert_eq!(
            Job::parse(JOB).unwrap().for_guest(),
            "scheduler credit\ncase a\nsettle_s 3\nrecord_s 20\nobserve_s 7\nsample_s 8\nserve_s 9\ncommand xl list\npool 1\nparameter -t 5\n\
             domain name=x workload=burn weight=512 cap=30\n\
             case b\nsettle_s 3\nrecord_s 20\ndomain name=x workload=burn weight=256 cap=0 cpus=1\n"
        );
    }

    #[test]
    fn domain_0_may_share_the_one_pcpu_and_ask() {
        let one = "scheduler = \"credit\"\npcpus = 1\nfiles = { \"/files/a\" = \"b\" }\n[[case]]\nname = \"a\"\npool = false\n[[case.domain]]\n\
            name = \"x\"\nworkload = \"server,rates=1@2\"\nasked = true\n";
        let text = Job::parse(one).unwrap().for_guest();
        assert!(
            text.ends_with("domain name=x workload=server,rates=1@2 weight=256 cap=0 asked=yes\n"),
            "{text}"
        );
        assert!(Job::parse(&one.replace("pool = false\n", "")).unwrap_err().to_string().contains("pool"));
        assert!(Job::parse(&one.replace("/files/a", "/etc/a")).unwrap_err().to_string().contains("/etc/a"));
    }

    #[test]
    fn by_the_clock_on_the_wall_a_domain_may_be_linux_and_floats() {
        let job = "clock = \"wall\"\n[[case]]\nname = \"a\"\npool = false\n[[case.domain]]\nname = \"x\"\n\
            program = [\"loops\", \"task\", \"200\", \"4\", \"0\"]\nvcpus = 2\n";
        let text = Job::parse(job).unwrap().for_guest();
        assert!(
            text.ends_with("domain name=x program=loops,task,200,4,0 vcpus=2 weight=256 cap=0\n"),
            "{text}"
        );
        assert!(Job::parse(&job.replace("loops", "oops")).unwrap_err().to_string().contains("oops"));
        assert!(Job::parse(&job.replace("\"4\"", "\"4,5\"")).unwrap_err().to_string().contains("commas"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (from, to, names) in [
            ("weight = 512", "weight = 0", "weight"),
            ("\"credit\"\n", "\"credit\"\npcpus = 3\n", "pcpus"),
            ("cap = 30", "cap = 101", "cap"),
            ("cap = 30", "cup = 1", "cup"),
            ("[\"xl\", \"list\"]", "[]", "commands"),
            ("\"list\"", "\"li st\"", "commands"),
            ("\"x\"", "\"Domain-0\"", "Domain-0"),
            ("\"credit\"", "\"rtds\"", "rtds"),
            ("\"credit\"", "\"credit2\"", "tslice_ms"),
            ("name = \"b\"", "name = \"a\"", "twice"),
            ("workload = \"burn\"", "workload = \"burn\"\nvcpus = 2", "vcpus"),
            ("workload = \"burn\"", "program = [\"loops\"]", "wall"),
            ("\"burn\"", "\"burn hot\"", "workload"),
        ] {
            let fault = Job::parse(&JOB.replacen(from, to, 1)).unwrap_err();
            assert!(fault.to_string().contains(names), "{to}: {fault}");
            assert_eq!(fault.kind, FaultKind::BadInput);
        }
    }
}
