//! Parses the command line of a QEMU process: name, UUID, memory, topology, I/O threads and monitors of its
//! VM.
//!
//! QEMU's options are lists of `key=value` between commas (`,,` is a comma). Some have an implied first key,
//! some are JSON. vsteer skips what it does not understand, because none of this is needed to measure the VM.
//!
//! Source: `qemu-options.hx` and `util/keyval.c` (QEMU 7.2); `src/qemu/qemu_command.c` (libvirt 9.0).
//!
//! `tests/qemu_lines.txt` holds command lines with the answers of a real QEMU. Options in a file: [`super::readconfig`].

use super::{guest_memory, memory};
use serde_json::Value;
use vsteer_core::nouns::{Accel, Fixed, GuestNode, GuestTopology};
use vsteer_core::{CpuSet, smp};

/// The VM's properties from a command line. Another VMM's (see [`super::vmms`]) gives hardly more than a
/// name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// `-name`.
    pub name: Option<String>,
    /// `-uuid`.
    pub uuid: Option<String>,
    /// `-id`: Proxmox's number of the VM.
    pub proxmox_id: Option<u32>,
    /// `-pidfile`.
    pub pid_file: Option<String>,
    /// How the VM's instructions run, if the command line says so.
    pub accel: Option<Accel>,
    /// What `-smp` and `-machine` make of the vCPUs, or why that is not known; `None` if this is not a QEMU.
    pub topology: Option<Result<GuestTopology, String>>,
    /// The memory in bytes, or why that is not known; `None` if this is not a QEMU and does not say it.
    pub memory: Option<Result<u64, String>>,
    /// The nodes to which memory backends are bound.
    pub memory_nodes: Option<CpuSet>,
    /// The NUMA nodes that the guest is shown.
    pub guest_nodes: Vec<GuestNode>,
    /// What keeps memory and devices where they are; the devices' nodes are not on the line.
    pub fixed: Vec<Fixed>,
    /// The ids of `-object iothread`, in order.
    pub iothreads: Vec<String>,
    /// UNIX sockets on which QEMU listens for QMP.
    pub qmp_sockets: Vec<String>,
    /// A libvirt started the VM: the command line holds that libvirt's secret and monitor.
    pub of_libvirt: bool,
    /// The program's file name, if it is not QEMU.
    pub program: Option<String>,
    /// `domain-ID-…` of the folder in which libvirt keeps its files: libvirt's number of the running VM.
    pub libvirt_id: Option<u32>,
}

/// Parses the arguments; the first one is the program. `None` if this is not a QEMU that runs a VM.
pub fn parse(arguments: &[String]) -> Option<CommandLine> {
    qemu(arguments)?;
    let mut line = CommandLine::default();
    let (mut sockets, mut control) = (Vec::new(), Vec::new());
    let (mut counts, mut machine, mut unread) = (Vec::new(), String::new(), None);
    let (mut given, mut numa) = (memory::Given::default(), guest_memory::Given::default());
    for (option, value) in options(&arguments[1..]) {
        if is_libvirts(value) {
            line.of_libvirt = true;
            line.libvirt_id = libvirt_id(value);
        }
        match option {
            "name" => line.name = get(&pairs(value, "guest"), "guest").map(str::to_owned),
            "uuid" => line.uuid = is_uuid(value).then(|| value.to_ascii_lowercase()),
            "id" => line.proxmox_id = value.parse().ok(),
            "pidfile" => line.pid_file = Some(value.to_owned()),
            "enable-kvm" => line.accel = Some(Accel::Kvm),
            "accel" => line.accel = line.accel.or(accel(get(&pairs(value, "accel"), "accel"))),
            "machine" | "M" => {
                let pairs = pairs(value, "type");
                if get(&pairs, "type") == Some("none") {
                    return None; // libvirt only asks QEMU for its capabilities.
                }
                line.accel = line.accel.or(accel(get(&pairs, "accel")));
                machine = get(&pairs, "type").map_or(machine, str::to_owned);
                let memory = |key: &str, old| get(&pairs, key).map(str::to_owned).or(old);
                given.of_machine = memory("memory.size", given.of_machine);
                given.backend = memory("memory-backend", given.backend);
                let count = |(key, n): (String, String)| match key.strip_prefix("smp.") {
                    Some(count) => Some((count.to_owned(), n)),
                    None => (key == "smp").then_some((key, n)), // Not an option of QEMU's.
                };
                counts.extend(pairs.into_iter().filter_map(count));
            }
            "smp" => counts.extend(pairs(value, "cpus")),
            "m" => given.options.extend(pairs(value, "size")),
            "readconfig" => unread = Some(value),
            "object" => object(&mut line, &mut given, &mut numa, value),
            "numa" => numa.numa(&pairs(value, "type")),
            "mem-path" => numa.path(value),
            "overcommit" | "realtime" => numa.locks(option, &pairs(value, "")),
            "device" => numa.device(&properties(value, "driver")),
            "qmp" | "qmp-pretty" => sockets.extend(listening_socket(value)),
            "chardev" => control.extend(chardev_socket(value)),
            "mon" => {
                let pairs = pairs(value, "chardev");
                if get(&pairs, "mode") == Some("control") {
                    let id = get(&pairs, "chardev").unwrap_or_default().to_owned();
                    line.qmp_sockets.push(id); // For now, the name of the chardev.
                }
            }
            "version" | "help" | "h" => return None,
            _ => {}
        }
    }
    (line.guest_nodes, line.fixed) = numa.read();
    let named = std::mem::take(&mut line.qmp_sockets);
    sockets.extend(control.into_iter().filter(|(id, _)| named.contains(id)).map(|(_, path)| path));
    line.qmp_sockets = sockets;
    let unread = unread.map(|file: &str| {
        format!("vsteer did not read its options in {:?}", file.chars().take(200).collect::<String>())
    });
    line.memory = Some(given.bytes(&machine).map_err(|why| unread.clone().unwrap_or(why)));
    line.topology = Some(unread.map_or_else(|| smp::topology(&counts, &machine), Err));
    Some(line)
}

