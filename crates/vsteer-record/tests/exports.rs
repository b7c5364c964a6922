//! Exports as Parquet and CSV, read back: names, settings and pins as they were, and no column without documentation.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::topology::{Parts, Topology};
use vsteer_record::export::{csv, parquet, tables};
use vsteer_record::{FORMAT, Manifest, Recording, Writer};

fn thread(tid: u32, role: Role, affinity: &str, class: SchedClass) -> VmThread {
    VmThread {
        tid: Tid(tid),
        role,
        affinity: affinity.parse().unwrap(),
        class: Some(class),
        cgroup: Some("/qemu.slice/100.scope".into()),
        prefers: None,
        reserved: None,
    }
}

fn quota(cgroup: &str, quota_us: u64, shared: bool) -> GroupQuota {
    GroupQuota { cgroup: cgroup.into(), quota: Quota { quota_us, period_us: 100_000 }, shared }
}

/// A VM of Proxmox VE whose name is made to mislead a reader of CSV.
fn proxmox() -> VmConfig {
    let labels = [("project", "shop, \"new\""), ("instance", "=1+1")];
    VmConfig {
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        manager: Manager::Proxmox(100),
        accel: Some(Accel::Kvm),
        threads: vec![
            thread(8, Role::Vcpu(0), "0-2,5", SchedClass::Other(-5)),
            thread(9, Role::Vcpu(1), "1", SchedClass::Fifo(50)),
            thread(7, Role::Emulator, "0-7", SchedClass::Idle),
        ],
        weight: Some(CpuWeight::Weight(100)),
        limits: Limits {
            whole_vm: Some(Quota { quota_us: 150_000, period_us: 100_000 }),
            ..Limits::default()
        },
        quotas: vec![quota("/qemu.slice", 400_000, true), quota("/qemu.slice/100.scope", 150_000, false)],
        cgroup: Some("/qemu.slice/100.scope".into()),
        rt_budgets: vec![RtBudget { cgroup: "/qemu.slice".into(), runtime_us: -1, period_us: 1_000_000 }],
        scheduling: vec![GroupScheduling {
            cgroup: "/qemu.slice/100.scope".into(),
            idle: true,
            burst_us: Some(20_000),
            uclamp_max: Some(5_000),
            partition: Some("root".into()),
            cpus: Some("2-3".parse().unwrap()),
            ..GroupScheduling::default()
        }],
        guest_topology: Some(GuestTopology { sockets: 1, cores: 2, threads: 1 }),
        memory_bytes: Some(4 << 30),
        memory_nodes: Some(CpuSet::single(1)),
        guest_nodes: vec![GuestNode {
            id: 0,
            vcpus: CpuSet::first(2),
            memory_bytes: Some(4 << 30),
            host_nodes: Some(CpuSet::single(1)),
        }],
        fixed: vec![Fixed::HugePages, Fixed::Locked],
        ..VmConfig::new(VmId("uuid-a".into()), "web, \"1\"\n", 7)
    }
}

fn host(vms: Vec<VmConfig>) -> HostConfig {
    let cpus = CpuSet::first(8);
    let parts = Parts { online: cpus.clone(), present: cpus.clone(), allowed: cpus, ..Parts::default() };
    HostConfig {
        cgroups: CgroupLayout::V2,
        vms,
        ..HostConfig::new("h", "6.18", Topology::new(parts).unwrap())
    }
}

fn batch(mono_ns: u64) -> Batch {
    let counters = ThreadCounters {
        run_ns: Some(mono_ns / 2),
        wake_latency: Some(Histogram { counts: vec![(3, mono_ns), (9, 2)] }),
        ..ThreadCounters::default()
    };
    let (vm, role) = (VmId("uuid-a".into()), Role::Vcpu(0));
    let sample =
        ThreadSample { vm: vm.clone(), role, tid: Tid(8), last_cpu: Some(1), waiting_ns: None, counters };
    Batch {
        mono_ns,
        unix_ns: 1_000_000 + mono_ns,
        threads: vec![sample],
        pcpus: vec![PcpuSample { cpu: 1, user_ns: 5, ..PcpuSample::default() }],
        vms: vec![VmSample::new(vm.clone())],
        blame: vec![BlameSample { victim: vm, role, culprit: Culprit::Placement, ns: -3 }],
        pressure: None,
    }
}

