//! What words does a text of the kernel's hold: its command line, or a file with the value in force in brackets?

/// `mitigations` of `mitigations=off`.
pub fn word_name(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// The words of a kernel command line whose names are in `names`, in the order of the command line.
pub fn words_of(line: &str, names: &[String]) -> String {
    let words = line.split_whitespace().filter(|w| names.iter().any(|n| n == word_name(w)));
    words.collect::<Vec<_>>().join(" ")
}

/// Among `always [madvise] never` the one in brackets; else the text itself, without space around it.
pub fn in_brackets(text: &str) -> &str {
    let text = text.trim();
    text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_brackets() {
        let names = vec!["mitigations".to_owned(), "amd_pstate".to_owned()];
        assert_eq!(
            words_of("ro quiet amd_pstate=active mitigations=off x", &names),
            "amd_pstate=active mitigations=off"
        );
        assert_eq!(words_of("ro", &names), "");
        assert_eq!(
            (in_brackets("always [madvise] never\n"), in_brackets(" active\n")),
            ("madvise", "active")
        );
    }
}
