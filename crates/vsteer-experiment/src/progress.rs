//! Which runs of an experiment are done, and which comes next? The log alone decides, so a killed experiment can
//! continue.
//!
//! vsteer writes and syncs each line before the next action. It logs a run before it begins ([`Event::Starting`])
//! and after it ends ([`Event::Ran`]). A run with only the first line was cut off; vsteer logs that and repeats the
//! run. Bad runs ([`Bad`]) stay in the log but never enter a mean. Later runs can show that an earlier run is an
//! outlier ([`Event::NotCounting`]).
//!
//! The number of blocks is that of the first stage, then the one from [`super::analyse::blocks::needed`] for the
//! question that needs most. vsteer logs it once ([`Event::Decided`]). Left out: dropping settings that are clearly
//! worse.

use super::analyse::{ALPHA, blocks};
use super::description::Experiment;
use super::design::{Laid, order};
use super::run::{Bad, Place, Run};
use super::values::values_of_block;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use vsteer_core::nouns::HostConfig;

/// Version of the log format.
pub const LOG_VERSION: u32 = 1;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The experiment begins.
    Begun {
        /// [`LOG_VERSION`].
        version: u32,
        /// The whole description.
        experiment: Box<Experiment>,
        /// Time, ns since 1970 UTC.
        unix_ns: u64,
        /// The machine without its VMs. The undo journal belongs to it, even if reboots change its configuration.
        host: Box<HostConfig>,
        /// Value in force before the experiment, per factor; `None` if the factor sets nothing.
        found: Vec<Option<String>>,
    },
    /// The experiment continues after an interruption.
    Resumed {
        /// Time, ns since 1970 UTC.
        unix_ns: u64,
        /// Boot id of the machine.
        boot: String,
    },
    /// vsteer set the levels of this setting and read them back.
    Set {
        /// Index of the block.
        block: usize,
        /// Index of the setting.
        setting: usize,
    },
    /// vsteer reboots the machine for a setting; `None`: for the former values.
    Booting {
        /// Index of the block.
        block: usize,
        /// Index of the setting.
        setting: Option<usize>,
        /// Boot id before the reboot.
        boot: String,
    },
    /// A run begins.
    Starting {
        /// Number of the run.
        number: usize,
        /// Block, setting and repeat of the run.
        place: Place,
    },
    /// A run has ended.
    Ran(Run),
    /// A run counted as good, but later runs show that it is an outlier.
    NotCounting {
        /// Number of the run.
        number: usize,
        /// Reason.
        bad: Bad,
    },
    /// The first stage is complete, and the total number of blocks is decided.
    Decided {
        /// Total number of blocks.
        blocks: usize,
        /// Number of blocks needed, if that is more than the maximum.
        wanted: usize,
    },
    /// All blocks are done and the former values are restored.
    Ended,
}

/// The next action.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Log that a run was cut off.
    CutOff(usize, Place),
    /// Log that an earlier run is an outlier.
    NotCounting(usize, Bad),
    /// This run.
    Run(Place),
    /// The first stage is complete: log the total number of blocks.
    Decide {
        /// Total number of blocks.
        blocks: usize,
        /// Number of blocks needed, if that is more than the maximum.
        wanted: usize,
    },
    /// Restore the former values and end.
    End,
    /// The experiment has ended.
    Nothing,
}

