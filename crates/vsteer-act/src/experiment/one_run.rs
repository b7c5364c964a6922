//! Prepares, runs, times and cleans up one run, and returns its measures or why the run does not count.
//!
//! For a run on another machine it also returns whether the link may have been lost. The caller checks that.

use super::clocks::Clocks;
use super::observing::{Observing, measure as measure_observed};
use std::path::PathBuf;
use std::time::Duration;
use vsteer_core::printed::printed;
use vsteer_core::setting::argv::Argv;
use vsteer_experiment::description::Of;
use vsteer_experiment::{Bad, Experiment, Run};
use vsteer_host::shell::{self, End, LINK_LOST};
use vsteer_record::trusted;

/// Names of a run's files: the command's output, and its standard error.
fn files(base: &std::path::Path) -> (PathBuf, PathBuf) {
    (base.with_extension("out"), base.with_extension("err"))
}

/// Why a run does not count.
#[derive(Debug, Clone, PartialEq)]
pub struct Spoilt {
    /// The reason, for the log.
    pub bad: Bad,
    /// Was the other machine possibly not reachable?
    pub link: bool,
}

impl From<Bad> for Spoilt {
    fn from(bad: Bad) -> Spoilt {
        Spoilt { bad, link: false }
    }
}

/// Does a run: fills in its start, its duration and its measures. Returns why it does not count, if so.
pub fn carry_out(
    experiment: &Experiment,
    levels: &[usize],
    base: PathBuf,
    run: &mut Run,
    mut observing: Option<&mut Observing>,
    stopped: &dyn Fn() -> bool,
) -> Option<Spoilt> {
    let workload = &experiment.workload;
    let on = workload.on.as_deref();
    let limit = Duration::from_secs_f64(experiment.timeout_s);
    let with = |command: &Argv| experiment.with_levels(command, levels);
    let over_ssh = |bad: Bad| Spoilt { bad, link: on.is_some() };
    let cleaned = |spoilt: Option<Spoilt>| {
        let Some(clean) = &workload.clean else { return spoilt };
        match shell::ask(&with(clean), on, limit) {
            Ok(_) => spoilt,
            // The next run would start from another state than this one.
            Err(fault) => {
                spoilt.or_else(|| Some(over_ssh(Bad::NotPrepared { why: format!("cleaning up: {fault}") })))
            }
        }
    };
    if let Some(prepare) = &workload.prepare
        && let Err(fault) = shell::ask(&with(prepare), on, limit)
    {
        return cleaned(Some(over_ssh(Bad::NotPrepared { why: fault.to_string() })));
    }
    let (out, err) = files(&base);
    let made = trusted::create_again(&out).and_then(|o| Ok((o, trusted::create_again(&err)?)));
    let output = match made {
        Ok(output) => output,
        Err(e) => {
            let why = e.to_string();
            return cleaned(Some(Bad::NotPrepared { why }.into()));
        }
    };
    // Not part of the measured time.
    let looked = observing.as_mut().map(|o| o.begin(experiment));
    run.unix_ns = crate::watchdog::unix_ns();
    let before = Clocks::now();
    let ran = shell::run(&with(&workload.command), on, output, limit, stopped);
    let after = Clocks::now();
    if let (Some(observing), Some(begun)) = (observing, looked)
        && matches!(ran, Ok(ran) if matches!(ran.end, End::Code(_)))
    {
        measure_observed(experiment, &observing.end(begun), run);
    }
    let bad = match &ran {
        Err(fault) => Some(Bad::NotPrepared { why: fault.to_string() }),
        Ok(ran) => {
            let took = ran.took.as_secs_f64();
            match ran.end {
                End::Stopped => Some(Bad::CutOff),
                End::TimedOut => Some(Bad::TimedOut),
                End::Code(code) => {
                    run.took_s = Some(took);
                    measure(experiment, &out, took, run).or_else(|| before.disturbed(after)).or_else(|| {
                        // Last: a failed run's numbers are recorded too, but do not count.
                        (code != 0).then_some(Bad::Failed { code })
                    })
                }
            }
            .map(|bad| match (bad, ran.end) {
                (Bad::NoNumber { .. }, End::Code(code)) if code != 0 => Bad::Failed { code },
                (bad, _) => bad,
            })
        }
    };
    let link = matches!(ran, Ok(ran) if matches!(ran.end, End::TimedOut | End::Code(LINK_LOST)));
    cleaned(bad.map(|bad| if link { over_ssh(bad) } else { bad.into() }))
}

fn measure(experiment: &Experiment, out: &std::path::Path, took: f64, run: &mut Run) -> Option<Bad> {
    let mut bad = None;
    let mut text: Option<String> = None;
    for (i, m) in experiment.measured().iter().enumerate() {
        match &m.of {
            Of::Time => run.values[i] = Some(took),
            Of::Printed(pattern) => {
                let text = text.get_or_insert_with(|| shell::printed(out).unwrap_or_default());
                run.values[i] = printed(pattern, text);
                if run.values[i].is_none() {
                    bad.get_or_insert(Bad::NoNumber { measure: m.name.clone() });
                }
            }
            // The power meter reads later, the observer itself.
            _ => {}
        }
    }
    bad
}
