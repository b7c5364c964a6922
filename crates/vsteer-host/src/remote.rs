//! Another host over ssh: vsteer itself runs there as an agent, counts, and sends what it counts.
//!
//! The agent observes as a local vsteer would, with the same collectors, so every VM state is seen. It changes nothing:
//! its protocol ([`wire`]) has no request for that. `qemu+ssh://` URIs are observed in this way too, while libvirt's
//! own connection changes the VMs there.
//!
//! What comes from the other host is not trusted: each message has a limit in bytes and time ([`link`]), and values
//! that cannot be are refused ([`check`]). The clocks in samples are that host's; vsteer never compares them with its
//! own.
//!
//! Left out: context switches as events. GAP(ssh-events): two options of `record` work only on the host itself: `--events` and `--second`.
//! GAP(ssh-change): `apply`, `rollback`, `steer` and `realtime` work only on the host itself.

mod check;
mod copy;
mod link;
mod target;
pub mod wire;

use crate::actuate::Actuate;
use crate::backend::{Backend, Changing, Host, Request};
use crate::observe::Observe;
use crate::privilege::{CapabilitySet, Kept};
use copy::Copy;
use link::Link;
pub use link::end_all;
use std::collections::BTreeSet;
use std::time::Duration;
pub use target::Target;
use vsteer_core::limits;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::plan::Plan;
use vsteer_core::visible::line as shown;
use vsteer_core::{Fault, FaultKind};
use wire::{Answer, Hello, Open, PROTOCOL, Speaker, VERSION, cut, line_of};

/// Another host over ssh.
pub const BACKEND: Backend = Backend {
    name: "ssh",
    schemes: target::SCHEMES,
    examples: &["ssh://root@HOST", "qemu+ssh://root@HOST/system"],
    about: "vsteer on another host; the second URI: the VMs of one libvirt there",
    sees: "what vsteer sees on that host",
    sets: "nothing; with qemu+ssh://, libvirt changes VMs",
    leaves_out: "context switches as events",
    recognise: |_| false,
    only_observes: true,
    steers: false,
    manages: |_| false,
    open,
    change,
    settings: None,
};

/// What runs there.
const AGENT: &str = "vsteer agent";

fn open(request: &Request) -> Result<Box<dyn Host>, Fault> {
    request.refuse_statistics()?;
    if request.event_buffer.is_some() {
        return Err(Fault::new(FaultKind::Usage, "--events does not work over ssh")
            .help("run vsteer record --events on the host itself"));
    }
    let target = Target::of(request.connect.as_deref().unwrap_or_default())?;
    let asked = Open {
        collector: request.collector,
        vms: request.vms.clone(),
        light: request.light,
        libvirt: target.libvirt,
    };
    Ok(Box::new(RemoteHost::open(&target, &asked, request.copies_itself)?))
}

fn change(request: &Request, _plan: Option<Plan>) -> Result<Changing, Fault> {
    let target = Target::of(request.connect.as_deref().unwrap_or_default())?;
    Err(only_there(&target.destination))
}

fn only_there(host: &str) -> Fault {
    Fault::new(FaultKind::Unsupported, format!("cannot change {host} over ssh"))
        .because("vsteer only observes over ssh")
        .help(format!("copy the plan to {host}, and apply it there: vsteer apply plan.json --try 60s"))
}

/// Another host that is observed.
pub struct RemoteHost {
    link: Link,
    config: HostConfig,
    collector: Collector,
    notes: Vec<String>,
    /// All notes so far, because their number has a limit.
    noted: BTreeSet<String>,
    /// The clock of the newest sample.
    newest_ns: u64,
}

impl RemoteHost {
    /// Connects, and starts to count there.
    ///
    /// # Errors
    /// As [`Link::line`] and [`Copy::send`]; `Unsupported` for an agent of another protocol; as the other host's own
    /// vsteer.
    pub fn open(target: &Target, asked: &Open, copies: bool) -> Result<RemoteHost, Fault> {
        if !copies {
            let mut link = Link::start(target, AGENT)?;
            let hello = link.line(limits::AGENT_HELLO, limits::AGENT_LOGIN_TIME)?;
            return RemoteHost::begin(link, &hello, asked, Vec::new());
        }
        let copy = Copy::of_this_program()?;
        let mut link = Link::start(target, &copy.command())?;
        let (hello, sent) = copy.send(&mut link)?;
        let host = &target.destination;
        let note = if sent {
            format!("copied vsteer ({}) to {host} for this command", copy.size())
        } else {
            format!("did not copy vsteer to {host}: the key starts a vsteer that is installed there")
        };
        RemoteHost::begin(link, &hello, asked, vec![note])
    }