/// At 10 the VM alone, at 20 unchanged, at 30 with another weight and pin and with a second VM, at 40 the second one alone.
fn recording(folder: &Path) -> Recording {
    let first = host(vec![proxmox()]);
    let manifest = Manifest {
        format: FORMAT,
        vsteer: "0".into(),
        hostname: "h".into(),
        fingerprint: first.fingerprint(),
        mono_ns: 5,
        unix_ns: 1_000_005,
        collector: Collector { name: "ebpf".into(), missing: BTreeMap::new() },
    };
    let mut changed = proxmox();
    changed.weight = Some(CpuWeight::Weight(800));
    changed.threads[0].affinity = CpuSet::single(4);
    let second = VmConfig {
        manager: Manager::Libvirt("qemu:///system".into()),
        vsphere: Some(VsphereVm { cpu_hot_add: Some(false), ..VsphereVm::default() }),
        ..VmConfig::new(VmId("uuid-b".into()), "db", 70)
    };
    let mut w = Writer::create(folder, &manifest, &first, None).unwrap();
    w.append(&batch(10), &first).unwrap();
    w.append(&batch(20), &first).unwrap();
    w.append(&batch(30), &host(vec![changed, second.clone()])).unwrap();
    w.append(&batch(40), &host(vec![second])).unwrap();
    w.finish().unwrap();
    Recording::open(folder).unwrap()
}

fn table(folder: &Path, name: &str) -> Vec<RecordBatch> {
    let file = File::open(folder.join(format!("{name}.parquet"))).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
}

/// A value as text, `-` if null.
fn shown(column: &dyn Array, row: usize) -> String {
    use arrow_schema::DataType as D;
    if column.is_null(row) {
        return "-".to_owned();
    }
    match column.data_type() {
        D::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        D::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        D::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        D::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        D::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        D::Boolean => column.as_boolean().value(row).to_string(),
        D::List(_) => {
            let items = column.as_list::<i32>().value(row);
            (0..items.len()).map(|i| shown(&items, i)).collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other}"),
    }
}

/// These columns of every row.
fn of(all: &[RecordBatch], columns: &[&str]) -> Vec<String> {
    let row = |b: &RecordBatch, row| {
        let cell = |name: &&str| shown(b.column_by_name(name).unwrap_or_else(|| panic!("{name}")), row);
        columns.iter().map(cell).collect::<Vec<_>>().join("|")
    };
    all.iter().flat_map(|b| (0..b.num_rows()).map(move |i| row(b, i)).collect::<Vec<_>>()).collect()
}

#[test]
fn parquet_holds_each_configuration_when_it_changed() {
    let dir = tempfile::tempdir().unwrap();
    let r = recording(&dir.path().join("a.vsteer"));
    let to = dir.path().join("parquet");
    parquet(&r, &to).unwrap();
    let vms = table(&to, "config");
    assert_eq!(
        of(
            &vms,
            &["mono_ns", "unix_ns", "vm", "change", "name", "manager", "manager_id", "number", "weight"]
        ),
        [
            "5|1000005|uuid-a|new|web, \"1\"\n|proxmox|-|100|100",
            "30|1000030|uuid-a|changed|web, \"1\"\n|proxmox|-|100|800",
            "30|1000030|uuid-b|new|db|libvirt|qemu:///system|-|-",
            "40|1000040|uuid-a|gone|-|-|-|-|-",
        ]
    );
    assert_eq!(
        of(&vms, &["project", "instance", "accel", "vcpus", "weight_scale", "vm_quota_us", "vm_period_us"])
            [0],
        "shop, \"new\"|=1+1|kvm|2|weight|150000|100000"
    );
    assert_eq!(
        of(&vms, &["cgroup", "guest_sockets", "guest_cores", "memory_bytes", "memory_nodes", "cpu_hot_add"])
            [..3],
        [
            "/qemu.slice/100.scope|1|2|4294967296|1|-",
            "/qemu.slice/100.scope|1|2|4294967296|1|-",
            "-|-|-|-|-|false"
        ]
    );
    assert_eq!(
        of(&vms, &["guest_nodes", "fixed"])[..3],
        [
            "0 (vCPUs 0-1, 4096 MiB) on nodes 1|huge pages, locked memory",
            "0 (vCPUs 0-1, 4096 MiB) on nodes 1|huge pages, locked memory",
            "-|-"
        ]
    );
    assert_eq!(
        of(
            &table(&to, "config_thread"),
            &["mono_ns", "vm", "role", "tid", "affinity", "class", "priority", "nice"]
        ),
        [
            "5|uuid-a|vcpu0|8|0 1 2 5|other|-|-5",
            "5|uuid-a|vcpu1|9|1|fifo|50|-",
            "5|uuid-a|emulator|7|0 1 2 3 4 5 6 7|idle|-|-",
            "30|uuid-a|vcpu0|8|4|other|-|-5",
            "30|uuid-a|vcpu1|9|1|fifo|50|-",
            "30|uuid-a|emulator|7|0 1 2 3 4 5 6 7|idle|-|-",
        ]
    );
    let cgroups =
        of(&table(&to, "config_cgroup"), &["mono_ns", "cgroup", "quota_us", "shared", "rt_runtime_us"]);
    assert_eq!(cgroups[..2], ["5|/qemu.slice|400000|true|-1", "5|/qemu.slice/100.scope|150000|false|-"]);
    assert_eq!(cgroups.len(), 4, "{cgroups:?}");
}

