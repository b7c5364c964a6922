//! Batch files of esxtop's: what is read out of them, whatever is wrong with them, and that what is written reads the
//! same.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use vsteer_core::CpuSet;
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::*;
use vsteer_core::topology::{Parts, Topology};
use vsteer_record::esxtop::beside::Beside;
use vsteer_record::esxtop::{Input, Reader, write};

fn quoted(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
    cells.join(",") + "\r\n"
}

/// A batch file: columns by name with one value each, the same in every row, at these times.
fn file(columns: &[(String, &str)], times: &[&str]) -> String {
    let names = columns.iter().map(|(name, _)| format!("\\\\esx.example\\{name}"));
    let mut text =
        quoted(&std::iter::once("(PDH-CSV 4.0) (UTC)(0)".to_owned()).chain(names).collect::<Vec<_>>());
    for time in times {
        let values = columns.iter().map(|(_, value)| (*value).to_owned());
        text += &quoted(&std::iter::once((*time).to_owned()).chain(values).collect::<Vec<_>>());
    }
    text
}

const TIMES: [&str; 4] =
    ["11/24/2026 08:00:00", "11/24/2026 08:00:05", "11/24/2026 08:00:10", "11/24/2026 08:00:15"];

/// A VM of two vCPUs among seven worlds, and what belongs to nobody's VM.
fn columns(gid: u64, name: &str) -> Vec<(String, &'static str)> {
    let group = [
        ("Members", "7"),
        ("% Used", "85.10"),
        ("% Run", "80.00"),
        ("% System", "6.00"),
        ("% Wait", "590.00"),
        ("% Ready", "25.00"),
        ("% Overlap", "0.90"),
        ("% CoStop", "5.00"),
        ("% Max Limited", "4.00"),
    ];
    let vcpu = [
        ("% Used", "40.00"),
        ("% Run", "38.00"),
        ("% System", "2.50"),
        ("% Wait", "50.00"),
        ("% Ready", "10.00"),
        ("% Overlap", "0.50"),
        ("% CoStop", "2.00"),
        ("% Max Limited", "1.50"),
        ("Switches/sec", "250.00"),
    ];
    let mut all: Vec<(String, &str)> =
        group.iter().map(|(c, v)| (format!("Group Cpu({gid}:{name})\\{c}"), *v)).collect();
    for i in 0..2 {
        all.extend(
            vcpu.iter()
                .map(|(c, v)| (format!("Vcpu({gid}:{name}:{}:vmx-vcpu-{i}:{name})\\{c}", 10 * gid + i), *v)),
        );
    }
    all.push((format!("Vcpu({gid}:{name}:{}:vmx)\\% Run", 10 * gid + 9), "4.00"));
    all.push((format!("Group Memory({gid}:{name})\\Memory Size MBytes"), "2048.00"));
    all.push((format!("Group Memory({gid}:{name})\\Numa % Local"), "87.50"));
    all
}

fn host_columns() -> Vec<(String, &'static str)> {
    let mut all = vec![
        ("Memory\\Free MBytes".to_owned(), "1000"),
        ("Group Cpu(1:idle)\\% Run".to_owned(), "300.00"),
        ("Group Cpu(5:hostd.2099123)\\% Run".to_owned(), "3.00"),
        ("Vcpu(1:idle:1024:idle0)\\% Run".to_owned(), "80.00"),
    ];
    all.extend((0..4).map(|i| (format!("Physical Cpu({i})\\% Util Time"), "25.00")));
    all.push(("Physical Cpu(_Total)\\% Util Time".to_owned(), "25.00"));
    all
}

struct Read {
    config: HostConfig,
    collector: Collector,
    batches: Vec<Batch>,
    notes: Vec<String>,
}

fn read_with(text: &[u8], beside: &str) -> Result<Read, vsteer_core::Fault> {
    let input = Input::of(Cursor::new(text.to_vec())).unwrap();
    let mut reader = Reader::of(input, "file".to_owned(), Beside::parse(beside)?)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.sample()? {
        batches.push(batch);
    }
    Ok(Read { config: reader.config()?, collector: reader.collector(), batches, notes: reader.notes() })
}

fn read(text: &[u8]) -> Read {
    read_with(text, "").unwrap()
}

fn model_of(r: &Read) -> HostModel {
    model::derive(&r.config, &r.collector, &r.batches).unwrap()
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 1e-6)
}

