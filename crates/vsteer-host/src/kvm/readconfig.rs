//! Options of a QEMU that stand in a file (`-readconfig`), as Incus and LXD start their VMs.
//!
//! A file has sections `[GROUP]` or `[GROUP "ID"]` with lines `KEY = "VALUE"`. Each is one option of a command line, so
//! vsteer puts these options where the file is named and reads the line as any other.
//!
//! Anybody can name any file on the command line of a process, so the caller reads files for root's processes alone.
//!
//! Source: `util/qemu-config.c`, `qemu_config_foreach`; `system/vl.c`, `qemu_parse_config_group` (QEMU 9.2).
//!
//! Left out: files named relative to the process's folder.

/// The words of a command line, with the options of the files that it names. `read` gives a file's text.
pub fn expanded(words: &[String], mut read: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word != "-readconfig" && word != "--readconfig" {
            all.push(word.clone());
            continue;
        }
        let text = words.next().filter(|file| file.starts_with('/')).and_then(|file| read(file));
        all.extend(text.iter().flat_map(|text| options(text)));
    }
    all
}

/// Does the command line name such a file?
pub fn is_used(words: &[String]) -> bool {
    words.iter().any(|word| word == "-readconfig" || word == "--readconfig")
}

/// The options of a file's text, each followed by its value.
fn options(text: &str) -> Vec<String> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(head) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let (group, id) = head.split_once(' ').map_or((head, None), |(group, id)| (group, Some(id)));
            let option = match group {
                "smp-opts" => "smp",
                "memory" => "m",
                other => other,
            };
            let id = id.map(|id| format!("id={}", escaped(id)));
            sections.push((format!("-{option}"), id.into_iter().collect()));
        } else if let (Some((key, value)), Some((_, pairs))) = (line.split_once('='), sections.last_mut())
            && !line.starts_with('#')
        {
            pairs.push(format!("{}={}", key.trim(), escaped(value.trim())));
        }
    }
    sections.into_iter().flat_map(|(option, pairs)| [option, pairs.join(",")]).collect()
}

/// A quoted value as a command line has it, where a comma stands twice.
fn escaped(value: &str) -> String {
    value.trim_matches('"').replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sections_are_options() {
        let file = "# Machine\n[machine]\ntype = \"q35\"\n[smp-opts]\ncpus = \"2\"\nmaxcpus = \"64\"\n\n[memory]\nsize = \"4096M\"\n\
                    [chardev \"monitor\"]\nbackend = \"socket\"\npath = \"/run/a,b\"\nserver = \"on\"\nodd\n";
        let line = words("qemu -S -readconfig /run/v1.conf -D log");
        assert!(is_used(&line) && !is_used(&words("qemu -S")));
        let all = expanded(&line, |path| (path == "/run/v1.conf").then(|| file.to_owned()));
        let expected = "qemu -S -machine type=q35 -smp cpus=2,maxcpus=64 -m size=4096M \
                        -chardev id=monitor,backend=socket,path=/run/a,,b,server=on -D log";
        assert_eq!(all, words(expected));
    }

    #[test]
    fn files_that_cannot_be_read_are_left_out() {
        assert_eq!(expanded(&words("qemu -readconfig /x -S"), |_| None), words("qemu -S"));
        assert_eq!(expanded(&words("qemu -readconfig x.conf -S"), |_| panic!("relative")), words("qemu -S"));
        assert_eq!(expanded(&words("qemu -readconfig"), |_| panic!("no file")), words("qemu"));
        assert_eq!(options("a = 1\n[x\n]"), Vec::<String>::new());
    }
}
