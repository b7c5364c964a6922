//! Does each source count in its turn, is each fault found at its place, and does a hostile file do nothing else?

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// A value of a key that is not its default.
fn other(key: &Key) -> String {
    match key.kind {
        Kind::Time(_) => "7s".into(),
        Kind::Percent => "3%".into(),
        Kind::Threshold(row) => row.unit.written(2.0 * Thresholds::default().of(row)),
        Kind::Size { .. } => "16M".into(),
        Kind::Choice(words) => (*words.iter().find(|w| **w != key.default).unwrap()).into(),
        Kind::Words(words) => words[3].into(),
        Kind::Zone => "UTC".into(),
        Kind::Folder | Kind::File => "/srv/other".into(),
        Kind::Addresses => "127.0.0.1:9178".into(),
        Kind::Names => "vm8.lan".into(),
        Kind::Connection => "qemu:///other".into(),
        _ => panic!("keys of triggers are tested in triggers.rs"),
    }
}

fn line(key: &Key, value: &str) -> String {
    let value = if key.kind.is_list() { format!("[{value:?}]") } else { format!("{value:?}") };
    format!("[{}]\n{} = {value}\n", key.section, key.name)
}

fn value(config: &Config, key: &Key) -> String {
    match &config.values[place(&key.full())].0 {
        Value::One(text) => text.clone(),
        Value::List(all) => all.join(","),
    }
}

fn told(text: &str) -> Vec<String> {
    of_text(text).wrong.iter().map(|w| format!("{}:{} {} {}", w.line, w.column, w.what, w.help)).collect()
}

/// The only fault of a text.
fn only(text: &str) -> String {
    let all = told(text);
    assert_eq!(all.len(), 1, "{text:?}: {all:?}");
    all[0].clone()
}

#[test]
fn names_are_distinct_and_every_default_is_valid() {
    let names: BTreeSet<String> = keys().iter().map(Key::full).collect();
    assert!(names.len() == keys().len() && names.len() > 25, "{names:?}");
    let sections: BTreeSet<&str> = keys().iter().map(|k| k.section).collect();
    assert_eq!(sections.len(), SECTIONS.len(), "each table has a key");
    for key in keys() {
        assert!(
            !key.meaning.is_empty() && key.options.iter().all(|_| key.overridden_by.is_some()),
            "{}",
            key.full()
        );
        for text in [key.default, &other(key)] {
            let text = if key.kind.is_list() && text.is_empty() { continue } else { text };
            assert_eq!(told(&line(key, text)), [""; 0], "{}", key.full());
        }
    }
}

#[test]
fn a_key_of_a_file_reaches_its_own_value_alone() {
    for key in keys() {
        let loaded = of_text(&line(key, &other(key)));
        for of in keys() {
            let expected = if of.full() == key.full() { other(key) } else { of.default.to_string() };
            assert_eq!(value(&loaded.config, of), expected, "{} of {}", of.full(), key.full());
        }
        if let Kind::Threshold(row) = key.kind {
            let (set, plain) = (loaded.config.thresholds(), Thresholds::default());
            assert!((set.of(row) / plain.of(row) - 2.0).abs() < 1e-6, "{}", row.name);
            let mut back = set;
            back.set(row.name, plain.of(row)).unwrap();
            assert_eq!(back, plain, "{}", row.name);
        }
        let config = &loaded.config;
        for (command, id) in key.options {
            assert!(config.options_of(command).iter().any(|(of, _)| of == id), "{command} {id}");
        }
    }
    assert!(Config::default().options_of("top").is_empty());
}

/// The folder of a system's file and a user's file.
struct Files(tempfile::TempDir);

impl Files {
    fn places(&self, texts: [Option<String>; 2]) -> Places {
        let at = |name: &str| self.0.path().join(name);
        for (name, text) in ["system", "user"].iter().zip(texts) {
            let _ = std::fs::remove_file(at(name));
            text.iter().for_each(|text| std::fs::write(at(name), text).unwrap());
        }
        Places::Usual(vec![at("system"), at("user")])
    }
}

