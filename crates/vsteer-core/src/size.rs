//! How many bytes? Sizes as people write them: `2G`, `500M`, `64k`.

/// `2G`, `500M`, `64k`; binary multiples.
///
/// # Errors
/// What is wrong with the text, for the person who wrote it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G or T")),
    };
    let n: u64 = number.parse().map_err(|_| format!("{number:?} is not a whole number (such as 2G)"))?;
    n.checked_shl(shift).filter(|b| *b >= 1 << 20).ok_or_else(|| "must be at least 1M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("2G").unwrap(), 2 << 30);
        assert!(bytes("3x").is_err() && bytes("10").is_err());
    }
}
