//! What does vsteer do on a host that another vsteer observes over ssh? It answers requests on standard input and output.
//!
//! [`crate::remote::wire`] has the messages. The agent only observes: a request chooses between ways of counting and
//! between names of VMs, and nothing else. It opens this host as a local `vsteer top` does, and then drops its
//! privileges. It ends when its input ends, when it is asked to, and when it hears nothing for a while.
//!
//! A request comes from any holder of a key for ssh, so it has a limit in bytes. An answer that the other side does
//! not read has a limit in time.
//!
//! GAP(ssh-audit): no request reads files for `audit` and `capture`. Left out: hosts that only a URI leads to (vSphere, captured hosts). Ask those from here.

use crate::backend::{Host, Request as Asked, Timers};
use crate::hypervisors;
use crate::privilege::confine;
use crate::remote::wire::{Answer, Hello, Lines, Open, PROTOCOL, Request, Speaker, VERSION};
use crate::remote::wire::{line_of, timeout, write_within};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio, read};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vsteer_core::limits;
use vsteer_core::nouns::{Collector, HostConfig};
use vsteer_core::{Fault, FaultKind};

/// How often to look for a signal, where none ends the wait.
const LOOK: Duration = Duration::from_secs(1);

/// Opens a host for what is asked.
pub type Opening = dyn Fn(&Open) -> Result<Box<dyn Host>, Fault>;

/// What the agent has for its whole run.
pub struct Terms<'a> {
    /// Opens this host.
    pub open: &'a Opening,
    /// How long it stays without a request.
    pub silence: Duration,
    /// Has somebody asked it to end?
    pub stopped: &'a dyn Fn() -> bool,
}

/// Opens the host that this program runs on, and drops the privileges that observing it no longer needs.
///
/// # Errors
/// As [`hypervisors::open`] and [`confine`].
pub fn open_here(open: &Open, timers: Option<Timers>) -> Result<Box<dyn Host>, Fault> {
    let mut host = hypervisors::open(&Asked {
        collector: open.collector,
        vms: open.vms.clone(),
        light: open.light,
        timers,
        ..Asked::of(open.libvirt.map(crate::remote::wire::Libvirt::uri))
    })?;
    // Asks libvirt, whose process then runs already.
    host.config()?;
    if let Some(kept) = host.still_needs() {
        confine(kept, &[])?;
    }
    Ok(host)
}

/// Answers until the input ends, nothing comes for a while, or somebody asks it to end.
///
/// # Errors
/// `BadInput` for a request that is malformed or too long; `Failed` if nothing comes for a while, or nobody reads the
/// answers.
pub fn serve(input: BorrowedFd<'_>, output: BorrowedFd<'_>, terms: &Terms<'_>) -> Result<(), Fault> {
    ioctl_fionbio(output, true).map_err(|e| Fault::io("cannot answer", &e.into()))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let speaker = Speaker { protocol: PROTOCOL, version: VERSION.to_owned(), host };
    write(output, &line_of(&Hello { vsteer_agent: speaker }))?;
    let mut lines = Lines::default();
    let mut agent = Agent { terms, host: None, config: None, collector: None };
    while let Some(line) = request(input, &mut lines, terms)? {
        let asked: Request = serde_json::from_slice(&line).map_err(|e| malformed(&e))?;
        let result = match asked {
            Request::Bye => return Ok(()),
            Request::Stay => continue,
            Request::Open(open) => agent.open(&open),
            Request::Sample => agent.sample(),
            Request::Config => agent.config(),
        };
        let answer = result.unwrap_or_else(|fault| Answer { fault: Some(fault.into()), ..Answer::default() });
        write(output, &whole(answer))?;
    }
    Ok(())
}

/// An answer that is not too long; else the fault that says so.
fn whole(answer: Answer) -> Vec<u8> {
    let line = line_of(&answer);
    if line.len() <= limits::AGENT_ANSWER {
        return line;
    }
    let fault = Fault::new(FaultKind::Unsupported, "cannot send an answer of this size over ssh")
        .because(format!("the answer has {} bytes", line.len()))
        .help("observe fewer VMs with --vm, or run vsteer on the host itself");
    line_of(&Answer { fault: Some(fault.into()), ..Answer::default() })
}

fn malformed(why: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::BadInput, "cannot understand a request on standard input")
        .because(why)
        .help("only vsteer --connect ssh://HOST starts the agent")
}

fn write(output: BorrowedFd<'_>, line: &[u8]) -> Result<(), Fault> {
    if write_within(output, line, limits::AGENT_WRITE_TIME) {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Failed, "cannot answer on standard output")
        .because("the other side does not read, or is gone"))
}

