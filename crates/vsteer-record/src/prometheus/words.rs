//! The words of an exposition's line: names, labels, numbers.
//!
//! A name of letters, digits, `_` and `:` stands bare: `m{a="b"}`. Any other name stands in quotes within the braces:
//! `{"my.m",a="b"}`. Sources: Prometheus' "Exposition formats" and "UTF-8 support", OpenMetrics 1.0.
//!
//! Left out: hexadecimal numbers, which Go reads and no library writes.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Names and values of labels, sorted by name.
pub(super) type Labels = BTreeMap<String, String>;

/// The text after blanks.
pub(super) fn skip(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// A bare name, and the text after it.
pub(super) fn name(text: &str) -> Option<(&str, &str)> {
    let end =
        text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, rest))
}

/// A text in quotes without its escapes, and the text after it.
pub(super) fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let inside = text.strip_prefix('"')?;
    let first = inside.find(['"', '\\'])?;
    if inside[first..].starts_with('"') {
        return Some((Cow::Borrowed(&inside[..first]), &inside[first + 1..]));
    }
    let mut value = inside[..first].to_owned();
    let mut chars = inside[first..].char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), &inside[first + i + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                c @ ('\\' | '"') => value.push(c),
                // Not an escape: as Prometheus, keep both.
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

/// Reads labels in braces. Calls `each` with the name and value of every label, and with `None` and the text for a text
/// in quotes that has no value, which is the metric's name. Returns the text after the braces.
pub(super) fn braces<'a>(
    text: &'a str,
    each: &mut dyn FnMut(Option<Cow<'a, str>>, Cow<'a, str>),
) -> Option<&'a str> {
    let mut rest = skip(text.strip_prefix('{')?);
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let in_quotes = rest.starts_with('"');
        let (first, after) = if in_quotes {
            quoted(rest)?
        } else {
            name(rest).map(|(name, after)| (Cow::Borrowed(name), after))?
        };
        rest = match skip(after).strip_prefix('=') {
            Some(value) => {
                let (value, after) = quoted(skip(value))?;
                each(Some(first), value);
                skip(after)
            }
            None if in_quotes => {
                each(None, first);
                skip(after)
            }
            None => return None,
        };
        // Prometheus accepts labels without a comma between them, too.
        rest = skip(rest.strip_prefix(',').unwrap_or(rest));
    }
}

/// A number in decimal, `Inf` or `NaN`, with or without a sign, in any case.
pub(super) fn float(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Labels as in a query.
pub(super) fn shown(labels: &Labels) -> String {
    let all: Vec<String> = labels.iter().map(|(k, v)| format!("{}={v:?}", shown_name(k))).collect();
    format!("{{{}}}", all.join(","))
}

/// A name, in quotes if it cannot stand bare.
fn shown_name(text: &str) -> Cow<'_, str> {
    match name(text) {
        Some((_, "")) => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{text:?}")),
    }
}
