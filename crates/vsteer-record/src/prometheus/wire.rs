//! Reads the fields of a protobuf message. Every length is checked, and nothing is copied.
//!
//! Source: the encoding guide of protobuf.dev. Left out: groups, which no message of an exposition has.

/// A field's value. Numbers are as they are encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// A number of variable length, and the bytes after it.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut v = 0_u64;
    for (i, b) in bytes.iter().take(10).enumerate() {
        v |= u64::from(b & 0x7f).checked_shl(7 * i as u32)?;
        if b & 0x80 == 0 {
            return Some((v, &bytes[i + 1..]));
        }
    }
    None
}

/// As many bytes as the number before them says, and the bytes after them.
pub(super) fn delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = varint(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// The fields of a message, in their order: numbers and values.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let (tag, rest) = varint(self.0)?;
        let (value, rest) = match tag & 7 {
            0 => varint(rest).map(|(v, rest)| (Value::Varint(v), rest))?,
            1 => rest.split_first_chunk().map(|(v, rest)| (Value::Fixed64(u64::from_le_bytes(*v)), rest))?,
            2 => delimited(rest).map(|(v, rest)| (Value::Bytes(v), rest))?,
            5 => rest.split_first_chunk().map(|(v, rest)| (Value::Fixed32(u32::from_le_bytes(*v)), rest))?,
            _ => return None,
        };
        self.0 = rest;
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

impl<'a> Value<'a> {
    pub(super) fn uint(self) -> Result<u64, Malformed> {
        if let Value::Varint(v) = self { Ok(v) } else { Err(Malformed) }
    }

    /// A number whose sign is its lowest bit.
    pub(super) fn sint(self) -> Result<i64, Malformed> {
        self.uint().map(zigzag)
    }

    pub(super) fn double(self) -> Result<f64, Malformed> {
        if let Value::Fixed64(v) = self { Ok(f64::from_bits(v)) } else { Err(Malformed) }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let Value::Bytes(v) = self { Ok(v) } else { Err(Malformed) }
    }

    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// Adds the numbers of a repeated field: one, or several packed together. Leaves out what is beyond `most` numbers and
    /// one, which shows that there are too many.
    pub(super) fn sints(self, into: &mut Vec<i64>, most: usize) -> Result<(), Malformed> {
        let Value::Bytes(mut packed) = self else {
            return self.sint().map(|v| push(into, v, most));
        };
        while !packed.is_empty() {
            let (v, rest) = varint(packed).ok_or(Malformed)?;
            Value::Varint(v).sints(into, most)?;
            packed = rest;
        }
        Ok(())
    }

    /// As [`Value::sints`], for floating-point numbers.
    pub(super) fn doubles(self, into: &mut Vec<f64>, most: usize) -> Result<(), Malformed> {
        let Value::Bytes(packed) = self else {
            return self.double().map(|v| push(into, v, most));
        };
        let (numbers, rest) = packed.as_chunks();
        if !rest.is_empty() {
            return Err(Malformed);
        }
        numbers.iter().try_for_each(|v| Value::Fixed64(u64::from_le_bytes(*v)).doubles(into, most))
    }
}

/// Adds a value, if there are not more than `most` already.
pub(super) fn push<T>(into: &mut Vec<T>, v: T, most: usize) {
    if into.len() <= most {
        into.push(v);
    }
}

fn zigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the encoding guide.
    #[test]
    fn the_guides_examples_are_read() {
        let of = |bytes: &'static [u8]| Fields(bytes).collect::<Vec<_>>();
        assert_eq!(of(&[0x08, 0x96, 0x01]), [Ok((1, Value::Varint(150)))]);
        let text = of(&[0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        assert_eq!(text, [Ok((2, Value::Bytes(b"testing")))]);
        let packed = Fields(&[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]).next().unwrap().unwrap();
        let mut all = Vec::new();
        packed.1.sints(&mut all, 9).unwrap();
        // 3, 270 and 86942, as numbers with a sign.
        assert_eq!(all, [-2, 135, 43_471]);
        packed.1.sints(&mut all, 4).unwrap();
        assert_eq!(all, [-2, 135, 43_471, -2, 135]);
        assert_eq!([0, 1, 2, 3, u64::MAX - 1, u64::MAX].map(zigzag), [0, -1, 1, -2, i64::MAX, i64::MIN]);
    }

    #[test]
    fn what_is_cut_is_malformed() {
        for odd in
            [&[0x08][..], &[0x08, 0x96], &[0x12, 7, 1], &[0x09, 1, 2], &[0x0d, 1], &[0x0b], &[0x80; 11]]
        {
            assert_eq!(Fields(odd).collect::<Vec<_>>(), [Err(Malformed)], "{odd:?}");
        }
        assert_eq!(varint(&[0xff; 10]), None);
        assert_eq!(delimited(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), None);
    }
}
