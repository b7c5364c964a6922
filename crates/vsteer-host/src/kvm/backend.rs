//! The entry for KVM/QEMU in the backend table.

use super::host::{KvmHost, Options};
use crate::actuate::Actuate;
use crate::backend::{Backend, Changing, Host, Request};
use crate::observe::{CollectorChoice, Observe};
use crate::privilege::{CapabilitySet, Kept};
use vsteer_bpf::Observer;
use vsteer_core::nouns::{Batch, Collector, Manager};
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// KVM/QEMU on this machine, with or without libvirt.
pub const BACKEND: Backend = Backend {
    name: "KVM",
    schemes: &["qemu:", "qemu+"],
    examples: &["qemu:///system"],
    about: "the VMs of one libvirt; without a URI, every VM of this host",
    sees: "every vCPU state with eBPF; otherwise run and wait times from /proc",
    sets: "affinity, weights, limits, classes, memory nodes and topology, through libvirt, cgroups or Proxmox VE",
    leaves_out: "threads of VMs on another machine: measure them there",
    recognise: |_| true,
    only_observes: false,
    steers: true,
    manages: |m| {
        matches!(
            m,
            Manager::Libvirt(_) | Manager::Proxmox(_) | Manager::KubeVirt | Manager::Kata | Manager::Bare
        )
    },
    open,
    change,
    settings: None,
};

fn open(request: &Request) -> Result<Box<dyn Host>, Fault> {
    request.refuse_statistics()?;
    let mut options = Options {
        connect: request.connect.clone(),
        collector: if request.light { CollectorChoice::Schedstat } else { request.collector },
        vms: request.vms.clone(),
        timers: request.timers,
        ..Options::default()
    };
    if let Some(bytes) = request.event_buffer {
        let fits = u32::try_from(bytes).ok().filter(|b| b.is_power_of_two());
        options.ebpf.event_buffer_bytes = Some(fits.ok_or_else(|| {
            Fault::new(FaultKind::Usage, format!("--event-buffer {bytes} is not a power of two below 4 GiB"))
        })?);
        if options.collector == CollectorChoice::Schedstat {
            return Err(Fault::new(FaultKind::Usage, "the collector schedstat cannot record switches")
                .help("leave out --collector, or --events"));
        }
        // If the caller asked for switches, a recording without them is worse than an error.
        options.collector = CollectorChoice::Ebpf;
    }
    if request.collector == CollectorChoice::Sampled {
        return Err(Fault::new(FaultKind::Usage, "--collector sampled works only on a Xen host")
            .help("leave out --collector, or --collector schedstat"));
    }
    Ok(Box::new(KvmHost::open(options)?))
}

fn change(request: &Request, plan: Option<Plan>) -> Result<Changing, Fault> {
    // Making changes needs no counters, so this uses the collector that needs no privilege.
    let collector = CollectorChoice::Schedstat;
    let connect = request.connect.clone();
    let mut host = KvmHost::open(Options { connect: connect.clone(), collector, ..Options::default() })?;
    let now = Some(host.config()?);
    Ok(Changing { actuator: Box::new(host), now, plan, connect, secret: None, notes: Vec::new() })
}

impl Host for KvmHost {
    fn take_notes(&mut self) -> Vec<String> {
        self.notes().to_vec()
    }

    fn observer(&self) -> Option<&Observer> {
        KvmHost::observer(self)
    }

    fn into_observer(self: Box<Self>) -> Option<Observer> {
        KvmHost::into_observer(*self)
    }

    fn is_scheduled_here(&self) -> bool {
        true
    }

    fn still_needs(&mut self) -> Option<Kept> {
        let looks = self.looks_into_processes();
        let tracing = if looks { CapabilitySet::SYS_PTRACE } else { CapabilitySet::empty() };
        // A QEMU that starts later may not name its threads. Its monitor's socket belongs to its own user.
        let capabilities = CapabilitySet::DAC_OVERRIDE | tracing | self.updates_tables();
        // Landlock forbids looking into other processes.
        Some(Kept { capabilities, writes_elsewhere: looks || self.may_start_libvirt() })
    }

    fn has_second(&self) -> bool {
        true
    }

    fn sample_both(&mut self, both: bool) -> Result<(Batch, Option<Batch>), Fault> {
        if both {
            return KvmHost::sample_both(self).map(|(first, second)| (first, Some(second)));
        }
        Ok((self.sample()?, None))
    }

    fn second_collector(&self) -> Option<Collector> {
        KvmHost::second_collector(self)
    }

    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Ok(self)
    }
}
