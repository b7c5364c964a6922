//! Where is a configuration wrong, and how is that shown? File, line and column, the line itself, and a mark below it.
//!
//! The form is that of rustc. A line may hold anything, so control characters are shown as escapes, and a long line is cut
//! around the mark. Columns count characters from 1, as editors do.

use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use vsteer_core::visible;

/// Characters of a line that are shown before, in and after the mark.
const BEFORE: usize = 60;
const MARKED: usize = 60;
const AFTER: usize = 40;

/// A part of a text that is wrong.
#[derive(Debug)]
pub(super) struct Spot {
    /// Bytes of the text.
    pub span: Range<usize>,
    pub what: String,
    /// What a person writes instead.
    pub instead: String,
}

/// One fault of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// The file.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// Characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What a person writes instead; may be empty.
    pub help: String,
    /// The line as it is shown.
    #[serde(skip)]
    shown: String,
    /// Characters of `shown` before the mark, and those of the mark.
    #[serde(skip)]
    mark: (usize, usize),
}

/// A place in a text: line and column, both from 1.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let at = floor(text, at);
    let begin = text[..at].rfind('\n').map_or(0, |i| i + 1);
    (text[..at].matches('\n').count() + 1, text[begin..at].chars().count() + 1)
}

/// The last boundary of a character that is not after `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

fn visibly(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\t' => out.push_str("    "),
            c if visible::acts(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// The last `most` characters, with a mark if some are missing.
fn last(text: &str, most: usize) -> String {
    match text.char_indices().rev().nth(most) {
        Some((i, c)) => format!("...{}", &text[i + c.len_utf8()..]),
        None => text.to_owned(),
    }
}

fn first(text: &str, most: usize) -> String {
    text.char_indices().nth(most).map_or_else(|| text.to_owned(), |(i, _)| format!("{}...", &text[..i]))
}

impl Wrong {
    pub(super) fn of(file: &Path, text: &str, spot: Spot) -> Wrong {
        let from = floor(text, spot.span.start);
        let to = floor(text, spot.span.end).max(from);
        let begin = text[..from].rfind('\n').map_or(0, |i| i + 1);
        let end = text[from..].find('\n').map_or(text.len(), |i| from + i);
        let end = if text[from..end].ends_with('\r') { end - 1 } else { end };
        let before = last(&visibly(&text[begin..from]), BEFORE);
        let marked = first(&visibly(&text[from..to.clamp(from, end.max(from))]), MARKED);
        let after = first(&visibly(&text[to.min(end).max(from)..end.max(to.min(end)).max(from)]), AFTER);
        let (line, column) = position(text, from);
        let mark = (before.chars().count(), marked.chars().count().max(1));
        Wrong {
            file: file.to_owned(),
            line,
            column,
            what: spot.what,
            help: spot.instead,
            shown: format!("{before}{marked}{after}").trim_end().to_owned(),
            mark,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display().to_string();
        writeln!(f, "{}:{}:{}: {}", visible::line(&file), self.line, self.column, self.what)?;
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "{margin} |")?;
        writeln!(f, "{}", format!("{number} | {}", self.shown).trim_end())?;
        let mark = format!("{}{}", " ".repeat(self.mark.0), "^".repeat(self.mark.1));
        write!(f, "{}", format!("{margin} | {mark} {}", self.help).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str, span: Range<usize>) -> String {
        let spot = Spot { span, what: "bad".into(), instead: "better".into() };
        Wrong::of("a.toml".as_ref(), text, spot).to_string()
    }

    #[test]
    fn the_line_and_a_mark_below_it() {
        let text = "[top]\nintervall = 1\n";
        assert_eq!(shown(text, 6..15), "a.toml:2:1: bad\n  |\n2 | intervall = 1\n  | ^^^^^^^^^ better");
        assert_eq!(shown(text, text.len()..text.len()), "a.toml:3:1: bad\n  |\n3 |\n  | ^ better");
        // Escapes are wider than what they stand for, and so is a tab.
        let text = "\t\u{1b}é = 1\r\n";
        let told = shown(text, 4..5);
        assert!(told.starts_with("a.toml:1:4: bad"), "{told}");
        assert!(told.contains("1 |     \\u{1b}é = 1\n  |            ^ better"), "{told}");
    }

    #[test]
    fn a_long_line_is_cut() {
        let told = shown(&format!("{}x = {}", "a".repeat(10_000), "b".repeat(10_000)), 10_000..10_001);
        assert!(told.len() < 400 && told.contains("...aaa") && told.contains("bbb..."), "{told}");
        assert!(shown(&"c".repeat(1000), 0..1000).len() < 300);
    }

    proptest! {
        #[test]
        fn any_place_of_any_text_is_shown(text in "[a\u{1b}é\n\r\t\u{202e}]{0,20}", from in 0usize..60, length in 0usize..60) {
            let told = shown(&text, from..from + length);
            prop_assert!(!told.chars().any(|c| visible::acts(c) && c != '\n'), "{told}");
            prop_assert!(told.contains('^'));
        }
    }
}
