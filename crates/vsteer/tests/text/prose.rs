//! Is all that a person reads plain English? Words that always have a better one, and the length of sentences.

use std::path::Path;

/// Words that no text for people contains, and what to write instead.
const INSTEAD: &[(&str, &str)] = &[
    ("way out", "help"),
    ("foretell", "forecast"),
    ("foretold", "forecast"),
    ("anew", "again, new"),
    ("mended", "fixed"),
    ("so many", "N"),
    ("so long", "TIME"),
    ("whoever", "name the person or program"),
    ("whom", "name the person or program"),
    ("is told", "vsteer knows, vsteer prints"),
    ("not told", "vsteer does not know"),
    ("is no ", "is not a"),
    ("are no ", "are not"),
    ("it is so", "say what is true"),
    ("beneath", "in, under"),
    ("thereof", "of it"),
    ("amid", "during"),
];

/// Literals of a program's source, and the doc comments that clap prints.
fn literals(source: &str) -> Vec<(usize, String)> {
    let (mut all, mut line, mut chars) = (Vec::new(), 1, source.chars().peekable());
    let mut before = ' ';
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            // A comment: nothing in it is printed.
            '/' if chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '\'' => {
                // A character, or a lifetime.
                let rest: Vec<char> = chars.clone().take(3).collect();
                let skip = match rest[..] {
                    ['\\', _, '\''] => 3,
                    [_, '\'', ..] => 2,
                    _ => 0,
                };
                chars.by_ref().take(skip).for_each(|_| {});
            }
            '"' => {
                let (at, mut text, raw) = (line, String::new(), before == 'r' || before == '#');
                while let Some(c) = chars.next() {
                    match c {
                        '\\' if !raw => match chars.next() {
                            Some('n') => text.push('\n'),
                            Some('\n') => {
                                line += 1;
                                while chars.peek().is_some_and(|c| *c == ' ') {
                                    chars.next();
                                }
                            }
                            Some(c) => text.push(c),
                            None => {}
                        },
                        '"' if !raw || before != '#' || chars.peek() == Some(&'#') => break,
                        c => {
                            line += usize::from(c == '\n');
                            text.push(c);
                        }
                    }
                }
                all.push((at, text));
            }
            _ => {}
        }
        before = c;
    }
    all
}

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap();
        if entry.is_dir() && name != "tests" && name != "benches" {
            sources(&entry, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(entry);
        }
    }
}

#[test]
fn texts_use_todays_words() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for of in std::fs::read_dir(&crates).unwrap().map(|e| e.unwrap().path().join("src")) {
        let mut files = Vec::new();
        sources(&of, &mut files);
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            let shipped = source.split("\n#[cfg(test)]\nmod tests").next().unwrap();
            for (line, text) in literals(shipped) {
                // A key of JSON or a name, not a text.
                if !text.contains(' ') {
                    continue;
                }
                let lower = text.to_lowercase();
                // "VM(s)": the program knows how many.
                if lower.match_indices("(s)").any(|(i, _)| lower[..i].ends_with(|c: char| c.is_alphabetic()))
                {
                    let name = file.strip_prefix(&crates).unwrap().display();
                    wrong.push(format!("{name}:{line}: (s) (core::plural::counted): {}", text.trim()));
                }
                for (word, instead) in INSTEAD {
                    let at = lower.match_indices(word).any(|(i, _)| {
                        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
                        edge(lower[..i].chars().next_back())
                            && !(word.ends_with(" no ")
                                && (lower[..i].ends_with("there ")
                                    || lower[i + word.len()..].starts_with("longer")))
                            && (word.ends_with(' ') || edge(lower[i + word.len()..].chars().next()))
                    });
                    if at {
                        let name = file.strip_prefix(&crates).unwrap().display();
                        wrong.push(format!("{name}:{line}: {word:?} ({instead}): {}", text.trim()));
                    }
                }
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{} texts:\n{}", wrong.len(), wrong.join("\n"));
}

/// Words per sentence in help, errors and findings: those that people read in a hurry.
#[test]
fn sentences_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text/snapshots");
    let (mut words, mut sentences, mut longest) = (0, 0, (0, String::new()));
    for file in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if !["help_", "errors", "diagnose", "findings"].iter().any(|of| name.contains(of)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for sentence in prose(&text) {
            let n = sentence.split_whitespace().count();
            (words, sentences) = (words + n, sentences + 1);
            if n > longest.0 {
                longest = (n, format!("{name}: {sentence}"));
            }
        }
    }
    let mean = f64::from(words as u32) / f64::from(sentences);
    println!(
        "{sentences} sentences of {mean:.1} words on average; the longest has {}: {}",
        longest.0, longest.1
    );
    assert!(sentences > 300 && mean <= 15.0, "{mean:.1} words on average in {sentences} sentences");
    assert!(longest.0 <= 30, "{} words: {}", longest.0, longest.1);
}

/// Sentences of a printed text: no tables, commands or option names.
fn prose(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        let plain = line.trim();
        let starts_one = plain.is_empty()
            || plain.starts_with('-')
            || plain.starts_with('$')
            // Two columns: a name and what it means.
            || plain.contains("  ")
            || plain.starts_with("vsteer ")
            // A fault of a file, with its place.
            || plain.contains(".toml:")
            || ["error: ", "help: ", "next: ", "disproved if: "].iter().any(|w| plain.starts_with(w));
        if starts_one {
            paragraphs.push(String::new());
        }
        let is_code = ["$", "vsteer ", "Usage:", "[exit", "---", "source:", "expression:", "-h,", "-V,"];
        // The line of a file that is wrong, and the mark below it.
        let is_excerpt = plain.split(' ').any(|w| w == "|");
        if is_excerpt || is_code.iter().any(|w| plain.starts_with(w)) {
            continue;
        }
        // An option and its explanation on one line, or two columns of a table: the last column is the text.
        let told = plain.rsplit("  ").next().unwrap_or_default().trim();
        let told = if plain.starts_with('-') && !plain.contains("  ") { "" } else { told };
        let last = paragraphs.last_mut().unwrap();
        last.push(' ');
        last.push_str(told);
    }
    let ends = |p: &String| {
        let p = p.replace("[default:", ". [default:").replace("[possible", ". [possible");
        p.split(". ").flat_map(|s| s.split("; ")).map(|s| s.trim().to_owned()).collect::<Vec<_>>()
    };
    let all = paragraphs.iter().flat_map(ends);
    all.filter(|s| s.split_whitespace().count() >= 3 && !s.starts_with('[')).collect()
}
