//! Writes the job as a line-based text for the host inside, which parses without libraries.
//!
//! crates/vsteer-guest/README.md documents the words. Left out: what the host inside does not need (its size,
//! its clock, files).

use super::job::{Change, Job, Start};
use std::fmt::Write;

/// The kernel's file for the slice of CFS and EEVDF, ns; until 6.5 there were three files with other
/// meanings.
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

const PERIOD_US: u64 = 100_000;

impl Job {
    /// The text that the host inside reads.
    pub fn for_guest(&self) -> String {
        let mut text = format!("settle_s {}\nobserver_cpus {}\n", self.settle_s, self.observer_cpus);
        for case in &self.cases {
            let _ =
                writeln!(text, "case {}\nsettle_s {}\nrecord_s {}", case.name, case.settle_s, case.record_s);
            for (word, value) in [("begin_s", case.begin_s), ("log_every_s", case.log_every_s)] {
                if let Some(value) = value {
                    let _ = writeln!(text, "{word} {value}");
                }
            }
            if !case.command.is_empty() {
                let _ = writeln!(text, "command {}", case.command.join(" "));
                if case.ahead {
                    text.push_str("ahead\n");
                }
                if case.cycles > 0 {
                    let _ = writeln!(text, "cycles {}", case.cycles);
                }
            }
            for event in &case.happens {
                let _ = writeln!(text, "event {} {} {}", event.at_s, event.what.word(), event.vm);
            }
            if case.observe {
                let interval = format!("{}ms", case.interval_ms);
                let events = case.events.then_some("--events");
                for word in
                    ["--collector", case.collector.word(), "--interval", &interval].into_iter().chain(events)
                {
                    let _ = writeln!(text, "record_option {word}");
                }
            } else {
                text.push_str("unobserved\n");
            }
            if !case.ask {
                text.push_str("unasked\n");
            }
            if let Some(us) = case.base_slice_us {
                let _ = writeln!(text, "set {BASE_SLICE} {}", us * 1_000);
            }
            for (file, value) in &case.set {
                let _ = writeln!(text, "set {file} {value}");
            }
            if case.continues {
                text.push_str("continues\n");
                case.changes.iter().for_each(|c| change(&mut text, c));
            } else {
                case.vms.iter().for_each(|s| start(&mut text, "vm", s));
                case.processes.iter().for_each(|s| start(&mut text, "process", s));
            }
        }
        text
    }
}

fn change(text: &mut String, c: &Change) {
    let _ = write!(text, "change name={}", c.name);
    if let Some(weight) = c.weight {
        let _ = write!(text, " weight={weight}");
    }
    if let Some(quota) = c.quota_us {
        let quota = if quota == 0 { "max".to_owned() } else { quota.to_string() };
        let _ = write!(text, " quota_us={quota}/{}", c.quota_period_us.unwrap_or(PERIOD_US));
    }
    text.push('\n');
}

fn start(text: &mut String, word: &str, s: &Start) {
    let _ = write!(text, "{word} name={} workload={}", s.name, s.workload);
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(text, " {key}={value}");
        }
    };
    let period = s.quota_period_us.unwrap_or(PERIOD_US);
    put("vcpus", s.vcpus.map(|n| n.to_string()));
    put("cpus", s.cpus.clone());
    put("vcpu_cpus", s.vcpu_cpus.as_ref().map(|all| all.join("/")));
    put("weight", s.weight.map(|w| w.to_string()));
    put("quota_us", s.quota_us.map(|q| format!("{q}/{period}")));
    put("vcpu_quota_us", s.vcpu_quota_us.map(|q| format!("{q}/{period}")));
    put("class", s.class.clone());
    put("linux", s.linux.then(|| "yes".to_owned()));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated::job::tests::JOB;

    #[test]
    fn toml_becomes_the_hosts_text() {
        let job = Job::parse(JOB).unwrap();
        assert_eq!(
            job.for_guest(),
            "settle_s 12\nobserver_cpus 0\ncase a\nsettle_s 2\nrecord_s 10\nrecord_option --collector\n\
             record_option ebpf\nrecord_option --interval\nrecord_option 1000ms\nset /sys/kernel/debug/sched/base_slice_ns 3000000\n\
             vm name=web workload=periodic,period_us=5000 vcpus=2 cpus=1 weight=200 quota_us=50000/100000\n\
             process name=hog workload=burn cpus=1 class=fifo:3\n"
        );
        assert_eq!(job.inexact(&job.cases[0]), None);
    }

    #[test]
    fn what_a_case_runs_besides_is_told() {
        let more = "begin_s = 240\nlog_every_s = 10\ncommand = [\"steer\", \"--sla\", \"/files/sla.toml\"]\nobserve = false\n\
            event = [{ at_s = 3, vm = \"web\", what = \"stop\" }, { at_s = 5, vm = \"web\", what = \"start\" }]";
        let text = JOB.replacen("base_slice_us = 3000", more, 1);
        let text =
            text.replacen("settle_s = 12", "shift = 3\nfiles = { \"/files/sla.toml\" = \"a = 1\" }", 1);
        let job = Job::parse(&text).unwrap();
        assert_eq!((job.shift, job.files["/files/sla.toml"].as_str()), (3, "a = 1"));
        let told = "case a\nsettle_s 2\nrecord_s 10\nbegin_s 240\nlog_every_s 10\n\
            command steer --sla /files/sla.toml\nevent 3 stop web\nevent 5 start web\nunobserved\nvm name=web";
        assert!(job.for_guest().contains(told), "{}", job.for_guest());
    }
}
