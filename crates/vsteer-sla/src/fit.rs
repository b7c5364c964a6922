//! If no weights hold all levels, which VM should move to which other host?
//!
//! The candidates come from [`super::control`], in its order: first VMs without which the others' levels hold,
//! smallest load first. Of another host vsteer knows only how many pCPUs are idle. The moved VM gets just these.
//! Its response times come from a run of [`super::estimate::fluid`] without other VMs, uncorrected, because the
//! measurement here includes other VMs.
//!
//! Left out: the effect of the moved VM on the VMs of the other host, its memory traffic, and moves of two VMs.

use super::control::{Candidate, Level};
use super::estimate::Sharing;
use super::estimate::fluid::Fluid;
use super::estimate::traffic::rounds;
use super::window::{Response, Seen};
use serde::Serialize;

/// Number of simulated requests per answer.
const EFFORT: usize = 40_000;

/// Free capacity of another host.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// Name of the host.
    pub host: String,
    /// Idle pCPUs.
    pub idle_pcpus: f64,
    /// Free memory, bytes; `None`: unknown.
    pub free_bytes: Option<u64>,
}

/// A VM that may move.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// Name of the VM.
    pub name: String,
    /// Measured requests; `None`: too few requests.
    pub seen: Option<Seen>,
    /// Service level of the VM.
    pub level: Level,
    /// Memory, bytes; `None`: unknown.
    pub memory_bytes: Option<u64>,
}

/// A VM that fits on another host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// VM, as index of the guests.
    pub vm: usize,
    /// Host, as index of the rooms.
    pub room: usize,
    /// Forecast response times on that host.
    pub response: Response,
    /// Response time on that host as a multiple of the level.
    pub part: f64,
    /// Worst response time of the remaining VMs as a multiple of the level.
    pub rest: f64,
}

/// Response times on this many pCPUs without other VMs; `None` if there is more work than pCPUs.
pub fn alone(seen: &Seen, pcpus: f64) -> Option<Response> {
    let load = seen.load_at(seen.rate_hz);
    if load.partial_cmp(&pcpus) != Some(std::cmp::Ordering::Less) || seen.service_s <= 0.0 {
        return None;
    }
    let fluid = Fluid { pcpus: pcpus - seen.beside, vcpus: vec![seen.vcpus] };
    let drawn = rounds(std::slice::from_ref(seen), &[], &[seen.rate_hz], EFFORT);
    fluid.run(&drawn, &[1.0], &|| {}).into_iter().next().flatten().map(|ran| ran.response)
}