/// The program's file name, if it is a QEMU that can run a VM.
pub fn qemu(arguments: &[String]) -> Option<&str> {
    let program = arguments.first()?.rsplit('/').next()?;
    // A script with the program's own name may start it: `.qemu-kvm-wrapped` (NixOS), `qemu-system-x86_64.real`.
    let name = program.strip_prefix('.').and_then(|name| name.strip_suffix("-wrapped")).unwrap_or(program);
    let name = name.strip_suffix(".real").unwrap_or(name);
    let is_qemu = name.starts_with("qemu-system-")
        || matches!(name, "qemu-kvm" | "kvm" | "qemu" | "kvm-spice" | "qemu-kvm-spice");
    is_qemu.then_some(program)
}

/// Options without their dashes, each with its value. The value is empty for an option without one.
pub fn options(words: &[String]) -> Vec<(&str, &str)> {
    let mut words = words.iter().peekable();
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        // After an option without a value, the next word is the next option.
        let value = if is_flag(option) { None } else { words.next() };
        all.push((option, value.map_or("", String::as_str)));
    }
    all
}

/// Is this the value of the `-object` that holds libvirt's secret for this VM?
pub fn is_libvirts(value: &str) -> bool {
    value.contains("/libvirt/qemu/") && value.contains("/master-key.aes")
}

/// Is this an option without a value? Those of all versions since 1.0, because an option that is taken for one with a
/// value hides the next. Source: `qemu-options.hx`, the options without `HAS_ARG` (QEMU 1.0 to 10.1).
fn is_flag(option: &str) -> bool {
    matches!(
        option,
        "enable-kvm"
            | "S"
            | "s"
            | "nographic"
            | "nodefaults"
            | "no-user-config"
            | "no-shutdown"
            | "no-reboot"
            | "no-acpi"
            | "no-hpet"
            | "no-fd-bootchk"
            | "daemonize"
            | "snapshot"
            | "singlestep"
            | "usb"
            | "full-screen"
            | "xen-attach"
            | "xen-domid-restrict"
            | "only-migratable"
            | "win2k-hack"
            | "preconfig"
            | "portrait"
            | "enable-sync-profile"
            | "semihosting"
            | "mem-prealloc"
            | "enable-fips"
            | "curses"
            | "sdl"
            | "no-frame"
            | "alt-grab"
            | "ctrl-grab"
            | "no-quit"
            | "show-cursor"
            | "old-param"
            | "one-insn-per-tick"
            | "no-kvm"
            | "no-kvm-irqchip"
            | "no-kvm-pit"
            | "no-kvm-pit-reinjection"
            | "rtc-td-hack"
            | "tdf"
            | "nodefconfig"
            | "async-teardown"
            | "perfmap"
            | "jitdump"
            | "xen-create"
            | "localtime"
            | "version"
            | "help"
            | "h"
    )
}

/// `key=value` between commas; `,,` is a comma. The first word without `=` belongs to `implied`.
pub fn pairs(text: &str, implied: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            ',' if signs.peek() == Some(&',') => {
                signs.next();
                words.last_mut().expect("never empty").push(',');
            }
            ',' => words.push(String::new()),
            _ => words.last_mut().expect("never empty").push(sign),
        }
    }
    let pair = |(i, word): (usize, String)| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None if i == 0 && !word.is_empty() => (implied.to_owned(), word),
        None => (word, "on".to_owned()),
    };
    // A comma at the end says nothing.
    words.pop_if(|word| word.is_empty());
    words.into_iter().enumerate().map(pair).collect()
}

