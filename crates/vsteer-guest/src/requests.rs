//! Which requests come to a server, when, and how much work is each? Drawn beforehand from a seed, so that a server that
//! falls behind is sent no fewer (open loop).
//!
//! Two kinds: [`Arrivals`] at one rate for ever, and a [`Schedule`] of rates that ends. A schedule's Poisson arrivals are
//! those of rate 1 in the time that counts expected arrivals (Cinlar 1975, inversion of the cumulative rate): exact where
//! the rate changes, and where it is 0. Its gaps and its demands have a generator each: who changes how long requests take
//! changes nothing of when they come, and the other way about.
//!
//! Left out: rates that change within an interval, and arrivals that depend on the answers (closed loops).

use crate::generator::Generator;

/// More than this is a mistake: the tables of requests and responses lie in a VM's memory.
const REQUESTS_MAX: f64 = 600_000.0;
/// A day: later than this no lab runs.
const SECONDS_MAX: f64 = 86_400.0;

/// Uniform between 0 and 1, neither reached.
fn uniform(generator: &mut Generator) -> f64 {
    ((generator.step() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Exponential with the given mean, by inversion.
fn exponential(generator: &mut Generator, mean: f64) -> f64 {
    -mean * uniform(generator).ln()
}

/// Every vCPU draws its own.
fn generator(seed: u64, vcpu: u64) -> Generator {
    Generator::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(vcpu))
}

/// The requests that come to one vCPU of a server, for ever: how long after the one before, ns, and how many work
/// units each takes.
pub struct Arrivals {
    generator: Generator,
    mean_gap_ns: f64,
    mean_units: f64,
}

impl Arrivals {
    /// Poisson arrivals at `rate_hz` with exponential demands; `seed` and vCPU decide all of them.
    pub fn new(rate_hz: f64, mean_units: f64, seed: u64, vcpu: u64) -> Arrivals {
        Arrivals { generator: generator(seed, vcpu), mean_gap_ns: 1e9 / rate_hz, mean_units }
    }

    /// The next one's gap, ns, and demand, work units.
    pub fn draw(&mut self) -> (u64, u64) {
        let gap_ns = exponential(&mut self.generator, self.mean_gap_ns) as u64;
        (gap_ns, exponential(&mut self.generator, self.mean_units).ceil() as u64)
    }
}

/// A rate and for how long it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Mean arrivals per second and vCPU.
    pub rate: f64,
    pub seconds: f64,
}

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spacing {
    Poisson,
    /// At equal distances within an interval, of which a draw shifts all.
    Periodic,
    /// In sessions, which begin independently.
    Bursts {
        /// Mean requests of a session; their number is geometric.
        mean: f64,
        /// From one to the next of a session, ns.
        gap_ns: f64,
    },
}

/// How the demands of requests differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Service {
    /// Not at all.
    Fixed,
    /// As exponential draws.
    Exponential,
    /// Nine of ten take half the mean, one of ten 5.5 times the mean: squared coefficient of variation 2.25.
    Mixed,
}

/// Requests at rates that change with time, and end.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// One after the other.
    pub rates: Vec<Interval>,
    /// How they follow each other.
    pub spacing: Spacing,
    /// How their demands differ.
    pub service: Service,
    /// Mean demand, work units.
    pub mean_units: f64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

/// A request of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// When it arrives, ns since the schedule's beginning.
    pub arrival_ns: u64,
    /// What it takes, work units.
    pub demand_units: u64,
}

/// Reads `RATE@SECONDS/RATE@SECONDS/...`.
///
/// # Errors
/// A sentence naming the part that is wrong.
pub fn rates(text: &str) -> Result<Vec<Interval>, String> {
    let interval = |part: &str| {
        let (rate, seconds) = part.split_once('@').ok_or(format!("`{part}` is not RATE@SECONDS"))?;
        let number = |text: &str, most: f64| {
            text.parse()
                .ok()
                .filter(|n: &f64| (0.0..=most).contains(n))
                .ok_or_else(|| format!("`{part}`: `{text}` is not a number between 0 and {most}"))
        };
        let one = Interval { rate: number(rate, 1e6)?, seconds: number(seconds, SECONDS_MAX)? };
        if one.seconds > 0.0 { Ok(one) } else { Err(format!("`{part}` lasts no time")) }
    };
    let all = text.split('/').map(interval).collect::<Result<Vec<_>, _>>()?;
    let (count, seconds) = all.iter().fold((0.0, 0.0), |(n, s), i| (n + i.rate * i.seconds, s + i.seconds));
    if seconds > SECONDS_MAX || count > REQUESTS_MAX {
        let most = format!("at most {SECONDS_MAX} s and {REQUESTS_MAX} requests are possible");
        return Err(format!("`rates={text}` lasts {seconds} s and has {count:.0} requests per vCPU: {most}"));
    }
    Ok(all)
}

impl Schedule {
    /// When it is over, ns after its beginning.
    pub fn end_ns(&self) -> f64 {
        self.rates.iter().map(|i| i.seconds * 1e9).sum()
    }

