//! Reads the hosts, their hardware, and their VMs with all settings, in one pass.
//!
//! A container view lists every host and VM below the root. vsteer then fetches the few properties that it
//! needs, for some hundred objects per call. If the service leaves out a property (a missing right, an older
//! version), it is `None`.

use super::object::{HostParts, Object};
use super::settings::PROPERTIES;
use super::soap::{Reply, child_text, descendant, escaped, text_of};
use super::{Client, soap::Refused};
use crate::actuate::Settings;
use roxmltree::Node;
use std::collections::BTreeMap;
use vsteer_core::nouns::{HostConfig, Manager, Role, Tid, VmConfig, VmId, VmThread};
use vsteer_core::plural::counted;
use vsteer_core::topology::{Core, NodeId, NumaNode, Package, Parts, Topology};
use vsteer_core::{CpuSet, Fault, FaultKind};

/// Objects per call.
const AT_A_TIME: u32 = 500;

const HOST: [&str; 7] = [
    "name",
    "config.product.version",
    "hardware.cpuInfo",
    "hardware.cpuPkg",
    "hardware.numaInfo",
    "hardware.memorySize",
    "hardware.systemInfo.uuid",
];
/// A host and its VMs.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its managed object id.
    pub id: String,
    /// The configuration of the host and its VMs, including VMs that are off.
    pub config: HostConfig,
    /// The VMs that are powered on.
    pub running: Vec<VmId>,
    /// The managed object of each VM.
    pub objects: BTreeMap<VmId, String>,
}

/// The result of one reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Inventory {
    /// Product name and version, as vSphere reports them.
    pub about: String,
    /// Hosts by name.
    pub hosts: Vec<Found>,
    /// What could not be read, one line each.
    pub notes: Vec<String>,
}

impl Client {
    /// Reads the hosts and VMs.
    ///
    /// # Errors
    /// `NoPrivilege` if the session ended or a right is missing; `NothingThere` if there is no host;
    /// `BadInput` for an impossible host.
    pub fn inventory(&mut self) -> Result<Inventory, Fault> {
        let objects = self.objects()?;
        let (mut hosts, mut vms) = (Vec::new(), Vec::new());
        for o in objects {
            if o.kind == "HostSystem" { hosts.push(o) } else { vms.push(Settings::of(&o)) }
        }
        // Over the VMs of all hosts, so that a VM keeps its identity when it moves.
        let ids = identities(&vms);
        let mut notes = Vec::new();
        let mut found = Vec::new();
        for host in &hosts {
            let name = host.texts.get("name").cloned().unwrap_or_else(|| host.id.clone());
            let is_here = |(vm, _): &(&Settings, &VmId)| vm.host.as_ref() == Some(&host.id);
            let mine: Vec<(&Settings, &VmId)> = vms.iter().zip(&ids).filter(is_here).collect();
            match config(host, &name, &mine) {
                Ok(config) => {
                    let each = || mine.iter().copied();
                    let on = each().filter(|(vm, _)| vm.powered_on == Some(true));
                    found.push(Found {
                        id: host.id.clone(),
                        config,
                        running: on.map(|(_, id)| id.clone()).collect(),
                        objects: each().map(|(vm, id)| (id.clone(), vm.id.clone())).collect(),
                    });
                }
                Err(fault) => notes.push(format!("left out host {name:?}: {fault}")),
            }
        }
        let homeless = vms.iter().filter(|vm| !hosts.iter().any(|h| vm.host.as_ref() == Some(&h.id))).count();
        if homeless > 0 {
            notes.push(format!("this user may not see the hosts of {}", counted(homeless, "VM")));
        }
        if found.is_empty() {
            return Err(Fault::new(FaultKind::NothingThere, format!("{} shows no host", self.place))
                .because(notes.first().map_or("this user can see no host there", String::as_str)));
        }
        found.sort_by(|a, b| a.config.hostname.cmp(&b.config.hostname).then_with(|| a.id.cmp(&b.id)));
        Ok(Inventory { about: self.about().to_owned(), hosts: found, notes })
    }

    /// Views and tokens belong to a session. If the session ended in between, this reads everything once
    /// more.
    fn objects(&mut self) -> Result<Vec<Object>, Fault> {
        let session = self.sessions;
        match self.objects_of_session() {
            Err(_) if self.sessions != session => Ok(self.objects_of_session()?),
            other => Ok(other?),
        }
    }

