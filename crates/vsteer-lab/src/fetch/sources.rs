//! Reads the system's package sources, and writes them for a private apt.
//!
//! It reads both forms of `man 5 sources.list` (one-line and deb822). It writes every entry as deb822, which
//! all apt since 1.1 read, with the wanted type (`deb` or `deb-src`). Keys, architectures and other options
//! are copied, so that the private apt trusts exactly what the system trusts. Left out: `cdrom:` entries,
//! which need a disc.

use std::fmt::Write;
use std::path::Path;

/// One deb822 stanza: fields in order. A value may span several lines, which are kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stanza {
    fields: Vec<(String, String)>,
}

/// The kind of package to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Binary,
    Source,
    /// Of a source package, only what its authors released, without Debian's changes.
    Upstream,
}

impl Wanted {
    /// The type in sources.list.
    pub fn word(self) -> &'static str {
        match self {
            Wanted::Binary => "deb",
            Wanted::Source | Wanted::Upstream => "deb-src",
        }
    }

    /// The folder of the cache in which such packages are.
    pub fn folder(self) -> &'static str {
        if self == Wanted::Upstream { "upstream" } else { self.word() }
    }
}

impl Stanza {
    /// The value of a field; the case of the name does not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.fields.push((name.into(), value.into()));
    }

    fn is_usable(&self) -> bool {
        let on = self.get("Enabled").is_none_or(|v| !v.trim().eq_ignore_ascii_case("no"));
        let types = self.get("Types").unwrap_or_default();
        let uris = self.get("URIs").unwrap_or_default();
        on && types.split_whitespace().any(|t| t == "deb")
            && !uris.trim().is_empty()
            && !uris.contains("cdrom:")
    }
}

/// Reads the enabled entries of the system from `etc_apt` (`/etc/apt`), in the order of file names, so that
/// the result does not depend on the folder's order.
pub fn of_system(etc_apt: &Path) -> Vec<Stanza> {
    let mut files = vec![etc_apt.join("sources.list")];
    let parts = std::fs::read_dir(etc_apt.join("sources.list.d"));
    let mut parts: Vec<_> = parts.into_iter().flatten().flatten().map(|e| e.path()).collect();
    parts.sort();
    files.extend(parts);
    let mut stanzas = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|e| e.to_str()) {
            Some("list") => stanzas.extend(parse_one_line(&text)),
            Some("sources") => stanzas.extend(parse_deb822(&text)),
            _ => {}
        }
    }
    stanzas.retain(Stanza::is_usable);
    stanzas
}

/// Debian's releases, oldest first. Add each new release here.
const RELEASES: &[&str] = &["bullseye", "bookworm", "trixie"];

/// Entries for other suites of the same archives, with the same keys, because a later suite may contain what
/// the system's own suite lacks. They use Debian's own names ([`RELEASES`]), because `stable` on mirrors and
/// proxies may be weeks old. There is one entry per address, and none if the system is not Debian.
pub fn of_later_suites(stanzas: &[Stanza]) -> Vec<Stanza> {
    of_other_suites(stanzas, |own| {
        let at = RELEASES.iter().position(|r| *r == own)?;
        let later: Vec<String> = RELEASES[at + 1..].iter().map(|r| format!("{r} {r}-backports")).collect();
        Some(format!("{own}-backports {}", later.join(" ")))
    })
}

/// Entries for one release of Debian in the same archives.
pub fn of_release(stanzas: &[Stanza], release: &str) -> Vec<Stanza> {
    of_other_suites(stanzas, |own| RELEASES.contains(&own).then(|| release.to_owned()))
}

/// `suites` says which suites stand for a suite of the system; `None` for one that Debian does not have.
fn of_other_suites(stanzas: &[Stanza], suites: impl Fn(&str) -> Option<String>) -> Vec<Stanza> {
    let mut later: Vec<Stanza> = Vec::new();
    for stanza in stanzas {
        let uri = stanza.get("URIs").unwrap_or_default().split_whitespace().next().unwrap_or_default();
        let known = later.iter().any(|s| s.get("URIs").is_some_and(|u| u.trim() == uri));
        let own = stanza.get("Suites").unwrap_or_default().split_whitespace().next().unwrap_or_default();
        let Some(suites) = suites(own) else { continue };
        if known || uri.trim_end_matches('/').rsplit('/').next() != Some("debian") {
            continue;
        }
        let replaced = |name: &str| {
            ["Types", "URIs", "Suites", "Components"].iter().any(|n| n.eq_ignore_ascii_case(name))
        };
        let mut one = Stanza::default();
        for (name, value) in
            [("Types", "deb"), ("URIs", uri), ("Suites", suites.trim()), ("Components", "main")]
        {
            one.set(name, format!(" {value}"));
        }
        one.fields.extend(stanza.fields.iter().filter(|(name, _)| !replaced(name)).cloned());
        later.push(one);
    }
    later
}

/// Writes the entries as deb822 with only the type `wanted`.
pub fn write(stanzas: &[Stanza], wanted: Wanted) -> String {
    let mut text = String::new();
    for stanza in stanzas {
        let _ = writeln!(text, "Types: {}", wanted.word());
        for (name, value) in &stanza.fields {
            if !name.eq_ignore_ascii_case("Types") && !name.eq_ignore_ascii_case("Enabled") {
                let _ = writeln!(text, "{name}:{value}");
            }
        }
        text.push('\n');
    }
    text
}

