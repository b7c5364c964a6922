//! Does vsteer read libvirt's own test data as a second, simple reader does?
//!
//! libvirt's source holds command lines that libvirt makes (`tests/qemuxmlconfdata/*.args`) and definitions of VMs (XML files
//! of all tests). To run it on Debian 13, with dpkg-dev and a `deb-src` line among the sources:
//!
//! ```sh
//! apt-get source libvirt
//! VSTEER_LIBVIRT_DATA=libvirt-11.3.0/tests cargo test -p vsteer-host --test libvirt_data -- --ignored --nocapture
//! ```
//!
//! The second reader shares no code with vsteer. In the files of command lines each line is one option, so it needs no list of
//! options without a value. libvirt writes all counts of `-smp`, so it needs no rules for missing ones.
//!
//! Compared are:
//! - of a command line: name, UUID, topology, memory, memory nodes, I/O threads, accelerator, machine type;
//! - of a definition: name, UUID, kind, vCPUs, topology, memory, memory nodes, pins, weights, quotas, classes, and what the
//!   audit reads;
//! - of a command line and the definition it was made of: name, UUID, vCPUs, topology, memory, machine type.
//!
//! [`KNOWN`] lists each difference with its reason. A listed difference that does not occur fails the test.

use roxmltree::{Document, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vsteer_core::CpuSet;
use vsteer_core::nouns::{Accel, GuestTopology};
use vsteer_experiment::audit::WANTED;
use vsteer_host::actuate::Part;
use vsteer_host::kvm::{command_line, definition, xml};
use vsteer_host::tree::running;

/// The variable that names the folder.
const VARIABLE: &str = "VSTEER_LIBVIRT_DATA";
/// How many files libvirt 11.3 has.
const LINES_MIN: usize = 1_000;
const DEFINITIONS_MIN: usize = 2_000;
/// The differences: file (`*` at the end: any that begin so), what differs, why.
const KNOWN: &[(&str, &str, &str)] = &[
    ("qemuxmlconfdata/disk-vhostuser-numa.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/fd-memory-numa-topology2.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/fd-memory-numa-topology3.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/fd-memory-numa-topology4.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/hugepages-numa-default.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/migrate-numa-unaligned.x86_64-latest.args and its definition", "memory", ROUNDED),
    ("qemuxmlconfdata/numatune-distances.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/numatune-hmat.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/numatune-hmat-none.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/numatune-memnode.x86_64-latest.args and its definition", "memory", ROUNDED),
    (
        "qemuxmlconfdata/numatune-memnode-restrictive-mode.x86_64-latest.args and its definition",
        "memory",
        ROUNDED,
    ),
    ("qemuxmlconfdata/pcie-expander-bus.x86_64-latest.args and its definition", "memory", CELLS),
    ("qemuxmlconfdata/vhost-user-fs-hugepages.x86_64-latest.args and its definition", "memory", CELLS),
];
/// In the description of a running VM, libvirt has corrected it.
const CELLS: &str =
    "the definition's <memory> is not the sum of its NUMA cells, which is what libvirt gives QEMU";
const ROUNDED: &str = "libvirt rounds each NUMA cell up to 1 MiB, not their sum";

/// A list of pCPUs that is refused.
const UNREADABLE: &str = "not a list";

/// What a reader says, by aspect. An aspect that it does not find is missing.
type Facts = BTreeMap<&'static str, String>;

/// One difference: file, aspect, what vsteer says, what it should say.
type Difference = (String, &'static str, String, String);

#[test]
#[ignore = "needs VSTEER_LIBVIRT_DATA: the folder tests of libvirt's source (the file's head says how)"]
fn vsteer_reads_libvirts_test_data_as_a_second_reader_does() {
    let folder = std::env::var_os(VARIABLE).expect("VSTEER_LIBVIRT_DATA names libvirt's tests folder");
    let mut files = Vec::new();
    find(Path::new(&folder), &mut files);
    files.sort();
    let mut all = Compared::default();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let name = file.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        match file.extension().and_then(|e| e.to_str()) {
            Some("args") if name.starts_with("qemuxmlconfdata/") => all.line(&name, &text, file),
            Some("xml") => all.definition(&name, &text),
            _ => {}
        }
    }
    all.judge();
}

/// All files below the folder. Links to folders lead in circles: there are trees of sysfs.
fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{VARIABLE}: {}: {e}", folder.display()));
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            find(&path, files);
        } else if path.is_file() {
            files.push(path);
        }
    }
}