    fn objects_of_session(&mut self) -> Result<Vec<Object>, Refused> {
        let view = format!(
            "<CreateContainerView xmlns=\"urn:vim25\"><_this type=\"ViewManager\">{}</_this><container type=\"Folder\">{}</container>\
             <type>HostSystem</type><type>VirtualMachine</type><recursive>true</recursive></CreateContainerView>",
            escaped(&self.managers.views),
            escaped(&self.managers.root)
        );
        let none = Fault::new(FaultKind::BadInput, format!("cannot use the answer of {}", self.place))
            .because("it creates no view");
        let view = self.call(&view)?.read(|a| text_of(a, "returnval")).flatten().ok_or(none)?;
        let properties = escaped(&self.managers.properties);
        let mut reply = self.call(&format!(
            "<RetrievePropertiesEx xmlns=\"urn:vim25\"><_this type=\"PropertyCollector\">{properties}</_this><specSet>{}{}\
             <objectSet><obj type=\"ContainerView\">{}</obj><skip>true</skip>\
             <selectSet xsi:type=\"TraversalSpec\"><name>view</name><type>ContainerView</type><path>view</path><skip>false</skip></selectSet>\
             </objectSet></specSet><options><maxObjects>{AT_A_TIME}</maxObjects></options></RetrievePropertiesEx>",
            property_set("HostSystem", &HOST),
            property_set("VirtualMachine", &PROPERTIES),
            escaped(&view)
        ))?;
        let mut all = Vec::new();
        loop {
            let token = read_objects(&reply, &mut all);
            let Some(token) = token else { break };
            reply = self.call(&format!(
                "<ContinueRetrievePropertiesEx xmlns=\"urn:vim25\"><_this type=\"PropertyCollector\">{properties}</_this><token>{}</token>\
                 </ContinueRetrievePropertiesEx>",
                escaped(&token)
            ))?;
        }
        let _ = self.call(&format!(
            "<DestroyView xmlns=\"urn:vim25\"><_this type=\"ContainerView\">{}</_this></DestroyView>",
            escaped(&view)
        ));
        Ok(all)
    }

    /// Reads these properties of one object. The result lacks properties that the object does not have or
    /// that this user may not see.
    pub(super) fn object(&mut self, kind: &str, id: &str, paths: &[&str]) -> Result<Object, Refused> {
        let answer = self.properties_of(kind, id, paths)?;
        let mut all = Vec::new();
        read_objects(&answer, &mut all);
        all.into_iter().next().ok_or_else(|| {
            let what = format!("{}: this user may not see {kind} {id:?}", self.place);
            Fault::new(FaultKind::NoPrivilege, what)
                .help("give the user at least the role Read-only on it")
                .into()
        })
    }

    /// Like `object`, but returns the whole answer.
    pub(super) fn properties_of(&mut self, kind: &str, id: &str, paths: &[&str]) -> Result<Reply, Refused> {
        self.call(&format!(
            "<RetrievePropertiesEx xmlns=\"urn:vim25\"><_this type=\"PropertyCollector\">{}</_this><specSet>{}<objectSet>\
             <obj type=\"{kind}\">{}</obj></objectSet></specSet><options/></RetrievePropertiesEx>",
            escaped(&self.managers.properties),
            property_set(kind, paths),
            escaped(id)
        ))
    }
}

fn property_set(kind: &str, paths: &[&str]) -> String {
    let paths: String = paths.iter().map(|p| format!("<pathSet>{}</pathSet>", escaped(p))).collect();
    format!("<propSet><type>{kind}</type>{paths}</propSet>")
}

/// Reads the objects of an answer. Returns the token of the next part, if there is one.
fn read_objects(reply: &Reply, into: &mut Vec<Object>) -> Option<String> {
    reply
        .read(|answer| {
            for o in answer.descendants().filter(|n| n.tag_name().name() == "objects") {
                into.push(object(o));
            }
            let returned = answer.children().find(|n| n.tag_name().name() == "returnval")?;
            child_text(returned, "token")
        })
        .flatten()
}

