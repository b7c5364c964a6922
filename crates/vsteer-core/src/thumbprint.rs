//! Which certificate? Its SHA-256 thumbprint, as people copy it from a host's console.

/// The bytes of a thumbprint: hexadecimal, with colons or without. `None` for anything but 32 bytes.
pub fn bytes(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b':').collect();
    let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(|p| pair(p).filter(|_| p.len() == 2)).collect();
    bytes.and_then(|b| b.try_into().ok())
}