/// The last value of that key, because it overrides earlier ones.
pub fn get<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
}

fn accel(name: Option<&str>) -> Option<Accel> {
    // `kvm:tcg` means the first accelerator that works. The threads' names show which one it was.
    match name? {
        "kvm" => Some(Accel::Kvm),
        "tcg" => Some(Accel::Tcg),
        _ => None,
    }
}

/// The properties of an object or a device, from JSON too. A list's members stand between commas.
fn properties(value: &str, implied: &str) -> Vec<(String, String)> {
    if !value.starts_with('{') {
        return pairs(value, implied);
    }
    fn text(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(n) => Some(n.to_string()),
            Value::Bool(on) => Some(if *on { "on" } else { "off" }.to_owned()),
            Value::Array(all) => {
                let members = all.iter().filter(|member| !member.is_array());
                Some(members.filter_map(text).collect::<Vec<_>>().join(","))
            }
            _ => None,
        }
    }
    let Ok(Value::Object(all)) = serde_json::from_str(value) else { return Vec::new() };
    all.iter().filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}

fn object(line: &mut CommandLine, given: &mut memory::Given, numa: &mut guest_memory::Given, value: &str) {
    let pairs = properties(value, "qom-type");
    let text = |key: &str| get(&pairs, key).unwrap_or_default().to_owned();
    let (kind, id) = (text("qom-type"), text("id"));
    if kind == "iothread" {
        line.iothreads.push(id);
        return;
    }
    if !kind.starts_with("memory-backend-") {
        return;
    }
    numa.backend(&pairs);
    given.backends.extend(get(&pairs, "size").map(|size| (id, size.to_owned())));
    if let Some(nodes) = guest_memory::host_nodes(&pairs).filter(|_| get(&pairs, "policy") == Some("bind")) {
        line.memory_nodes = Some(line.memory_nodes.take().unwrap_or_default().union(&nodes));
    }
}

/// The path of `unix:PATH,server=on`; `None` if QEMU is not the listener.
fn listening_socket(value: &str) -> Option<String> {
    let pairs = pairs(value.strip_prefix("unix:")?, "path");
    is_server(&pairs).then(|| get(&pairs, "path").map(str::to_owned))?
}

/// Name and path of `-chardev socket,id=X,path=Y,server=on`.
fn chardev_socket(value: &str) -> Option<(String, String)> {
    let pairs = pairs(value, "backend");
    let found = get(&pairs, "backend") == Some("socket") && is_server(&pairs);
    found.then(|| Some((get(&pairs, "id")?.to_owned(), get(&pairs, "path")?.to_owned())))?
}

fn is_server(pairs: &[(String, String)]) -> bool {
    matches!(get(pairs, "server"), Some("on" | "yes" | "true"))
}

fn libvirt_id(text: &str) -> Option<u32> {
    let after = text.split("/domain-").nth(1)?;
    after.split('-').next()?.parse().ok()
}

