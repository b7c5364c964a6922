//! A command as its list of arguments. No shell reads it.
//!
//! In a file a command is a list, `["grubby", "--info=ALL"]`, or a string of plain words with quotes as in a shell. A
//! string that only a shell could run (pipes, redirections, variables, patterns) is refused. To run a shell, a file
//! says so: `{ sh = "..." }`, which stands for `["/bin/sh", "-c", "..."]`.

use crate::nouns::Manager;
use serde::{Deserialize, Deserializer, Serialize};

/// Characters with a meaning for a shell, outside quotes.
const SPECIAL: &str = "|&;<>()$`*?[]!\n";

/// A command: a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Argv(Vec<String>);

impl Argv {
    /// A command of these words.
    ///
    /// # Errors
    /// Without a program, or with a NUL character, which no argument can contain.
    pub fn new<W: Into<String>>(words: impl IntoIterator<Item = W>) -> Result<Argv, String> {
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        match words.first() {
            None => Err("the command is empty".to_owned()),
            Some(program) if program.is_empty() => Err("the command names no program".to_owned()),
            Some(_) if words.iter().any(|w| w.contains('\0')) => {
                Err("the command contains a NUL character".to_owned())
            }
            Some(_) => Ok(Argv(words)),
        }
    }

    /// The words of a string: quotes and backslashes as in `sh`, nothing else.
    ///
    /// # Errors
    /// If only a shell could run it, or a quote is not closed.
    pub fn parse(text: &str) -> Result<Argv, String> {
        let words = split(text.trim())?;
        if words.first().is_some_and(|w| w.contains('=') && !w.contains('/')) {
            return Err(format!(
                "{text:?} begins with a variable, which only a shell sets: write [\"env\", ...]"
            ));
        }
        Argv::new(words)
    }

    /// A command for `sh`, where vsteer itself needs one.
    pub fn shell(line: &str) -> Argv {
        Argv(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()])
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// The same with `value` in place of `{name}` in every argument. An argument that was only `{name}` stays one
    /// argument, whatever `value` contains.
    pub fn with(&self, name: &str, value: &str) -> Argv {
        let place = format!("{{{name}}}");
        Argv(self.0.iter().map(|w| w.replace(&place, value)).collect())
    }

    /// Does an argument contain `{name}`?
    pub fn mentions(&self, name: &str) -> bool {
        self.0.iter().any(|w| w.contains(&format!("{{{name}}}")))
    }
}

/// The words of a string, or why it takes a shell.
fn split(text: &str) -> Result<Vec<String>, String> {
    let shell = |c: char| format!("{text:?} needs a shell because of {c:?}: write {{ sh = {text:?} }}");
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err(format!("{text:?} has a quote that is not closed")),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some(c @ ('$' | '`')) => return Err(shell(c)),
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => return Err(format!("{text:?} has a quote that is not closed")),
                        },
                        Some(c) => word.push(c),
                        None => return Err(format!("{text:?} has a quote that is not closed")),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '~' | '#' if word.is_none() => return Err(shell(c)),
            c if SPECIAL.contains(c) => return Err(shell(c)),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

impl std::fmt::Display for Argv {
    /// As a person types it into a shell.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `{value}` stands for a value, here and there in a word.
        let typed =
            |w: &String| if is_plain(&w.replace(['{', '}'], "-")) { w.clone() } else { shell_word(w) };
        f.write_str(&self.0.iter().map(typed).collect::<Vec<_>>().join(" "))
    }
}

/// A text as one word of a POSIX shell.
pub fn shell_word(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The word that names a VM in a command of virsh. virsh takes a word that begins with `--` for an option, and a number for
/// the id of a running VM, so another word stands for such names.
pub fn virsh_word(name: &str, uuid: Option<&str>) -> String {
    let is_number = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    match uuid.filter(|_| is_number) {
        Some(uuid) => shell_word(uuid),
        None if name.starts_with('-') => shell_word(&format!("--domain={name}")),
        None => shell_word(name),
    }
}

/// The manager's own command that moves a running VM to the host `OTHER`; `None` if the manager has none. `domain` is the VM's
/// id at libvirt.
pub fn move_command(manager: &Manager, name: &str, domain: Option<&str>) -> Option<String> {
    Some(match manager {
        Manager::Libvirt(_) => {
            format!("virsh migrate --live {} qemu+ssh://OTHER/system", virsh_word(name, domain))
        }
        Manager::Xen => format!("xl migrate {} OTHER", shell_word(name)),
        Manager::Proxmox(number) => format!("qm migrate {number} OTHER --online"),
        Manager::KubeVirt => format!("virtctl migrate {}", shell_word(name)),
        // vCenter moves VMs of vSphere. Kata starts a new VM for a moved pod.
        Manager::Vsphere(_) | Manager::Kata | Manager::Bare => return None,
    })
}

/// Does a shell read it as it stands?
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-,+:=@%".contains(c))
}

