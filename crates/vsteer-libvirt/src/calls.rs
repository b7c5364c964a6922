//! Which libvirt call answers which request? One function per request of the protocol (see `main.rs`).
//!
//! Errors keep libvirt's own words as their cause; the class comes from its error number
//! (`libvirt/virterror.h`, libvirt 9.0).

use crate::Fault;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use virt::connect::Connect;
use virt::domain::{Domain, MigrateParameters, NUMAParameters, SchedBandwidth, SchedulerInfo};
use virt::error::{Error, ErrorNumber};
use virt::sys;

/// The largest CPU number in a pin; Linux knows no more than 8,192 CPUs on x86.
const CPU_MAX: u32 = 8191;
/// Help if no daemon answers.
const NO_DAEMON: &str = "check the URI, and that libvirtd or virtqemud runs there";

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Request {
    Open { uri: String, write: bool },
    List,
    Schedinfo { uuid: String, persistent: bool },
    Definition { uuid: String },
    Redefine { uuid: String, expect: String, xml: String },
    PinVcpu { uuid: String, vcpu: u32, cpus: Vec<u32>, live: bool, persistent: bool },
    PinEmulator { uuid: String, cpus: Vec<u32>, live: bool, persistent: bool },
    PinIothread { uuid: String, iothread: u32, cpus: Vec<u32>, live: bool, persistent: bool },
    SetSched { uuid: String, params: Params, live: bool, persistent: bool },
    SetNodes { uuid: String, nodes: String, live: bool, persistent: bool },
    Node,
    Migratable { uuid: String },
    Migrate { uuid: String, to: String, xml: String, persist_xml: Option<String>, uri: Option<String> },
}

/// The scheduler parameters of libvirt's QEMU driver, by libvirt's names. Absent: left alone. A quota of -1: none.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Params {
    cpu_shares: Option<u64>,
    vcpu_period: Option<u64>,
    vcpu_quota: Option<i64>,
    emulator_period: Option<u64>,
    emulator_quota: Option<i64>,
    global_period: Option<u64>,
    global_quota: Option<i64>,
    iothread_period: Option<u64>,
    iothread_quota: Option<i64>,
}

/// The state of the conversation: the open connection.
#[derive(Default)]
pub(crate) struct Session {
    connection: Option<Connect>,
}

fn refused(what: impl Into<String>, e: &Error) -> Fault {
    use ErrorNumber as N;
    let (kind, help) = match e.code() {
        N::NoDomain => ("nothing_there", Some("observe again: the VM has stopped")),
        N::AuthFailed | N::AuthCancelled | N::AuthUnavailable | N::OperationDenied | N::AccessDenied => {
            ("no_privilege", Some("run as root, or as a member of the group that owns libvirt's socket"))
        }
        N::NoSupport | N::ConfigUnsupported | N::ArgumentUnsupported | N::OperationUnsupported => {
            ("unsupported", None)
        }
        // A connection that cannot be opened is [`unopened`]; a lost connection says nothing about any VM.
        N::NoConnect => ("failed", Some(NO_DAEMON)),
        N::InvalidArg | N::XmlError | N::XmlDetail => ("bad_input", None),
        _ if e.message().contains("Permission denied") => ("no_privilege", Some("run as root")),
        _ if e.message().contains("Failed to connect socket") => ("failed", Some(NO_DAEMON)),
        _ => ("failed", None),
    };
    let mut fault = Fault::new(kind, what, e.message());
    fault.help = help.map(str::to_owned);
    fault
}

/// The fault of a libvirt that does not answer the first connection.
fn unopened(uri: &str, e: &Error) -> Fault {
    let fault = refused(format!("cannot connect to libvirt at {uri}"), e);
    let kind = if fault.help.as_deref() == Some(NO_DAEMON) { "nothing_there" } else { fault.kind };
    Fault { kind, ..fault }
}

