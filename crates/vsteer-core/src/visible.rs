//! Foreign text for a terminal, a log or a report: nothing in it acts on the terminal or changes how text around it is
//! read.
//!
//! VM names, plans, servers' answers and collectors' names come from other people. A control character (C0, DEL, C1)
//! can move the cursor or set a title; a bidirectional or invisible character can make one name look like another
//! (Unicode Technical Report 36). Both are shown as escapes, `\u{1b}`. A backslash is doubled, so distinct texts stay
//! distinct.

use std::borrow::Cow;

/// Does this character act on the terminal, or show as nothing?
fn acts(c: char) -> bool {
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

    proptest! {
        #[test]
        fn nothing_that_acts_is_left_and_distinct_texts_stay_distinct(a in "[\\\\\u{0}-\u{ff}\u{200b}\u{202e}u{}1b]{0,8}", b in "[\\\\\u{0}-\u{ff}\u{200b}\u{202e}u{}1b]{0,8}") {
            prop_assert!(!line(&a).chars().any(acts));
            prop_assert!(!message(&a).chars().any(|c| acts(c) && c != '\n' && c != '\t'));
            prop_assert_eq!(a == b, line(&a) == line(&b));
        }
    }
}
