//! Cells of a line: texts, numbers, and times.

use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Cells between separators. A quotation mark inside quotes is doubled. `None` if a quotation does not end.
pub fn cells(line: &str, separator: char) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut cell = String::new();
    let mut chars = line.trim_end_matches('\r').chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            c if c == separator && !quoted => all.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    all.push(cell);
    (!quoted).then_some(all)
}

/// A number. With `commas`, a comma may separate its decimals.
pub fn number(cell: &str, commas: bool) -> Option<f64> {
    let value = match cell.split_once(',') {
        Some((whole, decimals)) if commas && !decimals.contains(['.', ',']) && !whole.contains('.') => {
            format!("{whole}.{decimals}").parse().ok()
        }
        _ => cell.parse().ok(),
    };
    value.filter(|v: &f64| v.is_finite())
}

/// `-1`, with or without decimals: Windows' mark for missing data.
pub fn is_negative_one(cell: &str) -> bool {
    let rest = cell.strip_prefix("-1").map(|rest| rest.trim_start_matches(['.', ',']));
    rest.is_some_and(|rest| rest.bytes().all(|b| b == b'0')) && !cell.starts_with("-10")
}

/// s since 1970, as if the time were UTC. The month comes first, unless `day_first` says, or the first date proves,
/// that the day does. With dots the day comes first; with four digits the year.
pub fn time(cell: &str, day_first: &mut Option<bool>) -> Option<f64> {
    let (date, clock) = cell.trim().split_once(' ')?;
    fn part<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
        text.and_then(|t| t.parse().ok())
    }
    let separator = date.chars().find(|c| !c.is_ascii_digit())?;
    let parts: Vec<i16> = date.split(separator).map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let [a, b, c] = parts[..] else { return None };
    let (year, month, day) = match separator {
        '/' | '-' if a >= 1000 => (a, b, c),
        '/' if *day_first.get_or_insert(a > 12) => (c, b, a),
        '/' => (c, a, b),
        '.' => (c, b, a),
        _ => return None,
    };
    let mut clock = clock.split(':');
    let (hour, minute) = (part(clock.next())?, part(clock.next())?);
    let second: f64 = clock.next()?.replace(',', ".").parse().ok().filter(|s| (0.0..61.0).contains(s))?;
    let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    let at = DateTime::new(year, month, day, hour, minute, 0, 0).ok().filter(|_| year >= 1970)?;
    Some(Offset::UTC.to_timestamp(at).ok()?.as_second() as f64 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_the_mark_of_missing_data() {
        assert_eq!(
            (number("12.5", true), number("12,5", true), number("12,5", false)),
            (Some(12.5), Some(12.5), None)
        );
        assert_eq!((number("1.234,5", true), number("1,2,3", true), number("x", true)), (None, None, None));
        for missing in ["-1", "-1.0", "-1.000000", "-1,000"] {
            assert!(is_negative_one(missing), "{missing}");
        }
        for other in ["-10", "-1.5", "1", "-0.1", "-11"] {
            assert!(!is_negative_one(other), "{other}");
        }
    }
}