/// A text for C: the bindings would panic on a zero byte.
fn c_text<'a>(what: &str, text: &'a str) -> Result<&'a str, Fault> {
    if text.contains('\0') {
        Err(Fault::new("bad_input", what, "the text holds a zero byte"))
    } else {
        Ok(text)
    }
}

fn flags(live: bool, persistent: bool) -> u32 {
    let mut flags = 0;
    if live {
        flags |= sys::VIR_DOMAIN_AFFECT_LIVE;
    }
    if persistent {
        flags |= sys::VIR_DOMAIN_AFFECT_CONFIG;
    }
    flags
}

/// libvirt's CPU map: bit `n % 8` of byte `n / 8` is CPU n.
fn cpu_map(cpus: &[u32]) -> Result<Vec<u8>, Fault> {
    if cpus.is_empty() {
        return Err(Fault::new("bad_input", "cannot set a pin", "the pin names no CPU"));
    }
    let mut map = Vec::new();
    for cpu in cpus {
        if *cpu > CPU_MAX {
            return Err(Fault::new(
                "bad_input",
                format!("cannot use CPU {cpu}"),
                format!("the largest number is {CPU_MAX}"),
            ));
        }
        let byte = *cpu as usize / 8;
        if map.len() <= byte {
            map.resize(byte + 1, 0u8);
        }
        map[byte] |= 1 << (cpu % 8);
    }
    Ok(map)
}

fn params_value(info: &SchedulerInfo) -> Value {
    let mut all = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(v) = value {
            all.insert(name.to_owned(), v);
        }
    };
    put("cpu_shares", info.cpu_shares.map(Value::from));
    let bandwidths = [
        ("vcpu", &info.vcpu_bw),
        ("emulator", &info.emulator_bw),
        ("global", &info.global_bw),
        ("iothread", &info.iothread_bw),
    ];
    for (name, b) in bandwidths {
        put(&format!("{name}_period"), b.period.map(Value::from));
        put(&format!("{name}_quota"), b.quota.map(Value::from));
    }
    Value::Object(all)
}