/// Every table, as Parquet and as CSV: the columns in order, and those of a histogram with all that was counted.
#[test]
fn exports_have_the_documented_columns() {
    let dir = tempfile::tempdir().unwrap();
    let r = recording(&dir.path().join("a.vsteer"));
    let (to, text) = (dir.path().join("parquet"), dir.path().join("csv"));
    parquet(&r, &to).unwrap();
    csv(&r, &text).unwrap();
    let mut written: Vec<String> =
        fs::read_dir(&to).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    written.sort();
    let without_events = tables().into_iter().filter(|t| t.name != "event");
    let mut expected: Vec<String> = Vec::new();
    for documented in without_events {
        expected.push(format!("{}.parquet", documented.name));
        let names: Vec<&str> = documented.columns.iter().map(|c| c.name.as_str()).collect();
        let rows = table(&to, documented.name);
        let schema = rows[0].schema();
        assert_eq!(schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), names);
        let file = fs::read_to_string(text.join(format!("{}.csv", documented.name))).unwrap();
        let head: Vec<&str> = file.lines().next().unwrap().split(',').collect();
        assert_eq!(head, names, "{}", documented.name);
        let all: usize = rows.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(file.lines().count(), all + 1, "{}: each row is a line", documented.name);
        assert!(all > 0, "{}: nothing was exported", documented.name);
    }
    expected.sort();
    assert_eq!(written, expected);
    let last = of(&table(&to, "thread"), &["wake_latency_bucket", "wake_latency_count", "run_ns"]);
    assert_eq!(last.last().unwrap(), "3 9|40 2|20", "complete, not the change since the row before");
}

#[test]
fn csv_is_safe_and_has_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let r = recording(&dir.path().join("a.vsteer"));
    let to = dir.path().join("csv");
    csv(&r, &to).unwrap();
    let vms = fs::read_to_string(to.join("config.csv")).unwrap();
    let rows: Vec<&str> = vms.lines().skip(1).collect();
    assert!(
        rows[0].starts_with(
            "5,1000005,uuid-a,new,\"web, \"\"1\"\"\\u{a}\",proxmox,,100,\"shop, \"\"new\"\"\",,'=1+1,"
        ),
        "{}",
        rows[0]
    );
    assert!(rows[3].starts_with("40,1000040,uuid-a,gone,,,,") && rows.len() == 4, "{rows:?}");
    let threads = fs::read_to_string(to.join("config_thread.csv")).unwrap();
    assert_eq!(
        threads.lines().nth(1).unwrap(),
        "5,1000005,uuid-a,vcpu0,8,0;1;2;5,,other,,-5,/qemu.slice/100.scope,,,"
    );
    let cgroups = fs::read_to_string(to.join("config_cgroup.csv")).unwrap();
    assert_eq!(
        cgroups.lines().nth(2).unwrap(),
        "5,1000005,uuid-a,/qemu.slice/100.scope,150000,100000,false,,,true,20000,,5000,root,2-3"
    );
}
