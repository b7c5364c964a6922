//! Whose work is done when somebody else is? vCPUs that depend on each other: who belongs together, and what the
//! end of one burst changes for others.
//!
//! Idea: a linked vCPU is asked as any other what it does next; the answer may come with [`Poke`]s, each the next
//! burst of another vCPU that waited for this. The engine wakes a poked vCPU that is blocked, and gives one that
//! spins (on a pCPU or preempted) its new work in place of the endless one. A vCPU is never poked while it
//! computes.

use super::Next;
use super::demand::Demand;
use super::driver::{Driver, ServedSpec};
use super::jobs::Jobs;
use super::lock::{Lock, LockSpec};
use super::poke::{Poke, Runs};
use super::team::{LoopSpec, Team};
use crate::hot::Hot;
use vsteer_core::random::Random;
use vsteer_core::{Fault, FaultKind};

#[derive(Debug, Clone)]
enum Link {
    Team(Team),
    Lock(Lock),
    Driver(Driver),
}

/// A vCPU's place: the link, and which member of it.
#[derive(Debug, Clone, Copy)]
struct Place {
    link: u32,
    /// [`DRIVER`] for the driver itself.
    member: u32,
}

const DRIVER: u32 = u32::MAX;
const NOWHERE: Place = Place { link: u32::MAX, member: 0 };

/// All links of a host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    links: Vec<Link>,
    places: Vec<Place>,
    /// What is to be carried out; emptied by the engine.
    pub(crate) pokes: Vec<Poke>,
}

fn bad(what: impl Into<String>, help: impl Into<String>) -> Fault {
    Fault::new(FaultKind::BadInput, what).help(help)
}

/// A VM as links see it.
pub(crate) struct Linked<'a> {
    pub(crate) name: &'a str,
    pub(crate) demands: Vec<&'a Demand>,
}

/// Members of one link of a VM: their vCPUs' numbers and streams.
type Members = Vec<(u32, Random)>;

