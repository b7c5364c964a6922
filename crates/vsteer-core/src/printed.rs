//! Which number did a program print?
//!
//! A pattern says where the number is: `rate {} MB/s`; `*` matches any text. A number is read completely or not at
//! all, because a number cut at its first comma is wrong by a factor of a thousand and looks plausible.
//!
//! Left out: languages with points as group separators and decimal commas.

/// The last number in `text` at the `{}` of `pattern`. Between the number and the text after `{}` there is only
/// white space, unless `*` follows.
pub fn printed(pattern: &str, text: &str) -> Option<f64> {
    let (before, after) = pattern.split_once("{}")?;
    // A pattern with a comma beside its number means columns, not thousands.
    let grouped = !before.ends_with(',') && !after.starts_with(',');
    text.lines().rev().find_map(|line| {
        // `*` matches as little as possible, from the left.
        let mut at = 0;
        for part in before.split('*') {
            at += line[at..].find(part)? + part.len();
        }
        let (number, rest) = number(line[at..].trim_start(), grouped)?;
        let mut parts = after.split('*');
        let mut tail = follows(rest, parts.next().unwrap_or(""))?;
        for part in parts {
            tail = &tail[tail.find(part)? + part.len()..];
        }
        number.is_finite().then_some(number)
    })
}

/// The number at the beginning of a text, and the rest. Reads all of `1,234,567`. Reads nothing of `1,23` and
/// `1.2.3`, which are ambiguous.
fn number(text: &str, grouped: bool) -> Option<(f64, &str)> {
    let length = text.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(text.len());
    // "12.5e" is 12.5 and an "e"; "3.2." of a sentence is 3.2.
    let (mut value, mut end) = (1..=length).rev().find_map(|n| Some((text[..n].parse::<f64>().ok()?, n)))?;
    let digit_at = |i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
    if grouped && text.as_bytes().get(end) == Some(&b',') && digit_at(end + 1) {
        end = thousands(text).filter(|all| *all > end)?;
        value = text[..end].replace(',', "").parse().ok()?;
    }
    let goes_on = match text.as_bytes().get(end) {
        Some(b'.') => digit_at(end + 1),
        Some(b',') => grouped && digit_at(end + 1),
        _ => false,
    };
    (!goes_on).then(|| (value, &text[end..]))
}

/// Length of a number in groups of three digits, including its decimals.
fn thousands(text: &str) -> Option<usize> {
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let sign = usize::from(text.starts_with(['+', '-']));
    let first = digits(&text[sign..]);
    let mut end = sign + first;
    if !(1..=3).contains(&first) {
        return None;
    }
    while let Some(group) = text[end..].strip_prefix(',') {
        if digits(group) != 3 {
            return None;
        }
        end += 4;
    }
    let fraction = text[end..].strip_prefix('.').map_or(0, digits);
    Some(if fraction > 0 { end + 1 + fraction } else { end })
}

/// The text after `part`, if only white space precedes `part`.
fn follows<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    if part.is_empty() {
        return Some(text);
    }
    let (rest, word) = (text.trim_start(), part.trim_start());
    // White space in the pattern needs at least some white space in the text.
    let apart = word.len() == part.len() || rest.len() < text.len();
    rest.strip_prefix(word).filter(|_| apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_where_they_are_said_to_be() {
        let iperf = "[SUM]   0.00-10.00  sec  41.2 GBytes  35.4 Gbits/sec  12  sender\n[SUM]   0.00-10.04  \
            sec  41.2 GBytes  35.2 Gbits/sec  receiver\n";
        assert_eq!(printed("[SUM]*Bytes {} Gbits/sec*receiver", iperf), Some(35.2));
        assert_eq!(printed("real {}", "user 1\nreal 12.5s\nreal 13.25s\n"), Some(13.25));
        assert_eq!(printed("watts: {} W", "watts: 3.2e1 W"), Some(32.0));
        assert_eq!(printed("{}.", "took 3.2."), None);
        assert_eq!(printed("took {}.", "took 3.2."), Some(3.2));
        assert_eq!(printed("x={}", "x=nan x=inf"), None);
        assert_eq!(printed("x={}", ""), None);
    }

    #[test]
    fn a_number_is_all_of_what_stands_there_or_none() {
        let perf = "         1,234,567      cache-misses              #   12.345 % of all cache refs\n";
        assert_eq!(printed("{} cache-misses", perf), Some(1_234_567.0));
        assert_eq!(printed("cache-misses*# {} %", perf), Some(12.345));
        assert_eq!(printed("took {} us", "took -12,345.5 us"), Some(-12_345.5));
        for odd in ["1,23", "1,2345", "1234,567", "1,234,56", "1.234.567", "1,234.5.6", "1e5,000", ".5,000"] {
            assert_eq!(printed("{}", odd), None, "{odd}");
            assert_eq!(printed("{} x", &format!("{odd} x")), None, "{odd}");
        }
        assert_eq!(printed("{} x", "1 234 x"), None);
        // Columns, where the pattern says so.
        assert_eq!(printed("a,{},*", "a,350,100,7"), Some(350.0));
        assert_eq!(printed("a,{}", "a,350,100"), Some(350.0));
        assert_eq!(printed("sum, {}", "sum, 1,350"), Some(1350.0));
        assert_eq!(printed("sum: {}, mean", "sum: 350, mean 7"), Some(350.0));
        // What follows the number follows it.
        assert_eq!(printed("{} s", "350 ms, total 1 s"), None);
        assert_eq!(printed("{}*s", "350 ms, total 1 s"), Some(350.0));
        assert_eq!(printed("total {}s", "350 ms, total 1  s"), Some(1.0));
        assert_eq!(printed("total {} s", "total 1s"), None, "the space that is asked for");
        assert_eq!(printed("{} rows", "12 rows\n7 columns, 3 rows\n"), Some(12.0));
    }
}