/// Ready is %RDY less %MLMTD, co-stop stands by itself, used is what ESXi says, and a group's values, which are of all
/// worlds, are not its vCPUs'.
#[test]
fn groups_and_vcpus_are_told_apart() {
    let mut all = host_columns();
    all.extend(columns(41, "web"));
    let r = read(file(&all, &TIMES).as_bytes());
    let m = model_of(&r);
    assert_eq!(m.vms.len(), 1, "idle and hostd are no VMs");
    let vm = &m.vms[0];
    assert_eq!((vm.name.as_str(), vm.worlds.unwrap().count), ("web", Some(7)));
    assert!(near(vm.group.run, 0.80) && near(vm.group.ready, 0.21) && near(vm.group.limited, 0.04));
    assert!(near(vm.group.wait, 0.25) && near(vm.group.costop, 0.05) && near(vm.group.used(), 0.851));
    assert!(near(vm.vcpus.run, 0.76) && near(vm.vcpus.ready, 0.17) && near(vm.vcpus.costop, 0.04));
    assert_eq!(
        vm.threads.iter().map(|t| t.role).collect::<Vec<_>>(),
        [Role::Vcpu(0), Role::Vcpu(1), Role::Emulator]
    );
    let vcpu = &vm.threads[0];
    assert!(near(vcpu.shares.residual(), 0.0), "{:?}", vcpu.shares.residual());
    assert!(near(vcpu.shares.system, 0.025) && near(vcpu.switches_per_s, 250.0));
    assert!(near(vm.memory_local, 0.875));
    assert_eq!(r.config.vms[0].memory_bytes, Some(2 << 30));
    assert_eq!((m.pcpus.len(), r.config.hostname.as_str()), (4, "esx.example"));
    assert!((m.pcpus[0].busy - 0.25).abs() < 1e-9);
    assert_eq!(m.window_ns, 15_000_000_000, "the first row says when counting begins");
}

/// A counter that the file has not is not measured, and says why; it is never 0.
#[test]
fn a_missing_counter_is_missing() {
    let all: Vec<_> = columns(41, "web")
        .into_iter()
        .filter(|(name, _)| !name.ends_with("CoStop") && !name.ends_with("Max Limited"))
        .collect();
    let r = read(file(&all, &TIMES).as_bytes());
    let vm = &model_of(&r).vms[0];
    assert_eq!((vm.vcpus.costop, vm.vcpus.ready, vm.vcpus.limited), (None, None, None));
    assert!(near(vm.vcpus.wait, 0.20), "ready and limited together are there");
    for what in ["costop_ns", "ready_ns", "limited_ns", "lag_ns", "blame"] {
        assert!(r.collector.missing.contains_key(what), "{what}");
    }
    assert!(r.collector.missing["ready_ns"].contains("% Max Limited"));
}

/// Two VMs of one name are two, told apart by their groups' numbers.
#[test]
fn two_of_one_name() {
    let all: Vec<_> = [columns(41, "web"), columns(42, "web"), columns(43, "db")].concat();
    let r = read(file(&all, &TIMES).as_bytes());
    let ids: Vec<&str> = r.config.vms.iter().map(|v| &*v.id.0).collect();
    assert_eq!(ids, ["db", "web (gid 41)", "web (gid 42)"]);
    assert!(model_of(&r).vms.iter().all(|vm| near(vm.vcpus.run, 0.76)));
}

/// Without -a there are groups alone. What is a VM is then guessed, or said beside the file.
#[test]
fn groups_alone() {
    let all: Vec<_> = host_columns()
        .into_iter()
        .chain(columns(41, "web"))
        .chain([("Group Cpu(9:odd.7)\\% Run".to_owned(), "1.00")])
        .filter(|(name, _)| !name.starts_with("Vcpu"))
        .collect();
    let text = file(&all, &TIMES);
    let r = read(text.as_bytes());
    let m = model_of(&r);
    assert_eq!(m.vms.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["odd.7", "web"]);
    assert_eq!((m.vms[1].vcpus.run, m.vms[1].per_vcpu(|s| s.run)), (None, None), "not 0: nobody knows");
    assert!(near(m.vms[1].group.ready, 0.21));
    let dropped = |n: &String| n.contains("groups only") && n.contains("ESXi's own: idle, hostd.2099123");
    assert!(r.notes.iter().any(dropped), "{:?}", r.notes);
    assert!(
        r.notes.iter().any(|n| n.contains("takes these groups for VMs") && n.contains("odd.7")),
        "{:?}",
        r.notes
    );
    let said = "[[vm]]\nname = \"odd.7\"\nvcpus = 3\nhome_nodes = [1]\n";
    let r = read_with(text.as_bytes(), said).unwrap();
    assert_eq!(r.config.vms.len(), 1);
    assert_eq!((r.config.vms[0].name.as_str(), r.config.vms[0].vcpu_count()), ("odd.7", 3));
}