impl Links {
    /// Who belongs together among these VMs.
    ///
    /// # Errors
    /// `BadInput` for members that do not say the same, a driver that is not there, a driver that polls.
    pub(crate) fn new(vms: &[Linked<'_>], seed: u64) -> Result<Links, Fault> {
        let demands = || vms.iter().flat_map(|vm| vm.demands.iter().copied());
        if !demands().any(Demand::is_linked) {
            return Ok(Links::default());
        }
        let mut links = Links { places: vec![NOWHERE; demands().count()], ..Links::default() };
        let mut drivers: Vec<(&str, u32)> = Vec::new();
        let mut first = 0;
        for vm in vms {
            let mut teams: Vec<(&LoopSpec, Members)> = Vec::new();
            let mut locks: Vec<(&LockSpec, Members)> = Vec::new();
            for (index, demand) in vm.demands.iter().enumerate() {
                let vcpu = first + index as u32;
                let random = Random::new(seed, vcpu.into());
                let differs = |what: &str, n: u32| {
                    bad(
                        format!(
                            "VM {:?}, vCPU {index}: {what} {n} differs from that of its \
                            siblings",
                            vm.name
                        ),
                        "give all vCPUs with this number the same values, or this vCPU another number",
                    )
                };
                match demand {
                    Demand::Loop(spec) => {
                        match teams.iter_mut().find(|(s, _)| s.team == spec.team) {
                            None => teams.push((&**spec, vec![(vcpu, random)])),
                            Some((s, members)) if **s == **spec => members.push((vcpu, random)),
                            Some(_) => return Err(differs("team", spec.team)),
                        };
                    }
                    Demand::Lock(spec) => {
                        match locks.iter_mut().find(|(s, _)| s.lock == spec.lock) {
                            None => locks.push((&**spec, vec![(vcpu, random)])),
                            Some((s, members)) if **s == **spec => members.push((vcpu, random)),
                            Some(_) => return Err(differs("lock", spec.lock)),
                        };
                    }
                    Demand::Driver => drivers.push((vm.name, vcpu)),
                    _ => {}
                }
            }
            for (spec, members) in teams {
                links.push(Link::Team(Team::new(spec, &members)), &members);
            }
            for (spec, members) in locks {
                links.push(Link::Lock(Lock::new(spec, &members)), &members);
            }
            first += vm.demands.len() as u32;
        }
        links.add_drivers(vms, seed, &drivers)?;
        links.pokes.reserve(links.places.len());
        Ok(links)
    }

    fn push(&mut self, link: Link, members: &[(u32, Random)]) {
        let place = self.links.len() as u32;
        for (m, (vcpu, _)) in members.iter().enumerate() {
            self.places[*vcpu as usize] = Place { link: place, member: m as u32 };
        }
        self.links.push(link);
    }

    /// Servers are dealt to the vCPUs of their driver in turn.
    fn add_drivers(&mut self, vms: &[Linked<'_>], seed: u64, drivers: &[(&str, u32)]) -> Result<(), Fault> {
        let mut served: Vec<Vec<(u32, Random, &ServedSpec)>> = vec![Vec::new(); drivers.len()];
        let mut vcpu = 0;
        for vm in vms {
            for (index, demand) in vm.demands.iter().enumerate() {
                if let Demand::Served(spec) = demand {
                    let its = (0..drivers.len()).filter(|d| drivers[*d].0 == spec.driver);
                    let Some(d) = its.min_by_key(|d| (served[*d].len(), *d)) else {
                        return Err(bad(
                            format!(
                                "VM {:?}, vCPU {index}: VM {:?} does not exist or is not a driver",
                                vm.name, spec.driver
                            ),
                            "choose a VM with a vCPU whose demand is `driver`",
                        ));
                    };
                    served[d].push((vcpu, Random::new(seed, vcpu.into()), &**spec));
                }
                vcpu += 1;
            }
        }
        for ((_, vcpu), served) in drivers.iter().zip(&served) {
            let members: Members = served.iter().map(|(v, random, _)| (*v, *random)).collect();
            self.push(Link::Driver(Driver::new(*vcpu, served)), &members);
            self.places[*vcpu as usize] = Place { link: self.links.len() as u32 - 1, member: DRIVER };
        }
        Ok(())
    }

    /// Is `v` linked?
    pub(crate) fn holds(&self, v: usize) -> bool {
        self.places.get(v).is_some_and(|p| p.link != NOWHERE.link)
    }

    /// The first burst of a linked vCPU that begins at `now_ns`.
    pub(crate) fn begin(&mut self, v: usize, now_ns: u64) -> Next {
        let Place { link, member } = self.places[v];
        let (m, pokes) = (member as usize, &mut self.pokes);
        match &mut self.links[link as usize] {
            Link::Team(t) => t.begin(m, now_ns, pokes),
            Link::Lock(l) => l.begin(m, now_ns),
            Link::Driver(d) if member == DRIVER => d.begin(now_ns),
            Link::Driver(d) => d.begin_server(m, now_ns, pokes),
        }
    }

    /// A burst of a linked vCPU is done at `now_ns`: what follows for it; what follows for others is in `pokes`.
    pub(crate) fn burst_done(&mut self, v: usize, now_ns: u64, hot: &[Hot]) -> Next {
        let Place { link, member } = self.places[v];
        let (m, pokes) = (member as usize, &mut self.pokes);
        match &mut self.links[link as usize] {
            Link::Team(t) => t.burst_done(m, now_ns, pokes),
            Link::Lock(l) => l.burst_done(m, now_ns, Runs::of(hot), pokes),
            Link::Driver(d) if member == DRIVER => d.burst_done(now_ns, pokes),
            Link::Driver(d) => d.served(m, now_ns, pokes),
        }
    }

    /// What was measured of its jobs.
    pub(crate) fn jobs(&self, v: usize) -> Option<Jobs> {
        let Place { link, member } = self.places[v];
        match &self.links[link as usize] {
            Link::Team(t) => t.jobs(member as usize),
            Link::Lock(l) => l.jobs(member as usize),
            Link::Driver(_) if member == DRIVER => None,
            Link::Driver(d) => Some(d.jobs(member as usize)),
        }
    }

    /// How long each given request of a server took, in their order; empty for any other vCPU.
    pub(crate) fn took_ns(&self, v: usize) -> &[u64] {
        let Place { link, member } = self.places[v];
        match &self.links[link as usize] {
            Link::Driver(d) if member != DRIVER => d.took_ns(member as usize),
            _ => &[],
        }
    }
}
