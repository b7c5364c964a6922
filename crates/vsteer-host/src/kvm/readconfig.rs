//! Options of a QEMU that stand in a file (`-readconfig`), as Incus and LXD start their VMs.
//!
//! A file has sections `[GROUP]` or `[GROUP "ID"]` with lines `KEY = "VALUE"`. Each is one option of a command line, so
//! vsteer puts these options where the file is named and reads the line as any other.
//!
//! Anybody can name any file on the command line of a process, and opening some files has effects (`/dev/watchdog`). So
//! vsteer reads only what lies in the folders of Incus and LXD, in which only root can make files. (The processes
//! themselves run as an ordinary user.)
//!
//! Source: `util/qemu-config.c`, `qemu_config_foreach`; `system/vl.c`, `qemu_parse_config_group` (QEMU 9.2).
//!
//! Left out: all other files. Then the VM's topology is not known.

/// Where Incus and LXD keep a VM's file: `/run/incus/NAME/qemu.conf` and its relatives.
const FOLDERS: [&str; 5] =
    ["/run/incus/", "/run/lxd/", "/var/log/incus/", "/var/log/lxd/", "/var/snap/lxd/common/lxd/logs/"];

/// The words of a command line, with the options of the files that it names. `read` gives a file's text; without it the
/// option stays.
pub fn expanded(words: &[String], mut read: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word != "-readconfig" && word != "--readconfig" {
            all.push(word.clone());
            continue;
        }
        let file = words.next();
        match file.filter(|file| is_trusted(file)).and_then(|file| read(file)) {
            Some(text) => all.extend(options(&text)),
            None => all.extend([Some(word), file].into_iter().flatten().cloned()),
        }
    }
    all
}

fn is_trusted(file: &str) -> bool {
    let is_plain = file.split('/').all(|part| part != ".." && part != ".") && !file.contains("//");
    is_plain && FOLDERS.iter().any(|folder| file.starts_with(folder))
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
    let some = sections.into_iter().filter(|(_, pairs)| !pairs.is_empty());
    some.flat_map(|(option, pairs)| [option, pairs.join(",")]).collect()
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
        let line = words("qemu -S -readconfig /run/incus/v1/qemu.conf -D log");
        assert!(is_used(&line) && !is_used(&words("qemu -S")));
        let all = expanded(&line, |path| (path == "/run/incus/v1/qemu.conf").then(|| file.to_owned()));
        let expected = "qemu -S -machine type=q35 -smp cpus=2,maxcpus=64 -m size=4096M \
                        -chardev id=monitor,backend=socket,path=/run/a,,b,server=on -D log";
        assert_eq!(all, words(expected));
    }

    #[test]
    fn other_files_are_not_opened_and_their_option_stays() {
        let line = words("qemu -readconfig /run/lxd/v1/qemu.conf -S");
        assert_eq!(expanded(&line, |_| None), line);
        for file in
            ["/dev/watchdog", "/run/incus/../../dev/watchdog", "/run/incus//x", "qemu.conf", "/run/incusx/a"]
        {
            let line = words(&format!("qemu -readconfig {file} -S"));
            assert_eq!(expanded(&line, |file| panic!("{file} is opened")), line);
        }
        assert_eq!(expanded(&words("qemu -readconfig"), |_| panic!("no file")), words("qemu -readconfig"));
        assert_eq!(options("a = 1\n[x\n]\n[machine]\n"), Vec::<String>::new());
    }
}