/// One VM was expanded and one was not: both are VMs, and of one no vCPU is known.
#[test]
fn a_group_that_was_not_expanded() {
    let closed = columns(42, "db").into_iter().filter(|(name, _)| !name.starts_with("Vcpu"));
    let all: Vec<_> = host_columns().into_iter().chain(columns(41, "web")).chain(closed).collect();
    let m = model_of(&read(file(&all, &TIMES).as_bytes()));
    let of = |name: &str| m.vms.iter().find(|v| v.name == name).unwrap();
    assert_eq!(m.vms.len(), 2);
    assert!(
        near(of("web").vcpus.run, 0.76) && of("db").vcpus.run.is_none() && near(of("db").group.run, 0.80)
    );
}

#[test]
fn what_lies_beside_describes_the_host() {
    let mut all = host_columns();
    all.extend(columns(41, "web"));
    let text = file(&all, &TIMES);
    let said = "esxi = \"7.0.2\"\nsockets = 2\ncores_per_socket = 2\nmemory_gib = 8\n[[vm]]\nname = \"web\"\nhome_nodes = [1]\n";
    let r = read_with(text.as_bytes(), said).unwrap();
    let nodes = r.config.topology.nodes();
    assert_eq!((nodes.len(), nodes[1].memory_bytes), (2, Some(4 << 30)));
    assert_eq!(nodes[1].cpus, "2-3".parse().unwrap());
    assert_eq!(r.config.kernel, "VMware ESXi 7.0.2");
    assert_eq!(r.config.vms[0].vsphere.as_ref().unwrap().home_nodes, Some(CpuSet::single(1)));
    let wrong = read_with(text.as_bytes(), "sockets = 2\ncores_per_socket = 4\n").err().unwrap();
    assert!(wrong.to_string().contains("8 pCPUs are described, but esxtop counted 4"), "{wrong}");
    for bad in
        ["sokets = 2", "sockets = 0", "[[vm]]\nvcpus = 2", "cores_per_socket = 3\nnodes_per_socket = 2"]
    {
        assert!(Beside::parse(bad).is_err(), "{bad}");
    }
}

/// Back, an hour forward and back again, and a pause: rows weigh as much as they usually do, and that is said.
#[test]
fn clocks_that_jump() {
    let mut times: Vec<String> = (0..6).map(|i| format!("10/25/2026 01:59:{:02}", 30 + 5 * i)).collect();
    times.extend((0..6).map(|i| format!("10/25/2026 01:00:{:02}", 5 * i)));
    times.extend((0..6).map(|i| format!("10/26/2026 01:00:{:02}", 5 * i)));
    let times: Vec<&str> = times.iter().map(String::as_str).collect();
    let r = read(file(&columns(41, "web"), &times).as_bytes());
    assert_eq!(r.batches.len(), 18);
    assert_eq!(r.batches[17].mono_ns, 17 * 5_000_000_000);
    assert!(near(model_of(&r).vms[0].vcpus.run, 0.76));
    assert!(
        r.notes.iter().any(|n| n.contains("went back")) && r.notes.iter().any(|n| n.contains("gap")),
        "{:?}",
        r.notes
    );
}

/// A fuzz target found this: samples 400 years apart, which begin in the past, end after what 64 bits of ns hold.
#[test]
fn an_export_ends_at_the_end_of_time() {
    let (config, mut batches) = recording(&["web".to_owned()], &[400, 300], 5_000_000_000);
    batches.last_mut().unwrap().mono_ns = u64::MAX;
    let mut text = Vec::new();
    write::samples(&[&config], &batches, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().last().unwrap().starts_with("\"07/21/2554 "), "{text}");
}

