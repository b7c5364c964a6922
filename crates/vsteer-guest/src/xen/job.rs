//! What shall Domain-0 do? The job's text, as the lab writes it.
//!
//! A line is a word and what belongs to it; a case begins with `case NAME`. README.md has the words. A mistake is an
//! error that names the line, never a default. Left out: comments and nesting; people write TOML, and the lab this.

use crate::host::job::is_name;
use crate::workload::{Plan, Workload};

/// All that is to be done in one boot.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// `credit` or `credit2`: what Xen was booted with.
    pub scheduler: String,
    /// One after the other.
    pub cases: Vec<Case>,
}

/// One set-up and its trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Case {
    /// Names the folder of its results.
    pub name: String,
    /// Let the domains' beginnings pass, s.
    pub settle_s: u64,
    /// How long is traced, s.
    pub record_s: u64,
    /// How long `vsteer record` then observes, s; 0: not.
    pub observe_s: u64,
    /// How long it does so without a trace, s; 0: not.
    pub sample_s: u64,
    /// How long the service then observes, s; 0: not.
    pub serve_s: u64,
    /// Commands that are run then, one after the other: each a program and its words.
    pub commands: Vec<Vec<String>>,
    /// A pool of this pCPU for the domains; without, they are in Pool-0.
    pub pool: Option<u32>,
    /// Words for `xl sched-SCHEDULER -s -p POOL`.
    pub parameters: Vec<String>,
    /// In the order of starting.
    pub domains: Vec<Domain>,
}

/// A domain: of one vCPU with a workload, or Linux with a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Domain {
    pub name: String,
    /// The workload's text; empty for Linux.
    pub workload: String,
    /// Linux runs this, a program of /bin with its words; empty: a workload.
    pub program: Vec<String>,
    /// vCPUs of a Linux.
    pub vcpus: u32,
    /// Memory of a Linux, MiB.
    pub memory_mib: u32,
    /// The scheduler's weight; its own default is 256.
    pub weight: u32,
    /// Percent of a pCPU; 0: none.
    pub cap: u32,
    /// pCPUs that it is pinned to, as xl writes them.
    pub cpus: Option<String>,
    /// Its server's requests come from Domain-0, not from within.
    pub asked: bool,
}

impl Job {
    /// Reads a job.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Job, String> {
        let mut job = Job { scheduler: String::new(), cases: Vec::new() };
        for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            job.line(line.trim()).map_err(|why| format!("line {} of the job: {why}", i + 1))?;
        }
        if job.cases.is_empty() || job.scheduler.is_empty() {
            return Err("the job has no case, or no scheduler".to_owned());
        }
        Ok(job)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse::<u64>().map_err(|_| format!("`{rest}` is not a number"));
        match (word, self.cases.last_mut()) {
            ("scheduler", None) => self.scheduler = rest.to_owned(),
            ("case", _) => {
                is_name(rest)?;
                let name = rest.to_owned();
                self.cases.push(Case { name, settle_s: 3, record_s: 20, ..Case::default() });
            }
            ("settle_s", Some(case)) => case.settle_s = number()?,
            ("record_s", Some(case)) => case.record_s = number()?,
            ("observe_s", Some(case)) => case.observe_s = number()?,
            ("sample_s", Some(case)) => case.sample_s = number()?,
            ("serve_s", Some(case)) => case.serve_s = number()?,
            ("command", Some(_)) if rest.is_empty() => return Err("`command` lacks its words".into()),
            ("command", Some(case)) => {
                case.commands.push(rest.split_whitespace().map(str::to_owned).collect());
            }
            ("pool", Some(case)) => case.pool = Some(number()? as u32),
            ("parameter", Some(case)) => case.parameters.extend(rest.split_whitespace().map(str::to_owned)),
            ("domain", Some(case)) => case.domains.push(domain(rest)?),
            _ => return Err(format!("`{word}` is unknown here")),
        }
        Ok(())
    }
}

fn domain(rest: &str) -> Result<Domain, String> {
    let mut d = Domain {
        name: String::new(),
        workload: String::new(),
        program: Vec::new(),
        vcpus: 1,
        memory_mib: 192,
        weight: 256,
        cap: 0,
        cpus: None,
        asked: false,
    };
    for word in rest.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("`{word}`: not a number"));
        match key {
            "name" => {
                is_name(value)?;
                d.name = value.to_owned();
            }
            "workload" => {
                Plan::parse(value)?;
                d.workload = value.to_owned();
            }
            "program" => d.program = value.split(',').map(str::to_owned).collect(),
            "vcpus" => d.vcpus = number()?,
            "memory_mib" => d.memory_mib = number()?,
            "weight" => d.weight = number()?,
            "cap" => d.cap = number()?,
            "cpus" => d.cpus = Some(value.to_owned()),
            "asked" if value == "yes" => d.asked = true,
            _ => return Err(format!("`{key}` is unknown")),
        }
    }
    if d.name.is_empty() || d.workload.is_empty() == d.program.is_empty() {
        return Err("name= is missing, or not one of workload= and program=".to_owned());
    }
    if d.program.is_empty() && d.vcpus != 1 {
        return Err("vcpus= is for a program".to_owned());
    }
    if d.asked
        && (d.workload.is_empty() || !matches!(Plan::parse(&d.workload)?.workload, Workload::Scheduled(_)))
    {
        return Err("asked=yes is for a server with rates".to_owned());
    }
    Ok(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read() {
        let text = "scheduler credit\ncase a\npool 1\nparameter -t 30\nrecord_s 10\nobserve_s 5\ncommand xl list -v\n\
                    domain name=x workload=burn weight=512 cap=30\ndomain name=y workload=periodic,period_us=5000 cpus=1\n\
                    domain name=z program=loops,9,4 vcpus=2\n";
        let job = Job::parse(text).unwrap();
        let case = &job.cases[0];
        let times = (case.record_s, case.observe_s);
        assert_eq!((job.scheduler.as_str(), case.pool, times), ("credit", Some(1), (10, 5)));
        assert_eq!(case.parameters, ["-t", "30"]);
        assert_eq!(case.commands, [["xl", "list", "-v"]]);
        assert_eq!((case.domains[0].weight, case.domains[0].cap), (512, 30));
        assert_eq!((case.domains[1].weight, case.domains[1].cpus.as_deref()), (256, Some("1")));
        assert_eq!((case.domains[2].program.join(" "), case.domains[2].vcpus), ("loops 9 4".to_owned(), 2));
    }

    #[test]
    fn a_mistake_names_its_line() {
        for (wrong, line) in [
            ("scheduler credit\ncase ../a", "line 2"),
            ("scheduler credit\ncase a\ndomain name=x", "line 3"),
            ("scheduler credit\ncase a\ndomain name=x workload=brun", "line 3"),
            ("scheduler credit\ncase a\ndomain name=x workload=burn asked=yes", "line 3"),
            ("scheduler credit\ncase a\ndomain name=x workload=burn program=loops", "line 3"),
            ("scheduler credit\ncase a\ndomain name=x workload=burn vcpus=2", "line 3"),
            ("scheduler credit\ncase a\ndomain name=x program=loops asked=yes", "line 3"),
            ("scheduler credit\ncase a\nvm name=x", "line 3"),
            ("scheduler credit\ncase a\ncommand", "line 3"),
            ("record_s 5", "line 1"),
        ] {
            let why = Job::parse(wrong).unwrap_err();
            assert!(why.starts_with(line), "{wrong}: {why}");
        }
        assert!(Job::parse("scheduler credit\n").is_err());
    }
}
