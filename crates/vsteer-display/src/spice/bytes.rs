//! Reads the fields of a message. Numbers have the lowest byte first, except within LZ's images. Each read
//! checks that enough bytes exist.
//!
//! Left out: everything that pictures do not need.

use super::bad;
use crate::rfb::screen::Rect;
use vsteer_core::Fault;

/// The unread rest of some bytes.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    rest: &'a [u8],
    /// What the bytes are, for a fault about a message that is too short.
    what: &'static str,
}

impl<'a> Bytes<'a> {
    /// All of these bytes; `what` says what they are.
    pub fn of(bytes: &'a [u8], what: &'static str) -> Bytes<'a> {
        Bytes { rest: bytes, what }
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        let ends = || bad(format!("{} that ends too early", self.what));
        let (now, later) = self.rest.split_at_checked(n).ok_or_else(ends)?;
        self.rest = later;
        Ok(now)
    }

    fn exactly<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.take(N).map(|b| b.try_into().expect("`take` gives as many bytes as asked for"))
    }

    /// The next byte.
    ///
    /// # Errors
    /// There is none; the same below.
    pub fn u8(&mut self) -> Result<u8, Fault> {
        self.exactly::<1>().map(|b| b[0])
    }

    pub fn u16(&mut self) -> Result<u16, Fault> {
        self.exactly().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Fault> {
        self.exactly().map(u32::from_le_bytes)
    }

    /// The highest byte first, as in LZ.
    pub fn u32_be(&mut self) -> Result<u32, Fault> {
        self.exactly().map(u32::from_be_bytes)
    }

    pub fn u64_be(&mut self) -> Result<u64, Fault> {
        self.exactly().map(u64::from_be_bytes)
    }

    /// Top, left, bottom, right: signed numbers, but never before the origin.
    pub fn rect(&mut self) -> Result<Rect, Fault> {
        let mut edge = || self.u32().map(|v| v as i32);
        let [top, left, bottom, right] = [edge()?, edge()?, edge()?, edge()?];
        let wrong = || bad(format!("a rectangle from ({left}, {top}) to ({right}, {bottom})"));
        let part = |from: i32, until: i32| {
            Some((usize::try_from(from).ok()?, usize::try_from(until.checked_sub(from)?).ok()?))
        };
        let ((x, width), (y, height)) = part(left, right).zip(part(top, bottom)).ok_or_else(wrong)?;
        Ok(Rect { x, y, width, height })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_are_read_and_those_that_cannot_be_are_refused() {
        let of = |edges: [i32; 4]| {
            let bytes: Vec<u8> = edges.iter().flat_map(|v| v.to_le_bytes()).collect();
            Bytes::of(&bytes, "a rectangle").rect()
        };
        assert_eq!(of([2, 1, 5, 9]).unwrap(), Rect { x: 1, y: 2, width: 8, height: 3 });
        for wrong in [[-1, 0, 5, 5], [5, 0, 2, 5], [i32::MAX, 0, i32::MIN, 5]] {
            assert!(of(wrong).unwrap_err().to_string().contains("a rectangle from"));
        }
        assert!(Bytes::of(&[0; 15], "a rectangle").rect().unwrap_err().to_string().contains("too early"));
    }
}
