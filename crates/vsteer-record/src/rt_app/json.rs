//! Reads the JSON dialect of rt-app: comments, commas before a closing bracket, and repeated keys are allowed, and the
//! order of keys counts.

use vsteer_core::{Fault, FaultKind};

/// Objects and lists in each other. rt-app needs six.
const DEEPEST: usize = 64;

/// A value, and the line where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    pub line: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Object(Vec<(String, Value)>),
    List(Vec<Value>),
    Text(String),
    Number(i64),
    /// A number that is not whole or not within 64 bits.
    OtherNumber,
    Flag,
    Null,
}

impl Value {
    /// What it is, with its article.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Object(_) => "an object",
            Kind::List(_) => "a list",
            Kind::Text(_) => "a text",
            Kind::Number(_) => "a number",
            Kind::OtherNumber => "a number that is not whole",
            Kind::Flag => "true or false",
            Kind::Null => "null",
        }
    }
}

/// Reads a text.
///
/// # Errors
/// `BadInput` with the line.
pub(super) fn read(text: &str) -> Result<Value, Fault> {
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1, depth: 0 };
    let value = reader.value()?;
    reader.space()?;
    if reader.rest.is_empty() {
        Ok(value)
    } else {
        Err(reader.wrong("something follows the closing bracket"))
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    depth: usize,
}

impl Reader<'_> {
    fn wrong(&self, why: &str) -> Fault {
        Fault::new(FaultKind::BadInput, format!("line {}", self.line)).because(why)
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.rest[..bytes].matches('\n').count();
        self.rest = &self.rest[bytes..];
    }

    /// Passes over white space and comments.
    fn space(&mut self) -> Result<(), Fault> {
        loop {
            self.skip(self.rest.len() - self.rest.trim_start().len());
            if self.rest.starts_with("//") {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                let end = self.rest[2..].find("*/").ok_or_else(|| self.wrong("a comment has no end"))?;
                self.skip(end + 4);
            } else {
                return Ok(());
            }
        }
    }

    fn takes(&mut self, mark: char) -> Result<bool, Fault> {
        self.space()?;
        let is = self.rest.starts_with(mark);
        if is {
            self.skip(mark.len_utf8());
        }
        Ok(is)
    }

    fn value(&mut self) -> Result<Value, Fault> {
        self.space()?;
        let line = self.line;
        let kind = match self.rest.chars().next() {
            Some('{') => self.nested(Reader::object)?,
            Some('[') => self.nested(Reader::list)?,
            Some('"' | '\'') => Kind::Text(self.text()?),
            Some(c) if c.is_ascii_digit() || c == '-' || c == '+' => self.number(),
            Some(_) => self.word()?,
            None => return Err(self.wrong("the text ends early: a bracket is missing")),
        };
        Ok(Value { line, kind })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Kind, Fault>) -> Result<Kind, Fault> {
        if self.depth == DEEPEST {
            return Err(self.wrong("more than 64 brackets are open"));
        }
        self.depth += 1;
        self.skip(1);
        let kind = read(self);
        self.depth -= 1;
        kind
    }

    fn object(&mut self) -> Result<Kind, Fault> {
        let mut members = Vec::new();
        while !self.takes('}')? {
            if !self.rest.starts_with(['"', '\'']) {
                return Err(self.wrong("a key in quotation marks is expected"));
            }
            let key = self.text()?;
            if !self.takes(':')? {
                return Err(self.wrong("a colon is expected after a key"));
            }
            members.push((key, self.value()?));
            self.separator('}')?;
        }
        Ok(Kind::Object(members))
    }

    fn list(&mut self) -> Result<Kind, Fault> {
        let mut values = Vec::new();
        while !self.takes(']')? {
            values.push(self.value()?);
            self.separator(']')?;
        }
        Ok(Kind::List(values))
    }

    fn separator(&mut self, end: char) -> Result<(), Fault> {
        if self.takes(',')? || self.rest.starts_with(end) {
            return Ok(());
        }
        Err(self.wrong("a comma is missing, or a bracket"))
    }

    fn text(&mut self) -> Result<String, Fault> {
        let quote = self.rest.chars().next().unwrap_or('"');
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.skip(at + 1);
                    return Ok(text);
                }
                '\\' => match escaped(&mut chars.by_ref().map(|(_, c)| c)) {
                    Some(c) => text.push(c),
                    None => return Err(self.wrong("what follows a backslash is not a character")),
                },
                _ => text.push(c),
            }
        }
        Err(self.wrong("a text has no closing quotation mark"))
    }

    fn number(&mut self) -> Kind {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let number = self.rest[..end].parse().map_or(Kind::OtherNumber, Kind::Number);
        self.skip(end);
        number
    }

    fn word(&mut self) -> Result<Kind, Fault> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
        let kind = match self.rest[..end].to_ascii_lowercase().as_str() {
            "true" | "false" => Kind::Flag,
            "null" => Kind::Null,
            _ => return Err(self.wrong("a value is expected")),
        };
        self.skip(end);
        Ok(kind)
    }
}

