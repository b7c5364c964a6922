//! Foreign text for a terminal, a log or a report: nothing in it acts on the terminal or changes how text around it is
//! read.
//!
//! VM names, plans, servers' answers and collectors' names come from other people. A control character (C0, DEL, C1)
//! can move the cursor or set a title; a bidirectional or invisible character can make one name look like another
//! (Unicode Technical Report 36). Both are shown as escapes, `\u{1b}`. A backslash is doubled, so distinct texts stay
//! distinct.

use std::borrow::Cow;

/// Does this character act on the terminal, or show as nothing?
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool, doubles: bool) -> Cow<'_, str> {
    let plain = |c: char| (stays(c) || !acts(c)) && (c != '\\' || !doubles);
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if plain(c) {
            out.push(c);
        } else if c == '\\' {
            out.push_str("\\\\");
        } else {
            out.extend(c.escape_unicode());
        }
    }
    Cow::Owned(out)
}

/// A name or value, on one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false, true)
}

/// A message of several lines that contains foreign text. Line ends and tabs stay, and so do backslashes, which are
/// part of commands.
pub fn message(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t', false)
}

/// JSON whose strings hold foreign text. Inside strings, JSON writes such characters as `\u009b`, which a program reads as
/// the same text. Outside strings there are none, except line ends.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c != '\n' && acts(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' || !acts(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    Cow::Owned(out)
}

/// A name or value as a cell of CSV for people. A spreadsheet computes a cell that begins like a formula, so such a text
/// gets an apostrophe, which spreadsheets read as "this is text". A text that begins with an apostrophe gets one too, so
/// distinct texts stay distinct. Numbers do not pass here.
pub fn csv_cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '@', '-', '\t', '\r', '\'']);
    let shown = line(text);
    let guard = if is_formula { "'" } else { "" };
    if shown.contains([',', '"', ';']) {
        format!("\"{guard}{}\"", shown.replace('"', "\"\""))
    } else {
        format!("{guard}{shown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_acts_is_shown() {
        assert_eq!(line("web-1 (ü)"), "web-1 (ü)");
        assert_eq!(line("\u{1b}[2Jx\u{202e}\u{9b}"), "\\u{1b}[2Jx\\u{202e}\\u{9b}");
        assert_eq!(line("a\nb"), "a\\u{a}b");
        assert_eq!(line("\\u{1b}"), "\\\\u{1b}");
        assert_eq!(message("a\n\tb\\c\u{7}"), "a\n\tb\\c\\u{7}");
    }

    #[test]
    fn json_shows_what_acts_and_means_the_same() {
        let text = "a\u{9b}\u{202e}\u{e0001}\u{7f}ü";
        let told = json(&format!("{{\n \"{text}\"}}")).into_owned();
        assert_eq!(told, "{\n \"a\\u009b\\u202e\\udb40\\udc01\\u007fü\"}");
    }

    #[test]
    fn no_cell_of_csv_is_a_formula() {
        for (text, cell) in [
            ("web-1", "web-1"),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("@x", "'@x"),
            ("-1", "'-1"),
            ("\t=1", "'\\u{9}=1"),
            ("\r=1", "'\\u{d}=1"),
            ("'=1", "''=1"),
            ("=a,\"b\"", "\"'=a,\"\"b\"\"\""),
            ("a;b", "\"a;b\""),
            ("a\nb", "a\\u{a}b"),
        ] {
            assert_eq!(csv_cell(text), cell, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn distinct_texts_are_distinct_cells(a in "[-=+@'\\t\\r\",a]{0,4}", b in "[-=+@'\\t\\r\",a]{0,4}") {
            prop_assert_eq!(a == b, csv_cell(&a) == csv_cell(&b));
            let cell = csv_cell(&a);
            let content = cell.strip_prefix('"').unwrap_or(&cell);
            prop_assert!(!content.starts_with(['=', '+', '@', '-', '\t', '\r']));
        }

        #[test]
        fn nothing_that_acts_is_left_and_distinct_texts_stay_distinct(a in "[\\\\\u{0}-\u{ff}\u{200b}\u{202e}u{}1b]{0,8}", b in "[\\\\\u{0}-\u{ff}\u{200b}\u{202e}u{}1b]{0,8}") {
            prop_assert!(!line(&a).chars().any(acts));
            prop_assert!(!message(&a).chars().any(|c| acts(c) && c != '\n' && c != '\t'));
            prop_assert_eq!(a == b, line(&a) == line(&b));
        }
    }
}