impl Session {
    /// Carries out one request.
    pub(crate) fn call(&mut self, request: Request) -> Result<Value, Fault> {
        match request {
            Request::Open { uri, write } => self.open(&uri, write),
            Request::List => self.list(),
            Request::Schedinfo { uuid, persistent } => {
                let info = self.domain(&uuid)?.get_scheduler_parameters_flags(flags(!persistent, persistent));
                info.map(|i| params_value(&i))
                    .map_err(|e| refused(format!("cannot read the scheduler parameters of {uuid}"), &e))
            }
            Request::Definition { uuid } => {
                let domain = self.domain(&uuid)?;
                Ok(json!({ "xml": definition(&domain, &uuid)? }))
            }
            Request::Redefine { uuid, expect, xml } => self.redefine(&uuid, &expect, &xml),
            Request::PinVcpu { uuid, vcpu, cpus, live, persistent } => {
                let (domain, map) = (self.domain(&uuid)?, cpu_map(&cpus)?);
                let done = domain.pin_vcpu_flags(vcpu, &map, flags(live, persistent));
                done.map(|_| Value::Null)
                    .map_err(|e| refused(format!("cannot pin vCPU {vcpu} of {uuid}"), &e))
            }
            Request::PinEmulator { uuid, cpus, live, persistent } => {
                let (domain, map) = (self.domain(&uuid)?, cpu_map(&cpus)?);
                let done = domain.pin_emulator(&map, flags(live, persistent));
                done.map(|_| Value::Null)
                    .map_err(|e| refused(format!("cannot pin the emulator of {uuid}"), &e))
            }
            Request::PinIothread { uuid, iothread, cpus, live, persistent } => {
                let (domain, map) = (self.domain(&uuid)?, cpu_map(&cpus)?);
                pin_iothread(&domain, iothread, map, flags(live, persistent))
                    .map(|()| Value::Null)
                    .map_err(|e| refused(format!("cannot pin I/O thread {iothread} of {uuid}"), &e))
            }
            Request::SetSched { uuid, params: p, live, persistent } => {
                let bandwidth = |period, quota| SchedBandwidth { period, quota };
                let info = SchedulerInfo {
                    cpu_shares: p.cpu_shares,
                    vcpu_bw: bandwidth(p.vcpu_period, p.vcpu_quota),
                    emulator_bw: bandwidth(p.emulator_period, p.emulator_quota),
                    global_bw: bandwidth(p.global_period, p.global_quota),
                    iothread_bw: bandwidth(p.iothread_period, p.iothread_quota),
                    ..SchedulerInfo::default()
                };
                let done = self.domain(&uuid)?.set_scheduler_parameters_flags(&info, flags(live, persistent));
                done.map(|_| Value::Null)
                    .map_err(|e| refused(format!("cannot set the scheduler parameters of {uuid}"), &e))
            }
            Request::Node => self.node(),
            Request::Migratable { uuid } => {
                let flags = sys::VIR_DOMAIN_XML_MIGRATABLE | sys::VIR_DOMAIN_XML_SECURE;
                let xml = self.domain(&uuid)?.get_xml_desc(flags);
                xml.map(|xml| json!({ "xml": xml }))
                    .map_err(|e| refused(format!("cannot describe {uuid}"), &e))
            }
            Request::Migrate { uuid, to, xml, persist_xml, uri } => {
                self.migrate(&uuid, &to, &xml, persist_xml.as_deref(), uri.as_deref())
            }
            Request::SetNodes { uuid, nodes, live, persistent } => {
                let node_set = Some(c_text("a node set", &nodes)?.to_owned());
                let params = NUMAParameters { node_set, mode: None };
                let done = self.domain(&uuid)?.set_numa_parameters(params, flags(live, persistent));
                done.map(|_| Value::Null)
                    .map_err(|e| refused(format!("cannot set the memory nodes of {uuid}"), &e))
            }
        }
    }

    fn open(&mut self, uri: &str, write: bool) -> Result<Value, Fault> {
        let uri = c_text("a connection URI", uri)?;
        if let Some(mut old) = self.connection.take() {
            let _ = old.close();
        }
        let opened = if write { Connect::open(Some(uri)) } else { Connect::open_read_only(Some(uri)) };
        let connection = opened.map_err(|e| unopened(uri, &e))?;
        let about = json!({
            "uri": connection.get_uri().unwrap_or_else(|_| uri.to_owned()),
            "driver": connection.get_type().ok(),
            "libvirt": connection.get_lib_version().ok(),
            "hostname": connection.get_hostname().ok(),
        });
        self.connection = Some(connection);
        Ok(about)
    }

    fn connection(&self) -> Result<&Connect, Fault> {
        self.connection.as_ref().ok_or_else(|| {
            Fault::new("bad_input", "cannot serve the request", "no connection is open: send open first")
        })
    }

    fn domain(&self, uuid: &str) -> Result<Domain, Fault> {
        let uuid = c_text("a UUID", uuid)?;
        Domain::lookup_by_uuid_string(self.connection()?, uuid)
            .map_err(|e| refused(format!("cannot look up the VM {uuid}"), &e))
    }

