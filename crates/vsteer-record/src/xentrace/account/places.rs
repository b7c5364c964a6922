//! Finds the account of a vCPU by its numbers, with arrays, because hundreds of thousands of changes come per
//! second.

use super::super::IDLE_DOMAIN;
use super::Whose;

pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Default)]
struct Domain {
    /// By vCPU; [`NONE`] for an unknown vCPU.
    places: Vec<u32>,
    /// How many of its vCPUs are on a pCPU.
    running: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    domains: Vec<Domain>,
    /// Separate, because its number is the largest possible one.
    idle: Domain,
}

impl Places {
    fn domain(&self, domain: u16) -> Option<&Domain> {
        if domain == IDLE_DOMAIN { Some(&self.idle) } else { self.domains.get(usize::from(domain)) }
    }

    fn domain_mut(&mut self, domain: u16) -> &mut Domain {
        if domain == IDLE_DOMAIN {
            return &mut self.idle;
        }
        let at = usize::from(domain);
        if at >= self.domains.len() {
            self.domains.resize_with(at + 1, Domain::default);
        }
        &mut self.domains[at]
    }

    /// The place of `whose`, or [`NONE`].
    #[inline]
    pub(super) fn of(&self, whose: Whose) -> u32 {
        self.domain(whose.0).and_then(|d| d.places.get(usize::from(whose.1))).copied().unwrap_or(NONE)
    }

    pub(super) fn set(&mut self, whose: Whose, place: u32) {
        let (places, at) = (&mut self.domain_mut(whose.0).places, usize::from(whose.1));
        if at >= places.len() {
            places.resize(at + 1, NONE);
        }
        places[at] = place;
    }

    /// Is a vCPU of this domain on a pCPU?
    #[inline]
    pub(super) fn runs(&self, domain: u16) -> bool {
        self.domain(domain).is_some_and(|d| d.running > 0)
    }

    /// One more vCPU of this domain is on a pCPU.
    pub(super) fn begins(&mut self, domain: u16) {
        self.domain_mut(domain).running += 1;
    }

    pub(super) fn ends(&mut self, domain: u16) {
        let running = &mut self.domain_mut(domain).running;
        *running = running.saturating_sub(1);
    }
}
