//! Which histogram is wanted? Its name and labels, as in a query.

use super::words::{Labels, braces, quoted, shown, skip};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Selects a histogram: `name` or `name{label="value",...}`, as in a query. A name with characters other than letters,
/// digits, `_` and `:` may stand in quotes: `{"my.histogram",label="value"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// The histogram's name, without `_bucket`.
    pub metric: String,
    /// Labels that its series must have: names and values. Series with additional labels are summed.
    pub labels: BTreeMap<String, String>,
}

/// A metric's name up to a blank or the braces, and the text after it. A name with dots is accepted too.
fn bare(text: &str) -> Option<(&str, &str)> {
    let end = text.find([' ', '\t', '{', '}', '"', '=', ',']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let first = name.chars().next()?;
    (!first.is_ascii_digit() && !name.contains(char::is_control)).then_some((name, rest))
}

impl FromStr for Histogram {
    type Err = String;

    fn from_str(text: &str) -> Result<Histogram, String> {
        let named = |mut of: Histogram| {
            // The user may give the form of a line in the exposition text.
            of.labels.remove("le");
            let metric = of.metric.strip_suffix("_bucket").unwrap_or(&of.metric).to_owned();
            (!metric.is_empty()).then_some(Histogram { metric, ..of })
        };
        read(text.trim())
            .and_then(named)
            .ok_or_else(|| format!("{text:?} is not a histogram: write NAME or NAME{{label=\"value\"}}"))
    }
}

fn read(text: &str) -> Option<Histogram> {
    let (mut metric, rest): (Option<Cow<'_, str>>, &str) = if text.starts_with('{') {
        (None, text)
    } else if text.starts_with('"') {
        quoted(text).map(|(name, rest)| (Some(name), rest))?
    } else {
        bare(text).map(|(name, rest)| (Some(name.into()), rest))?
    };
    let (mut labels, mut names) = (Labels::new(), 0);
    let mut rest = skip(rest);
    if rest.starts_with('{') {
        rest = braces(rest, &mut |key, value| match key {
            Some(key) => drop(labels.insert(key.into_owned(), value.into_owned())),
            None => {
                names += 1;
                metric = Some(value);
            }
        })?;
    }
    let named_once = names == usize::from(text.starts_with('{'));
    let metric = metric.filter(|_| named_once && rest.is_empty())?.into_owned();
    Some(Histogram { metric, labels })
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match bare(&self.metric) {
            Some((_, "")) => f.write_str(&self.metric)?,
            _ => write!(f, "{:?}", self.metric)?,
        }
        if self.labels.is_empty() { Ok(()) } else { f.write_str(&shown(&self.labels)) }
    }
}