    fn list(&self) -> Result<Value, Fault> {
        let active = self
            .connection()?
            .list_all_domains(sys::VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            .map_err(|e| refused("cannot list the VMs", &e))?;
        let (mut domains, mut undescribed) = (Vec::new(), Vec::new());
        for domain in &active {
            match described(domain) {
                Ok(value) => domains.push(value),
                // Leave out a VM that stops during the description.
                Err(_) if has_stopped(domain) => {}
                Err(e) => {
                    let uuid = domain.get_uuid_string().ok();
                    undescribed.push(json!({ "uuid": uuid, "cause": e.message() }));
                }
            }
        }
        Ok(json!({ "domains": domains, "undescribed": undescribed }))
    }

    fn node(&self) -> Result<Value, Fault> {
        let connection = self.connection()?;
        let info = connection.get_node_info().map_err(|e| refused("cannot ask for the host's size", &e))?;
        // Offline pCPUs have no times.
        let of = |cpu: u32| node_cpu(connection, cpu).ok().map(|(idle, all)| json!([cpu, idle, all]));
        let most = info.nodes * info.sockets * info.cores * info.threads;
        let cpus: Vec<Value> = (0..most.max(info.cpus)).filter_map(of).collect();
        Ok(json!({ "cpus": cpus, "free_bytes": connection.get_free_memory().ok() }))
    }

    /// Moves a running VM, by both connections (no trust between the daemons is needed). libvirt stops it where this
    /// one ends first.
    fn migrate(
        &self,
        uuid: &str,
        to: &str,
        xml: &str,
        persist_xml: Option<&str>,
        uri: Option<&str>,
    ) -> Result<Value, Fault> {
        let what = || format!("cannot move {uuid} to {to}");
        let to = c_text("a connection URI", to)?;
        for text in [Some(xml), persist_xml].into_iter().flatten() {
            // Another UUID in the text would create another VM.
            if !c_text("a description", text)?.contains(&format!("<uuid>{uuid}</uuid>")) {
                return Err(Fault::new("bad_input", what(), "the description belongs to another VM"));
            }
        }
        let domain = self.domain(uuid)?;
        let there = Connect::open(Some(to)).map_err(|e| unopened(to, &e))?;
        let mut flags = sys::VIR_MIGRATE_LIVE;
        if domain.is_persistent().map_err(|e| refused(what(), &e))? {
            flags |= sys::VIR_MIGRATE_PERSIST_DEST | sys::VIR_MIGRATE_UNDEFINE_SOURCE;
        }
        let parameters = MigrateParameters {
            dest_xml: Some(xml.to_owned()),
            persist_xml: persist_xml.map(str::to_owned),
            uri: uri.map(|u| c_text("a URI", u).map(str::to_owned)).transpose()?,
            ..MigrateParameters::default()
        };
        domain.migrate3(&there, parameters, flags).map(|_| Value::Null).map_err(|e| refused(what(), &e))
    }

    fn redefine(&self, uuid: &str, expect: &str, xml: &str) -> Result<Value, Fault> {
        let what = || format!("cannot change the definition of {uuid}");
        let xml = c_text("a definition", xml)?;
        // Another UUID in the text would define another VM.
        if !xml.contains(&format!("<uuid>{uuid}</uuid>")) {
            return Err(Fault::new("bad_input", what(), "the new definition belongs to another VM"));
        }
        let domain = self.domain(uuid)?;
        if definition(&domain, uuid)? != expect {
            return Err(Fault::new("changed", what(), "another program changed the definition meanwhile")
                .help("make a new plan from the present definition"));
        }
        Domain::define_xml(self.connection()?, xml).map(|_| Value::Null).map_err(|e| refused(what(), &e))
    }
}

/// The persistent definition, including the secrets, which a new definition without them would lose.
fn definition(domain: &Domain, uuid: &str) -> Result<String, Fault> {
    let what = || format!("cannot read the definition of {uuid}");
    if !domain.is_persistent().map_err(|e| refused(what(), &e))? {
        return Err(Fault::new(
            "unsupported",
            what(),
            "the VM is transient: libvirt keeps no definition of it",
        )
        .help("change only the running VM (live)"));
    }
    let flags = sys::VIR_DOMAIN_XML_INACTIVE | sys::VIR_DOMAIN_XML_SECURE;
    domain.get_xml_desc(flags).map_err(|e| refused(what(), &e))
}

/// Does libvirt say that the VM is gone? Only then may a VM be missing from the running ones.
fn has_stopped(domain: &Domain) -> bool {
    match domain.is_active() {
        Ok(active) => !active,
        Err(e) => e.code() == ErrorNumber::NoDomain,
    }
}

fn described(domain: &Domain) -> Result<Value, Error> {
    let persistent = domain.is_persistent()?;
    let inactive = persistent.then(|| domain.get_xml_desc(sys::VIR_DOMAIN_XML_INACTIVE)).transpose()?;
    // libvirt refuses if QEMU has no cgroup of the cpu controller (qemu:///session): null.
    let sched = domain.get_scheduler_parameters_flags(sys::VIR_DOMAIN_AFFECT_LIVE).ok();
    Ok(json!({
        "uuid": domain.get_uuid_string()?,
        "name": domain.get_name()?,
        "id": domain.get_id(),
        "state": state_name(domain.get_state()?.0),
        "persistent": persistent,
        "xml": domain.get_xml_desc(0)?,
        "xml_inactive": inactive,
        "sched": sched.map(|s| params_value(&s)),
    }))
}

fn state_name(state: sys::virDomainState) -> &'static str {
    match state {
        sys::VIR_DOMAIN_RUNNING => "running",
        sys::VIR_DOMAIN_BLOCKED => "blocked",
        sys::VIR_DOMAIN_PAUSED => "paused",
        sys::VIR_DOMAIN_SHUTDOWN => "shutting_down",
        sys::VIR_DOMAIN_SHUTOFF => "shut_off",
        sys::VIR_DOMAIN_CRASHED => "crashed",
        sys::VIR_DOMAIN_PMSUSPENDED => "suspended",
        _ => "unknown",
    }
}