/// Garbled cells and rows are named by line and byte and left out; the rest is read.
#[test]
fn garbage_is_named() {
    let text = file(&columns(41, "web"), &TIMES);
    let garbled = text.replacen("\"38.00\"", "\"3x.00\"", 1);
    let r = read(garbled.as_bytes());
    assert!(r.notes.iter().any(|n| n.contains("line 2") && n.contains("3x.00")), "{:?}", r.notes);
    let lines: Vec<&str> = text.split_inclusive("\r\n").collect();
    let short = [lines[0], lines[1], "\"11/24/2026 08:00:05\",\"1.00\"\r\n", lines[3], lines[4]].concat();
    let r = read(short.as_bytes());
    assert_eq!(r.batches.len(), 3);
    let byte = lines[0].len() + lines[1].len();
    assert!(r.notes.iter().any(|n| n.contains(&format!("line 3, byte {byte}: 2 values"))), "{:?}", r.notes);
    let twice = [text.as_str(), lines[0], lines[1]].concat();
    let r = read(twice.as_bytes());
    assert_eq!(r.batches.len(), 4);
    assert!(r.notes.iter().any(|n| n.contains("a second header")), "{:?}", r.notes);
    let no_time = text.replacen("11/24/2026 08:00:05", "yesterday 08:00:05", 1);
    assert!(read(no_time.as_bytes()).notes.iter().any(|n| n.contains("not a time")));
    for foreign in ["", "\"time\",\"a\"\r\n", "(PDH-CSV"] {
        let error = read_with(foreign.as_bytes(), "").err().unwrap();
        assert!(!error.to_string().is_empty());
    }
}

/// A row in which a world has ended tells nothing of it, and it comes back where it does.
#[test]
fn a_world_that_ends_is_not_at_rest() {
    let text = file(&columns(41, "web"), &TIMES);
    let mut lines: Vec<String> = text.split_inclusive("\r\n").map(str::to_owned).collect();
    for value in ["40.00", "38.00", "2.50", "50.00", "10.00", "0.50", "2.00", "1.50"] {
        lines[3] = lines[3].replacen(&format!("\"{value}\""), "\"0.00\"", 1);
    }
    let r = read(lines.concat().as_bytes());
    let of = |b: &Batch| b.threads.iter().filter(|t| t.role.vcpu().is_some()).count();
    assert_eq!(r.batches.iter().map(of).collect::<Vec<_>>(), [2, 2, 1, 2]);
    let vm = &model_of(&r).vms[0];
    assert!(near(vm.threads[0].shares.run, 0.38) && vm.threads[0].seen < 0.4, "{:?}", vm.threads[0]);
}