#[derive(Default)]
struct Compared {
    lines: usize,
    definitions: usize,
    /// Command lines with the definition that they were made of.
    pairs: usize,
    values: usize,
    differences: Vec<Difference>,
}

impl Compared {
    fn facts(&mut self, file: &str, vsteers: &Facts, expected: &Facts) {
        let aspects: BTreeSet<&'static str> = vsteers.keys().chain(expected.keys()).copied().collect();
        for aspect in aspects {
            self.values += 1;
            let of = |facts: &Facts| facts.get(aspect).cloned().unwrap_or_else(|| "nothing".to_owned());
            if vsteers.get(aspect) != expected.get(aspect) {
                self.differences.push((file.to_owned(), aspect, of(vsteers), of(expected)));
            }
        }
    }

    fn line(&mut self, name: &str, text: &str, file: &Path) {
        let options = options(text);
        let Some((program, options)) = options.split_first() else { return };
        self.lines += 1;
        let words: Vec<String> =
            [program.0.clone()].into_iter().chain(options.iter().flat_map(words_of)).collect();
        let vsteers = vsteers_line(&words);
        let expected = line(options);
        self.facts(name, &vsteers, &expected);
        let Some(xml) = definition_of(file).and_then(|path| std::fs::read_to_string(path).ok()) else {
            return;
        };
        let Some(domain) = xml::parse(&xml).ok() else { return };
        self.pairs += 1;
        let (of_line, of_xml) = pair(&vsteers, &domain, &xml);
        self.facts(&format!("{name} and its definition"), &of_line, &of_xml);
    }

    fn definition(&mut self, name: &str, text: &str) {
        let parsed = Document::parse(text);
        let is_domain = |d: &Document<'_>| d.root_element().tag_name().name() == "domain";
        if !parsed.as_ref().is_ok_and(is_domain) {
            assert!(xml::parse(text).is_err(), "{name} is not a definition");
            return;
        }
        self.definitions += 1;
        let document = parsed.unwrap();
        self.facts(name, &vsteers_definition(text), &expected_definition(document.root_element()));
        self.facts(name, &vsteers_tuning(text), &expected_tuning(document.root_element()));
        self.facts(name, &audits(text), &expected_audit(document.root_element()));
    }

    fn judge(&self) {
        let fits = |pattern: &str, file: &str| match pattern.strip_suffix('*') {
            Some(begin) => file.starts_with(begin),
            None => pattern == file,
        };
        let known = |d: &Difference| KNOWN.iter().any(|(file, aspect, _)| fits(file, &d.0) && *aspect == d.1);
        let unexplained: Vec<&Difference> = self.differences.iter().filter(|d| !known(d)).collect();
        for (file, aspect, ours, expected) in &unexplained {
            println!("DIFFERS {file}: {aspect}: vsteer {ours}, expected {expected}");
        }
        let unused = KNOWN
            .iter()
            .filter(|(file, aspect, _)| !self.differences.iter().any(|d| fits(file, &d.0) && *aspect == d.1));
        let unused: Vec<&str> = unused.map(|(file, ..)| *file).collect();
        println!(
            "{} command lines, {} definitions and {} pairs of both: {} values compared, {} known differences, {} unexplained",
            self.lines,
            self.definitions,
            self.pairs,
            self.values,
            self.differences.len() - unexplained.len(),
            unexplained.len()
        );
        assert!(unexplained.is_empty(), "{} differences", unexplained.len());
        assert!(unused.is_empty(), "listed, but equal: {unused:?}");
        assert!(self.lines >= LINES_MIN && self.definitions >= DEFINITIONS_MIN && self.pairs > LINES_MIN / 2);
    }
}

/// The definition that a command line was made of: the one that libvirt wrote for that version of QEMU, or the given one.
fn definition_of(args: &Path) -> Option<PathBuf> {
    let name = args.file_stem()?.to_str()?;
    let given = name.split('.').next()?;
    [name, given]
        .map(|name| args.with_file_name(format!("{name}.xml")))
        .into_iter()
        .find(|path| path.is_file())
}

