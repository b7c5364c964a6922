//! Parses the first row of a batch file, which names the counter and the object of each column.
//!
//! A cell is `\\host\Object(instance)\Counter`. Hosts and counters contain no backslash, but names of VMs may
//! contain anything. So vsteer parses a path from both ends, and the rest is the instance.
//!
//! No document says how esxtop writes a quote inside a name. vsteer reads CSV's form, a doubled quote. A
//! single quote that no comma or end follows counts as part of the name. Every path begins with `\\`. So a
//! cell that does not is the rest of the previous one, whose name contained `","`.

/// The start of such a file. A time zone and bias follow.
pub(super) const MAGIC: &str = "(PDH-CSV 4.0)";

/// Does a file start like a batch file?
pub(super) fn begins(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bytes = bytes.strip_prefix(b"\"").unwrap_or(bytes);
    // A spreadsheet or `relog` writes the second with tabs.
    bytes.starts_with(b"(PDH-CSV") || bytes.starts_with(b"(PDH-TSV")
}

/// How many minutes local time is behind UTC, from `(PDH-CSV 4.0) (UTC)(0)`; 0 if it is missing.
pub(super) fn bias_min(first: &str) -> i64 {
    let inside = first.trim_end().strip_suffix(')').and_then(|rest| rest.rsplit_once('('));
    inside.and_then(|(_, bias)| bias.trim().parse().ok()).filter(|b: &i64| b.abs() < 48 * 60).unwrap_or(0)
}

/// The most columns of a file. A host with 1,000 worlds has 60,000.
pub(super) const COLUMNS_MOST: usize = 500_000;

/// The cells of a header, in order; `None` if there are more than [`COLUMNS_MOST`]. `separator` stands between them.
pub(super) fn cells(header: &[u8], separator: u8) -> Option<Vec<String>> {
    let mut cells: Vec<String> = Vec::new();
    let mut at = 0;
    while at < header.len() {
        let (cell, next, quoted) = cell(header, at, separator);
        let text = String::from_utf8_lossy(&cell).into_owned();
        match cells.last_mut() {
            // An empty text after the last comma is not a column.
            Some(_) if text.is_empty() && next >= header.len() => {}
            Some(last) if cells_begin(last) && !text.starts_with("\\\\") => {
                let between = char::from(separator);
                last.push_str(&if quoted { format!("\"{between}\"") } else { between.to_string() });
                last.push_str(&text);
            }
            _ => cells.push(text),
        }
        if cells.len() > COLUMNS_MOST {
            return None;
        }
        at = next;
    }
    undouble(&mut cells);
    Some(cells)
}

/// Halves backslashes that another program has doubled: then every path begins with four.
fn undouble(cells: &mut [String]) {
    let mut paths = cells.iter().skip(1).filter(|c| !c.is_empty()).peekable();
    if paths.peek().is_some() && paths.all(|c| c.starts_with(r"\\\\")) {
        cells.iter_mut().for_each(|c| *c = c.replace(r"\\", r"\"));
    }
}

/// May the next text belong to this cell? Not if this is the first cell, with the time zone.
fn cells_begin(last: &str) -> bool {
    last.starts_with("\\\\")
}

/// The cell at `at`: its bytes, the start of the next one, and whether it was quoted.
fn cell(row: &[u8], at: usize, separator: u8) -> (Vec<u8>, usize, bool) {
    if row.get(at) != Some(&b'"') {
        let end = memchr::memchr(separator, &row[at..]).map_or(row.len(), |i| at + i);
        return (row[at..end].to_vec(), end + 1, false);
    }
    let (mut out, mut i) = (Vec::new(), at + 1);
    while i < row.len() {
        match (row[i], row.get(i + 1)) {
            (b'"', Some(b'"')) => {
                out.push(b'"');
                i += 2;
            }
            (b'"', next) if next.is_none_or(|b| *b == separator) => return (out, i + 2, true),
            (b, _) => {
                out.push(b);
                i += 1;
            }
        }
    }
    (out, row.len() + 1, true)
}

/// A column's counter and object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column<'a> {
    pub(super) host: &'a str,
    pub(super) object: &'a str,
    pub(super) instance: Option<&'a str>,
    pub(super) counter: &'a str,
}

pub(super) fn column(path: &str) -> Option<Column<'_>> {
    let (host, rest) = path.strip_prefix("\\\\")?.split_once('\\')?;
    let (object, counter) = rest.rsplit_once('\\')?;
    let (object, instance) = match object.strip_suffix(')').and_then(|o| o.split_once('(')) {
        Some((object, instance)) => (object, Some(instance)),
        None => (object, None),
    };
    Some(Column { host, object, instance, counter })
}

/// The object of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instance<'a> {
    /// All worlds of a group together.
    Group {
        gid: u64,
        /// The name of the group, which is the VM's.
        name: &'a str,
    },
    /// One world of a group.
    World {
        gid: u64,
        wid: u64,
        /// The name of the world: `vmx-vcpu-0:web`.
        name: &'a str,
    },
}

