//! Requests that must pass Xen's Domain-0 before and after a server handles them (Xen's split drivers).
//!
//! Idea: a request that arrives at the host is first work for a vCPU of the driver domain (interrupt, bridge,
//! backend). Then it goes to the server's vCPU, which wakes for it. Its answer is again work for the driver
//! domain. Each of the three steps waits for its vCPU, in order of arrival, and each vCPU waits for a pCPU. A
//! response time lasts from the arrival at the host to the end of the third step, which is what the client
//! sees without the network.
//!
//! Source: Fraser, Hand, Neugebauer, Pratt, Warfield, Williamson, "Safe hardware access with the Xen virtual
//! machine monitor", OASIS 2004; Govindan et al., "Xen and co.", VEE 2007 (scheduling delays of exactly these
//! three steps). Left out: batches (one interrupt for several packets); the ring's size, except for
//! `backlog`; the network.

use super::jobs::{Jobs, Tally};
use super::poke::Poke;
use super::release::Release;
use super::times::{Draw, Times};
use super::{NO_MORE, Next};
use crate::event::NEVER;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vsteer_core::random::Random;
use vsteer_core::{Fault, FaultKind};

/// The largest allowed backlog.
const BACKLOG_MAX: u32 = 1_000_000;

/// The requests for a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Requests without end.
    Drawn {
        /// Time between arrivals at the host.
        between: Times,
        /// CPU time of each request at the server.
        service: Times,
    },
    /// These requests, in order, and nothing after them. None is refused, and the time of each is kept.
    Given(Vec<Release>),
}

/// A server behind a driver domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServedSpec {
    /// Its requests.
    pub asked: Asked,
    /// The VM that passes requests on: one with vCPUs of [`super::Demand::Driver`].
    pub driver: String,
    /// CPU time in the driver domain before the server.
    pub before: Times,
    /// CPU time in the driver domain after the server.
    pub after: Times,
    /// The most requests under way. Drawn requests that arrive above it are refused.
    pub backlog: u32,
}

