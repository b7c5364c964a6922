//! The performance counters of VMware's (now Omnissa's) Horizon and of Citrix that describe a session, with
//! their units. One entry each in [`ALL`].
//!
//! Sources. Horizon: "Using Windows Performance Monitor" in the features guide of Horizon 2309
//! (docs.vmware.com) and KB 89350 name the sets; the counters of each as monitoring agents read them; units
//! by the Horizon API's BlastSessionStatistics and BlastImagingStatistics (developer.omnissa.com): round trip
//! in ms, bandwidth in kbit/s, frames per second. Since Horizon 8.13 sets may be called "Horizon Blast …".
//! Citrix: "ICA Session" of the performance counters reference of XenApp and Virtual Apps: latencies in ms,
//! bandwidths in bit/s. VMware Tools: "VM Processor", ms in which the VM could run and did not. **Untried**,
//! because neither product was available. Names are those of an English Windows; others are not known. Left
//! out: Citrix's newer graphics counters, because no list of their names was found; audio, USB, printing;
//! PCoIP.

use super::pdh::Counter;

/// A known counter.
#[derive(Debug)]
pub struct Known {
    /// The product that has it.
    pub product: &'static str,
    /// The names of its counter set, in any case; there may be two.
    sets: [&'static str; 2],
    /// The counter's own name, in any case.
    counter: &'static str,
    /// The name in vsteer's output, with the unit at the end.
    pub name: &'static str,
    /// Factor that converts its value to the unit.
    pub scale: f64,
    /// It counts from the start of the session, so its increase per second is reported.
    pub is_total: bool,
}

const SESSION: [&str; 2] = ["VMware Blast Session Counters", "Horizon Blast Session Counters"];
const IMAGING: [&str; 2] = ["VMware Blast Imaging Counters", "Horizon Blast Imaging Counters"];
const ICA: [&str; 2] = ["ICA Session"; 2];
const TOOLS: [&str; 2] = ["VM Processor"; 2];
/// Converts a rate in bytes per second to Mbit/s.
const MBIT: f64 = 8e-6;

pub const ALL: &[Known] = &[
    horizon(IMAGING, "Frames per second", "frames_per_s", 1.0, false),
    horizon(IMAGING, "Dirty frames per second", "dirty_frames_per_s", 1.0, false),
    horizon(IMAGING, "Encoder Type", "encoder_type", 1.0, false),
    horizon(IMAGING, "Transmitted Bytes", "imaging_sent_mbit_s", MBIT, true),
    horizon(IMAGING, "Out Queueing time (us)", "imaging_queued_ms", 1e-3, false),
    horizon(SESSION, "RTT", "round_trip_ms", 1.0, false),
    horizon(SESSION, "Jitter (Uplink)", "jitter_ms", 1.0, false),
    horizon(SESSION, "Packet Loss (Uplink)", "loss_percent", 1.0, false),
    horizon(SESSION, "Estimated Bandwidth (Uplink)", "estimated_mbit_s", 1e-3, false),
    horizon(SESSION, "Transmitted Bytes", "sent_mbit_s", MBIT, true),
    citrix("Latency - Last Recorded", "latency_ms", 1.0),
    citrix("Latency - Session Average", "latency_of_session_ms", 1.0),
    citrix("Output Session Bandwidth", "sent_mbit_s", 1e-6),
    citrix("Output ThinWire Bandwidth", "graphics_sent_mbit_s", 1e-6),
    citrix("Output Session Line Speed", "line_mbit_s", 1e-6),
    Known {
        product: "VMware Tools",
        sets: TOOLS,
        counter: "CPU stolen time",
        name: "stolen_ms",
        scale: 1.0,
        is_total: false,
    },
];

const fn horizon(
    sets: [&'static str; 2],
    counter: &'static str,
    name: &'static str,
    scale: f64,
    is_total: bool,
) -> Known {
    Known { product: "Horizon", sets, counter, name, scale, is_total }
}

const fn citrix(counter: &'static str, name: &'static str, scale: f64) -> Known {
    Known { product: "Citrix", sets: ICA, counter, name, scale, is_total: false }
}

/// The entry for a counter, if it is known.
pub fn known(counter: &Counter) -> Option<&'static Known> {
    ALL.iter().find(|k| {
        k.sets.iter().any(|set| set.eq_ignore_ascii_case(&counter.set))
            && k.counter.eq_ignore_ascii_case(&counter.name)
    })
}
