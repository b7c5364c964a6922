//! Seventy-two hosts and VMs, and what the paper's rule, vsteer's own and ESXi make of them: `vnuma.toml`.

use serde::Deserialize;
use vsteer_core::numa::vnuma::{Advice, HostShape, NodeShape, Version, VmShape, answer};

#[derive(Deserialize)]
struct Table {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    nodes: String,
    gib: Option<String>,
    sockets: Option<u32>,
    threads: Option<u32>,
    esxi: Option<String>,
    busy: Option<String>,
    used: Option<String>,
    vcpus: u32,
    vm_gib: Option<f64>,
    cores_per_socket: Option<u32>,
    vcpu_min: Option<u32>,
    #[serde(default)]
    prefer_ht: bool,
    #[serde(default)]
    hot_add: bool,
    #[serde(default)]
    follow: bool,
    paper: String,
    own: String,
    differs: bool,
    shown: u32,
    why: String,
}

fn list(text: Option<&str>, n: usize) -> Vec<Option<f64>> {
    match text {
        Some(text) => text.split('+').map(|w| Some(w.parse().unwrap())).collect(),
        None => vec![None; n],
    }
}

impl Row {
    fn host(&self) -> HostShape {
        let cores: Vec<u32> = self.nodes.split('+').map(|w| w.parse().unwrap()).collect();
        let n = cores.len();
        let (gib, busy, used) =
            (list(self.gib.as_deref(), n), list(self.busy.as_deref(), n), list(self.used.as_deref(), n));
        let node = |i: usize| NodeShape {
            cores: cores[i],
            memory_gib: gib[i],
            busy_cores: busy[i].unwrap_or(0.0),
            used_gib: used[i].unwrap_or(0.0),
        };
        HostShape {
            nodes: (0..n).map(node).collect(),
            sockets: self.sockets.unwrap_or(n as u32),
            threads_per_core: self.threads.unwrap_or(1),
            esxi: self.esxi.as_deref().map(|v| Version::parse(v).unwrap()),
        }
    }

    fn vm(&self) -> VmShape {
        VmShape {
            cores_per_socket: self.cores_per_socket,
            hot_add: self.hot_add,
            prefer_ht: self.prefer_ht,
            vcpu_min: self.vcpu_min,
            follow_cores_per_socket: self.follow,
            ..VmShape::new(self.vcpus, self.vm_gib)
        }
    }
}

/// The table's words for an answer; node and fullness only where the row says them.
fn words(advice: &Advice, as_in: &str) -> String {
    let number = |n: &Option<u32>| n.map_or("none".to_owned(), |n| n.to_string());
    match advice {
        Advice::Shape(s) => {
            let mut text = format!("{}x{}", s.sockets, s.cores_per_socket);
            if as_in.contains(" on ") {
                let nodes: Vec<String> = s.on_nodes.iter().map(usize::to_string).collect();
                text += &format!(" on {}", nodes.join("+"));
            }
            if !s.has_room {
                text += " full";
            }
            text
        }
        Advice::OtherVcpus { nodes, fewer, more } => {
            format!("{nodes} nodes, {} or {}", number(fewer), number(more))
        }
        Advice::TooLarge { of } => format!("too large: {of}"),
    }
}

#[test]
fn the_table() {
    let table: Table = toml::from_str(include_str!("vnuma.toml")).unwrap();
    let mut wrong = Vec::new();
    for (i, row) in table.row.iter().enumerate() {
        let a = answer(&row.host(), &row.vm());
        let quotient = match row.paper.split_once('/') {
            Some((a, b)) => a.parse::<f64>().unwrap() / b.parse::<f64>().unwrap(),
            None => row.paper.parse().unwrap(),
        };
        let own = words(&a.own, &row.own);
        let same = (a.paper.cores_per_socket - quotient).abs() < 1e-9
            && own == row.own
            && a.differs == row.differs
            && a.exposed_now.nodes == row.shown;
        if !same {
            wrong.push(format!(
                "row {}: {} GiB {:?}, VM {} {:?}: paper {} ({}), own {own} ({}), differs {} ({}), shown {} ({}): {}",
                i + 1, row.nodes, row.gib, row.vcpus, row.vm_gib, a.paper.cores_per_socket, row.paper, row.own,
                a.differs, row.differs, a.exposed_now.nodes, row.shown, row.why
            ));
        }
        assert!(!row.why.is_empty() && !a.exposed_now.because.is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(table.row.len() >= 60 && table.row.iter().filter(|r| r.differs).count() >= 20);
}

/// What is assumed is said, and only what is.
#[test]
fn assumptions_are_named() {
    let host = HostShape {
        nodes: vec![NodeShape { cores: 8, memory_gib: None, busy_cores: 0.0, used_gib: 0.0 }; 2],
        sockets: 2,
        threads_per_core: 2,
        esxi: None,
    };
    assert_eq!(answer(&host, &VmShape::new(12, None)).assumed.len(), 5);
    let mut known = VmShape {
        vcpu_min: Some(9),
        prefer_ht: true,
        cores_per_socket: Some(1),
        ..VmShape::new(12, Some(8.0))
    };
    let told = HostShape {
        nodes: vec![NodeShape { memory_gib: Some(64.0), ..host.nodes[0] }; 2],
        esxi: Version::parse("VMware ESXi 7.0.2"),
        ..host
    };
    assert_eq!(answer(&told, &known).assumed, Vec::<String>::new());
    known.vcpu_min = None;
    assert_eq!(answer(&told, &known).assumed, ["numa.vcpu.min = 9"]);
    assert_eq!(Version::parse("6.5 U3"), Some(Version { major: 6, minor: 5 }));
    assert_eq!(Version::parse("of a version that is not told"), None);
}
