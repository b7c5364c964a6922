//! Do real-time guests run when they must, at no cost to others? With a policy of sched_ext on emulated hosts
//! ([`emulated`]), and with priorities on this machine's own kernel ([`local`]). Also a media player in Linux
//! ([`media`]).

pub mod boots;
mod emulated;
mod local;
mod media;

use super::{Case, Findings, Minutes};
use serde_json::{Map, Value};

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "realtime",
    doc: "guests' timers bring their vCPUs: the tables of VIT on Linux and KVM in exact virtual time; by priority on real VMs",
    // The parts run as separate cases, because the emulated one may run in parallel with others.
    in_test: false,
    minutes: Minutes::new(6.0, 300.0),
    beside: false,
    run: |bench| {
        let mut all = Findings::default();
        let mut figures = Map::new();
        let parts =
            [("emulated", EMULATED.run), ("local", LOCAL.run), ("media", MEDIA.run), ("cycles", CYCLES.run)];
        for (name, part) in parts {
            // These boot Linux in a VM on an emulated host with a player's packages, or repeat the same thing
            // a thousand times. So they run only at full size.
            if ["media", "cycles"].contains(&name) && !bench.full {
                continue;
            }
            let found = part(bench)?;
            all.checks.extend(found.checks);
            figures.insert(name.to_owned(), found.figures);
        }
        all.figures = Value::Object(figures);
        Ok(all)
    },
};

/// Its parts as separate cases.
pub const EMULATED: Case = Case {
    name: "realtime-emulated",
    doc: "by a policy of sched_ext: the tables of VIT, expiry to running, shares, costs, faults, in exact virtual time",
    in_test: true,
    minutes: Minutes::new(3.5, 121.0),
    beside: true,
    run: emulated::run,
};
/// See [`EMULATED`].
pub const LOCAL: Case = Case {
    name: "realtime-local",
    doc: "by priority, on real VMs: lateness, what others keep, a VM that floods, and a service that is killed",
    in_test: false,
    minutes: Minutes::new(3.0, 5.0),
    beside: false,
    run: local::run,
};
/// See [`EMULATED`].
pub const CYCLES: Case = Case {
    name: "realtime-cycles",
    doc: "the policy begun and ended a thousand times: what is left in the kernel",
    in_test: false,
    minutes: Minutes::new(15.0, 15.0),
    beside: false,
    run: emulated::cycles::run,
};
/// See [`EMULATED`].
pub const MEDIA: Case = Case {
    name: "realtime-media",
    doc: "MPlayer in a VM with Linux: frames per second alone, beside a VM that computes, and with VIT, in exact virtual time",
    in_test: false,
    minutes: Minutes::new(30.0, 60.0),
    beside: false,
    run: media::run,
};