    fn begin(mut link: Link, hello: &[u8], asked: &Open, notes: Vec<String>) -> Result<RemoteHost, Fault> {
        greet(&link, hello)?;
        let request = line_of(&wire::Request::Open(asked.clone()));
        if request.len() > limits::AGENT_REQUEST {
            return Err(Fault::new(FaultKind::Usage, "--vm names too many VMs for one request over ssh")
                .because(format!("the names have {} bytes", request.len()))
                .help("use patterns, for example --vm 'web*'"));
        }
        link.send(&request, limits::AGENT_WRITE_TIME)?;
        let answer = answer(&mut link, limits::AGENT_OPEN_TIME, 0)?;
        let (Some(config), Some(collector)) = (answer.config, answer.collector) else {
            return Err(link.strange("its first answer has no configuration"));
        };
        link.keep();
        let mut host = RemoteHost { link, config, collector, notes, noted: BTreeSet::new(), newest_ns: 0 };
        host.note(answer.notes);
        Ok(host)
    }

    fn note(&mut self, notes: Vec<String>) {
        for note in notes {
            let note = cut(&note);
            if self.noted.len() < limits::NOTES && self.noted.insert(note.clone()) {
                self.notes.push(note);
            }
        }
    }

    fn ask(&mut self, request: &wire::Request) -> Result<Option<Batch>, Fault> {
        self.link.send(&line_of(request), limits::AGENT_WRITE_TIME)?;
        let answer = answer(&mut self.link, limits::AGENT_TIME, self.newest_ns)?;
        self.note(answer.notes);
        if let Some(config) = answer.config {
            self.config = config;
        }
        if let Some(collector) = answer.collector {
            self.collector = collector;
        }
        Ok(answer.batch)
    }
}

/// Refuses a program other than the agent, and an agent of another protocol.
fn greet(link: &Link, line: &[u8]) -> Result<(), Fault> {
    let Ok(Hello { vsteer_agent: Speaker { protocol, version, .. } }) = serde_json::from_slice(line) else {
        let begin: String = String::from_utf8_lossy(line).chars().take(80).collect();
        return Err(link.strange(&format!("it begins with {:?}", shown(&begin))));
    };
    if protocol == PROTOCOL {
        return Ok(());
    }
    let there: String = version.chars().take(40).collect();
    let what = format!("the vsteer on {} speaks another protocol", link.host());
    Err(Fault::new(FaultKind::Unsupported, what)
        .because(format!(
            "vsteer {there} there has protocol {protocol}, vsteer {VERSION} here has protocol {PROTOCOL}"
        ))
        .help("install the same version on both hosts, or add --copy-vsteer"))
}

/// The agent's answer, or the fault in it.
fn answer(link: &mut Link, within: Duration, newest_ns: u64) -> Result<Answer, Fault> {
    let line = link.line(limits::AGENT_ANSWER, within)?;
    let answer = understood(&line, newest_ns).map_err(|odd| match odd {
        Odd::Malformed(why) => link.strange(&format!("its answer is malformed: {why}")),
        Odd::Impossible(why) => {
            Fault::new(FaultKind::BadInput, format!("{} sends values that cannot be right", link.host()))
                .because(why)
                .help("check that host: its vsteer is broken or was replaced")
        }
    })?;
    match answer.fault {
        Some(told) => Err(told.fault(link.host())),
        None => Ok(answer),
    }
}

/// Why an answer is refused.
#[derive(Debug)]
pub enum Odd {
    /// It is not an answer.
    Malformed(String),
    /// It holds what cannot be.
    Impossible(String),
}

/// What an agent's line says, after a sample whose clock showed `newest_ns`.
///
/// # Errors
/// Why it is refused.
pub fn understood(line: &[u8], newest_ns: u64) -> Result<Answer, Odd> {
    let mut answer: Answer = serde_json::from_slice(line).map_err(|e| Odd::Malformed(cut(&e.to_string())))?;
    answer.config.iter().try_for_each(check::config).map_err(Odd::Impossible)?;
    answer.collector.iter().try_for_each(check::collector).map_err(Odd::Impossible)?;
    answer.batch.iter().try_for_each(|b| check::batch(b, newest_ns)).map_err(Odd::Impossible)?;
    answer.notes.truncate(limits::NOTES);
    Ok(answer)
}

impl Observe for RemoteHost {
    fn config(&mut self) -> Result<HostConfig, Fault> {
        self.ask(&wire::Request::Config)?;
        Ok(self.config.clone())
    }

    fn collector(&self) -> Collector {
        self.collector.clone()
    }

    fn sample(&mut self) -> Result<Batch, Fault> {
        let Some(batch) = self.ask(&wire::Request::Sample)? else {
            return Err(self.link.strange("its answer has no sample"));
        };
        self.newest_ns = batch.mono_ns;
        Ok(batch)
    }
}

impl Host for RemoteHost {
    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn settles(&self) -> bool {
        self.collector.name == "ebpf"
    }

    /// Nothing: ssh runs already.
    fn still_needs(&mut self) -> Option<Kept> {
        Some(Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false })
    }

    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Err(only_there(self.link.host()))
    }
}

#[cfg(test)]
mod tests;