fn no_variables(_: &str) -> Option<OsString> {
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Variable, user's file, system's file, default: for any key, the first of those that are there counts.
    #[test]
    fn the_strongest_source_counts(at in 0..1000usize, there in prop::array::uniform3(any::<bool>())) {
        let key = &keys()[at % keys().len()];
        let files = Files(tempfile::tempdir().unwrap());
        let [system, user, variable] = there;
        let of_user = match key.kind {
            Kind::Choice(_) => key.default.to_string(),
            Kind::Words(words) => words[5].to_owned(),
            Kind::Folder | Kind::File => "/srv/user".into(),
            Kind::Addresses => "127.0.0.1:9177".into(),
            Kind::Names => "vm7.lan".into(),
            Kind::Zone => "Etc/UTC".into(),
            Kind::Connection => "qemu:///user".into(),
            Kind::Size { .. } => "32M".into(),
            Kind::Percent => "4%".into(),
            Kind::Time(_) => "8s".into(),
            Kind::Threshold(row) => row.unit.written(3.0 * Thresholds::default().of(row)),
            _ => panic!("keys of triggers are tested in triggers.rs"),
        };
        let places = files.places([system.then(|| line(key, &other(key))), user.then(|| line(key, &of_user))]);
        let variables = |name: &str| {
            key.variable.filter(|v| variable && v.name == name).map(|_| OsString::from("/from/variable"))
        };
        let loaded = Loaded::of(&places, &variables);
        prop_assert!(loaded.fault().is_none(), "{:?}", loaded.fault());
        let of_variable = key.variable.filter(|_| variable).map(|v| (v.means)("/from/variable").unwrap());
        let expected = of_variable.clone()
            .or(user.then_some(of_user))
            .or(system.then(|| other(key)))
            .unwrap_or_else(|| key.default.to_string());
        prop_assert_eq!(value(&loaded.config, key), expected);
        let file = |name: &str| Source::File(files.0.path().join(name), 2);
        let source = match (of_variable, user, system) {
            (Some(_), ..) => Source::Variable(key.variable.unwrap().name),
            (None, true, _) => file("user"),
            (None, false, true) => file("system"),
            _ => Source::Default,
        };
        prop_assert_eq!(loaded.config.source(&key.full()), &source);
    }

    #[test]
    fn any_text_is_read_or_its_faults_have_places(text in "(\\[(top|hosts.a|record|x)\\]|interval|connect|ring|=|\"2s\"|\"\u{1b}\"|\\{|\\[|\n| |#|'''|é|\u{0}|1979-05-27){0,24}") {
        let loaded = of_text(&text);
        let lines = text.matches('\n').count() + 1;
        for wrong in &loaded.wrong {
            prop_assert!((1..=lines).contains(&wrong.line) && wrong.column >= 1, "{wrong}");
            prop_assert!(!wrong.to_string().chars().any(|c| vsteer_core::visible::acts(c) && c != '\n'), "{wrong:?}");
        }
        // What counts is shown as a file that says the same.
        let again = of_text(&show(&loaded.config, &|_| None));
        prop_assert!(again.wrong.is_empty(), "{:?}", again.wrong);
        for key in keys() {
            prop_assert_eq!(value(&loaded.config, key), value(&again.config, key));
        }
    }
}

