//! How does the observer get into the kernel? Tables of the sizes asked for, the programs that this kernel can have,
//! and a check that both sides mean the same by what lies in the tables.
//!
//! Left out: attaching, which the observer does once all is loaded.

use crate::kvm;
use crate::layout::{EventBatchRaw, Pcpu, Slot};
use crate::refused::refused;
use libbpf_rs::btf::types::{Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfKind, ReferencesType};
use libbpf_rs::{MapCore, Object, ObjectBuilder, PrintLevel};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use vsteer_core::Fault;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/observer.bpf.o"));

/// Options of the observer.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of threads to watch at a time (1.7 KB of kernel memory each).
    pub threads: u32,
    /// Number of VMs to watch at a time.
    pub vms: u32,
    /// What the thread that reads traces calls first: it needs no privilege.
    pub confine: Option<fn() -> Result<(), Fault>>,
    /// Size of the ring buffer for context switches, bytes (a power of two); `None`: record no switches.
    pub event_buffer_bytes: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Options { threads: 4_096, vms: 4_096, confine: None, event_buffer_bytes: None }
    }
}

/// Sizes the tables, chooses the programs and lets the kernel verify them.
pub(crate) fn load(limits: &Options, kernel: &Btf<'_>, pcpus: u32, with_kvm: bool) -> Result<Object, Fault> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder
        .name("vsteer_observer")
        .and_then(|b| b.open_memory(OBJECT))
        .map_err(|e| refused("cannot open the observer", &e))?;
    for mut map in open.maps_mut() {
        let entries = match map.name().to_str() {
            Some("slots" | "slot_of_tid") => limits.threads,
            Some("pcpus") => pcpus,
            Some("open_batches") => {
                if limits.event_buffer_bytes.is_some() {
                    pcpus
                } else {
                    1
                }
            }
            Some("event_batches") => limits.event_buffer_bytes.unwrap_or(4096),
            Some("running_clocks") => limits.vms + 1,
            _ => continue,
        };
        map.set_max_entries(entries).map_err(|e| refused("cannot size a table", &e))?;
    }
    let events = limits.event_buffer_bytes.is_some();
    let queues_per_cpu = queues_are_per_cpu(kernel);
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let exists = match section.split_once('/') {
            Some(("tp_btf", point)) => {
                kernel.type_by_name::<Typedef<'_>>(&format!("btf_trace_{point}")).is_some()
            }
            _ => true,
        };
        let wanted = match name.as_str() {
            "on_switch" | "on_wakeup" | "on_wakeup_new" => !events,
            "on_switch_recording" | "on_wakeup_recording" | "on_wakeup_new_recording" => events,
            "on_migrate" => !queues_per_cpu,
            "on_migrate_per_cpu" => queues_per_cpu,
            // The tracepoints of the local APIC timer exist only on x86.
            "on_timer_entry" | "on_timer_exit" => exists,
            _ if kvm::PROGRAMS.contains(&name.as_str()) => with_kvm,
            _ => true,
        };
        program.set_autoload(wanted);
    }
    let object = open.load().map_err(|e| refused("the kernel rejects the observer", &e))?;
    check_layout(&object)?;
    Ok(object)
}

/// The last messages of libbpf: only these hold the kernel's reasons.
static WORDS: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
/// Number of lines to keep: the verifier's last words come before its summary.
const WORDS_KEPT: usize = 60;

/// libbpf's messages on stderr would break a terminal view: [`last_words`] keeps them, or they are printed on request.
pub(crate) fn quiet_libbpf() {
    if std::env::var_os("VSTEER_LIBBPF_LOG").is_none() {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
            words.extend(text.lines().map(str::to_owned));
            let surplus = words.len().saturating_sub(WORDS_KEPT);
            words.drain(..surplus);
        })));
    } else {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| eprint!("{text}"))));
    }
}

/// Returns and clears libbpf's messages.
pub(crate) fn last_words() -> String {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let said: Vec<String> = words.drain(..).collect();
    said.join(" | ")
}

/// Is a task group's `cfs_rq` per-CPU data instead of a table of pointers? Its type is then a pointer to a structure,
/// not a pointer to a pointer.
fn queues_are_per_cpu(kernel: &Btf<'_>) -> bool {
    let group = kernel.type_by_name::<Struct<'_>>("task_group");
    let member = group.and_then(|g| g.iter().find(|m| m.name.is_some_and(|n| n == "cfs_rq")).map(|m| m.ty));
    let pointer = member.and_then(|ty| kernel.type_by_id::<Ptr<'_>>(ty));
    pointer.is_some_and(|p| p.referenced_type().kind() != BtfKind::Ptr)
}

fn check_layout(object: &Object) -> Result<(), Fault> {
    for (map, size) in [
        ("slots", size_of::<Slot>()),
        ("pcpus", size_of::<Pcpu>()),
        ("open_batches", size_of::<EventBatchRaw>()),
    ] {
        let there = object.maps().find(|m| m.name() == map).map(|m| m.value_size() as usize);
        assert!(there == Some(size), "table {map}: the kernel side has {there:?} bytes, this side {size}");
    }
    Ok(())
}