    /// All requests to one vCPU, in the order in which they arrive.
    pub fn draw(&self, vcpu: u64) -> Vec<Due> {
        let mut of_arrivals = generator(self.seed, vcpu);
        let mut of_demands = generator(self.seed ^ 0x5bd1_e995_0000_0000, vcpu);
        let mut arrivals = match self.spacing {
            Spacing::Poisson => self.poisson(1.0, &mut of_arrivals),
            Spacing::Periodic => self.periodic(&mut of_arrivals),
            Spacing::Bursts { mean, gap_ns } => {
                let sessions = self.poisson(1.0 / mean, &mut of_arrivals);
                let mut all = Vec::new();
                for begin_ns in sessions {
                    let size = geometric(&mut of_arrivals, mean);
                    all.extend((0..size).map(|i| begin_ns + i as f64 * gap_ns));
                }
                all
            }
        };
        // What a session has left when the schedule ends is not sent.
        let end_ns = self.end_ns();
        arrivals.retain(|ns| *ns < end_ns);
        arrivals.sort_by(f64::total_cmp);
        let due = |ns: f64| Due { arrival_ns: ns as u64, demand_units: self.demand(&mut of_demands) };
        arrivals.into_iter().map(due).collect()
    }

    /// Independent arrivals at `part` of the rates.
    fn poisson(&self, part: f64, generator: &mut Generator) -> Vec<f64> {
        let mut all = Vec::new();
        let (mut begin_ns, mut passed, mut next) = (0.0, 0.0, exponential(generator, 1.0));
        for interval in &self.rates {
            let per_ns = interval.rate * part / 1e9;
            let expected = interval.rate * part * interval.seconds;
            while next < passed + expected {
                all.push(begin_ns + (next - passed) / per_ns);
                next += exponential(generator, 1.0);
            }
            passed += expected;
            begin_ns += interval.seconds * 1e9;
        }
        all
    }

    fn periodic(&self, generator: &mut Generator) -> Vec<f64> {
        let mut all = Vec::new();
        let mut begin_ns = 0.0;
        for interval in &self.rates {
            let phase = uniform(generator);
            let end = interval.rate * interval.seconds;
            let due = |n: u64| (n as f64 + phase) / interval.rate * 1e9;
            // Where the rate is 0, `end` is, and nothing is divided by it.
            all.extend((0..).take_while(|n| *n as f64 + phase < end).map(|n| begin_ns + due(n)));
            begin_ns += interval.seconds * 1e9;
        }
        all
    }

    fn demand(&self, generator: &mut Generator) -> u64 {
        // Two draws whatever the kind, so that the kind alone changes what is made of them.
        let (drawn, rounds) = (uniform(generator), uniform(generator));
        let units = match self.service {
            Service::Fixed => self.mean_units,
            Service::Exponential => -self.mean_units * drawn.ln(),
            Service::Mixed if drawn < 0.9 => self.mean_units * 0.5,
            Service::Mixed => self.mean_units * 5.5,
        };
        // Up or down at random keeps the mean; a request of no work would be none.
        ((units + rounds) as u64).max(1)
    }
}

