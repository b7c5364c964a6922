//! Describes what a server sent, by kind, the kind with most pixels first.

/// `kinds` by name, each with the number of pieces and of their pixels; `pieces` is the word for a piece.
pub fn told(kinds: impl IntoIterator<Item = (&'static str, u64, u64)>, pieces: &str) -> String {
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    let all: u64 = kinds.iter().map(|(.., pixels)| pixels).sum();
    if kinds.is_empty() {
        return "no pixels came".to_owned();
    }
    kinds.sort_by_key(|(.., pixels)| std::cmp::Reverse(*pixels));
    let part = |(kind, count, pixels): &(&str, u64, u64)| {
        format!("{kind} {:.1} % ({count} {pieces})", 100.0 * *pixels as f64 / all.max(1) as f64)
    };
    kinds.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_the_pixels_come_first() {
        let kinds = [("LZ", 3, 25), ("raw", 1, 75)];
        assert_eq!(told(kinds, "images"), "raw 75.0 % (1 images), LZ 25.0 % (3 images)");
        assert_eq!(told([], "images"), "no pixels came");
    }
}
