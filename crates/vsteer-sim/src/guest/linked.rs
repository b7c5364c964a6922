//! vCPUs that depend on each other: which belong together, and how the end of one burst affects others.
//!
//! Idea: like any other vCPU, a linked one is asked what it does next. The answer may include [`Poke`]s. Each
//! is the next burst of another vCPU that waited for this. The engine wakes a poked vCPU that is blocked. If
//! the poked vCPU spins (on a pCPU or preempted), it gets the new work in place of the endless one. A vCPU is
//! never poked while it computes.

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

/// The position of a vCPU: its link, and its member number in it.
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
    /// The pokes that the engine must execute; the engine empties the list.
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

/// Members of one link of a VM: the numbers of their vCPUs, and their random streams.
type Members = Vec<(u32, Random)>;

impl Links {
    /// Finds which vCPUs of these VMs belong together.
    ///
    /// # Errors
    /// `BadInput` for members with different specifications, a missing driver, or a driver that polls.
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

    /// Distributes servers over the vCPUs of their driver in turn.
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

    /// The first burst of a linked vCPU that starts at `now_ns`.
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

    /// A burst of a linked vCPU ended at `now_ns`. Returns what it does next; `pokes` has what others do
    /// next.
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

    /// The measurements of its jobs.
    pub(crate) fn jobs(&self, v: usize) -> Option<Jobs> {
        let Place { link, member } = self.places[v];
        match &self.links[link as usize] {
            Link::Team(t) => t.jobs(member as usize),
            Link::Lock(l) => l.jobs(member as usize),
            Link::Driver(_) if member == DRIVER => None,
            Link::Driver(d) => Some(d.jobs(member as usize)),
        }
    }

    /// How long each given request of a server took, in order; empty for any other vCPU.
    pub(crate) fn took_ns(&self, v: usize) -> &[u64] {
        let Place { link, member } = self.places[v];
        match &self.links[link as usize] {
            Link::Driver(d) if member != DRIVER => d.took_ns(member as usize),
            _ => &[],
        }
    }
}
