//! Which setting helps on this host, by how much, and with which certainty? And is the host set up well for VMs?
//!
//! An experiment is a value ([`description`]): factors with levels, a workload, measures, a design. `check` says
//! whether it can be run.
//!
//! - [`design`]: which settings are run, in which order.
//! - [`run`]: result of one run; [`progress`]: the next action according to the log; [`observed`]: waits of VMs
//!   during a run.
//! - [`analyse`], [`values`] and [`answers`]: results of the runs.
//! - [`simulated`]: simulated experiments whose truth is known, to count how often the analysis is wrong.
//! - [`study`]: a published study, computed again from its own tables.
//! - [`audit`]: checks of a captured tree of files.
//!
//! `vsteer-act` runs experiments and writes their logs.
//!
//! One unit throughout: a block, in which every setting is run once (or a few times, of which the mean counts) in
//! random order. Every question asked of a design is a [`design::Contrast`], one number per block. What drifts from
//! block to block then touches no answer, and one statistic with one stopping rule serves pairs, one factor at a
//! time, factorials and interactions (decision 0014).

pub mod analyse;
pub mod answers;
pub mod audit;
mod check;
pub mod description;
pub mod design;
mod measured;
pub mod observed;
pub mod progress;
pub mod run;
pub mod simulated;
pub mod study;
pub mod values;

pub use answers::{Answers, Outcome, answer};
pub use description::Experiment;
pub use progress::{Event, Next, Progress};
pub use run::{Bad, Run};