/// The form that QEMU demands. vsteer ignores any other text, which could copy the id of another process.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|g| g.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|g| g.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> Option<CommandLine> {
        parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn libvirts_command_line() {
        let l = line(&[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=it's \"x\",,y,debug-threads=on",
            "-S",
            "-object",
            r#"{"qom-type":"secret","id":"masterKey0","file":"/var/lib/libvirt/qemu/domain-12-its/master-key.aes"}"#,
            "-machine",
            "pc-q35-7.2,usb=off",
            "-accel",
            "tcg",
            "-m",
            "size=2097152k,slots=2,maxmem=4194304k",
            "-object",
            r#"{"qom-type":"memory-backend-ram","id":"m","size":1,"host-nodes":[0,2],"policy":"bind"}"#,
            "-smp",
            "8,sockets=2,dies=2,cores=1,threads=2",
            "-object",
            r#"{"qom-type":"iothread","id":"iothread1"}"#,
            "-uuid",
            "63715D0B-76a4-4a2a-8db6-9bda3af71014",
            "-chardev",
            "socket,id=charmonitor,fd=27,server=on,wait=off",
            "-mon",
            "chardev=charmonitor,id=monitor,mode=control",
        ])
        .unwrap();
        assert_eq!(l.name.as_deref(), Some("it's \"x\",y"));
        assert_eq!(l.uuid.as_deref(), Some("63715d0b-76a4-4a2a-8db6-9bda3af71014"));
        assert_eq!((l.of_libvirt, l.libvirt_id, l.accel), (true, Some(12), Some(Accel::Tcg)));
        assert_eq!(l.topology, Some(Ok(GuestTopology { sockets: 2, cores: 2, threads: 2 })));
        assert_eq!((l.memory, l.iothreads.len()), (Some(Ok(2 << 30)), 1));
        assert_eq!(l.memory_nodes, Some("0,2".parse().unwrap()));
        assert!(l.qmp_sockets.is_empty());
    }

    #[test]
    fn bare_and_proxmox_command_lines() {
        let l = line(&[
            "qemu-system-x86_64",
            "-enable-kvm",
            "-smp",
            "4",
            "-m",
            "4G",
            "-qmp",
            "unix:/tmp/q,server,nowait",
            "-chardev",
            "socket,id=c,path=/tmp/m,server=on,wait=off",
            "-mon",
            "chardev=c,mode=control",
            "-qmp",
            "unix:/tmp/elsewhere",
            "-object",
            "iothread,id=io1",
            "-pidfile",
            "/run/x.pid",
        ]);
        let l = l.unwrap();
        assert_eq!((l.accel, l.memory), (Some(Accel::Kvm), Some(Ok(4 << 30))));
        assert!(l.topology.unwrap().is_err(), "no machine type");
        assert_eq!(l.qmp_sockets, ["/tmp/q", "/tmp/m"]);
        assert_eq!((l.iothreads, l.of_libvirt), (vec!["io1".to_owned()], false));
        let l = line(&[
            "/usr/bin/kvm",
            "-id",
            "100",
            "-name",
            "web,debug-threads=on",
            "-no-shutdown",
            "-m",
            "512",
        ]);
        let l = l.unwrap();
        assert_eq!(
            (l.proxmox_id, l.name.as_deref(), l.memory),
            (Some(100), Some("web"), Some(Ok(512 << 20)))
        );
    }

    #[test]
    fn options_without_a_value_hide_nothing() {
        let l = line(&[
            "qemu-system-x86_64",
            "-mem-prealloc",
            "-smp",
            "4,sockets=1,cores=2,threads=2",
            "-m",
            "1.5G",
        ])
        .unwrap();
        assert_eq!(l.topology, Some(Ok(GuestTopology { sockets: 1, cores: 2, threads: 2 })));
        assert_eq!(l.memory, Some(Ok(3 << 29)));
        let words = "kvm -machine q35,smp.cpus=4,smp.sockets=1,smp.cores=2,smp.threads=2 -smp 4";
        let l = line(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(l.topology, Some(Ok(GuestTopology { sockets: 1, cores: 2, threads: 2 })));
    }

    #[test]
    fn what_is_no_uuid_is_no_id() {
        let of = |text: &str| line(&["qemu-system-x86_64", "-uuid", text]).unwrap().uuid;
        for odd in [
            "qemu:70:1",
            "kvm:70:1",
            "",
            "63715d0b76a44a2a8db69bda3af71014",
            "63715d0b-76a4-4a2a-8db6-9bda3af7101g",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
        assert!(of("63715d0b-76a4-4a2a-8db6-9bda3af71014").is_some());
    }

    #[test]
    fn what_runs_no_vm() {
        assert_eq!(line(&["/usr/bin/qemu-system-x86_64", "-S", "-machine", "none,accel=kvm:tcg"]), None);
        assert_eq!(line(&["qemu-system-x86_64", "-version"]), None);
        assert_eq!(line(&["gdb", "qemu-system-x86_64"]), None);
        assert_eq!(line(&["qemu-img", "-m", "x"]), None);
        for name in ["kvm-spice", "/usr/bin/kvm.real", "/nix/store/x/bin/.qemu-system-x86_64-wrapped"] {
            assert!(line(&[name, "-m", "1"]).is_some(), "{name}");
        }
        assert_eq!(line(&[".kvm", "-m", "1"]), None);
        assert_eq!(line(&[]), None);
    }

    proptest! {
        #[test]
        fn any_words_are_read(words in proptest::collection::vec("\\PC{0,30}", 0..8), option in "-(m|smp|name|object|qmp|mon|chardev|machine|accel)") {
            let mut all = vec!["kvm".to_owned(), option];
            all.extend(words);
            let _ = parse(&all);
        }

        #[test]
        fn names_with_commas_survive(name in "[a-z,= ]{1,12}") {
            let escaped = format!("guest={},debug-threads=on", name.replace(',', ",,"));
            let l = line(&["kvm", "-name", &escaped]).unwrap();
            prop_assert_eq!(l.name, Some(name));
        }
    }
}