impl<'de> Deserialize<'de> for Argv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Argv, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a command: a string of words, a list of words, or { sh = \"...\" }"
        )]
        enum Form {
            Text(String),
            Words(Vec<String>),
            Shell { sh: String },
        }
        let read = match Form::deserialize(deserializer)? {
            Form::Text(text) => Argv::parse(&text),
            Form::Words(words) => Argv::new(words),
            Form::Shell { sh } => Argv::new(["/bin/sh", "-c", &sh]),
        };
        read.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        Argv::parse(text).unwrap().0
    }

    #[test]
    fn names_for_virsh() {
        let of = |name: &str| virsh_word(name, Some("63715d0b-76a4-4a2a-8db6-9bda3af71014"));
        assert_eq!((of("web").as_str(), of("--live").as_str()), ("web", "--domain=--live"));
        assert_eq!(of("-x; reboot"), "'--domain=-x; reboot'");
        assert_eq!(of("7"), "63715d0b-76a4-4a2a-8db6-9bda3af71014");
        assert_eq!((virsh_word("7", None).as_str(), of("7a").as_str()), ("7", "7a"));
    }

    #[test]
    fn each_manager_has_its_own_command_to_move_a_vm() {
        let of = |manager: &Manager| move_command(manager, "it's", Some("63715d0b"));
        assert_eq!(of(&Manager::Xen).unwrap(), r"xl migrate 'it'\''s' OTHER");
        assert_eq!(of(&Manager::Proxmox(104)).unwrap(), "qm migrate 104 OTHER --online");
        assert!(of(&Manager::Libvirt(String::new())).unwrap().starts_with("virsh migrate --live 'it"));
        assert_eq!(of(&Manager::Bare), None);
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(shell_word("web-1"), "web-1");
        assert_eq!(shell_word("it's *"), r"'it'\''s *'");
        assert_eq!(shell_word("{a}"), "'{a}'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_string_is_words_with_quotes() {
        assert_eq!(words(" make  -j4 "), ["make", "-j4"]);
        assert_eq!(
            words(r#"a "b c" 'd $e' f\ g "h\"i" '' {level}"#),
            ["a", "b c", "d $e", "f g", "h\"i", "", "{level}"]
        );
        assert_eq!(words("a'b'\"c\""), ["abc"]);
    }

    #[test]
    fn what_takes_a_shell_is_refused() {
        for text in [
            "a | b",
            "a; b",
            "a > b",
            "echo $x",
            "echo \"$x\"",
            "echo `x`",
            "ls *",
            "a && b",
            "(a)",
            "ls ~/x",
            "a\nb",
            "ls [a]",
            "# a",
        ] {
            let why = Argv::parse(text).unwrap_err();
            assert!(why.contains("needs a shell") && why.contains("{ sh = "), "{text}: {why}");
        }
        assert!(Argv::parse("X=1 make").unwrap_err().contains("\"env\""));
        assert!(Argv::parse("a 'b").unwrap_err().contains("not closed"));
        assert!(Argv::parse("").unwrap_err().contains("empty") && Argv::new([""]).is_err());
        assert!(Argv::new(["a\0"]).is_err());
    }

    #[test]
    fn a_level_stays_one_argument() {
        let command = Argv::parse("set {level} --to={level}").unwrap();
        assert!(command.mentions("level") && !command.mentions("x"));
        assert_eq!(command.with("level", "a; reboot").0, ["set", "a; reboot", "--to=a; reboot"]);
    }

    #[test]
    fn files_have_lists_or_strings() {
        let read = |json: &str| serde_json::from_str::<Argv>(json).map(|a| a.0);
        assert_eq!(read("\"a b\"").unwrap(), ["a", "b"]);
        assert_eq!(read("[\"sh\", \"-c\", \"a | b\"]").unwrap(), ["sh", "-c", "a | b"]);
        assert!(read("\"a | b\"").unwrap_err().to_string().contains("needs a shell"));
        assert_eq!(read("{\"sh\": \"a | b\"}").unwrap(), ["/bin/sh", "-c", "a | b"]);
        assert!(read("[]").is_err() && read("1").is_err());
        assert_eq!(serde_json::to_string(&Argv::parse("a b").unwrap()).unwrap(), "[\"a\",\"b\"]");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_is_run(words in prop::collection::vec("[^\0\n]{1,12}", 1..6)) {
            prop_assume!(!words[0].is_empty() && (!words[0].contains('=') || words[0].contains('/')));
            let argv = Argv::new(words).unwrap();
            prop_assert_eq!(Argv::parse(&argv.to_string()).unwrap(), argv);
        }
    }
}