fn object(node: Node<'_, '_>) -> Object {
    let obj = node.children().find(|n| n.tag_name().name() == "obj");
    let mut object = Object {
        kind: obj.and_then(|n| n.attribute("type")).unwrap_or_default().to_owned(),
        id: obj.and_then(|n| n.text()).unwrap_or_default().to_owned(),
        ..Object::default()
    };
    for set in node.children().filter(|n| n.tag_name().name() == "propSet") {
        let (Some(name), Some(value)) =
            (child_text(set, "name"), set.children().find(|n| n.tag_name().name() == "val"))
        else {
            continue;
        };
        match name.as_str() {
            "hardware.cpuInfo" => {
                let parts = object.host.get_or_insert_default();
                let number = |n: &str| child_text(value, n).and_then(|t| t.parse().ok()).unwrap_or(0);
                (parts.packages, parts.cores, parts.threads) =
                    (number("numCpuPackages"), number("numCpuCores"), number("numCpuThreads"));
            }
            "hardware.cpuPkg" => {
                let parts = object.host.get_or_insert_default();
                for p in value.children().filter(Node::is_element) {
                    let index = child_text(p, "index").and_then(|t| t.parse().ok()).unwrap_or(0);
                    parts.by_package.push((index, numbers(p, "threadId")));
                }
            }
            "hardware.numaInfo" => {
                let parts = object.host.get_or_insert_default();
                for n in value.descendants().filter(|n| n.tag_name().name() == "numaNode") {
                    let number = |name: &str| child_text(n, name).and_then(|t| t.parse().ok());
                    let id = number("typeId").unwrap_or(0) as u32;
                    let memory = number("memorySize").or_else(|| number("memoryRangeLength"));
                    parts.by_node.push((id, numbers(n, "cpuID"), memory));
                }
            }
            "config.cpuAffinity" => object.affinity = numbers(value, "affinitySet"),
            name if name.starts_with("config.extraConfig") => {
                let key = name.split('"').nth(1).unwrap_or_default();
                let text = descendant(value, "value").and_then(|n| n.text()).or_else(|| value.text());
                if let Some(text) = text {
                    object.texts.insert(key.to_owned(), text.to_owned());
                }
            }
            _ => {
                object.texts.insert(name, value.text().unwrap_or_default().to_owned());
            }
        }
    }
    object
}

fn numbers(of: Node<'_, '_>, name: &str) -> Vec<u32> {
    let all = of.children().filter(|n| n.tag_name().name() == name);
    all.filter_map(|n| n.text()?.trim().parse().ok()).filter(|n| *n <= vsteer_core::cpuset::MAX_CPU).collect()
}

/// Identities of VMs. A VM's identity is its instance UUID. If another VM has the same UUID (for example a
/// copy made by hand), it is the id of its object.
fn identities(vms: &[Settings]) -> Vec<VmId> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    vms.iter().for_each(|vm| *times.entry(vm.identity()).or_default() += 1);
    let of = |vm: &Settings| {
        let own = vm.identity();
        VmId(if times[own] == 1 { own } else { &vm.id }.into())
    };
    vms.iter().map(of).collect()
}

fn topology(host: &Object) -> Result<Topology, Fault> {
    let empty = HostParts::default();
    let parts = host.host.as_ref().unwrap_or(&empty);
    let threads = parts.threads.clamp(1, vsteer_core::cpuset::MAX_CPU + 1);
    let all = CpuSet::first(threads);
    let per_core = (threads / parts.cores.max(1)).max(1);
    let packages = parts.by_package.iter().map(|(index, threads)| Package {
        id: Some(*index),
        cpus: threads.iter().copied().collect::<CpuSet>().intersection(&all),
        assumed: false,
    });
    // The threads of a core have consecutive numbers.
    let cores = (0..threads.div_ceil(per_core)).map(|i| Core {
        id: Some(i),
        cpus: (i * per_core..((i + 1) * per_core).min(threads)).collect(),
        ..Core::default()
    });
    let nodes = parts.by_node.iter().map(|(id, cpus, memory_bytes)| NumaNode {
        id: NodeId(*id),
        cpus: cpus.iter().copied().collect::<CpuSet>().intersection(&all),
        nearest_cpus: CpuSet::new(),
        memory_bytes: *memory_bytes,
        distances: BTreeMap::new(),
        initiators: Vec::new(),
        gpu: None,
        allowed: true,
        assumed: false,
    });
    Topology::new(Parts {
        present: all.clone(),
        online: all.clone(),
        allowed: all.clone(),
        memory_bytes: host.texts.get("hardware.memorySize").and_then(|t| t.parse().ok()),
        packages: packages.filter(|p| !p.cpus.is_empty()).collect(),
        cores: cores.collect(),
        nodes: nodes.collect(),
        ..Parts::default()
    })
}