/// The options of a file of arguments: each line is an option, with its value if it has one. The first is the program.
fn options(text: &str) -> Vec<(String, Option<String>)> {
    let lines = text.lines().map(|line| line.trim_end_matches('\\').trim()).filter(|line| !line.is_empty());
    let is_variable = |line: &&str| {
        line.split_once('=')
            .is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    };
    let option = |line: &str| match line.split_once(' ') {
        Some((option, value)) => (option.to_owned(), Some(unquoted(value))),
        None => (line.to_owned(), None),
    };
    lines.skip_while(is_variable).map(option).collect()
}

/// A word of a shell.
fn unquoted(text: &str) -> String {
    let (mut word, mut quote, mut signs) = (String::new(), None, text.chars());
    while let Some(sign) = signs.next() {
        match (sign, quote) {
            ('\\', None) => word.extend(signs.next()),
            ('\'' | '"', None) => quote = Some(sign),
            (sign, Some(open)) if sign == open => quote = None,
            (sign, _) => word.push(sign),
        }
    }
    word
}

fn words_of((option, value): &(String, Option<String>)) -> Vec<String> {
    [option.clone()].into_iter().chain(value.clone()).collect()
}

/// `a=1,b=2`; a doubled comma is a comma.
fn keyed(value: &str, first: &str) -> Vec<(String, String)> {
    let marked = value.replace(",,", "\u{1}");
    let pair = |(i, word): (usize, &str)| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.replace('\u{1}', ",")),
        None if i == 0 => (first.to_owned(), word.replace('\u{1}', ",")),
        None => (word.to_owned(), String::new()),
    };
    marked.split(',').enumerate().map(pair).collect()
}

fn find_key<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

fn shown(t: GuestTopology) -> String {
    format!("{}x{}x{}", t.sockets, t.cores, t.threads)
}

fn vsteers_line(words: &[String]) -> Facts {
    let Some(line) = command_line::parse(words) else { return Facts::new() };
    let accel = |accel: Accel| match accel {
        Accel::Kvm => "kvm".to_owned(),
        Accel::Tcg => "tcg".to_owned(),
    };
    let reduced =
        running::reduced(&words.iter().map(|w| format!("{w}\0")).collect::<String>()).unwrap_or_default();
    let machine = reduced.split('\0').find_map(|word| word.strip_prefix("type=").map(str::to_owned));
    let facts = [
        ("name", line.name),
        ("UUID", line.uuid),
        ("topology", line.topology.map(|t| t.map_or_else(|why| why, shown))),
        ("memory", line.memory.map(|m| m.map_or_else(|why| why, |bytes| bytes.to_string()))),
        ("memory nodes", line.memory_nodes.map(|nodes| nodes.to_string())),
        ("I/O threads", Some(line.iothreads.join(" ")).filter(|all| !all.is_empty())),
        ("accelerator", line.accel.map(accel)),
        ("machine type", machine),
        ("libvirt", line.of_libvirt.then(|| "yes".to_owned())),
    ];
    facts.into_iter().filter_map(|(aspect, value)| Some((aspect, value?))).collect()
}

/// The second reader of command lines.
fn line(options: &[(String, Option<String>)]) -> Facts {
    let values = |name: &str| {
        let name = format!("-{name}");
        options
            .iter()
            .filter(move |(option, _)| *option == name)
            .map(|(_, value)| value.as_deref().unwrap_or_default())
    };
    let key = |option: &str, first: &str, key: &str| {
        let pairs = keyed(values(option).next()?, first);
        find_key(&pairs, key).map(str::to_owned)
    };
    let count = |name: &str| key("smp", "cpus", name).map_or(1, |n| n.parse::<u32>().unwrap());
    let sockets = ["sockets", "books", "drawers"].map(count).iter().product();
    let cores = ["cores", "dies", "clusters", "modules"].map(count).iter().product();
    let objects: Vec<Vec<(String, String)>> = values("object").map(object).collect();
    let is = |object: &&Vec<(String, String)>, kind: &str| {
        find_key(object, "qom-type").is_some_and(|k| k.starts_with(kind))
    };
    let threads: Vec<&str> =
        objects.iter().filter(|o| is(o, "iothread")).filter_map(|o| find_key(o, "id")).collect();
    let bound = objects.iter().filter(|o| is(o, "memory-backend-") && find_key(o, "policy") == Some("bind"));
    let nodes: BTreeSet<u32> =
        bound.filter_map(|o| find_key(o, "host-nodes")).filter_map(numbers).flatten().collect();
    let secret = objects.iter().any(|o| find_key(o, "id") == Some("masterKey0"));
    let accel = key("accel", "accel", "accel").or_else(|| key("machine", "type", "accel"));
    let facts = [
        ("name", key("name", "guest", "guest")),
        ("UUID", values("uuid").next().map(str::to_lowercase)),
        ("topology", Some(shown(GuestTopology { sockets, cores, threads: count("threads") }))),
        ("memory", key("m", "size", "size").map(|size| bytes(&size).to_string())),
        ("memory nodes", Some(list(&nodes)).filter(|nodes| !nodes.is_empty())),
        ("I/O threads", Some(threads.join(" ")).filter(|all| !all.is_empty())),
        ("accelerator", accel.filter(|a| ["kvm", "tcg"].contains(&a.as_str()))),
        ("machine type", key("machine", "type", "type")),
        ("libvirt", secret.then(|| "yes".to_owned())),
    ];
    facts.into_iter().filter_map(|(aspect, value)| Some((aspect, value?))).collect()
}