/// Checks that the lines of a log fit their experiment, because another program may have written the file.
///
/// # Errors
/// Index of the wrong line (from 0), and why it is wrong.
pub fn check(events: &[Event]) -> Result<(), (usize, String)> {
    let begun = events.iter().enumerate().find_map(|(i, e)| match e {
        Event::Begun { experiment, found, .. } => Some((i, experiment, found)),
        _ => None,
    });
    let Some((at, experiment, found)) = begun else {
        // A log that was cut off before its first line is empty, which is valid.
        return if events.is_empty() {
            Ok(())
        } else {
            Err((0, "the log does not begin with an experiment".to_owned()))
        };
    };
    let told = |e: vsteer_core::Fault| (at, e.to_string());
    experiment.check_form().map_err(told)?;
    let laid = experiment.laid().map_err(told)?;
    if at != 0 {
        return Err((0, "the log does not begin with an experiment".to_owned()));
    }
    if found.len() != experiment.factors.len() {
        let (found, factors) = (found.len(), experiment.factors.len());
        return Err((at, format!("the log has former values of {found} factors, expected {factors}")));
    }
    let (settings, measures) = (laid.settings.len(), experiment.measured().len());
    let repeats = experiment.warm_up + experiment.runs_per_visit;
    for (i, event) in events.iter().enumerate().skip(1) {
        let (place, run) = match event {
            Event::Begun { .. } => return Err((i, "the experiment begins a second time".to_owned())),
            Event::Starting { place, .. } => (*place, None),
            Event::Ran(run) => (run.place, Some(run)),
            Event::Set { block, setting } | Event::Booting { block, setting: Some(setting), .. } => {
                (Place { block: *block, setting: *setting, repeat: 0, attempt: 0 }, None)
            }
            Event::NotCounting { number, .. } => {
                let known = |e: &Event| matches!(e, Event::Ran(r) if r.number == *number);
                if !events[..i].iter().any(known) {
                    return Err((i, format!("the log has no run {number}")));
                }
                continue;
            }
            Event::Decided { blocks, .. } if *blocks > experiment.runs_most => {
                return Err((
                    i,
                    format!("{blocks} blocks are more than runs_most ({})", experiment.runs_most),
                ));
            }
            _ => continue,
        };
        if place.block >= experiment.runs_most || place.setting >= settings || place.repeat >= repeats {
            return Err((i, format!("the experiment has no {place:?}")));
        }
        if let Some(values) = run.map(|r| r.values.len()).filter(|n| *n != measures) {
            return Err((i, format!("the run has {values} values, expected {measures}")));
        }
        if let Some(took_s) = run.and_then(|r| r.took_s).filter(|t| *t < 0.0) {
            return Err((i, format!("the run took {took_s} s, which is less than 0")));
        }
    }
    Ok(())
}

/// How often a bad run is repeated during its visit.
pub const ATTEMPTS: usize = 3;
/// A setting that could not be set in this many consecutive blocks is given up.
const NOT_TAKEN_MOST: usize = 2;

/// A run that is longer or shorter than others by this factor is an outlier.
const TENFOLD: f64 = 10.0;
/// Shorter runs, s, are never outliers: on a busy machine a process waits about this long.
const SCATTER_S: f64 = 0.5;

/// The middle value, or the two middle values of an even number.
fn middle(took: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = took.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |i: usize| sorted.get(i).copied();
    Some([at(sorted.len().checked_sub(1)? / 2)?, at(sorted.len() / 2)?])
}

/// Ratio of `took_s` to the nearest middle value, if it is at least 10 or at most 0.1 for each.
fn tenfold(took_s: f64, middle: [f64; 2]) -> Option<Bad> {
    let odd = |m: f64| {
        let times = took_s / m;
        (took_s.max(m) > SCATTER_S && !(TENFOLD.recip()..=TENFOLD).contains(&times)).then_some(times)
    };
    let (low, high) = (odd(middle[0])?, odd(middle[1])?);
    // The nearer of the two middle values.
    let times = if libm::log(low).abs() < libm::log(high).abs() { low } else { high };
    Some(Bad::Tenfold { times })
}

/// State of an experiment, read from its log.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    experiment: &'a Experiment,
    laid: &'a Laid,
    events: &'a [Event],
    /// All runs. One that a later line of the log declared bad is marked so.
    runs: Vec<Cow<'a, Run>>,
}

impl<'a> Progress<'a> {
    /// State after these lines of the log.
    pub fn new(experiment: &'a Experiment, laid: &'a Laid, events: &'a [Event]) -> Progress<'a> {
        let mut runs: Vec<Cow<'a, Run>> = Vec::new();
        for event in events {
            match event {
                Event::Ran(run) => runs.push(Cow::Borrowed(run)),
                Event::NotCounting { number, bad } => {
                    for run in runs.iter_mut().filter(|r| r.number == *number) {
                        run.to_mut().bad.get_or_insert_with(|| bad.clone());
                    }
                }
                _ => {}
            }
        }
        Progress { experiment, laid, events, runs }
    }

    /// All runs that have ended, in order.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().map(|run| &**run)
    }

