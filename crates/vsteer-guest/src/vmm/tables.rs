//! Where do a server's requests and responses lie in its VM's memory? Behind all else, vCPU after vCPU.
//!
//! They are drawn before the VM has its memory, since they decide its size. A server without a schedule serves so many
//! again and again and keeps no responses; one with a schedule serves each once, so there is room for as many responses.

use super::abi::{self, REQUESTS_AT, Request, Response, Table};
use super::kvm::Memory;
use crate::requests::Arrivals;
use crate::workload::Workload;
use std::sync::atomic::AtomicU64;

/// The requests of all vCPUs, and what is to be kept of each.
pub struct Tables {
    requests: Vec<Vec<Request>>,
    keeps_responses: bool,
}

/// The requests to one vCPU, as the program inside takes them; none where the workload is no server's.
pub fn requests(workload: &Workload, vcpu: u64) -> Vec<Request> {
    match workload {
        Workload::Server { rate_hz, mean_units, seed } => {
            let mut arrivals = Arrivals::new(*rate_hz, *mean_units, *seed, vcpu);
            let draw = |_| {
                let (gap_ns, demand_units) = arrivals.draw();
                Request { gap_ns, demand_units }
            };
            (0..abi::REQUESTS).map(draw).collect()
        }
        Workload::Scheduled(schedule) => {
            let mut before_ns = 0;
            let gap = |due: crate::requests::Due| Request {
                gap_ns: due.arrival_ns - std::mem::replace(&mut before_ns, due.arrival_ns),
                demand_units: due.demand_units,
            };
            schedule.draw(vcpu).into_iter().map(gap).collect()
        }
        _ => Vec::new(),
    }
}

impl Tables {
    /// Draws all requests.
    pub fn draw(workload: &Workload, vcpus: usize) -> Tables {
        Tables {
            requests: (0..vcpus as u64).map(|vcpu| requests(workload, vcpu)).collect(),
            keeps_responses: matches!(workload, Workload::Scheduled(_)),
        }
    }

    /// Where each vCPU's requests and responses begin, and where all end.
    fn places(&self) -> (Vec<(u64, u64)>, u64) {
        let mut at = REQUESTS_AT;
        let mut take = |bytes: usize| {
            let begin = at;
            at += bytes as u64;
            begin
        };
        let mut places = Vec::new();
        for requests in &self.requests {
            let begin = take(size_of_val(&requests[..]));
            let room = if self.keeps_responses { requests.len() * size_of::<Response>() } else { 0 };
            places.push((begin, take(room)));
        }
        (places, at)
    }

    /// How much memory a VM with these needs.
    pub fn end(&self) -> u64 {
        self.places().1
    }

    /// Writes everything where it belongs.
    pub fn lay_out(&self, memory: &Memory) {
        let (places, _) = self.places();
        for (vcpu, (requests, (requests_at, responses_at))) in self.requests.iter().zip(places).enumerate() {
            for (i, request) in requests.iter().enumerate() {
                memory.write_value(requests_at + (i * size_of::<Request>()) as u64, request);
            }
            let responses_at = if self.keeps_responses { responses_at } else { 0 };
            let table = abi::TABLES_AT + (vcpu * size_of::<Table>()) as u64;
            // In the order of `Table`; no response is written yet.
            const _: () = assert!(size_of::<AtomicU64>() == size_of::<u64>() && size_of::<Table>() == 64);
            for (i, word) in [requests_at, requests.len() as u64, responses_at].iter().enumerate() {
                memory.write_value(table + 8 * i as u64, word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vcpu_has_room_of_its_own_for_all_its_responses() {
        let tables = Tables::draw(&Workload::parse("server,rates=100@20,seed=2").unwrap(), 3);
        let (places, end) = tables.places();
        let mut at = REQUESTS_AT;
        for (requests, (requests_at, responses_at)) in tables.requests.iter().zip(places) {
            let bytes = 16 * requests.len() as u64;
            assert!((1_700..2_300).contains(&requests.len()));
            assert_eq!((requests_at, responses_at), (at, at + bytes));
            at += 2 * bytes;
        }
        assert_eq!(at, end);
        let endless = Tables::draw(&Workload::parse("server").unwrap(), 2);
        assert_eq!(endless.end(), REQUESTS_AT + 2 * 16 * abi::REQUESTS as u64);
        assert_eq!(Tables::draw(&Workload::Burn, 2).end(), REQUESTS_AT);
    }

    #[test]
    fn gaps_lead_from_each_arrival_to_the_next() {
        let workload = Workload::parse("server,rates=40@10/0@5/20@5,arrivals=bursts").unwrap();
        let Workload::Scheduled(schedule) = &workload else { panic!("it is a schedule") };
        let mut at = 0;
        let arrivals: Vec<u64> = requests(&workload, 1)
            .iter()
            .map(|r| {
                at += r.gap_ns;
                at
            })
            .collect();
        assert!(arrivals.len() > 300);
        assert_eq!(arrivals, schedule.draw(1).iter().map(|d| d.arrival_ns).collect::<Vec<_>>());
    }
}