/// How many there are until one in `mean` ends it, itself among them.
fn geometric(generator: &mut Generator, mean: f64) -> u64 {
    let goes_on = 1.0 - 1.0 / mean;
    if goes_on <= 0.0 {
        return 1;
    }
    1 + (uniform(generator).ln() / goes_on.ln()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_has_its_mean_and_the_seed_decides() {
        let sample = |seed| {
            let mut generator = Generator::new(seed);
            (0..100_000).map(|_| exponential(&mut generator, 200.0)).collect::<Vec<f64>>()
        };
        let draws = sample(1);
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        // The mean of 1e5 draws has a standard error of 0.32 %: 2 % is six of them.
        assert!((mean - 200.0).abs() < 4.0, "mean {mean}");
        assert_eq!(draws[..10], sample(1)[..10]);
        assert_ne!(draws[..10], sample(2)[..10]);
    }

    fn schedule(text: &str, spacing: Spacing, service: Service) -> Schedule {
        Schedule { rates: rates(text).unwrap(), spacing, service, mean_units: 50.0, seed: 3 }
    }

    /// Mean and squared coefficient of variation.
    fn moments(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n / mean / mean)
    }

    fn gaps(all: &[Due]) -> Vec<f64> {
        all.windows(2).map(|w| (w[1].arrival_ns - w[0].arrival_ns) as f64).collect()
    }

    /// Requests that arrive between two seconds.
    fn within(all: &[Due], from_s: f64, to_s: f64) -> Vec<Due> {
        let is = |d: &&Due| (from_s * 1e9..to_s * 1e9).contains(&(d.arrival_ns as f64));
        all.iter().filter(is).copied().collect()
    }

    #[test]
    fn every_interval_has_its_rate() {
        let bursts = Spacing::Bursts { mean: 5.0, gap_ns: 2e6 };
        for (spacing, tolerance) in [(Spacing::Poisson, 0.05), (Spacing::Periodic, 0.001), (bursts, 0.12)] {
            let all = schedule("15@400/0@100/45@200/10@400", spacing, Service::Fixed).draw(0);
            assert!(all.is_sorted_by_key(|d| d.arrival_ns), "{spacing:?}");
            for (from_s, to_s, rate) in
                [(0.0, 400.0, 15.0), (401.0, 500.0, 0.0), (501.0, 700.0, 45.0), (700.0, 1100.0, 10.0)]
            {
                let expected: f64 = rate * (to_s - from_s);
                let n = within(&all, from_s, to_s).len() as f64;
                assert!(
                    (n - expected).abs() <= 1.0 + tolerance * expected,
                    "{spacing:?}: {n} for {expected}"
                );
            }
            assert!(within(&all, 1100.0, 1e9).is_empty());
        }
    }

    #[test]
    fn gaps_vary_as_the_kind_says() {
        let draw = |spacing| schedule("100@500", spacing, Service::Fixed).draw(0);
        let (mean, c2) = moments(&gaps(&draw(Spacing::Poisson)));
        // 50,000 gaps: standard errors of 0.45 % and, of c2, 1.3 %.
        assert!((mean / 1e7 - 1.0).abs() < 0.03 && (c2 - 1.0).abs() < 0.08, "{mean} {c2}");
        let (mean, c2) = moments(&gaps(&draw(Spacing::Periodic)));
        assert!((mean - 1e7).abs() < 1.0 && c2 < 1e-9, "{mean} {c2}");
        // Sessions of five, 2 ms apart, at 4 a second: four of five gaps are 2 ms, one of five is what is left.
        let bursts = Spacing::Bursts { mean: 5.0, gap_ns: 2e6 };
        let all = schedule("20@5000", bursts, Service::Fixed).draw(0);
        let (mean, c2) = moments(&gaps(&all));
        assert!((mean / 5e7 - 1.0).abs() < 0.04 && (6.5..9.5).contains(&c2), "{mean} {c2}");
        let short = gaps(&all).iter().filter(|g| (**g - 2e6).abs() < 2.0).count() as f64;
        assert!((0.74..0.82).contains(&(short / all.len() as f64)), "{short} of {}", all.len());
    }

    #[test]
    fn demands_have_their_mean_and_vary_as_the_kind_says() {
        for (service, c2) in [(Service::Fixed, 0.0), (Service::Exponential, 1.0), (Service::Mixed, 2.25)] {
            for mean_units in [50.0, 82.5, 330.25] {
                let one = schedule("1000@400", Spacing::Periodic, service);
                let all = Schedule { mean_units, ..one }.draw(0);
                let demands: Vec<f64> = all.iter().map(|d| d.demand_units as f64).collect();
                let (mean, seen) = moments(&demands);
                assert!((mean / mean_units - 1.0).abs() < 0.01, "{service:?}: {mean} for {mean_units}");
                assert!((seen - c2).abs() < 0.03 + 0.02 * c2, "{service:?}: {seen}");
            }
        }
    }

    #[test]
    fn arrivals_and_demands_do_not_depend_on_each_other() {
        let base = schedule("50@100", Spacing::Poisson, Service::Exponential);
        let arrivals = |s: &Schedule, vcpu| s.draw(vcpu).iter().map(|d| d.arrival_ns).collect::<Vec<_>>();
        let demands = |s: &Schedule| s.draw(0).iter().map(|d| d.demand_units).take(4000).collect::<Vec<_>>();
        let served = Schedule { service: Service::Mixed, mean_units: 700.0, ..base.clone() };
        assert_eq!(arrivals(&base, 0), arrivals(&served, 0));
        let spaced = Schedule { spacing: Spacing::Periodic, ..base.clone() };
        assert_eq!(demands(&base), demands(&spaced)[..demands(&base).len().min(demands(&spaced).len())]);
        assert_ne!(arrivals(&base, 0), arrivals(&spaced, 0));
        assert_ne!(arrivals(&base, 0), arrivals(&base, 1));
        assert_ne!(arrivals(&base, 0), arrivals(&Schedule { seed: 4, ..base.clone() }, 0));
    }

    #[test]
    fn a_session_of_one_is_a_request() {
        let mut generator = Generator::new(1);
        assert!((0..100).all(|_| geometric(&mut generator, 1.0) == 1));
        let sizes: Vec<f64> = (0..100_000).map(|_| geometric(&mut generator, 5.0) as f64).collect();
        let (mean, c2) = moments(&sizes);
        assert!((mean - 5.0).abs() < 0.1 && (c2 - 0.8).abs() < 0.05, "{mean} {c2}");
    }

    #[test]
    fn a_mistake_in_rates_is_named() {
        for (text, named) in [
            ("", "``"),
            ("15", "`15`"),
            ("15@60/x@5", "`x@5`"),
            ("-1@5", "`-1`"),
            ("5@0", "no time"),
            ("nan@5", "`nan`"),
            ("1000@601", "601000 requests"),
            ("0@50000/0@50000", "100000 s"),
        ] {
            let why = rates(text).unwrap_err();
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}