    /// Durations of this setting's completed runs, s. Includes outliers, because only later runs show which of two
    /// runs is the outlier.
    fn took(&self, setting: usize, warm_up: bool) -> Vec<f64> {
        let ended = |r: &&Run| matches!(r.bad, None | Some(Bad::Tenfold { .. }));
        let of_it = self.runs().filter(|r| r.place.setting == setting && r.warm_up == warm_up);
        of_it.filter(ended).filter_map(|r| r.took_s).collect()
    }

    /// Is the last run an outlier compared with the setting's other runs?
    pub fn tenfold(&self, run: &Run) -> Option<Bad> {
        tenfold(run.took_s?, middle(&self.took(run.place.setting, run.warm_up))?)
    }

    /// An earlier good run that is an outlier according to later runs.
    fn odd_one_out(&self) -> Option<(usize, Bad)> {
        let mut middles = BTreeMap::new();
        self.runs().filter(|r| r.bad.is_none()).find_map(|r| {
            let of_it = middles
                .entry((r.place.setting, r.warm_up))
                .or_insert_with(|| middle(&self.took(r.place.setting, r.warm_up)));
            Some((r.number, tenfold(r.took_s?, (*of_it)?)?))
        })
    }

    /// Total number of blocks; that of the first stage until it is decided.
    pub fn blocks(&self) -> usize {
        let decided = self.events.iter().find_map(|e| match e {
            Event::Decided { blocks, .. } => Some(*blocks),
            _ => None,
        });
        decided.unwrap_or(self.experiment.runs_least)
    }

    fn is_decided(&self) -> bool {
        self.experiment.margin_percent.is_none()
            || self.events.iter().any(|e| matches!(e, Event::Decided { .. }))
    }

    /// Was this setting given up because it could not be set?
    pub fn given_up(&self, setting: usize) -> bool {
        let of_it = self.runs().filter(|r| r.place.setting == setting);
        let trailing =
            of_it.fold(0, |n, r| if matches!(r.bad, Some(Bad::NotTaken { .. })) { n + 1 } else { 0 });
        trailing >= NOT_TAKEN_MOST
    }

    /// Number of the next run.
    pub fn next_number(&self) -> usize {
        self.events.iter().filter(|e| matches!(e, Event::Starting { .. })).count()
    }

    /// The next run of a visit; `None` if the visit is complete.
    fn of_visit(
        &self,
        block: usize,
        setting: usize,
        runs: &BTreeMap<(usize, usize), Vec<&Run>>,
    ) -> Option<Place> {
        let made = runs.get(&(block, setting)).map_or(&[][..], Vec::as_slice);
        for repeat in 0..self.experiment.warm_up + self.experiment.runs_per_visit {
            let tried: Vec<&&Run> = made.iter().filter(|r| r.place.repeat == repeat).collect();
            if tried.iter().any(|r| r.bad.is_none()) {
                continue;
            }
            // A setting that could not be set will not work a minute later, so the visit ends.
            if tried.iter().any(|r| r.bad.as_ref().is_some_and(|b| !b.may_pass())) {
                return None;
            }
            // A run that was cut off does not count as an attempt.
            let failed = tried.iter().filter(|r| r.bad != Some(Bad::CutOff)).count();
            if failed < ATTEMPTS {
                return Some(Place { block, setting, repeat, attempt: tried.len() });
            }
        }
        None
    }

    /// The next action.
    pub fn next(&self) -> Next {
        if self.events.iter().any(|e| matches!(e, Event::Ended)) {
            return Next::Nothing;
        }
        let mut open = None;
        let mut runs: BTreeMap<(usize, usize), Vec<&Run>> = BTreeMap::new();
        for event in self.events {
            match event {
                Event::Starting { number, place } => open = Some((*number, *place)),
                Event::Ran(_) => open = None,
                _ => {}
            }
        }
        for run in self.runs() {
            runs.entry((run.place.block, run.place.setting)).or_default().push(run);
        }
        if let Some((number, place)) = open {
            return Next::CutOff(number, place);
        }
        if let Some((number, bad)) = self.odd_one_out() {
            return Next::NotCounting(number, bad);
        }
        let given_up: Vec<bool> = (0..self.laid.settings.len()).map(|s| self.given_up(s)).collect();
        for block in 0..self.blocks() {
            for setting in
                order(&self.experiment.varied(), &self.laid.settings, self.experiment.seed, block as u64)
            {
                if !given_up[setting]
                    && let Some(place) = self.of_visit(block, setting, &runs)
                {
                    return Next::Run(place);
                }
            }
        }
        if self.is_decided() {
            return Next::End;
        }
        let wanted = self.wanted();
        Next::Decide { blocks: wanted.min(self.experiment.runs_most), wanted }
    }