impl ServedSpec {
    pub(super) fn check(&self, whose: &str) -> Result<(), Fault> {
        let key = |k: &str| format!("{whose}: {k}");
        match &self.asked {
            Asked::Drawn { between, service } => {
                between.check(&key("between"))?;
                service.check(&key("service"))?;
            }
            Asked::Given(requests) => Release::check_all(requests, whose)?,
        }
        self.before.check(&key("before"))?;
        self.after.check(&key("after"))?;
        if !(1..=BACKLOG_MAX).contains(&self.backlog) {
            return Err(Fault::new(FaultKind::BadInput, format!("{whose}: backlog is {}", self.backlog))
                .help(format!("give 1 to {BACKLOG_MAX}")));
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    After,
}

#[derive(Debug, Clone, Copy)]
struct Task {
    server: usize,
    stage: Stage,
    arrived_ns: u64,
}

/// The running state of [`Asked`].
#[derive(Debug, Clone)]
enum Coming {
    Drawn {
        between: Draw,
        service: Draw,
    },
    Given {
        requests: Vec<Release>,
        /// How many of these requests have arrived, and how many the server has started.
        arrived: usize,
        begun: usize,
        from_ns: u64,
        took_ns: Vec<u64>,
    },
}

impl Coming {
    fn new(asked: &Asked) -> Coming {
        match asked {
            Asked::Drawn { between, service } => {
                Coming::Drawn { between: (*between).into(), service: (*service).into() }
            }
            Asked::Given(requests) => Coming::Given {
                arrived: 0,
                begun: 0,
                from_ns: 0,
                took_ns: Vec::with_capacity(requests.len()),
                requests: requests.clone(),
            },
        }
    }

    /// The arrival of the next request after the one at `last_ns`.
    fn arrival_ns(&mut self, last_ns: u64, random: &mut Random) -> u64 {
        match self {
            Coming::Drawn { between, .. } => last_ns + between.draw(random),
            Coming::Given { requests, arrived, from_ns, .. } => {
                *arrived += 1;
                requests.get(*arrived - 1).map_or(NEVER, |r| *from_ns + r.at_ns)
            }
        }
    }

    /// The CPU time of the request that the server starts.
    fn work_ns(&mut self, random: &mut Random) -> u64 {
        match self {
            Coming::Drawn { service, .. } => service.draw(random),
            Coming::Given { requests, begun, .. } => {
                *begun += 1;
                requests[*begun - 1].compute_ns
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Server {
    vcpu: u32,
    random: Random,
    coming: Coming,
    before: Draw,
    after: Draw,
    backlog: usize,
    /// The next arrival; [`NEVER`] before the server exists.
    next_ns: u64,
    /// Waiting requests, and the current one.
    queue: VecDeque<u64>,
    current_ns: Option<u64>,
    under_way: usize,
    tally: Tally,
}

impl Server {
    fn work_ns(&mut self) -> u64 {
        self.coming.work_ns(&mut self.random)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Does not exist yet.
    Away,
    /// Blocked until the next arrival or answer.
    Idle,
    Busy,
}

/// A vCPU of the driver domain, with its servers.
#[derive(Debug, Clone)]
pub(super) struct Driver {
    vcpu: u32,
    doing: Doing,
    current: Option<Task>,
    queue: VecDeque<Task>,
    servers: Vec<Server>,
}

impl Driver {
    /// The driver vCPU and its servers, each with its random stream.
    pub(super) fn new(vcpu: u32, served: &[(u32, Random, &ServedSpec)]) -> Driver {
        let room = |spec: &ServedSpec| match &spec.asked {
            Asked::Drawn { .. } => spec.backlog as usize,
            Asked::Given(requests) => requests.len(),
        };
        let servers = served.iter().map(|(vcpu, random, spec)| Server {
            vcpu: *vcpu,
            random: *random,
            coming: Coming::new(&spec.asked),
            before: spec.before.into(),
            after: spec.after.into(),
            backlog: room(spec),
            next_ns: NEVER,
            queue: VecDeque::with_capacity(room(spec)),
            current_ns: None,
            under_way: 0,
            tally: Tally::new(u64::MAX),
        });
        let room = served.iter().map(|(_, _, s)| room(s)).sum();
        Driver {
            vcpu,
            doing: Doing::Away,
            current: None,
            queue: VecDeque::with_capacity(room),
            servers: servers.collect(),
        }
    }

    /// The driver's vCPU starts.
    pub(super) fn begin(&mut self, now_ns: u64) -> Next {
        self.next(now_ns)
    }

    /// Server `s` starts, and clients start to send requests.
    pub(super) fn begin_server(&mut self, s: usize, now_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        let server = &mut self.servers[s];
        if let Coming::Given { from_ns, .. } = &mut server.coming {
            *from_ns = now_ns;
        }
        server.next_ns = server.coming.arrival_ns(now_ns, &mut server.random);
        if self.doing == Doing::Idle {
            // Otherwise it would sleep past this arrival.
            let at_ns = self.first_ns();
            pokes.push(Poke { vcpu: self.vcpu, at_ns, work_ns: 1 });
        }
        NO_MORE
    }

    /// A burst of the driver's vCPU has ended.
    pub(super) fn burst_done(&mut self, now_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        if let Some(task) = self.current.take() {
            let server = &mut self.servers[task.server];
            match task.stage {
                Stage::After => {
                    server.under_way -= 1;
                    let took = now_ns - task.arrived_ns;
                    server.tally.count(took);
                    if let Coming::Given { took_ns, .. } = &mut server.coming {
                        took_ns.push(took);
                    }
                }
                Stage::Before if server.current_ns.is_some() => server.queue.push_back(task.arrived_ns),
                Stage::Before => {
                    server.current_ns = Some(task.arrived_ns);
                    let work_ns = server.work_ns();
                    pokes.push(Poke { vcpu: server.vcpu, at_ns: now_ns, work_ns });
                }
            }
        }
        self.next(now_ns)
    }

    /// A burst of server `s` has ended: its answer goes to the driver.
    pub(super) fn served(&mut self, s: usize, now_ns: u64, pokes: &mut Vec<Poke>) -> Next {
        self.admit(now_ns);
        let server = &mut self.servers[s];
        let arrived_ns = server.current_ns.take().expect("a server computes for a request");
        server.current_ns = server.queue.pop_front();
        let next = match server.current_ns {
            Some(_) => Next { at_ns: now_ns, work_ns: server.work_ns() },
            None => NO_MORE,
        };
        self.queue.push_back(Task { server: s, stage: Stage::After, arrived_ns });
        if self.doing == Doing::Idle {
            self.doing = Doing::Busy;
            pokes.push(Poke { vcpu: self.vcpu, at_ns: now_ns, work_ns: 1 });
        }
        next
    }

    /// The driver's vCPU next does the first task, or sleeps until the next arrival.
    fn next(&mut self, now_ns: u64) -> Next {
        self.admit(now_ns);
        self.current = self.queue.pop_front();
        let Some(task) = self.current else {
            self.doing = Doing::Idle;
            // The interrupt itself takes one nanosecond. Its requests are admitted after that.
            return Next { at_ns: self.first_ns(), work_ns: 1 };
        };
        self.doing = Doing::Busy;
        let server = &mut self.servers[task.server];
        let draw = if task.stage == Stage::Before { &server.before } else { &server.after };
        Next { at_ns: now_ns, work_ns: draw.draw(&mut server.random) }
    }

    fn first_ns(&self) -> u64 {
        self.servers.iter().map(|s| s.next_ns).min().unwrap_or(NEVER)
    }

    /// Queues the requests that have arrived by now, in order of arrival.
    fn admit(&mut self, now_ns: u64) {
        loop {
            let first = self.servers.iter().enumerate().min_by_key(|(i, s)| (s.next_ns, *i));
            let Some(i) = first.filter(|(_, s)| s.next_ns <= now_ns).map(|(i, _)| i) else { return };
            let server = &mut self.servers[i];
            let arrived_ns = server.next_ns;
            server.next_ns = server.coming.arrival_ns(arrived_ns, &mut server.random);
            if server.under_way < server.backlog {
                server.under_way += 1;
                self.queue.push_back(Task { server: i, stage: Stage::Before, arrived_ns });
            } else {
                server.tally.dropped += 1;
            }
        }
    }

    /// The requests of server `s`, from their arrival to the end of their answer.
    pub(super) fn jobs(&self, s: usize) -> Jobs {
        self.servers[s].tally.jobs()
    }

    /// Response times of the requests that the scenario lists for server `s`, in their order.
    pub(super) fn took_ns(&self, s: usize) -> &[u64] {
        match &self.servers[s].coming {
            Coming::Given { took_ns, .. } => took_ns,
            Coming::Drawn { .. } => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_passes_the_driver_twice() {
        let spec = ServedSpec {
            asked: Asked::Drawn { between: Times::Fixed(1000), service: Times::Fixed(50) },
            driver: "dom0".into(),
            before: Times::Fixed(10),
            after: Times::Fixed(20),
            backlog: 2,
        };
        spec.check("x").unwrap();
        let mut d = Driver::new(7, &[(8, Random::new(1, 0), &spec)]);
        let mut pokes = Vec::new();
        assert_eq!(d.begin(0).at_ns, NEVER, "nobody asks yet");
        assert_eq!(d.begin_server(0, 0, &mut pokes), NO_MORE);
        assert_eq!(pokes, [Poke { vcpu: 7, at_ns: 1000, work_ns: 1 }]);
        assert_eq!(d.burst_done(1001, &mut pokes), Next { at_ns: 1001, work_ns: 10 });
        pokes.clear();
        assert_eq!(d.burst_done(1011, &mut pokes), Next { at_ns: 2000, work_ns: 1 });
        assert_eq!(pokes, [Poke { vcpu: 8, at_ns: 1011, work_ns: 50 }]);
        pokes.clear();
        assert_eq!(d.served(0, 1061, &mut pokes), NO_MORE);
        assert_eq!(pokes, [Poke { vcpu: 7, at_ns: 1061, work_ns: 1 }]);
        assert_eq!(d.burst_done(1062, &mut pokes).work_ns, 20);
        d.burst_done(1082, &mut pokes);
        assert_eq!((d.jobs(0).done, d.jobs(0).response_ns), (1, 82));
        // Requests that arrive while two are under way are refused.
        assert_eq!(d.burst_done(6000, &mut pokes).work_ns, 10);
        assert_eq!(d.jobs(0).dropped, 3, "of those at 2000, 3000, 4000, 5000, 6000 two are taken");
    }

    #[test]
    fn given_requests_come_when_they_were_given() {
        let given = |at_ns, compute_ns| Release { at_ns, compute_ns };
        let spec = ServedSpec {
            asked: Asked::Given(vec![given(100, 50), given(105, 70)]),
            driver: "dom0".into(),
            before: Times::Fixed(10),
            after: Times::Fixed(20),
            backlog: 1,
        };
        spec.check("x").unwrap();
        let mut d = Driver::new(7, &[(8, Random::new(1, 0), &spec)]);
        let mut pokes = Vec::new();
        d.begin(0);
        d.begin_server(0, 1000, &mut pokes);
        assert_eq!(pokes, [Poke { vcpu: 7, at_ns: 1100, work_ns: 1 }], "after the server began");
        pokes.clear();
        d.burst_done(1101, &mut pokes);
        assert_eq!(d.burst_done(1111, &mut pokes).work_ns, 10, "none is refused");
        assert_eq!(pokes, [Poke { vcpu: 8, at_ns: 1111, work_ns: 50 }]);
        assert_eq!(d.burst_done(1121, &mut pokes).at_ns, NEVER);
        assert_eq!(d.served(0, 1161, &mut pokes), Next { at_ns: 1161, work_ns: 70 });
        d.burst_done(1162, &mut pokes);
        d.burst_done(1182, &mut pokes);
        d.served(0, 1231, &mut pokes);
        d.burst_done(1232, &mut pokes);
        d.burst_done(1252, &mut pokes);
        assert_eq!(d.took_ns(0), [82, 147]);
        let backwards = ServedSpec { asked: Asked::Given(vec![given(9, 1), given(8, 1)]), ..spec };
        assert!(backwards.check("x").is_err());
    }
}
