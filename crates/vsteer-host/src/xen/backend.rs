//! The entry for Xen in the backend table.

use super::XenHost;
use super::config::Listed;
use super::sampled::SampledHost;
use super::tools::Place;
use crate::actuate::Actuate;
use crate::backend::{Backend, Changing, Host, Request};
use crate::observe::CollectorChoice;
use vsteer_core::nouns::Manager;
use vsteer_core::plan::Plan;
use vsteer_core::{Fault, FaultKind};

/// Xen, in its Domain-0 or over SSH.
pub const BACKEND: Backend = Backend {
    name: "Xen",
    schemes: &["xen:", "xen+ssh://"],
    examples: &["xen:", "xen+ssh://root@HOST"],
    about: "a Xen host; the default in a Domain-0",
    sees: "every vCPU state from Xen's trace; with sampling, run times and estimated waits",
    sets: "affinity, weights, caps, reservations, pools and memory, with xl",
    leaves_out: "switches as events, and a second reader of Xen's trace",
    recognise: |_| Place::is_here(),
    only_observes: false,
    steers: true,
    manages: |m| *m == Manager::Xen,
    open,
    change,
    settings: None,
};

/// The host to use: the one that the URI names, or this Domain-0 without a URI.
fn place(connect: Option<&str>) -> Result<Place, Fault> {
    let Some(uri) = connect else { return Ok(Place::Here) };
    Place::of(uri).unwrap_or_else(|| {
        Err(Fault::new(FaultKind::Usage, format!("{uri:?} does not name a Xen host"))
            .help("use xen+ssh://root@host, or xen: in Domain-0"))
    })
}

fn open(request: &Request) -> Result<Box<dyn Host>, Fault> {
    request.refuse_statistics()?;
    let place = place(request.connect.as_deref())?;
    if request.event_buffer.is_some() {
        return Err(Fault::new(
            FaultKind::Usage,
            "--events does not work on Xen: Xen's own trace holds the switches",
        )
        .help("leave out --events; keep the switches with `xentrace -e 0x00021000 FILE`"));
    }
    let vms = request.vms.clone();
    match request.collector {
        CollectorChoice::Auto => Ok(Box::new(XenHost::open(place, vms)?)),
        CollectorChoice::Sampled => Ok(Box::new(SampledHost::open(place, vms)?)),
        CollectorChoice::Ebpf | CollectorChoice::Schedstat => {
            Err(Fault::new(FaultKind::Usage, "a Xen host has only its own trace and --collector sampled")
                .help("leave out --collector, or use --collector sampled to avoid the trace"))
        }
    }
}

fn change(request: &Request, plan: Option<Plan>) -> Result<Changing, Fault> {
    let place = place(request.connect.as_deref())?;
    let now = Some(Listed::ask(&place)?.config()?);
    let connect = request.connect.clone();
    Ok(Changing { actuator: Box::new(place), now, plan, connect, secret: None, notes: Vec::new() })
}

impl Host for XenHost {
    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Ok(self)
    }
}

impl Host for SampledHost {
    fn actuator(&mut self) -> Result<&mut dyn Actuate, Fault> {
        Ok(self.tools())
    }
}