fn config(host: &Object, name: &str, vms: &[(&Settings, &VmId)]) -> Result<HostConfig, Fault> {
    let topology = topology(host)?;
    let usable = topology.usable();
    let version = host.texts.get("config.product.version").filter(|v| !v.is_empty());
    let mut vms: Vec<VmConfig> = vms.iter().map(|(vm, id)| vm_config(vm, id, &usable)).collect();
    vms.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(HostConfig {
        machine_id: host.texts.get("hardware.systemInfo.uuid").filter(|u| !u.is_empty()).cloned(),
        vms,
        ..HostConfig::new(
            name.to_owned(),
            format!("VMware ESXi {}", version.map_or("of unknown version", String::as_str)),
            topology,
        )
    })
}

fn vm_config(vm: &Settings, id: &VmId, usable: &CpuSet) -> VmConfig {
    let of_vsphere = vm.as_nouns();
    let pinned =
        of_vsphere.cpu_affinity.as_ref().map(|set| set.intersection(usable)).filter(|set| !set.is_empty());
    let affinity = pinned.unwrap_or_else(|| usable.clone());
    let threads = (0..vm.vcpus.unwrap_or(0)).map(|i| VmThread {
        // The API does not report world ids.
        tid: Tid(i),
        role: Role::Vcpu(i),
        affinity: affinity.clone(),
        class: None,
        cgroup: None,
        prefers: None,
        reserved: None,
    });
    VmConfig {
        manager: Manager::Vsphere(vm.id.clone()),
        threads: threads.collect(),
        weight: vm.weight(),
        guest_topology: vm.topology(),
        memory_bytes: vm.memory_mib.map(|mib| mib.saturating_mul(1 << 20)),
        vsphere: Some(of_vsphere),
        ..VmConfig::new(id.clone(), vm.name.as_deref().unwrap_or(&vm.id), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::super::soap::envelope;
    use super::*;
    use vsteer_core::nouns::GuestTopology;

    fn reply(body: &str) -> Reply {
        let place = Place { user: "u".into(), host: "h".into(), port: 443 };
        Reply::of(&place, 200, envelope(body)).unwrap()
    }

    const HOST_OBJECT: &str = r#"<objects><obj type="HostSystem">host-1</obj>
      <propSet><name>name</name><val xsi:type="xsd:string">esx1</val></propSet>
      <propSet><name>config.product.version</name><val xsi:type="xsd:string">7.0.2</val></propSet>
      <propSet><name>hardware.memorySize</name><val xsi:type="xsd:long">17179869184</val></propSet>
      <propSet><name>hardware.cpuInfo</name><val xsi:type="HostCpuInfo"><numCpuPackages>2</numCpuPackages>
        <numCpuCores>4</numCpuCores><numCpuThreads>8</numCpuThreads><hz>1</hz></val></propSet>
      <propSet><name>hardware.cpuPkg</name><val xsi:type="ArrayOfHostCpuPackage">
        <HostCpuPackage><index>0</index><threadId>0</threadId><threadId>1</threadId><threadId>2</threadId><threadId>3</threadId></HostCpuPackage>
        <HostCpuPackage><index>1</index><threadId>4</threadId><threadId>5</threadId><threadId>6</threadId><threadId>7</threadId></HostCpuPackage>
      </val></propSet>
      <propSet><name>hardware.numaInfo</name><val xsi:type="HostNumaInfo"><type>NUMA</type><numNodes>2</numNodes>
        <numaNode><typeId>0</typeId><cpuID>3</cpuID><cpuID>2</cpuID><cpuID>1</cpuID><cpuID>0</cpuID><memoryRangeBegin>0</memoryRangeBegin><memoryRangeLength>8589934592</memoryRangeLength></numaNode>
        <numaNode><typeId>1</typeId><cpuID>7</cpuID><cpuID>6</cpuID><cpuID>5</cpuID><cpuID>4</cpuID><memoryRangeBegin>0</memoryRangeBegin><memoryRangeLength>8589934592</memoryRangeLength></numaNode>
      </val></propSet></objects>"#;

    const VM_OBJECT: &str = r#"<objects><obj type="VirtualMachine">vm-7</obj>
      <propSet><name>name</name><val xsi:type="xsd:string">we &lt;b&gt; "x"</val></propSet>
      <propSet><name>runtime.host</name><val type="HostSystem" xsi:type="ManagedObjectReference">host-1</val></propSet>
      <propSet><name>runtime.powerState</name><val xsi:type="VirtualMachinePowerState">poweredOn</val></propSet>
      <propSet><name>config.instanceUuid</name><val xsi:type="xsd:string">5000-1</val></propSet>
      <propSet><name>config.hardware.numCPU</name><val xsi:type="xsd:int">4</val></propSet>
      <propSet><name>config.hardware.numCoresPerSocket</name><val xsi:type="xsd:int">2</val></propSet>
      <propSet><name>config.hardware.memoryMB</name><val xsi:type="xsd:int">2048</val></propSet>
      <propSet><name>config.cpuHotAddEnabled</name><val xsi:type="xsd:boolean">true</val></propSet>
      <propSet><name>config.cpuAffinity</name><val xsi:type="VirtualMachineAffinityInfo"><affinitySet>0</affinitySet><affinitySet>1</affinitySet></val></propSet>
      <propSet><name>config.extraConfig["numa.nodeAffinity"]</name><val xsi:type="OptionValue"><key>numa.nodeAffinity</key><value xsi:type="xsd:string">1</value></val></propSet>
      </objects>"#;

    #[test]
    fn a_host_and_its_vm() {
        let body = format!(
            "<RetrievePropertiesExResponse><returnval><token>7</token>{HOST_OBJECT}{VM_OBJECT}</returnval></RetrievePropertiesExResponse>"
        );
        let mut objects = Vec::new();
        assert_eq!(read_objects(&reply(&body), &mut objects).as_deref(), Some("7"), "more are to come");
        let vms = [Settings::of(&objects[1])];
        let config = config(&objects[0], "esx1", &[(&vms[0], &identities(&vms)[0])]).unwrap();
        assert_eq!(config.kernel, "VMware ESXi 7.0.2");
        let t = &config.topology;
        assert_eq!((t.packages().len(), t.cores().len(), t.nodes().len(), t.online().len()), (2, 4, 2, 8));
        assert_eq!(t.nodes()[1].cpus, "4-7".parse().unwrap());
        assert_eq!(t.nodes()[1].memory_bytes, Some(8 << 30));
        let vm = &config.vms[0];
        assert_eq!((vm.name.as_str(), &*vm.id.0, vm.vcpu_count()), ("we <b> \"x\"", "5000-1", 4));
        assert_eq!(vm.guest_topology, Some(GuestTopology { sockets: 2, cores: 2, threads: 1 }));
        assert_eq!(vm.threads[0].affinity, "0-1".parse().unwrap());
        let of_vsphere = vm.vsphere.as_ref().unwrap();
        assert_eq!(
            (of_vsphere.cpu_hot_add, of_vsphere.node_affinity.clone()),
            (Some(true), Some(CpuSet::single(1)))
        );
        assert_eq!(vm.manager, Manager::Vsphere("vm-7".into()));
    }

    /// Simulates a service that leaves out nearly everything.
    #[test]
    fn what_is_left_out_is_not_known() {
        let body = "<R><returnval><objects><obj type=\"HostSystem\">h</obj></objects><objects><obj type=\"VirtualMachine\">v</obj></objects></returnval></R>";
        let mut objects = Vec::new();
        assert_eq!(read_objects(&reply(body), &mut objects), None);
        let vms = [Settings::of(&objects[1])];
        let config = config(&objects[0], "h", &[(&vms[0], &identities(&vms)[0])]).unwrap();
        assert_eq!((config.vms[0].vcpu_count(), config.vms[0].memory_bytes), (0, None));
        assert!(config.kernel.contains("unknown version"));
    }
}
