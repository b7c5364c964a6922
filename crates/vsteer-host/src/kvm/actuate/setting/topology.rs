//! Sets the topology that a guest sees. Only the definition can change, because a running guest has already
//! read it.

use super::{Able, Asked, KvmSetting};
use crate::actuate::Part;
use crate::kvm::actuate::{KvmHost, Subject, fault};
use crate::kvm::inventory::Inventory;
use crate::kvm::xml;
use vsteer_core::nouns::Manager;
use vsteer_core::setting::{Change, Scope, Step, Topology};
use vsteer_core::{Fault, FaultKind};

const NEXT_START: &str = "a guest's topology cannot change while it runs: change the definition, which takes effect at the next start";

impl KvmSetting for Topology {
    fn live(&self, _asked: &Asked<'_>) -> Able {
        Err(NEXT_START)
    }

    /// Takes effect in the definition only.
    fn effect(&self, scope: Scope) -> (bool, bool) {
        (scope == Scope::Live, scope.persistent())
    }

    fn current(&self, host: &mut KvmHost, subject: &Subject, step: &Step) -> Result<Change, Fault> {
        let from = match &subject.vm.manager {
            Manager::Libvirt(_) => {
                let text = host.definition(subject, step)?;
                xml::parse(&text).ok().and_then(|d| d.topology_shown())
            }
            _ => subject.vm.guest_topology,
        };
        Ok(Change::Topology(Topology { from, ..self.clone() }))
    }

    fn set(&self, _: &mut Inventory, _: &Subject, step: &Step) -> Result<(), Fault> {
        Err(fault(FaultKind::Unsupported, step).because("a guest's topology cannot change while it runs"))
    }

    fn parts(&self, xml: &str) -> Result<Vec<Part>, String> {
        let to = self.to;
        let all = u64::from(to.sockets) * u64::from(to.cores) * u64::from(to.threads);
        let vcpus = xml::parse(xml)?.vcpus_max;
        if vcpus.is_none_or(|n| u64::from(n) != all) {
            return Err(format!(
                "a topology of {all} vCPUs does not fit a VM of {} vCPUs",
                vcpus.unwrap_or(0)
            ));
        }
        let (sockets, cores, threads) = (to.sockets, to.cores, to.threads);
        let element = format!("<topology sockets='{sockets}' dies='1' cores='{cores}' threads='{threads}'/>");
        Ok(vec![Part::new("cpu", "topology", vec![element])])
    }
}