/// Parses deb822 text. A line that starts with a blank continues the previous field; `#` starts a comment
/// line, also within a field.
pub fn parse_deb822(text: &str) -> Vec<Stanza> {
    let mut stanzas = vec![Stanza::default()];
    for line in text.lines() {
        let last = stanzas.last_mut().expect("one is always there");
        if line.trim().is_empty() {
            if !last.fields.is_empty() {
                stanzas.push(Stanza::default());
            }
        } else if line.starts_with('#') {
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = last.fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            last.set(name.trim(), format!(" {}", value.trim()));
        }
    }
    stanzas.retain(|s| !s.fields.is_empty());
    stanzas
}

/// Parses one-line entries: `deb [option=value ...] uri suite component...`.
pub fn parse_one_line(text: &str) -> Vec<Stanza> {
    text.lines().filter_map(one_line).collect()
}

fn one_line(line: &str) -> Option<Stanza> {
    let line = line.split('#').next()?.trim();
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let components: Vec<&str> = words.collect();
    let mut stanza = Stanza::default();
    stanza.set("Types", format!(" {kind}"));
    stanza.set("URIs", format!(" {uri}"));
    stanza.set("Suites", format!(" {suite}"));
    if !components.is_empty() {
        stanza.set("Components", format!(" {}", components.join(" ")));
    }
    for option in options.split_whitespace() {
        let (name, value) = option.split_once('=')?;
        // The names that differ between the forms, from the table in `man 5 sources.list`. The others differ
        // only in case, which does not matter.
        let name = match name.trim_end_matches(['+', '-']) {
            "arch" => "Architectures",
            "lang" => "Languages",
            "target" => "Targets",
            other => other,
        };
        stanza.set(name, format!(" {}", value.replace(',', " ")));
    }
    Some(stanza)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: stable stable-updates\n\
                          Components: main\nSigned-By: /usr/share/keyrings/a.gpg\n\n\n\
                          Enabled: no\nTypes: deb\nURIs: http://other.example\nSuites: x\nComponents: y\n";

    #[test]
    fn deb822_becomes_deb_src_and_keeps_its_key() {
        let stanzas = parse_deb822(DEBIAN);
        assert_eq!(stanzas.len(), 2);
        assert!(stanzas[0].is_usable() && !stanzas[1].is_usable());
        assert_eq!(
            write(&stanzas[..1], Wanted::Source),
            "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: stable stable-updates\nComponents: main\n\
             Signed-By: /usr/share/keyrings/a.gpg\n\n"
        );
    }

    #[test]
    fn a_key_inside_the_stanza_goes_on_over_lines() {
        let text =
            "Types: deb deb-src\nURIs: http://u.example\nSuites: s\nSigned-By:\n -----BEGIN\n .\n abc\n";
        let written = write(&parse_deb822(text), Wanted::Binary);
        assert!(written.contains("Signed-By: \n -----BEGIN\n .\n abc\n"), "{written}");
    }

    #[test]
    fn one_line_form_with_options() {
        let text = "# deb http://no.example x y\n\
                    deb [arch=amd64,i386 signed-by=/k.gpg] http://u.example/ubuntu noble main universe # why\n\
                    deb-src http://u.example/ubuntu noble main\n\
                    deb http://flat.example ./\n";
        let stanzas = parse_one_line(text);
        assert_eq!(stanzas.len(), 3);
        assert_eq!(
            stanzas.iter().map(Stanza::is_usable).collect::<Vec<_>>(),
            [true, false, true],
            "a deb-src line alone yields no second entry"
        );
        let written = write(&stanzas[..1], Wanted::Binary);
        for line in ["Types: deb", "Suites: noble", "Components: main universe", "Architectures: amd64 i386"]
        {
            assert!(written.contains(&format!("{line}\n")), "{line} is not in\n{written}");
        }
        assert_eq!(stanzas[0].get("Signed-By"), Some(" /k.gpg"));
        assert_eq!(stanzas[2].get("Components"), None);
    }

    #[test]
    fn later_suites_keep_address_and_key() {
        let text = format!(
            "{DEBIAN}\nTypes: deb\nURIs: http://mirror.example/debian-security\nSuites: s\nComponents: main\n\n\
             Types: deb\nURIs: http://mirror.example/debian\nSuites: twice\nComponents: main\n"
        );
        let text = text.replace("Suites: stable stable-updates", "Suites: bookworm bookworm-updates");
        let stanzas: Vec<_> = parse_deb822(&text).into_iter().filter(Stanza::is_usable).collect();
        assert_eq!(
            write(&of_later_suites(&stanzas), Wanted::Binary),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports trixie trixie-backports\nComponents: main\n\
             Signed-By: /usr/share/keyrings/a.gpg\n\n"
        );
        let ubuntu = parse_one_line("deb http://u.example/ubuntu noble main universe\n");
        assert!(of_later_suites(&ubuntu).is_empty() && of_release(&ubuntu, "trixie").is_empty());
        assert_eq!(of_release(&stanzas, "trixie")[0].get("Suites").map(str::trim), Some("trixie"));
    }

    #[test]
    fn the_system_is_read_in_the_order_of_names_and_disc_entries_are_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sources.list.d")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("sources.list", "deb cdrom:[disc]/ x main\ndeb http://one.example x main\n");
        put("sources.list.d/b.sources", DEBIAN);
        put("sources.list.d/a.list", "deb http://two.example x main\n");
        put("sources.list.d/c.list.save", "deb http://never.example x main\n");
        let uris: Vec<_> =
            of_system(folder.path()).iter().map(|s| s.get("URIs").unwrap().trim().to_owned()).collect();
        assert_eq!(uris, ["http://one.example", "http://two.example", "http://mirror.example/debian"]);
    }
}
