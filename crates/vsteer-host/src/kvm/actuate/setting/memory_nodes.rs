//! Sets the nodes of a VM's memory through libvirt, because nothing else can move the memory of a running VM.

use super::{Able, Asked, KvmSetting};
use crate::actuate::Part;
use crate::kvm::actuate::live::ask;
use crate::kvm::actuate::{KvmHost, Subject, fault};
use crate::kvm::definition::is_word;
use crate::kvm::inventory::Inventory;
use crate::kvm::xml;
use serde_json::json;
use vsteer_core::setting::{Change, MemoryNodes, Step};
use vsteer_core::{Fault, FaultKind};

const NOT_RESTRICTIVE: &str = "libvirt moves the memory of a running VM only if the mode of numatune is restrictive: change the \
definition, which takes effect at the next start";
const NOT_LIBVIRTS: &str =
    "vsteer cannot change the memory binding of a running QEMU: start it with host-nodes=";

const ONE_BY_ONE: &str = "the memory of the guest's NUMA nodes is bound one by one, and a binding of the whole VM does not move \
it: change nodeset of each <memnode> in the definition, and the pins of its vCPUs with it";

impl KvmSetting for MemoryNodes {
    fn live(&self, asked: &Asked<'_>) -> Able {
        if asked.vm.bound_guest_nodes().is_some() {
            return Err(ONE_BY_ONE);
        }
        if !asked.of_libvirt {
            return Err(NOT_LIBVIRTS);
        }
        let domain = asked.seen.and_then(|v| v.domain.as_ref());
        match domain.and_then(|d| d.memory_mode.as_deref()) {
            Some("restrictive") => Ok(()),
            _ => Err(NOT_RESTRICTIVE),
        }
    }

    fn defined(&self, asked: &Asked<'_>) -> Able {
        if asked.vm.bound_guest_nodes().is_some() { Err(ONE_BY_ONE) } else { Ok(()) }
    }

    fn current(&self, host: &mut KvmHost, _: &Subject, step: &Step) -> Result<Change, Fault> {
        // The present value of libvirt, not the value from when vsteer first saw the VM.
        host.inventory.look()?;
        let from = Subject::find(&mut host.inventory, &step.vm, &step.vm_name)?.vm.memory_nodes;
        Ok(Change::MemoryNodes(MemoryNodes { from, ..self.clone() }))
    }

    fn set(&self, inventory: &mut Inventory, subject: &Subject, step: &Step) -> Result<(), Fault> {
        let nodes = self.to.as_ref().ok_or_else(|| {
            fault(FaultKind::Unsupported, step)
                .because("libvirt can change the binding of a running VM, but cannot remove it")
                .help("name all nodes, or change the definition")
        })?;
        let request = json!({ "op": "set_nodes", "uuid": subject.vm.id.0, "nodes": nodes.to_string(),
                              "live": true, "persistent": false });
        ask(inventory, subject, step, request)
    }

    fn parts(&self, xml: &str) -> Result<Vec<Part>, String> {
        let domain = xml::parse(xml)?;
        // The definition may bind them where the running VM does not.
        if domain.guest_nodes.iter().any(|node| node.host_nodes.is_some()) {
            return Err(ONE_BY_ONE.to_owned());
        }
        let mode = domain.memory_mode.filter(|m| is_word(m)).unwrap_or_else(|| "strict".into());
        let element = self.to.as_ref().map(|nodes| format!("<memory mode='{mode}' nodeset='{nodes}'/>"));
        Ok(vec![Part::new("numatune", "memory", element.into_iter().collect())])
    }
}