impl<'a> Instance<'a> {
    pub(super) fn group(text: &'a str) -> Option<Instance<'a>> {
        let (gid, name) = text.split_once(':')?;
        Some(Instance::Group { gid: gid.parse().ok()?, name })
    }

    /// Parses `gid:group:wid:world`. Names may contain `:7:` themselves. If the group's name is known, vsteer
    /// removes it as a whole. Otherwise vsteer takes the number after which the world's name ends with the
    /// group's, as in `vmx-vcpu-0:web`, or the first number.
    pub(super) fn world(text: &'a str, group: Option<&str>) -> Option<Instance<'a>> {
        let (gid, rest) = text.split_once(':')?;
        let gid = gid.parse().ok()?;
        let known = group.and_then(|g| rest.strip_prefix(g)?.strip_prefix(':'));
        let split = |rest: &'a str| {
            let (wid, name) = rest.split_once(':')?;
            Some(Instance::World { gid, wid: wid.parse().ok()?, name })
        };
        if let Some(world) = known.and_then(split) {
            return Some(world);
        }
        let splits =
            || rest.match_indices(':').filter_map(|(i, _)| Some((&rest[..i], split(&rest[i + 1..])?)));
        let ends_so = |(group, world): &(&str, Instance<'_>)| match world {
            Instance::World { name, .. } => name.strip_suffix(*group).is_some_and(|n| n.ends_with(':')),
            Instance::Group { .. } => false,
        };
        splits().find(ends_so).or_else(|| splits().next()).map(|(_, world)| world)
    }
}

/// The vCPU that a world runs: `vmx-vcpu-3:web` (ESXi 4 to 8), `vcpu-3:web` (ESX 3.5).
pub(super) fn vcpu_of(world: &str) -> Option<u32> {
    let rest = world.strip_prefix("vmx-").unwrap_or(world).strip_prefix("vcpu-")?;
    let digits = rest.split_once(':').map_or(rest, |(n, _)| n);
    digits.parse().ok().filter(|n| *n < 4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_with_quotes_doubled_or_not() {
        let header = br#""(PDH-CSV 4.0) (UTC)(0)","\\h\Group Cpu(1:a""b)\% Run","\\h\Group Cpu(2:c"d)\% Run","\\h\Group Cpu(3:e","f)\% Run","#;
        assert_eq!(
            cells(header, b',').unwrap(),
            [
                "(PDH-CSV 4.0) (UTC)(0)",
                r#"\\h\Group Cpu(1:a"b)\% Run"#,
                r#"\\h\Group Cpu(2:c"d)\% Run"#,
                r#"\\h\Group Cpu(3:e","f)\% Run"#
            ]
        );
        assert_eq!(
            cells(b"(PDH-CSV 4.0),\\\\h\\Physical Cpu(0)\\% Util Time", b',').unwrap().len(),
            2,
            "saved without quotes"
        );
    }

    #[test]
    fn paths_with_names_that_look_like_paths() {
        let c = column(r"\\esx\Group Cpu(7:we\b (1)\% Run)\% Ready").unwrap();
        assert_eq!((c.object, c.counter), ("Group Cpu", "% Ready"));
        assert_eq!(
            Instance::group(c.instance.unwrap()),
            Some(Instance::Group { gid: 7, name: r"we\b (1)\% Run" })
        );
        let load = column(r"\\esx\Physical Cpu Load\Cpu Load (1 Minute Avg)").unwrap();
        assert_eq!((load.object, load.instance), ("Physical Cpu Load", None));
        assert_eq!(column("no path"), None);
    }

    #[test]
    fn worlds_of_groups_with_colons() {
        let world = |text, group| Instance::world(text, group).unwrap();
        let plain = world("3497860:diskless vm 2:5421591:vmx", None);
        assert_eq!(plain, Instance::World { gid: 3497860, wid: 5421591, name: "vmx" });
        for group in [Some("a:7:b"), None] {
            let odd = world("5:a:7:b:99:vmx-vcpu-0:a:7:b", group);
            assert_eq!(odd, Instance::World { gid: 5, wid: 99, name: "vmx-vcpu-0:a:7:b" }, "{group:?}");
        }
        assert_eq!(vcpu_of("vmx-vcpu-11:a"), Some(11));
        assert_eq!(vcpu_of("vmx-mks:a"), None);
        assert_eq!(vcpu_of("vmx-vcpu-:a"), None);
    }

    #[test]
    fn zones() {
        assert_eq!(bias_min("(PDH-CSV 4.0) (UTC)(0)"), 0);
        assert_eq!(bias_min("(PDH-CSV 4.0) (India Standard Time)(-330)"), -330);
        assert_eq!(bias_min("(PDH-CSV 4.0)"), 0);
    }

    proptest! {
        /// The column of a VM is found for any name.
        #[test]
        fn any_name_is_read_back(name in any::<String>(), gid in 1u64..1 << 40, wid in 1u64..1 << 30) {
            let group = format!(r"\\h\Group Cpu({gid}:{name})\% Run");
            let c = column(&group).unwrap();
            prop_assert_eq!(Instance::group(c.instance.unwrap()), Some(Instance::Group { gid, name: &name }));
            let world = format!("vmx-vcpu-0:{name}");
            let path = format!(r"\\h\Vcpu({gid}:{name}:{wid}:{world})\% Ready");
            let c = column(&path).unwrap();
            let read = Instance::world(c.instance.unwrap(), Some(&name)).unwrap();
            prop_assert_eq!(read, Instance::World { gid, wid, name: &world });
        }

        /// Quotes as CSV does.
        #[test]
        fn any_cell_is_read_back(names in proptest::collection::vec(any::<String>(), 1..5)) {
            let paths: Vec<String> = names.iter().map(|n| format!(r"\\h\Group Cpu(1:{n})\% Run")).collect();
            let mut header = "\"(PDH-CSV 4.0) (UTC)(0)\"".to_owned();
            paths.iter().for_each(|p| header.push_str(&format!(",\"{}\"", p.replace('"', "\"\""))));
            let read = cells(header.as_bytes(), b',').unwrap();
            prop_assert_eq!(&read[1..], &paths[..]);
        }
    }
}
