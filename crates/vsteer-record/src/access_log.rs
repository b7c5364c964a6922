//! Reads requests from access logs, to measure how long clients waited.
//!
//! ```text
//! known      formats with a name               pattern  lines in the format of a server's configuration
//! json       JSON lines: keys and units        w3c      logs that name their own columns
//! wrapped    what collectors put around lines  moment   times and durations
//! fit        which of all fits a log           reader   a log's requests, one by one
//! plausible  durations beside what the VM did
//! ```
//!
//! A log seldom says the unit of its durations. vsteer knows the unit of many servers, and a person can say it. Otherwise it is
//! assumed, printed, and compared with what the VM did meanwhile ([`plausible`]).
//!
//! Left out: logs with several lines per request; month names in languages other than English; leap seconds.

mod fit;
mod json;
mod known;
mod moment;
mod pattern;
pub mod plausible;
mod reader;
mod w3c;
mod wrapped;

use crate::unit::Unit;
use std::str::FromStr;
use vsteer_core::{Fault, FaultKind};

pub use fit::{Layout, checked_clock};
pub use known::names;
pub use reader::{Line, Log, Reader, Summary, read};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// What a person says of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Said {
    /// The format: a name, the text of a server's configuration, or `json:` with keys.
    pub format: Option<Format>,
    /// The unit of durations.
    pub unit: Option<Unit>,
    /// The zone of times that name none; without, UTC.
    pub zone: Option<jiff::tz::TimeZone>,
}

/// A zone as a person writes it: `+09:00`, `Asia/Seoul`, `UTC`.
///
/// # Errors
/// What is wrong with it.
pub fn zone(text: &str) -> Result<jiff::tz::TimeZone, String> {
    let offset = jiff::fmt::strtime::parse("%:z", text).ok().and_then(|parsed| parsed.offset());
    let known = || jiff::tz::TimeZone::get(text).ok();
    let found = offset.map(jiff::tz::Offset::to_time_zone).or_else(known);
    found.ok_or_else(|| format!("{text:?} is not a zone, for example +09:00 or Asia/Seoul"))
}

/// A format as a person writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    text: String,
    of: Of,
}

#[derive(Debug, Clone, PartialEq)]
enum Of {
    /// One of [`names`].
    Named,
    Pattern(pattern::Pattern),
    Json(json::Keys),
}

impl Format {
    /// Parses a format.
    ///
    /// # Errors
    /// `BadInput` if it is neither a name nor a format that logs the time and the duration of requests.
    pub fn parse(text: &str) -> Result<Format, Fault> {
        let of = match text.strip_prefix("json:") {
            Some(keys) => Of::Json(keys.parse().map_err(|why: String| {
                Fault::new(FaultKind::BadInput, "cannot use this access log format").because(why)
            })?),
            None if names().contains(&text) => Of::Named,
            None => Of::Pattern(pattern::Pattern::parse(text)?),
        };
        Ok(Format { text: text.to_owned(), of })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        Format::parse(text).map_err(|fault| fault.to_string())
    }
}

/// How sure is the unit of durations?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sure {
    /// A person said it.
    Stated,
    /// The server's documentation, the name of a key, or each value says it.
    Known,
    /// It follows from the format that a person named, but many servers write logs of that shape.
    Named,
    /// Nothing says it.
    Assumed,
}

/// A request as a line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    moment: moment::Moment,
    /// Is the moment that of the request's arrival, and not of the answer?
    is_begin: bool,
    took_ns: u64,
}

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raw {
    Found(Found),
    /// A message of another kind, or a request without a duration.
    Other,
    /// The line does not match the format.
    Odd,
    /// Nothing: it is empty, or a comment.
    Nothing,
}
