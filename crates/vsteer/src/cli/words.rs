//! Parsers for values on the command line: numbers with units and names.

pub use vsteer_core::size::bytes;
pub use vsteer_core::span::duration;
use vsteer_core::thresholds;

pub fn microseconds(text: &str) -> Result<f64, String> {
    let us = text.trim().parse::<f64>().ok().filter(|us| us.is_finite() && *us >= 0.0);
    us.ok_or_else(|| format!("{text:?} is not a number of microseconds, 0 or more"))
}

/// `ready_group=8%`, `wake_p99_ns=3ms`: a threshold's name, and its value as a share or in ns.
pub fn named_threshold(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    Ok((name.trim().to_owned(), thresholds::value(value)?))
}

/// `10` or `10%`: a percentage.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>();
    number.ok().filter(|p| p.is_finite()).ok_or_else(|| format!("{text:?} is not a percentage"))
}

/// `NAME=NUMBER`, above 0.
pub fn named_number(text: &str) -> Result<(String, f64), String> {
    let (name, number) = text.split_once('=').ok_or_else(|| format!("{text:?} is not VM=NUMBER"))?;
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    if !(number.is_finite() && number > 0.0) {
        return Err(format!("{number} is not greater than 0"));
    }
    Ok((name.to_owned(), number))
}
