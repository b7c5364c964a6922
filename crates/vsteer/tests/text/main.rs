//! Everything that a person reads, as it is printed.
//!
//! The snapshots in `snapshots/` are the product's whole language: help, errors, findings, plans, verdicts, the live table
//! and the report. Read them in one go before a release. To accept a change of text: `INSTA_UPDATE=always cargo test -p
//! vsteer --test text`, then look at the difference.

#![cfg(feature = "host")]

mod apply;
#[path = "../common/mod.rs"]
mod common;
mod errors;
mod examples;
mod findings;
mod help;
mod links;
mod output;
mod past;
mod pictures;
mod place;
#[path = "../common/program.rs"]
mod program;
mod prose;
mod reference;
mod screen;
mod windows;