/// The first candidate that fits on any host, on the host with the shortest response times relative to its level.
///
/// # Errors
/// One sentence per candidate that says why it fits nowhere.
///
/// # Panics
/// If a candidate is not in `guests`, which is a bug.
pub fn choose(candidates: &[Candidate], guests: &[Guest], rooms: &[Room]) -> Result<Fit, Vec<String>> {
    let mut why_not = Vec::new();
    for candidate in candidates {
        let guest = &guests[candidate.vm];
        let name = &guest.name;
        let (Some(seen), Some(rest)) = (guest.seen.as_ref(), candidate.rest) else {
            why_not.push(format!("without {name}, there would still be more work than pCPUs"));
            continue;
        };
        if rest > 1.0 {
            why_not.push(format!(
                "without {name}, the worst other VM would still take {rest:.2} times its level"
            ));
            continue;
        }
        let mut best: Option<Fit> = None;
        for (i, room) in rooms.iter().enumerate() {
            let short = guest.memory_bytes.zip(room.free_bytes).filter(|(needs, free)| needs > free);
            if let Some((needs, free)) = short {
                let mib = |bytes: u64| bytes >> 20;
                why_not.push(format!(
                    "{name} needs {} MiB of memory, but {} has only {} MiB free",
                    mib(needs),
                    room.host,
                    mib(free)
                ));
                continue;
            }
            let idle = room.idle_pcpus;
            match alone(seen, idle).map(|response| (response, guest.level.part(response))) {
                Some((response, part)) if part <= 1.0 => {
                    if best.as_ref().is_none_or(|b| part < b.part) {
                        best = Some(Fit { vm: candidate.vm, room: i, response, part, rest });
                    }
                }
                Some((_, part)) => why_not.push(format!(
                    "on {}, which has {idle:.2} idle pCPUs, {name} would take {part:.2} times its level",
                    room.host
                )),
                None => why_not.push(format!(
                    "{} has {idle:.2} idle pCPUs, but {name} needs {:.2}",
                    room.host,
                    seen.load_at(seen.rate_hz)
                )),
            }
        }
        if let Some(fit) = best {
            return Ok(fit);
        }
    }
    Err(why_not)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate_hz: f64, service_cv2: f64) -> Seen {
        let response = Response { mean_s: 0.05, p95_s: 0.2 };
        Seen {
            rate_hz,
            gap_cv2: 1.0,
            service_s: 0.0066,
            beside: 0.0,
            service_cv2,
            response,
            weight: 1.0,
            vcpus: 1,
        }
    }

    fn guest(name: &str, rate_hz: f64, mean_s: f64) -> Guest {
        let level = Level { mean_s: Some(mean_s), p95_s: None, rate_hz: None };
        Guest { name: name.into(), seen: Some(seen(rate_hz, 0.0)), level, memory_bytes: Some(512 << 20) }
    }

    fn room(host: &str, idle_pcpus: f64) -> Room {
        Room { host: host.into(), idle_pcpus, free_bytes: Some(1 << 30) }
    }

    /// Pollaczek and Khinchine: R = x + rho x (1 + c2) / 2 / (1 - rho), by x of the slower pCPU.
    #[test]
    fn alone_is_a_queue_of_its_own() {
        for (pcpus, cv2) in [(1.0, 0.0), (1.0, 1.0), (0.6, 0.0), (0.6, 1.0)] {
            let s = seen(45.0, cv2);
            let (x, rho) = (s.service_s / pcpus, s.rate_hz * s.service_s / pcpus);
            let expected = x + rho * x * (1.0 + cv2) / 2.0 / (1.0 - rho);
            let told = alone(&s, pcpus).unwrap().mean_s;
            assert!((told / expected - 1.0).abs() < 0.05, "{pcpus} {cv2}: {told} for {expected}");
        }
        assert_eq!(alone(&seen(45.0, 0.0), 0.29), None, "it needs 0.297");
        assert_eq!(alone(&seen(45.0, 0.0), f64::NAN), None);
    }

    #[test]
    fn the_first_that_fits_goes_where_it_is_best_off() {
        let guests = [guest("a", 45.0, 0.012), guest("b", 20.0, 0.012)];
        let rooms = [room("x", 0.5), room("y", 0.9), room("z", 0.1)];
        let of = |vm, rest| Candidate { vm, rest };
        let fit = choose(&[of(0, Some(0.8)), of(1, Some(0.7))], &guests, &rooms).unwrap();
        assert_eq!((fit.vm, fit.room, fit.rest), (0, 1, 0.8));
        assert!(fit.part < 1.0 && fit.response.mean_s < 0.012);
        // Whose going does not help does not go.
        let fit = choose(&[of(0, Some(1.3)), of(1, Some(0.9))], &guests, &rooms).unwrap();
        assert_eq!((fit.vm, fit.room), (1, 1));
    }

    #[test]
    fn why_nobody_fits_is_told() {
        let guests = [guest("a", 45.0, 0.012)];
        let of = |rest| [Candidate { vm: 0, rest }];
        let why = |rest, rooms: &[Room]| choose(&of(rest), &guests, rooms).unwrap_err().concat();
        assert!(why(None, &[room("x", 1.0)]).contains("still be more work"));
        assert!(why(Some(1.2), &[room("x", 1.0)]).contains("still take 1.20 times its level"));
        assert!(why(Some(0.5), &[room("x", 0.2)]).contains("needs 0.30"));
        assert!(why(Some(0.5), &[room("x", 0.4)]).contains("times its level"));
        let small = Room { free_bytes: Some(100 << 20), ..room("x", 1.0) };
        assert!(why(Some(0.5), &[small]).contains("512 MiB"));
        assert!(choose(&of(Some(0.5)), &guests, &[]).unwrap_err().is_empty());
    }
}
