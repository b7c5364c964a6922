//! Which setting really helps, on this host, by how much, and how sure is that?
//!
//! An experiment is a value ([`description`]): factors with levels, a workload, what is measured, a design; `check` says whether it can be run. [`design`] lays out which settings are run in which
//! order, [`observed`] reads what VMs waited off a model, [`printed`] the number off what a program said, [`progress`] reads off the log what is to be done next, [`analyse`] and [`answers`] say what the runs tell; [`lasting`] is how what was better is kept for good; [`simulated`] makes
//! up experiments whose truth is known and counts how often the analysis is wrong; [`study`] holds a published study to its own tables. Setting,
//! running and writing down is `vsteer-act`'s.
//!
//! One unit throughout: a block, in which every setting is run once (or a few times, of which the mean counts) in random order. Every question
//! asked of a design is a [`design::Contrast`], one number per block, so that what drifts from block to block touches no answer, and one
//! statistic with one stopping rule serves pairs, one factor at a time, factorials and interactions (decision 0032).

pub mod analyse;
pub mod answers;
pub mod audit;
mod check;
pub mod description;
pub mod design;
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