/// Idle time and total time of a pCPU, ns since the host's start. The bindings lack this call.
#[allow(unsafe_code)]
fn node_cpu(connection: &Connect, cpu: u32) -> Result<(u64, u64), Error> {
    let cpu = i32::try_from(cpu).expect("libvirt counts pCPUs by an int");
    let mut count = 0;
    // SAFETY: without a table libvirt writes the number of fields alone; the connection lives.
    let asked =
        unsafe { sys::virNodeGetCPUStats(connection.as_ptr(), cpu, std::ptr::null_mut(), &mut count, 0) };
    if asked == -1 || count <= 0 {
        return Err(Error::last_error());
    }
    let blank = sys::virNodeCPUStats { field: [0; sys::VIR_NODE_CPU_STATS_FIELD_LENGTH as usize], value: 0 };
    let mut stats = vec![blank; count as usize];
    // SAFETY: the table has `count` entries, and libvirt gets that number.
    let asked =
        unsafe { sys::virNodeGetCPUStats(connection.as_ptr(), cpu, stats.as_mut_ptr(), &mut count, 0) };
    if asked == -1 {
        return Err(Error::last_error());
    }
    stats.truncate(usize::try_from(count).unwrap_or(0));
    let name = |s: &sys::virNodeCPUStats| -> String {
        s.field.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
    };
    // "utilization" is not a time. Waiting for a disk counts as idle to a VM.
    let times: Vec<(String, u64)> =
        stats.iter().map(|s| (name(s), s.value)).filter(|(n, _)| n != "utilization").collect();
    let idle = times.iter().filter(|(n, _)| n == "idle" || n == "iowait").map(|(_, ns)| ns).sum();
    Ok((idle, times.iter().map(|(_, ns)| ns).sum()))
}

#[allow(unsafe_code)]
fn pin_iothread(domain: &Domain, iothread: u32, mut map: Vec<u8>, flags: u32) -> Result<(), Error> {
    let length = i32::try_from(map.len()).expect("a map has at most 1,024 bytes");
    // SAFETY: the domain's pointer is valid while `domain` lives; libvirt reads `length` bytes of `map` and keeps none.
    let done =
        unsafe { sys::virDomainPinIOThread(domain.as_ptr(), iothread, map.as_mut_ptr(), length, flags) };
    if done == -1 { Err(Error::last_error()) } else { Ok(()) }
}
