//! In which language did Windows name the counters of a log?
//!
//! Windows translates the names of its counters, and of its time zone. vsteer knows the English names only, so it says
//! which language it found. It translates nothing: products name their own counters in English on most systems.
//!
//! Source: names of counter sets and time zones as Windows shows them in these languages. The list has only names of
//! which we are sure. Left out: other languages; those of one script are named by the script.

use super::pdh::Table;

/// A language, names of counter sets in it, and a time zone that only a Windows of that language calls so.
const LANGUAGES: &[(&str, &[&str], &str)] = &[
    (
        "German",
        &[
            "Prozessor",
            "Prozessorinformationen",
            "Arbeitsspeicher",
            "Physikalischer Datenträger",
            "Netzwerkschnittstelle",
        ],
        "Mitteleuropäische Zeit",
    ),
    ("French", &["Processeur", "Mémoire", "Disque physique", "Interface réseau"], "Paris, Madrid"),
    ("Spanish", &["Procesador", "Interfaz de red"], "Hora estándar romance"),
    ("Italian", &["Processore", "Disco fisico", "Interfaccia di rete"], "ora solare Europa occidentale"),
    ("Portuguese", &["Processador", "Memória", "Interface de rede"], "Hora oficial do Brasil"),
    ("Dutch", &["Geheugen", "Fysieke schijf", "Netwerkinterface"], "West-Europa (standaardtijd)"),
    ("Polish", &["Pamięć", "Dysk fizyczny", "Interfejs sieciowy"], "Środkowoeuropejski czas stand."),
    ("Russian", &["Процессор", "Память", "Физический диск", "Сетевой интерфейс"], "RTZ 2 (зима)"),
    ("Japanese", &[], "東京 (標準時)"),
    ("Korean", &[], "대한민국 표준시"),
    ("Chinese", &[], "中国标准时间"),
];

/// Counter sets of an English Windows.
const ENGLISH: &[&str] = &[
    "Processor",
    "Processor Information",
    "Memory",
    "PhysicalDisk",
    "LogicalDisk",
    "Network Interface",
    "System",
    "Process",
    "Paging File",
    "Terminal Services Session",
    "ICA Session",
    "VM Processor",
];

/// What is known of the language of a log's names.
#[derive(Debug, PartialEq, Eq)]
pub enum Names {
    /// English names of Windows are there.
    English,
    /// Another language, and the name that shows it.
    Other(&'static str, String),
    Unknown,
}

/// The language of the names in a log.
pub fn of(table: &Table) -> Names {
    let sets = || table.counters.iter().flatten().map(|c| c.set.as_str());
    for (language, names, _) in LANGUAGES {
        if let Some(set) = sets().find(|set| names.iter().any(|name| same(set, name))) {
            return Names::Other(language, set.to_owned());
        }
    }
    let names = || table.counters.iter().flatten().flat_map(|c| [c.set.as_str(), c.name.as_str()]);
    if let Some((script, name)) = names().find_map(|name| Some((script(name)?, name))) {
        return Names::Other(script, name.to_owned());
    }
    if sets().any(|set| ENGLISH.iter().any(|name| set.eq_ignore_ascii_case(name))) {
        return Names::English;
    }
    match LANGUAGES.iter().find(|(.., zone)| same(&table.zone, zone)) {
        Some((language, ..)) => Names::Other(language, table.zone.clone()),
        None => Names::Unknown,
    }
}

/// Compares names apart from case. A letter that the log's code page has lost matches any letter outside of ASCII.
fn same(found: &str, name: &str) -> bool {
    let is_same =
        |(a, b): (char, char)| a.to_lowercase().eq(b.to_lowercase()) || (a == '\u{fffd}' && !b.is_ascii());
    !name.is_empty()
        && found.chars().count() == name.chars().count()
        && found.chars().zip(name.chars()).all(is_same)
}

/// A script that names a language, or several.
fn script(name: &str) -> Option<&'static str> {
    let has = |from: char, to: char| name.chars().any(|c| (from..=to).contains(&c));
    if has('\u{3040}', '\u{30ff}') {
        Some("Japanese")
    } else if has('\u{ac00}', '\u{d7af}') {
        Some("Korean")
    } else if has('\u{4e00}', '\u{9fff}') {
        Some("Chinese or Japanese")
    } else if has('\u{0400}', '\u{04ff}') {
        Some("Cyrillic")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_letter_is_any_letter_but_no_other() {
        assert!(same("M\u{fffd}moire", "Mémoire") && same("PROZESSOR", "Prozessor"));
        assert!(!same("Mxmoire", "Mémoire") && !same("Memory", "Mémoire") && !same("", ""));
        assert!(!same("Processor", "Processore"));
    }
}
