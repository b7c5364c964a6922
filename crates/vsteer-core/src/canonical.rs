//! A value as canonical JSON: the same bytes for the same value, whatever order its fields have in the code.
//!
//! Keys are sorted, there is no white space, and numbers have their shortest form that reads back the same. A hash of these bytes names a
//! plan ([`crate::plan::Plan::id`]), so the bytes change only when what the plan says changes. Source: RFC 8785 (JSON Canonicalization
//! Scheme). Left out of it: UTF-16 order of keys outside of ASCII, which no field of ours has, and exponents of numbers.

use serde::Serialize;
use serde::ser;
use std::collections::BTreeMap;
use std::fmt;

/// `value` as canonical JSON.
///
/// # Panics
/// Where a map's key is not a string, which no noun of ours has.
pub fn json(value: &impl Serialize) -> String {
    value.serialize(ToJson).expect("nouns are plain data").to_string()
}

enum Json {
    /// Null, a boolean or a number, as text.
    Plain(String),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Plain(text) => f.write_str(text),
            Json::Text(text) => quoted(text, f),
            Json::Array(all) => {
                f.write_str("[")?;
                for (i, one) in all.iter().enumerate() {
                    write!(f, "{}{one}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Json::Object(all) => {
                f.write_str("{")?;
                for (i, (key, one)) in all.iter().enumerate() {
                    f.write_str(if i > 0 { "," } else { "" })?;
                    quoted(key, f)?;
                    write!(f, ":{one}")?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\u{8}' => f.write_str("\\b")?,
            '\t' => f.write_str("\\t")?,
            '\n' => f.write_str("\\n")?,
            '\u{c}' => f.write_str("\\f")?,
            '\r' => f.write_str("\\r")?,
            c if u32::from(c) < 0x20 => write!(f, "\\u{:04x}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

#[derive(Debug)]
struct NotJson(String);

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotJson {}

impl ser::Error for NotJson {
    fn custom<T: fmt::Display>(msg: T) -> NotJson {
        NotJson(msg.to_string())
    }
}

type Made = Result<Json, NotJson>;

fn plain(value: impl fmt::Display) -> Made {
    Ok(Json::Plain(value.to_string()))
}

/// An enum's variant with its content, as serde_json writes it.
fn tagged(variant: &str, content: Json) -> Json {
    Json::Object([(variant.to_owned(), content)].into())
}

struct ToJson;

macro_rules! plainly {
    ($($name:ident: $of:ty),*) => {
        $(fn $name(self, v: $of) -> Made { plain(v) })*
    };
}

impl ser::Serializer for ToJson {
    type Ok = Json;
    type Error = NotJson;
    type SerializeSeq = Elements;
    type SerializeTuple = Elements;
    type SerializeTupleStruct = Elements;
    type SerializeTupleVariant = Elements;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Fields;

    plainly!(serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64);
    plainly!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);

    fn serialize_f32(self, v: f32) -> Made {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Made {
        if v.is_finite() { plain(v) } else { plain("null") }
    }

    fn serialize_char(self, v: char) -> Made {
        Ok(Json::Text(v.to_string()))
    }

    fn serialize_str(self, v: &str) -> Made {
        Ok(Json::Text(v.to_owned()))
    }

    fn serialize_bytes(self, v: &[u8]) -> Made {
        v.serialize(self)
    }

    fn serialize_none(self) -> Made {
        plain("null")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Made {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Made {
        plain("null")
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Made {
        plain("null")
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Made {
        Ok(Json::Text(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Made {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Made {
        Ok(tagged(variant, value.serialize(ToJson)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements, NotJson> {
        Ok(Elements { variant: None, all: Vec::new() })
    }

    fn serialize_tuple(self, _: usize) -> Result<Elements, NotJson> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Elements, NotJson> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Elements, NotJson> {
        Ok(Elements { variant: Some(variant), all: Vec::new() })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields, NotJson> {
        Ok(Fields { variant: None, key: None, all: BTreeMap::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, NotJson> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields, NotJson> {
        Ok(Fields { variant: Some(variant), key: None, all: BTreeMap::new() })
    }
}

struct Elements {
    variant: Option<&'static str>,
    all: Vec<Json>,
}

impl Elements {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        self.all.push(value.serialize(ToJson)?);
        Ok(())
    }

    fn made(self) -> Made {
        let array = Json::Array(self.all);
        Ok(match self.variant {
            Some(variant) => tagged(variant, array),
            None => array,
        })
    }
}

macro_rules! elements {
    ($($kind:ident by $add:ident),*) => {
        $(impl ser::$kind for Elements {
            type Ok = Json;
            type Error = NotJson;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
                self.add(value)
            }

            fn end(self) -> Made {
                self.made()
            }
        })*
    };
}
elements!(
    SerializeSeq by serialize_element, SerializeTuple by serialize_element,
    SerializeTupleStruct by serialize_field, SerializeTupleVariant by serialize_field
);

struct Fields {
    variant: Option<&'static str>,
    key: Option<String>,
    all: BTreeMap<String, Json>,
}

impl Fields {
    fn made(self) -> Made {
        let object = Json::Object(self.all);
        Ok(match self.variant {
            Some(variant) => tagged(variant, object),
            None => object,
        })
    }
}

impl ser::SerializeMap for Fields {
    type Ok = Json;
    type Error = NotJson;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NotJson> {
        match key.serialize(ToJson)? {
            Json::Text(key) => self.key = Some(key),
            // serde_json writes numbers as keys in quotes.
            Json::Plain(key) => self.key = Some(key),
            Json::Array(_) | Json::Object(_) => return Err(ser::Error::custom("a key is not a string")),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        let key = self.key.take().expect("serde gives the key first");
        self.all.insert(key, value.serialize(ToJson)?);
        Ok(())
    }

    fn end(self) -> Made {
        self.made()
    }
}

macro_rules! fields {
    ($($kind:ident),*) => {
        $(impl ser::$kind for Fields {
            type Ok = Json;
            type Error = NotJson;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), NotJson> {
                self.all.insert(key.to_owned(), value.serialize(ToJson)?);
                Ok(())
            }

            fn end(self) -> Made {
                self.made()
            }
        })*
    };
}
fields!(SerializeStruct, SerializeStructVariant);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Unit,
        New(u32),
        Pair(i8, bool),
        Named { b: Option<u8>, a: f64 },
    }

    #[derive(Serialize)]
    struct All<'a> {
        z: Vec<Kind>,
        a: &'a str,
        m: BTreeMap<u32, ()>,
    }

    /// By hand, and as serde_json reads it back.
    #[test]
    fn keys_are_sorted_and_values_read_back() {
        let z = vec![Kind::Unit, Kind::New(7), Kind::Pair(-1, true), Kind::Named { b: None, a: 0.25 }];
        let all = All { z, a: "q\"\\\n\u{1}ü", m: [(3, ())].into() };
        let text = json(&all);
        assert_eq!(
            text,
            r#"{"a":"q\"\\\n\u0001ü","m":{"3":null},"z":["unit",{"new":7},{"pair":[-1,true]},{"named":{"a":0.25,"b":null}}]}"#
        );
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, serde_json::to_value(&all).unwrap());
    }
}