    /// Number of blocks for the question that needs most.
    fn wanted(&self) -> usize {
        let Some(margin) = self.experiment.margin_percent else { return self.blocks() };
        let all: Vec<&Run> = self.runs().collect();
        let values = values_of_block(self.laid, &all, 0);
        let of = |c: &super::design::Contrast| {
            let x: Vec<f64> = values.values.iter().filter_map(|b| c.of_block(b)).collect();
            // In per cent if values are logarithms, otherwise relative to the mean of all values.
            let unit = if values.logarithms { 1.0 } else { values.mean().abs().max(f64::MIN_POSITIVE) };
            let margin = if values.logarithms { libm::log1p(margin / 100.0) } else { margin / 100.0 };
            blocks::needed(&x, margin * unit, ALPHA)
        };
        self.laid.contrasts.iter().filter_map(of).max().unwrap_or(self.blocks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{Outcome, answer};
    use vsteer_core::random::Random;

    fn experiment(more: &str) -> Experiment {
        let text = format!(
            "name = \"t\"\ndesign = \"one-at-a-time\"\nwarm_up = 1\n{more}\n[workload]\ncommand = \"x \
                {{a}}\"\n[[factor]]\nname = \"a\"\nlevels = [\"0\", \"1\", \"2\"]\n"
        );
        toml::from_str(&text).unwrap()
    }

    /// Carries an experiment through; what a run does is said by `outcome` of (its number, its place).
    fn carry(e: &Experiment, outcome: impl Fn(usize, &Place) -> Result<f64, Bad>) -> Vec<Event> {
        let laid = e.laid().unwrap();
        let mut events = Vec::new();
        for _ in 0..10_000 {
            let progress = Progress::new(e, &laid, &events);
            match progress.next() {
                Next::Run(place) => {
                    let number = progress.next_number();
                    let result = outcome(number, &place);
                    events.push(Event::Starting { number, place });
                    let (values, bad) =
                        result.map_or_else(|bad| (vec![None], Some(bad)), |v| (vec![Some(v)], None));
                    let warm_up = place.repeat < e.warm_up;
                    events.push(Event::Ran(Run {
                        number,
                        place,
                        warm_up,
                        unix_ns: 0,
                        took_s: None,
                        values,
                        missing: Vec::new(),
                        bad,
                    }));
                }
                Next::Decide { blocks, wanted } => events.push(Event::Decided { blocks, wanted }),
                Next::End => events.push(Event::Ended),
                Next::Nothing => return events,
                Next::CutOff(..) | Next::NotCounting(..) => {
                    panic!("nothing is cut off here, and nothing odd")
                }
            }
        }
        panic!("it has no end");
    }

    fn time(number: usize, place: &Place) -> f64 {
        let mut r = Random::new(1, number as u64);
        let noise: f64 = (0..12).map(|_| r.unit()).sum::<f64>() - 6.0;
        // Warm-up is slow; level 1 saves 10 %, level 2 nothing.
        let base = if place.repeat == 0 { 200.0 } else { 100.0 };
        (base + noise) * if place.setting == 1 { 0.9 } else { 1.0 }
    }

    #[test]
    fn an_experiment_comes_to_its_answers() {
        let e = experiment("margin_percent = 0.5\nruns_most = 40");
        let events = carry(&e, |n, p| Ok(time(n, p)));
        let told = answer(&e, &e.laid().unwrap(), &events);
        let m = &told.measures[0];
        assert_eq!((m.answers[0].name.as_str(), m.answers[0].outcome), ("a: 1", Outcome::Better));
        assert_eq!((m.answers[1].name.as_str(), m.answers[1].outcome), ("a: 2", Outcome::NotSeen));
        let effect = m.answers[0].effect.unwrap();
        assert!(
            effect.low < -10.0 + 0.5 && effect.high > -10.5 && effect.high - effect.low < 1.2,
            "{effect:?}"
        );
        assert!(m.answers[0].blocks > 5 && m.answers[0].first == 5, "{told:#?}");
        assert!(told.ended && told.bad.is_empty() && told.counted == 3 * m.answers[0].blocks);
        assert_eq!(told.runs, 2 * told.counted);
    }

    /// Cut anywhere, the next line is the same as it was.
    #[test]
    fn whoever_goes_on_does_what_would_have_been_done() {
        let e = experiment("margin_percent = 1.0\nruns_most = 8");
        let laid = e.laid().unwrap();
        let events = carry(&e, |n, p| Ok(time(n, p)));
        for cut in 0..events.len() {
            let next = Progress::new(&e, &laid, &events[..cut]).next();
            let agrees = match (&events[cut], &next) {
                (Event::Starting { place, .. }, Next::Run(p)) => place == p,
                (Event::Ran(run), Next::CutOff(number, place)) => {
                    run.number == *number && run.place == *place
                }
                (Event::Decided { blocks, .. }, Next::Decide { blocks: b, .. }) => blocks == b,
                (Event::Ended, Next::End) => true,
                _ => false,
            };
            assert!(agrees, "after {cut} lines: {next:?} for {:?}", events[cut]);
        }
    }

    #[test]
    fn what_is_bad_is_kept_and_never_averaged_in() {
        let e = experiment("");
        let events = carry(&e, |n, p| match (n % 4, p.setting) {
            (_, 2) => Err(Bad::NotTaken { factor: "a".into(), wanted: "2".into(), found: "\"0\"".into() }),
            (0, _) => Err(Bad::TimedOut),
            _ => Ok(time(n, p)),
        });
        let told = answer(&e, &e.laid().unwrap(), &events);
        assert_eq!(told.given_up, ["a=2"]);
        // Two blocks tried it, once each.
        assert_eq!(told.bad.iter().filter(|(r, _)| r.place.setting == 2).count(), 2);
        assert!(told.bad.iter().any(|(r, why)| r.bad == Some(Bad::TimedOut) && why.contains("time limit")));
        let two = told.measures[0].answers.iter().find(|a| a.name == "a: 2").unwrap();
        assert_eq!((two.outcome, two.effect), (Outcome::TooFew, None));
        assert_eq!(told.measures[0].answers[0].blocks, 5);
        // Equal to the last digit: no difference, and no alarm for a rounding error.
        let events = carry(&e, |_, p| Ok(if p.setting == 1 { 3.0 } else { 7.1 }));
        let told = answer(&e, &e.laid().unwrap(), &events);
        let outcomes: Vec<(&str, Outcome)> =
            told.measures[0].answers.iter().map(|a| (a.name.as_str(), a.outcome)).collect();
        assert_eq!(outcomes, [("a: 1", Outcome::Better), ("a: 2", Outcome::NotSeen)]);
        // One that always fails ends, too.
        let events = carry(&e, |_, _| Err(Bad::Failed { code: 2 }));
        let told = answer(&e, &e.laid().unwrap(), &events);
        assert_eq!((told.counted, told.bad.len()), (0, 3 * 5 * 2 * ATTEMPTS));
    }

    /// Runs an experiment like the real runner; `took` is how long a run takes, by how many
    /// its setting had before.
    fn carry_times(e: &Experiment, took: impl Fn(usize, usize) -> f64) -> Vec<Event> {
        let laid = e.laid().unwrap();
        let mut events = Vec::new();
        for _ in 0..1_000 {
            let progress = Progress::new(e, &laid, &events);
            match progress.next() {
                Next::Run(place) => {
                    let of_it = progress.runs().filter(|r| r.place.setting == place.setting).count();
                    let took = took(place.setting, of_it);
                    let mut run = Run {
                        number: progress.next_number(),
                        place,
                        warm_up: false,
                        unix_ns: 0,
                        took_s: Some(took),
                        values: vec![Some(took)],
                        missing: Vec::new(),
                        bad: None,
                    };
                    run.bad = progress.tenfold(&run);
                    events.push(Event::Starting { number: run.number, place });
                    events.push(Event::Ran(run));
                }
                Next::NotCounting(number, bad) => events.push(Event::NotCounting { number, bad }),
                Next::End => events.push(Event::Ended),
                Next::Nothing => return events,
                other => panic!("{other:?}"),
            }
        }
        panic!("it has no end");
    }

    #[test]
    fn the_odd_one_out_does_not_count_whenever_it_comes() {
        let e = Experiment { warm_up: 0, ..experiment("") };
        let laid = e.laid().unwrap();
        for (odd_run, odd_s) in [(0, 30.0), (1, 30.0), (3, 30.0), (0, 0.1), (1, 0.1), (3, 0.1)] {
            let events = carry_times(&e, |setting, n| if setting == 1 && n == odd_run { odd_s } else { 2.5 });
            check(&events_of(&e, &events)).unwrap();
            let told = answer(&e, &laid, &events);
            assert_eq!((told.counted, told.bad.len()), (3 * 5, told.runs - 3 * 5), "{odd_run} {odd_s}");
            // One more than the odd one at most: of two nobody knows which it is.
            let odd = |r: &Run| r.took_s == Some(odd_s);
            assert_eq!(told.bad.iter().filter(|(r, _)| odd(r)).count(), 1, "{odd_run} {odd_s}: {told:#?}");
            assert!(told.bad.len() <= 2 && told.bad.iter().all(|(r, _)| r.place.setting == 1), "{told:#?}");
            let of_it = told.measures[0].settings.iter().find(|s| s.words == "a=1").unwrap();
            assert!(of_it.values.len() == 5 && of_it.values.iter().all(|v| (v - 2.5).abs() < 1e-9));
            // Cut at any place, the continued experiment has the same result.
            for cut in (0..events.len()).filter(|i| matches!(events[*i], Event::NotCounting { .. })) {
                let next = Progress::new(&e, &laid, &events[..cut]).next();
                assert!(matches!(next, Next::NotCounting(number, _) if
                    events[cut] == Event::NotCounting { number, bad: Bad::Tenfold { times: odd_s / 2.5 } }));
            }
        }
        // A host that has become slower is slow: what most runs say counts, and it ends.
        let events = carry_times(&e, |_, n| if n < 2 { 1.0 } else { 30.0 });
        let told = answer(&e, &laid, &events);
        let values = told.measures[0].settings.iter().flat_map(|s| &s.values);
        assert!(told.ended && values.clone().count() > 0 && values.clone().all(|v| (v - 30.0).abs() < 1e-9));
        // Below half a second it is scatter.
        let events = carry_times(&e, |_, n| if n == 0 { 0.4 } else { 0.01 });
        assert!(answer(&e, &laid, &events).bad.is_empty());
    }

    /// With a first line.
    fn events_of(e: &Experiment, events: &[Event]) -> Vec<Event> {
        let one = || vsteer_core::CpuSet::single(0);
        let parts = vsteer_core::topology::Parts {
            present: one(),
            online: one(),
            allowed: one(),
            ..vsteer_core::topology::Parts::default()
        };
        let host = HostConfig {
            cgroups: vsteer_core::nouns::CgroupLayout::None,
            ..HostConfig::new("host", "", vsteer_core::topology::Topology::new(parts).unwrap())
        };
        let begun = Event::Begun {
            version: LOG_VERSION,
            experiment: Box::new(e.clone()),
            unix_ns: 1,
            host: Box::new(host),
            found: vec![None],
        };
        std::iter::once(begun).chain(events.iter().cloned()).collect()
    }

    #[test]
    fn what_does_not_count_after_all_is_of_a_run_that_was_made() {
        let e = experiment("");
        let lone = Event::NotCounting { number: 7, bad: Bad::Tenfold { times: 12.0 } };
        assert!(check(&events_of(&e, &[lone])).unwrap_err().1.contains("has no run 7"));
    }
}