/// An object's keys, from JSON or from pairs. Lists are texts with commas.
fn object(value: &str) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(all)) = serde_json::from_str(value) else {
        return keyed(value, "qom-type");
    };
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        serde_json::Value::Array(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    all.into_iter().map(|(key, value)| (key, text(value))).collect()
}

/// The bytes of `219136k` or `214`.
fn bytes(size: &str) -> u64 {
    let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().unwrap_or_else(|e| panic!("{size}: {e}"));
    match &size[digits.len()..] {
        "" | "M" => number * 1_048_576,
        "k" | "K" => number * 1024,
        "G" => number * 1_073_741_824,
        other => panic!("a new unit: {other}"),
    }
}

/// The numbers of `0-3,^2,7`; `None` for a text that is not such a list.
fn numbers(text: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let range = |text: &str| {
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            Some(from.trim().parse::<u32>().ok()?..=to.trim().parse::<u32>().ok()?)
        };
        match part.strip_prefix('^') {
            Some(without) => range(without)?.for_each(|n| _ = all.remove(&n)),
            None => all.extend(range(part)?),
        }
    }
    Some(all)
}

/// `0-2,5` of numbers, as vsteer writes a list.
fn list(all: &BTreeSet<u32>) -> String {
    all.iter().copied().collect::<CpuSet>().to_string()
}

/// A list in vsteer's form; `None` if it is not one.
fn listed(text: &str) -> Option<String> {
    Some(list(&numbers(text)?))
}

/// What vsteer reads of a command line and of its definition. A definition does not say the version of a machine type.
fn pair(line: &Facts, domain: &xml::Domain, xml: &str) -> (Facts, Facts) {
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    let machine = path(root, &["os", "type"]).and_then(|n| n.attribute("machine"));
    // Memory devices are a part of the definition's memory, and come by `-device`.
    let dimms = path(root, &["devices"]).map_or(0, |devices| elements(devices, "memory").count());
    let memory = domain.memory_bytes.filter(|_| dimms == 0);
    let is_power =
        path(root, &["os", "type"]).and_then(|n| n.attribute("arch")).is_some_and(|a| a.starts_with("ppc64"));
    let unit = if is_power { 256 << 20 } else { 1 << 20 };
    let of_xml = [
        ("name", Some(domain.name.clone())),
        ("UUID", Some(domain.uuid.clone()).filter(|uuid| !uuid.is_empty())),
        ("topology", domain.topology_shown().map(shown)),
        // libvirt rounds it up when it starts the VM (`qemuDomainAlignMemorySizes`).
        ("memory", memory.map(|bytes| bytes.next_multiple_of(unit).to_string())),
        ("machine type", machine.map(str::to_owned)),
    ];
    let of_xml: Facts = of_xml.into_iter().filter_map(|(aspect, value)| Some((aspect, value?))).collect();
    let of_line = line.iter().filter(|(aspect, _)| of_xml.contains_key(*aspect));
    (of_line.map(|(aspect, value)| (*aspect, value.clone())).collect(), of_xml)
}

fn elements<'a, 'i>(node: Node<'a, 'i>, name: &str) -> impl Iterator<Item = Node<'a, 'i>> {
    let plain = |n: &Node<'_, '_>| n.is_element() && n.tag_name().namespace().is_none();
    node.children().filter(plain).filter(move |n| n.tag_name().name() == name)
}