/// The next request; `None` when there will be no more.
fn request(input: BorrowedFd<'_>, lines: &mut Lines, terms: &Terms<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let deadline = Instant::now() + terms.silence;
    let mut buffer = [0; 4096];
    loop {
        let too_long = |_| malformed(&format!("it has more than {} bytes", limits::AGENT_REQUEST));
        if let Some(line) = lines.take(limits::AGENT_REQUEST).map_err(too_long)? {
            return Ok(Some(line));
        }
        if (terms.stopped)() {
            return Ok(None);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::new(FaultKind::Failed, "the agent ends")
                .because(format!("it heard nothing for {} s", terms.silence.as_secs())));
        }
        let mut ready = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout(left.min(LOOK)))) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(Fault::io("cannot read standard input", &e.into())),
        }
        match read(input, &mut buffer) {
            Ok(0) => return Ok(None),
            Ok(n) => lines.push(&buffer[..n]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(Fault::io("cannot read standard input", &e.into())),
        }
    }
}

/// What was opened, and what the other side knows of it.
struct Agent<'a> {
    terms: &'a Terms<'a>,
    host: Option<Box<dyn Host>>,
    config: Option<HostConfig>,
    collector: Option<Collector>,
}

impl Agent<'_> {
    fn open(&mut self, open: &Open) -> Result<Answer, Fault> {
        if self.host.is_some() {
            return Err(malformed(&"a host is open already"));
        }
        self.host = Some((self.terms.open)(open)?);
        self.config()
    }

    fn opened(&mut self) -> Result<&mut Box<dyn Host>, Fault> {
        self.host.as_mut().ok_or_else(|| malformed(&"no host is open"))
    }

    fn sample(&mut self) -> Result<Answer, Fault> {
        let batch = self.opened()?.sample()?;
        Ok(Answer { batch: Some(batch), ..self.news() })
    }

    fn config(&mut self) -> Result<Answer, Fault> {
        let config = self.opened()?.config()?;
        let is_new = self.config.as_ref() != Some(&config);
        let news = Answer { config: is_new.then(|| config.clone()), ..self.news() };
        self.config = Some(config);
        Ok(news)
    }

    /// Notes, and the collector if it is another one.
    fn news(&mut self) -> Answer {
        let Some(host) = &mut self.host else { return Answer::default() };
        let collector = host.collector();
        let is_new = self.collector.as_ref() != Some(&collector);
        self.collector = Some(collector.clone());
        Answer { collector: is_new.then_some(collector), notes: host.take_notes(), ..Answer::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::CapturedHost;
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn captured(open: &Open) -> Result<Box<dyn Host>, Fault> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../vsteer/tests/captured");
        Ok(Box::new(CapturedHost::open(folder.as_ref(), &open.vms)?))
    }

    /// Serves what is written, and returns its answers and its end.
    fn served(requests: &[u8], silence: Duration, close: bool) -> (Vec<String>, Result<(), Fault>) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(requests).unwrap();
        if close {
            ours.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let terms = Terms { open: &captured, silence, stopped: &|| false };
        let end = serve(theirs.as_fd(), theirs.as_fd(), &terms);
        drop(theirs);
        (BufReader::new(ours).lines().map_while(Result::ok).collect(), end)
    }

    fn open(vms: &[&str]) -> Vec<u8> {
        let vms = vms.iter().map(|vm| (*vm).to_owned()).collect();
        line_of(&Request::Open(Open { collector: Default::default(), vms, light: false, libvirt: None }))
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_host_is_opened_sampled_and_described_once() {
        let all = [open(&[]), line_of(&Request::Sample), line_of(&Request::Stay), line_of(&Request::Config)];
        let (answers, end) = served(&all.concat(), LONG, true);
        assert_eq!((answers.len(), end), (4, Ok(())), "{answers:?}");
        let hello: Hello = serde_json::from_str(&answers[0]).unwrap();
        assert_eq!((hello.vsteer_agent.protocol, hello.vsteer_agent.version.as_str()), (PROTOCOL, VERSION));
        let of = |i: usize| serde_json::from_str::<Answer>(&answers[i]).unwrap();
        let opened = of(1);
        assert!(opened.config.is_some_and(|c| !c.vms.is_empty()) && opened.collector.is_some());
        assert!(of(2).batch.is_some_and(|b| !b.threads.is_empty()));
        assert!(of(3).config.is_none(), "it has not changed");
    }

    #[test]
    fn faults_are_answers_and_nonsense_ends_it() {
        let (answers, end) = served(&[line_of(&Request::Sample), open(&["nobody"])].concat(), LONG, true);
        let fault = |i: usize| serde_json::from_str::<Answer>(&answers[i]).unwrap().fault.unwrap().fault("h");
        assert_eq!((fault(1).kind, fault(2).kind), (FaultKind::BadInput, FaultKind::NothingThere));
        assert!(fault(2).what.contains("nobody") && fault(2).help.is_some() && end.is_ok());
        for bad in [&b"hello\n"[..], b"{\"open\":{\"uri\":\"x\"}}\n", b"{\"run\":\"x\"}\n", &[b'x'; 70_000]] {
            let (answers, end) = served(bad, LONG, true);
            assert_eq!((answers.len(), end.unwrap_err().kind), (1, FaultKind::BadInput));
        }
        assert!(served(&line_of(&Request::Bye), LONG, false).1.is_ok());
    }

    #[test]
    fn it_ends_when_nothing_comes() {
        let (_, end) = served(b"\"sam", Duration::from_millis(300), false);
        assert!(end.unwrap_err().to_string().contains("heard nothing"));
    }
}