/// The character that an escape stands for. `rest`: what follows the backslash.
fn escaped(rest: &mut impl Iterator<Item = char>) -> Option<char> {
    Some(match rest.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let first = unit(rest)?;
            // Characters beyond U+FFFF have two units.
            let is_half = (0xd800..0xdc00).contains(&first);
            let second = if is_half && rest.next() == Some('\\') && rest.next() == Some('u') {
                unit(rest)
            } else {
                None
            };
            char::decode_utf16([first].into_iter().chain(second)).next()?.ok()?
        }
        c @ ('"' | '\'' | '\\' | '/') => c,
        _ => return None,
    })
}

/// Four hexadecimal digits.
fn unit(rest: &mut impl Iterator<Item = char>) -> Option<u16> {
    (0..4).try_fold(0, |all, _| Some(all << 4 | rest.next()?.to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_dialect_is_read() {
        let value = read(
            "/* a */ {\n\"a\": 1, // b\n\"a\" : -2,\n'c': [true, null, \"x\\\"\\u0041\", 1.5,],\n}\n// d\n",
        )
        .unwrap();
        let Kind::Object(members) = value.kind else { panic!() };
        let told: Vec<_> = members.iter().map(|(k, v)| (k.as_str(), v.line, v.name())).collect();
        assert_eq!(told, [("a", 2, "a number"), ("a", 3, "a number"), ("c", 4, "a list")]);
        let Kind::List(list) = &members[2].1.kind else { panic!() };
        assert_eq!(list[2].kind, Kind::Text("x\"A".to_owned()));
        assert_eq!(list[3].kind, Kind::OtherNumber);
    }

    #[test]
    fn every_escape_is_read() {
        let all: String = (0..0x80_u8).map(char::from).chain(['\u{e9}', '\u{d7ff}', '\u{1f600}']).collect();
        let written = serde_json::to_string(&all).unwrap();
        assert_eq!(read(&written).unwrap().kind, Kind::Text(all));
        let escaped = r#""\b\f\n\r\t\/\\\"\u00e9\ud83d\ude00""#;
        let text = "\u{8}\u{c}\n\r\t/\\\"\u{e9}\u{1f600}".to_owned();
        assert_eq!(read(escaped).unwrap().kind, Kind::Text(text));
        for wrong in [r#""\q""#, r#""\u12""#, r#""\ud83d""#, r#""\ud83d\u0041""#, r#""\ude00""#, "\"\\"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, line, why) in [
            ("{\n\"a\": 1\n\"b\": 2}", 3, "a comma is missing"),
            ("{\n\"a\" 1}", 2, "a colon"),
            ("{\n\"a\": 1", 2, "bracket"),
            ("{\n\"a", 2, "quotation mark"),
            ("{\n\"\\q\": 1}", 2, "backslash"),
            ("{}\n{}", 2, "follows"),
            ("{ a: 1 }", 1, "a key in quotation marks"),
            ("\n/* x", 2, "comment"),
            ("{\"a\": yes}", 1, "a value is expected"),
            ("", 1, "ends early"),
        ] {
            let fault = read(text).unwrap_err();
            assert_eq!(fault.what, format!("line {line}"), "{text}");
            assert!(fault.cause.as_ref().unwrap().contains(why), "{text}: {fault}");
        }
        assert!(read(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}\",:a1/*\\\\ \n-]{0,60}") {
            let _ = read(&text);
        }
    }
}