fn path<'a, 'i>(node: Node<'a, 'i>, names: &[&str]) -> Option<Node<'a, 'i>> {
    names.iter().try_fold(node, |node, name| elements(node, name).next())
}

fn vsteers_definition(text: &str) -> Facts {
    let Ok(domain) = xml::parse(text) else { return Facts::new() };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let facts = [
        ("name", some(domain.name)),
        ("UUID", some(domain.uuid)),
        ("kind", some(domain.kind)),
        ("vCPUs", domain.vcpus_max.map(|n| n.to_string())),
        ("topology", domain.topology.map(shown)),
        ("memory", domain.memory_bytes.map(|bytes| bytes.to_string())),
        ("memory mode", domain.memory_mode),
        ("memory nodes", domain.memory_nodes.map(|nodes| nodes.to_string())),
        ("user", domain.user),
    ];
    facts.into_iter().filter_map(|(aspect, value)| Some((aspect, value?))).collect()
}

/// The second reader of definitions.
fn expected_definition(root: Node<'_, '_>) -> Facts {
    let text = |name: &str| {
        Some(path(root, &[name])?.text().unwrap_or_default().to_owned()).filter(|t| !t.is_empty())
    };
    let topology = path(root, &["cpu", "topology"]).map(|t| {
        let count = |names: &[&str]| {
            let of = |name: &&str| t.attribute(*name).map_or(1, |n| n.parse::<u32>().unwrap());
            names.iter().map(of).product()
        };
        shown(GuestTopology {
            sockets: count(&["sockets"]),
            cores: count(&["dies", "clusters", "cores"]),
            threads: count(&["threads"]),
        })
    });
    let tune = path(root, &["numatune", "memory"]);
    let label = elements(root, "seclabel").filter(|n| n.attribute("model") == Some("dac"));
    let label = label.filter_map(|n| path(n, &["label"])?.text()).next();
    let facts = [
        ("name", text("name")),
        ("UUID", text("uuid").map(|uuid| uuid.to_lowercase())),
        ("kind", root.attribute("type").map(str::to_owned)),
        ("vCPUs", text("vcpu").and_then(|n| Some(n.trim().parse::<u32>().ok()?.to_string()))),
        ("topology", topology),
        ("memory", path(root, &["memory"]).and_then(memory).map(|bytes| bytes.to_string())),
        ("memory mode", tune.and_then(|t| t.attribute("mode")).map(str::to_owned)),
        ("memory nodes", tune.and_then(|t| listed(t.attribute("nodeset")?))),
        (
            "user",
            label.map(|label| label.trim_start_matches('+').split(':').next().unwrap_or_default().to_owned()),
        ),
    ];
    facts.into_iter().filter_map(|(aspect, value)| Some((aspect, value?))).collect()
}

/// libvirt's sizes (`virScaleInteger`): a letter alone and `KiB` count in 1,024, `KB` counts in 1,000.
fn memory(node: Node<'_, '_>) -> Option<u64> {
    let number: u64 = node.text()?.trim().parse().ok()?;
    let unit = node.attribute("unit").unwrap_or("KiB").to_lowercase();
    if ["b", "byte", "bytes"].contains(&unit.as_str()) {
        return Some(number);
    }
    let base: u64 = if unit.len() == 2 { 1000 } else { 1024 };
    let power = "kmgtpe".find(&unit[..1]).unwrap_or_else(|| panic!("a new unit: {unit}"));
    number.checked_mul(base.pow(power as u32 + 1))
}

const PINS: [(&str, &str); 3] = [("vcpupin", "vcpu"), ("iothreadpin", "iothread"), ("emulatorpin", "")];
const VALUES: [&str; 9] = [
    "shares",
    "period",
    "quota",
    "emulator_period",
    "emulator_quota",
    "global_period",
    "global_quota",
    "iothread_period",
    "iothread_quota",
];
const CLASSES: [(&str, &str); 3] =
    [("vcpusched", "vcpus"), ("iothreadsched", "iothreads"), ("emulatorsched", "")];