/// However little room there is for samples, the whole tells the same; an absence within joined rows is one.
#[test]
fn joined_rows_tell_the_same() {
    let times: Vec<String> =
        (0..200).map(|i| format!("11/24/2026 08:{:02}:{:02}", i * 5 / 60, i * 5 % 60)).collect();
    let times: Vec<&str> = times.iter().map(String::as_str).collect();
    let mut lines: Vec<String> =
        file(&columns(41, "web"), &times).split_inclusive("\r\n").map(str::to_owned).collect();
    // Row 50 lacks the first vCPU.
    lines[51] = lines[51].replacen("\"38.00\"", "\"\"", 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("esxtop.csv");
    std::fs::write(&path, lines.concat()).unwrap();
    let saved = |bytes| vsteer_record::esxtop::read_within(&path, bytes).unwrap();
    let (whole, joined) = (saved(usize::MAX), saved(0));
    assert_eq!(whole.batches.len(), 200);
    assert!(joined.batches.len() < 20, "{}", joined.batches.len());
    assert!(joined.notes.iter().any(|n| n.contains("each 16 samples")), "{:?}", joined.notes);
    let of = |s: &vsteer_record::esxtop::Saved| model::derive(&s.config, &s.collector, &s.batches).unwrap();
    let (a, b) = (of(&whole), of(&joined));
    assert_eq!(a.window_ns, b.window_ns);
    let (a, b) = (&a.vms[0].threads, &b.vms[0].threads);
    assert_eq!(a[1], b[1]);
    assert!(
        near(a[0].shares.run, 0.38) && near(b[0].shares.run, 0.38),
        "{:?} {:?}",
        a[0].shares,
        b[0].shares
    );
    assert!(b[0].seen < a[0].seen && a[0].seen < 1.0, "{} {}", a[0].seen, b[0].seen);
}

#[test]
fn compressed_and_cut() {
    let text = file(&columns(41, "web"), &TIMES);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    assert_eq!(read(&gz).batches, read(text.as_bytes()).batches);
    let cut = read(&gz[..gz.len() - 9]);
    assert!(cut.notes.iter().any(|n| n.contains("compressed data")), "{:?}", cut.notes);
    assert!(read(text.as_bytes()).notes.iter().all(|n| !n.contains("ends inside")));
}

fn recording(names: &[String], thousandths: &[u64], step_ns: u64) -> (HostConfig, Vec<Batch>) {
    let cpus = CpuSet::first(4);
    let topology = Topology::new(Parts {
        present: cpus.clone(),
        online: cpus.clone(),
        allowed: cpus,
        ..Parts::default()
    });
    let vm = |(i, name): (usize, &String)| {
        VmConfig::new(VmId(format!("id-{i}").into()), name.clone(), 100 + i as u32)
    };
    let config = HostConfig {
        cgroups: CgroupLayout::V2,
        vms: names.iter().enumerate().map(vm).collect(),
        ..HostConfig::new("kvm", "6.18", topology.unwrap())
    };
    let batch = |i: u64| {
        let done = |k: usize| {
            thousandths.iter().cycle().skip(k).take(i as usize).map(|t| t * step_ns / 4000).sum::<u64>()
        };
        let threads = (0..2 * names.len()).map(|k| ThreadSample {
            vm: VmId(format!("id-{}", k / 2).into()),
            role: if k % 2 == 0 { Role::Vcpu(0) } else { Role::Emulator },
            tid: Tid(500 + k as u32),
            last_cpu: None,
            waiting_ns: None,
            counters: ThreadCounters {
                run_ns: Some(done(k)),
                wait_ns: Some(done(k + 1)),
                ready_ns: Some(done(k + 1) / 2),
                limited_ns: Some(done(k + 1) - done(k + 1) / 2),
                blocked_ns: Some((i * step_ns).saturating_sub(done(k) + done(k + 1))),
                switches: Some(i * 7),
                ..ThreadCounters::default()
            },
        });
        Batch {
            mono_ns: 77 + i * step_ns,
            unix_ns: 1_790_000_000_123_456_789 + i * step_ns,
            threads: threads.collect(),
            pcpus: vec![PcpuSample {
                cpu: 3,
                user_ns: done(0),
                idle_ns: i * step_ns - done(0),
                ..PcpuSample::default()
            }],
            vms: Vec::new(),
            blame: Vec::new(),
            pressure: None,
        }
    };
    (config, (0..20).map(batch).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written reads back as the same shares within the print's precision, whatever VMs are called.
    #[test]
    fn written_and_read(
        names in proptest::collection::vec(any::<String>(), 1..4),
        thousandths in proptest::collection::vec(0u64..1000, 1..7),
        step_ms in 200u64..5000,
    ) {
        let (config, batches) = recording(&names, &thousandths, step_ms * 1_000_000);
        let mut bytes = Vec::new();
        write::samples(&[&config], &batches, &mut bytes).unwrap();
        let r = read(&bytes);
        let mut told: Vec<&str> = r.config.vms.iter().map(|v| v.name.as_str()).collect();
        let mut meant: Vec<&str> = names.iter().map(String::as_str).collect();
        told.sort_unstable();
        meant.sort_unstable();
        prop_assert_eq!(told, meant, "{:?}", r.notes);
        let collector = Collector { name: "x".into(), missing: BTreeMap::new() };
        let before = model::derive(&config, &collector, &batches).unwrap();
        let after = model_of(&r);
        for vm in &before.vms {
            let pid = config.vm(&vm.id).unwrap().pid;
            let same = r.config.vms.iter().find(|v| v.pid == pid).unwrap();
            let same = after.vm(&same.id).unwrap();
            // Half a hundredth of a percent by print, as much again by times in whole milliseconds.
            let off = |a: Option<f64>, b: Option<f64>| (a.unwrap_or(9.0) - b.unwrap_or(-9.0)).abs();
            for (a, b) in vm.threads.iter().zip(&same.threads) {
                prop_assert_eq!(a.role, b.role);
                prop_assert!(off(a.shares.run, b.shares.run) < 3e-4, "{:?} {:?}", a.shares, b.shares);
                prop_assert!(off(a.shares.ready, b.shares.ready) < 3e-4);
                prop_assert!(off(a.shares.limited, b.shares.limited) < 3e-4);
                prop_assert!(off(a.shares.blocked, b.shares.blocked) < 3e-4);
                prop_assert!(off(a.switches_per_s, b.switches_per_s) < 0.2);
                prop_assert_eq!(b.shares.costop, None, "the recording has none: no column, not 0");
            }
            prop_assert!(off(vm.group.run, same.group.run) < 6e-4);
        }
    }

    /// Wherever it is cut: the whole rows before, and no panic.
    #[test]
    fn cut_anywhere(at in 0usize..4000) {
        let text = file(&[columns(41, "we\"b\n"), columns(42, "x,y")].concat(), &TIMES);
        let whole = read(text.as_bytes());
        prop_assert_eq!(whole.batches.len(), 4);
        let at = at.min(text.len());
        if let Ok(r) = read_with(&text.as_bytes()[..at], "") {
            prop_assert!(r.batches.len() <= whole.batches.len());
            for (a, b) in r.batches.iter().zip(&whole.batches) {
                prop_assert_eq!(&a.threads, &b.threads);
            }
        }
    }

    /// Whatever is in the file.
    #[test]
    fn any_change_is_survived(at in 0usize..4000, byte in any::<u8>(), more in proptest::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = file(&columns(41, "web"), &TIMES).into_bytes();
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        bytes.splice(at..at, more);
        if let Ok(r) = read_with(&bytes, "")
            && r.batches.len() > 1
        {
            let _ = model::derive(&r.config, &r.collector, &r.batches);
        }
    }
}

/// A fuzz target found this: the export of a VM without vCPUs in its samples was refused with "holds no VM".
#[test]
fn an_export_of_a_vm_without_sampled_vcpus_is_read_again() {
    let names = ["idle".to_owned()];
    let (config, mut batches) = recording(&names, &[400, 300], 5_000_000_000);
    let again = |config: &HostConfig, batches: &[Batch]| {
        let mut text = Vec::new();
        write::samples(&[config], batches, &mut text).unwrap();
        read(&text)
    };
    for batch in &mut batches {
        batch.threads.iter_mut().for_each(|t| t.role = Role::Worker);
    }
    let r = again(&config, &batches);
    assert_eq!((r.config.vms.len(), r.config.vms[0].name.as_str()), (1, "idle"));
    assert_eq!(r.batches.len(), batches.len());

    // The vCPU is configured, but no sample has it.
    let mut known = config.clone();
    let thread = batches[0].threads[0].clone();
    known.vms[0].threads = vec![VmThread {
        tid: thread.tid,
        role: Role::Vcpu(0),
        affinity: CpuSet::first(4),
        class: None,
        cgroup: None,
        prefers: None,
        reserved: None,
    }];
    batches.iter_mut().for_each(|b| b.threads.clear());
    let r = again(&known, &batches);
    assert_eq!((r.config.vms.len(), r.config.vms[0].name.as_str()), (1, "idle"));
}

/// A fuzz target found this: the export of a VM that is called as one of ESXi's own groups, and has no worlds, was
/// refused with "holds no VM".
#[test]
fn an_export_of_a_vm_that_is_called_as_one_of_esxis_own_groups_is_read_again() {
    let group = ("Group Cpu(7:idle)\\% Run".to_owned(), "40.00");
    let unknown_counter = ("Vcpu(7:idle:9:vmx-vcpu-0:idle)\\% Other".to_owned(), "1.00");
    let by_its_vcpu = read(file(&[group.clone(), unknown_counter], &TIMES).as_bytes());
    let by_its_name =
        read_with(file(&[group], &TIMES).as_bytes(), "[[vm]]\nname = \"idle\"\nvcpus = 1\n").unwrap();
    for first in [by_its_vcpu, by_its_name] {
        let mut text = Vec::new();
        write::samples(&[&first.config], &first.batches, &mut text).unwrap();
        let again = read(&text);
        assert_eq!((again.config.vms.len(), again.config.vms[0].name.as_str()), (1, "idle"));
        assert_eq!(again.batches.len(), first.batches.len());
        let run_ns = |r: &Read| r.batches[1].vms[0].group.as_ref().unwrap().counters.run_ns;
        assert_eq!(run_ns(&again), run_ns(&first));
    }
}
