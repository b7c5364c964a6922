//! Turns UTF-16, as Windows' programs write it, into UTF-8 while a file is read.

/// Decodes a stream in pieces of any length.
#[derive(Debug)]
pub(super) struct Utf16 {
    /// The high byte of a unit comes first.
    big_endian: bool,
    /// The first byte of a unit whose second one has not come yet.
    odd: Option<u8>,
    /// The first half of a pair of units that make one character.
    high: Option<u16>,
}

impl Utf16 {
    /// Recognises the mark at the start of a file; `None` if it is not UTF-16, or has no mark.
    pub(super) fn of(first: &[u8]) -> Option<Utf16> {
        let big_endian = match first {
            // The mark of UTF-32 begins with the same bytes.
            [0xff, 0xfe, 0, 0, ..] => return None,
            [0xff, 0xfe, ..] => false,
            [0xfe, 0xff, ..] => true,
            _ => return None,
        };
        Some(Utf16 { big_endian, odd: None, high: None })
    }

    /// Decodes the next piece. A unit that is no character becomes `U+FFFD`.
    pub(super) fn decode(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        let all = self.odd.take().into_iter().chain(bytes.iter().copied());
        let all: Vec<u8> = all.collect();
        let mut units = all.chunks_exact(2);
        let mut encoded = [0; 4];
        for unit in &mut units {
            let unit = [unit[0], unit[1]];
            let unit = if self.big_endian { u16::from_be_bytes(unit) } else { u16::from_le_bytes(unit) };
            let pair = [self.high.take(), Some(unit)];
            if pair[0].is_none() && (0xd800..0xdc00).contains(&unit) {
                self.high = Some(unit);
                continue;
            }
            for c in char::decode_utf16(pair.into_iter().flatten()) {
                let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
                into.extend_from_slice(c.encode_utf8(&mut encoded).as_bytes());
            }
        }
        self.odd = units.remainder().first().copied();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Any text in any pieces, in both orders of bytes.
        #[test]
        fn any_text_is_read_back(text in any::<String>(), piece in 1usize..7, big in any::<bool>()) {
            let bytes: Vec<u8> =
                text.encode_utf16().flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect();
            let mark: &[u8] = if big { &[0xfe, 0xff] } else { &[0xff, 0xfe] };
            let mut decoder = Utf16::of(mark).unwrap();
            let mut into = Vec::new();
            bytes.chunks(piece).for_each(|bytes| decoder.decode(bytes, &mut into));
            prop_assert_eq!(String::from_utf8(into).unwrap(), text);
        }

        #[test]
        fn any_bytes_are_text(bytes in proptest::collection::vec(any::<u8>(), 0..50), piece in 1usize..7) {
            let mut decoder = Utf16::of(&[0xff, 0xfe]).unwrap();
            let mut into = Vec::new();
            bytes.chunks(piece).for_each(|bytes| decoder.decode(bytes, &mut into));
            prop_assert!(String::from_utf8(into).is_ok());
        }
    }
}