#[test]
fn where_files_are_looked_for() {
    let vars = |all: &'static [(&'static str, &'static str)]| {
        move |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
    };
    let usual = |user: &str| Places::Usual(vec![SYSTEM.into(), user.into()]);
    let home = vars(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "relative")]);
    assert_eq!(Places::of(None, &home), usual("/home/a/.config/vsteer/vsteer.toml"));
    let xdg = vars(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/x")]);
    assert_eq!(Places::of(None, &xdg), usual("/x/vsteer/vsteer.toml"));
    assert_eq!(Places::of(None, &no_variables), Places::Usual(vec![SYSTEM.into()]));
    let named = vars(&[("HOME", "/home/a"), ("VSTEER_CONFIG", "b.toml")]);
    assert_eq!(Places::of(None, &named), Places::One("b.toml".into()));
    assert_eq!(
        Places::of(Some("c.toml".as_ref()), &named),
        Places::One("c.toml".into()),
        "the option comes first"
    );
    assert_eq!(Places::of(Some("none".as_ref()), &named), Places::Usual(Vec::new()));
    assert_eq!(Places::of(Some("./none".as_ref()), &named), Places::One("./none".into()));
    if rustix::process::geteuid().is_root() {
        let sudo = vars(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/x"), ("SUDO_UID", "1000")]);
        let Places::Usual(files) = Places::of(None, &sudo) else { panic!("no file is named") };
        assert!(
            files.len() == 2 && !files[1].starts_with("/home/a") && !files[1].starts_with("/x"),
            "{files:?}"
        );
    }
}

#[test]
fn what_is_missing_or_closed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    // A home that is not a folder, as services have it.
    let usual = Loaded::of(&Places::Usual(vec![at("gone"), at("file/below")]), &no_variables);
    assert!(usual.fault().is_none() && usual.notes.is_empty() && usual.config.files().is_empty());
    let named = Loaded::of(&Places::One(at("gone")), &no_variables).fault().unwrap();
    assert_eq!(named.kind, FaultKind::NothingThere);
    std::fs::create_dir(at("folder")).unwrap();
    assert_eq!(
        Loaded::of(&Places::One(at("folder")), &no_variables).fault().unwrap().kind,
        FaultKind::BadInput
    );
    // A pipe would block, a device may have no end.
    let (pipe, mode) = (at("pipe"), rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(Loaded::of(&Places::One(pipe), &no_variables).fault().unwrap().kind, FaultKind::BadInput);
    assert!(Loaded::of(&Places::One("/dev/zero".into()), &no_variables).fault().is_some());
}

/// Texts, and the only fault of each: line, column, what is wrong, what to write instead.
const FAULTY: &[(&str, &str)] = &[
    ("[top]\nintervall = \"2s\"", "2:1 unknown key \"intervall\" in [top] did you mean \"interval\"?"),
    ("[top]\nring = \"2G\"", "2:1 unknown key \"ring\" in [top] it belongs below [record]"),
    ("[top]\nzzz = 1", "2:1 unknown key \"zzz\" in [top] known: interval, columns"),
    (
        "interval = \"2s\"",
        "1:1 unknown key \"interval\" outside of a table it belongs below [record], [top] or [serve]",
    ),
    ("[tops]\n", "1:2 unknown table [tops] did you mean [top]?"),
    ("top = 3", "1:1 top is a table, found a number write [top] on a line of its own"),
    ("[top]\ninterval = 2", "2:12 top.interval: expected text, found a number for example \"2s\""),
    ("[top]\ninterval = \"2\"", "2:12 top.interval: the unit is missing write \"2s\", or use ms, m, h or d"),
    (
        "[top]\ninterval = \"2 parsecs\"",
        "2:12 top.interval: not a time unknown unit \"parsecs\": use ms, s, m, h or d",
    ),
    ("[top]\ninterval = \"\"", "2:12 top.interval: not a time \"\" is not a number (such as 20s or 200ms)"),
    ("[record]\ninterval = \"90s\"", "2:12 record.interval: out of range between 1ms and 60s"),
    ("[record]\nring = \"2\"", "2:8 record.ring: the unit is missing use K, M, G or T, as in \"64M\""),
    ("[record]\nring = \"2k\"", "2:8 record.ring: out of range must be at least 1M"),
    ("[record]\nevent_buffer = \"3M\"", "2:16 record.event_buffer: not a power of two for example 8M or 16M"),
    ("[collector]\nmethod = \"bpf\"", "2:10 collector.method: not a known word did you mean \"ebpf\"?"),
    ("[plan]\nwork_loss = \"10\"", "2:13 plan.work_loss: the unit is missing write \"10%\""),
    ("[plan]\nwork_loss = \"101%\"", "2:13 plan.work_loss: out of range between 0% and 100%"),
    ("[thresholds]\nsteal = 2", "2:9 thresholds.steal: expected text, found a number for example \"2%\""),
    ("[thresholds]\nsteal = \"2\"", "2:9 thresholds.steal: the unit is missing add %, as in \"2%\""),
    ("[thresholds]\nsteal = \"2ms\"", "2:9 thresholds.steal: another unit is expected use %, as in \"2%\""),
    ("[thresholds]\nsteal = \"-2%\"", "2:9 thresholds.steal: out of range between 0 and 10000%"),
    (
        "[thresholds]\nwake_p99_ns = \"5%\"",
        "2:15 thresholds.wake_p99_ns: another unit is expected use ms or s, as in \"5ms\"",
    ),
    (
        "[top]\ncolumns = \"%RDY\"",
        "2:11 top.columns: expected a list, found text for example [\"%USED\", \"%RDY\"]",
    ),
    ("[top]\ncolumns = [\"%RDY\", \"%RDY\"]", "2:20 top.columns: \"%RDY\" stands there twice "),
    (
        "[top]\ncolumns = [1]",
        "2:12 top.columns: expected text, found a number for example [\"%USED\", \"%RDY\"]",
    ),
    ("[paths]\nstate = \"journals\"", "2:9 paths.state: not a path from the root begin it with /"),
    (
        "[display]\ntime_zone = \"Mars\"",
        "2:13 display.time_zone: not a time zone of this system for example Europe/Berlin or UTC",
    ),
    (
        "[connection]\nconnect = \"qemu+ext:///x?command=/tmp/x\"",
        "2:11 connection.connect: vsteer does not open this URI from a file its parameter \"command\" can run a program or redirect the connection",
    ),
    (
        "[connection]\nconnect = \"lba\"\n[hosts.lab]\nconnect = \"qemu:///x\"",
        "2:11 connection.connect: no host has the name \"lba\" did you mean \"lab\"?",
    ),
    (
        "[hosts.\"a:b\"]\nconnect = \"qemu:///x\"",
        "1:8 \"a:b\" cannot be the name of a host use at most 64 letters, digits, and - _ .",
    ),
    ("[hosts.a]\n", "1:8 hosts.a has no connect add connect = \"URI\""),
    ("[hosts.a]\nconnect = \"b\"", "2:11 hosts.a.connect: not a URI for example \"vsphere://root@esx1\""),
    (
        "[hosts.a]\nconnect = \"qemu:///x\"\nthumbprint = \"ab\"",
        "3:14 hosts.a.thumbprint: not a SHA-256 thumbprint 64 hexadecimal digits, with or without colons",
    ),
    (
        "[hosts.a]\nconnect = \"qemu:///x\"\ncaa = \"ab\"",
        "3:1 unknown key \"caa\" in [hosts.a] did you mean \"ca\"?",
    ),
    (
        "[hosts.a]\nconnect = \"qemu:///x\"\npassword_file = \"-\"",
        "3:17 hosts.a.password_file: not a path from the root begin it with /",
    ),
];

#[test]
fn each_fault_is_named_at_its_place() {
    for (text, expected) in FAULTY {
        // A host without a valid URI has none.
        let all: Vec<String> = told(text)
            .into_iter()
            .filter(|w| !w.contains("has no connect") || *text == "[hosts.a]\n")
            .collect();
        assert_eq!(all, [*expected], "{text}");
    }
    let both =
        format!("[hosts.a]\nconnect = \"vsphere://x\"\nca = \"/c\"\nthumbprint = \"{}\"", "ab".repeat(32));
    assert!(only(&both).starts_with("4:1 hosts.a has both ca and thumbprint"), "{}", only(&both));
}

#[test]
fn all_faults_of_all_files_at_once() {
    let text = "[top]\nintervall = \"2s\"\ncolumns = [\"%A\", \"%B\"]\n[record]\nring = 3\n= 4\n[plan\nwork_loss = \"20%\"\n";
    let all = told(text);
    assert!(all.len() >= 6, "{all:#?}");
    let lines: Vec<usize> = all.iter().map(|w| w.split(':').next().unwrap().parse().unwrap()).collect();
    assert!(lines.is_sorted(), "{lines:?}");
    let files = Files(tempfile::tempdir().unwrap());
    let places = files.places([Some("x = 1".into()), Some("y = 2".into())]);
    let fault = Loaded::of(&places, &no_variables).strict().unwrap_err();
    assert_eq!(fault.kind, FaultKind::BadInput);
    let said = fault.to_string();
    assert!(said.contains("2 faults") && said.contains("system:1:1") && said.contains("user:1:1"), "{said}");
}

/// A typo hides the folder of the journals only where it damages that line or its table.
#[test]
fn of_a_faulty_file_the_rest_counts() {
    for text in [
        "[paths]\nstate = \"/srv/v\"\n[top]\ninterval = oops\n",
        "[top\n[paths]\nstate = \"/srv/v\"\n[",
        "[paths]\nstate = \"/srv/v\"\nstat = 1",
    ] {
        let loaded = of_text(text);
        assert!(!loaded.wrong.is_empty());
        assert_eq!(loaded.config.folder("paths.state"), Some(Path::new("/srv/v")), "{text}");
        let only = loaded.config.only("paths.state");
        assert_eq!((only.text("paths.state"), only.text("top.interval")), ("/srv/v", "2s"));
    }
}

#[test]
fn hosts_have_names_and_the_users_entry_replaces_the_systems() {
    let files = Files(tempfile::tempdir().unwrap());
    let system = "[hosts.a]\nconnect = \"vsphere://a\"\nca = \"/etc/ca.pem\"\n[hosts.b]\nconnect = \"qemu+ssh://b/system\"\n";
    let user =
        "[connection]\nconnect = \"b\"\n[hosts.a]\nconnect = \"vsphere://other\"\npassword_file = \"/p\"\n";
    let loaded = Loaded::of(&files.places([Some(system.into()), Some(user.into())]), &no_variables);
    let config = loaded.strict().unwrap();
    assert_eq!(config.text("connection.connect"), "b");
    let a = config.host("a").unwrap();
    assert_eq!(
        (a.connect.as_str(), &a.ca, a.password_file.as_deref()),
        ("vsphere://other", &None, Some(Path::new("/p")))
    );
    assert_eq!(config.host_names().collect::<Vec<_>>(), ["a", "b"]);
    for uri in ["qemu:///system", "a:b", "vsphere://a", ""] {
        assert!(!is_host_name(uri), "{uri}");
    }
}

#[test]
fn hostile_files() {
    let begun = Instant::now();
    let deep = format!("x = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let tables = format!("[{}a]", "a.".repeat(100_000));
    let inline = format!("x = {}1{}", "{a = ".repeat(50_000), "}".repeat(50_000));
    let keys = "k = 1\n".repeat(100_000);
    let quotes = "\"".repeat(500_000);
    let name = format!("{} = 1", "a".repeat(500_000));
    for text in [deep, tables, inline, keys, quotes, name] {
        let loaded = of_text(&text);
        let said = loaded.fault().unwrap().to_string();
        assert!(said.len() < 200_000, "{} bytes", said.len());
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!told("[top]\ninterval = \"2s\"\ninterval = \"3s\"").is_empty(), "a key stands there twice");
    assert!(!told("[top]\n[top]\n").is_empty(), "a table stands there twice");
    assert!(!told("[top]\u{0}\ninterval = \"2s\"").is_empty());
    let acting = only("[top]\n\"\\u001b[2J\\u202e\" = 1");
    assert!(acting.contains("\\u{1b}[2J\\u{202e}"), "{acting}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vsteer.toml");
    let load = || Loaded::of(&Places::One(file.clone()), &no_variables);
    std::fs::write(&file, b"[top]\ninterval = \"\xff\"\n").unwrap();
    let wrong = load().wrong.remove(0);
    assert_eq!((wrong.line, wrong.column, wrong.what.as_str()), (2, 13, "not UTF-8 text"));
    // 100 MB without a block on the disk.
    std::fs::File::create(&file).unwrap().set_len(100_000_000).unwrap();
    let fault = load().fault().unwrap();
    assert!(fault.kind == FaultKind::BadInput && fault.to_string().contains("more than 1 MiB"), "{fault}");
}

#[test]
fn every_line_of_the_example_can_be_uncommented_and_is_the_default() {
    let example = example();
    assert_eq!(told(&example), [""; 0]);
    let is_key =
        |l: &str| l.strip_prefix('#').is_some_and(|l| l.starts_with(|c: char| c.is_ascii_alphabetic()));
    let lines: Vec<&str> = example.lines().collect();
    let at: Vec<usize> = (0..lines.len()).filter(|i| is_key(lines[*i])).collect();
    assert_eq!(at.len(), keys().len());
    let with = |uncommented: &[usize]| {
        let line = |(i, l): (usize, &&str)| {
            if uncommented.contains(&i) { l[1..].to_owned() } else { (*l).to_owned() }
        };
        lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    };
    for choice in at.iter().map(|i| vec![*i]).chain([at.clone()]) {
        let loaded = of_text(&with(&choice));
        assert!(loaded.wrong.is_empty(), "{:?}", loaded.wrong);
        for key in keys() {
            assert_eq!(value(&loaded.config, key), key.default, "{}", key.full());
        }
        let set = loaded.config.values.iter().filter(|(_, source)| *source != Source::Default).count();
        assert_eq!(set, choice.len());
    }
    // The hosts and the trigger of the example are a comment, and valid without it.
    let hosts: String =
        lines.iter().filter_map(|l| l.strip_prefix("#   ")).map(|l| format!("{l}\n")).collect();
    let hosts = hosts
        .replace("AB:CD:...", &"ab".repeat(32))
        .lines()
        .filter(|l| !l.starts_with("ca ") && !l.starts_with("command "))
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(told(&hosts), [""; 0], "{hosts}");
}

#[test]
fn what_is_shown_says_where_it_comes_from() {
    let files = Files(tempfile::tempdir().unwrap());
    let text = "[hosts.\"a.b\"]\nconnect = \"qemu:///x\"\n[top]\n\ninterval = \"5s\"\n";
    let variables = |name: &str| (name == "NO_COLOR").then(|| OsString::from("1"));
    let config = Loaded::of(&files.places([Some(text.into()), None]), &variables).strict().unwrap();
    let typed = |key: &Key| (key.name == "ring").then(|| vec!["3G".to_owned()]);
    let shown = show(&config, &typed);
    let system = files.0.path().join("system").display().to_string();
    for line in [
        format!("interval = \"5s\"  # file {system}:5"),
        "colour = \"never\"  # environment NO_COLOR".to_owned(),
        "ring = \"3G\"  # option --ring".to_owned(),
        "columns = []  # default".to_owned(),
        "[hosts.\"a.b\"]".to_owned(),
    ] {
        assert!(shown.lines().any(|l| l == line), "{line}\n{shown}");
    }
    let again = of_text(&shown);
    assert!(again.wrong.is_empty() && again.config.host("a.b") == config.host("a.b"), "{:?}", again.wrong);
    assert_eq!(again.config.text("record.ring"), "3G");
}