/// Pins, weights, quotas and classes, each by the readers with which vsteer changes a definition.
fn vsteers_tuning(text: &str) -> Facts {
    let read = |tag: &'static str| {
        let part = Part { parent: "cputune".into(), tag: tag.into(), key: None, elements: Vec::new() };
        definition::read(text, &part).unwrap().elements
    };
    // An element alone, as vsteer keeps it.
    let fact = |tag: &'static str, keys: [&str; 2]| {
        let each = |element: &String| {
            let document = Document::parse(element).unwrap_or_else(|e| panic!("{element}: {e}"));
            entry(document.root_element(), keys)
        };
        let all: Vec<String> = read(tag).iter().map(each).collect();
        (!all.is_empty()).then(|| (tag, all.join(" ")))
    };
    let mut facts: Facts = PINS.into_iter().filter_map(|(tag, key)| fact(tag, [key, "cpuset"])).collect();
    facts.extend(CLASSES.into_iter().filter_map(|(tag, key)| fact(tag, [key, "scheduler"])));
    facts.extend(VALUES.into_iter().filter_map(|tag| fact(tag, ["", ""])));
    let cpus = match definition::places(text) {
        Ok((_, cpus)) => cpus.map(|cpus| cpus.to_string()),
        Err(_) => Some(UNREADABLE.to_owned()),
    };
    facts.extend(cpus.map(|cpus| ("pCPUs of vCPUs", cpus)));
    let of_vcpu = |n: u32| Some(definition::pins_vcpu(text, n).unwrap()).filter(|cpus| !cpus.is_empty());
    facts.extend(of_vcpu(0).map(|cpus| ("pin of vCPU 0", cpus)));
    facts
}

fn entry(node: Node<'_, '_>, keys: [&str; 2]) -> String {
    let values = keys.map(|key| node.attribute(key).unwrap_or_default().to_owned());
    format!("{}:{}:{}", values[0], values[1], node.text().unwrap_or_default().trim())
}

fn expected_tuning(root: Node<'_, '_>) -> Facts {
    let tune = path(root, &["cputune"]);
    let fact = |tag: &'static str, keys: [&str; 2]| {
        let all: Vec<String> = elements(tune?, tag).map(|node| entry(node, keys)).collect();
        (!all.is_empty()).then(|| (tag, all.join(" ")))
    };
    let mut facts: Facts = PINS.into_iter().filter_map(|(tag, key)| fact(tag, [key, "cpuset"])).collect();
    facts.extend(CLASSES.into_iter().filter_map(|(tag, key)| fact(tag, [key, "scheduler"])));
    facts.extend(VALUES.into_iter().filter_map(|tag| fact(tag, ["", ""])));
    let cpus = path(root, &["vcpu"]).and_then(|vcpu| vcpu.attribute("cpuset"));
    facts.extend(cpus.map(|cpus| ("pCPUs of vCPUs", listed(cpus).unwrap_or_else(|| UNREADABLE.to_owned()))));
    let own = tune.and_then(|tune| elements(tune, "vcpupin").find(|n| n.attribute("vcpu") == Some("0")));
    facts.extend(own.and_then(|pin| Some(("pin of vCPU 0", pin.attribute("cpuset")?.to_owned()))));
    facts
}

/// What the audit keeps of a stored definition.
fn audits(text: &str) -> Facts {
    let kept = (WANTED.kept)("/etc/libvirt/qemu/vm.xml", text.to_owned());
    let Ok(document) = Document::parse(&kept) else { return Facts::from([("audit: text", kept)]) };
    expected_audit(document.root_element())
}

fn expected_audit(root: Node<'_, '_>) -> Facts {
    let vcpu = path(root, &["vcpu"]);
    let most = vcpu.and_then(|n| n.text()?.trim().parse::<usize>().ok());
    let current = vcpu.and_then(|n| n.attribute("current")?.parse().ok());
    // What is kept has the pins below the root.
    let tune = path(root, &["cputune"]).unwrap_or(root);
    let pins = elements(tune, "vcpupin")
        .filter_map(|n| Some(format!("{}:{}", n.attribute("vcpu")?, n.attribute("cpuset")?)));
    let name = path(root, &["name"]).and_then(|n| n.text()).map(|name| name.trim().to_owned());
    let mut facts: Facts =
        name.into_iter().filter(|n| !n.is_empty()).map(|name| ("audit: name", name)).collect();
    facts.insert("audit: vCPUs", current.or(most).unwrap_or(1).to_string());
    facts.insert("audit: pins", pins.collect::<Vec<_>>().join(" "));
    facts
}
