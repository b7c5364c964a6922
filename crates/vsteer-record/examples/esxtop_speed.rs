//! How fast is a large batch file of esxtop's read, beside a bare loop that splits the same bytes, and in how much
//! memory?
//!
//! A file of 60,000 columns and 1,000 rows is made (100 VMs of 24 worlds with 20 counters each, their groups, memory
//! and disks, 72 pCPUs), as large hosts write it. Then, in turn and each as often as asked: a loop that goes through
//! the file byte by byte and adds up cells and their lengths, and [`vsteer_record::esxtop::read`] with the model of
//! it. Of each the best time counts, for both read the same pages. The same file compressed is read too, beside the bare
//! decompression. The memory is a process's of its own that does nothing else.
//!
//! `esxtop_speed FILE REPETITIONS`; the file is made if it is not there. Exit code 1 where a promise is broken.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;
use vsteer_core::model;
use vsteer_record::{esxtop, packed};

const COLUMNS: usize = 60_000;
const ROWS: usize = 1_000;
const VMS: usize = 100;
const WORLDS: usize = 24;
/// At least this part of the bare loop's speed, and at most so much memory, MiB.
const LEAST_RATIO: f64 = 0.55;
const MOST_MIB: f64 = 200.0;
/// Longest time for a compressed file, as a multiple of the time for inflating it plus reading the plain one.
const GZIP_MOST: f64 = 1.3;

const COUNTERS: [&str; 20] = [
    "% Used",
    "% Run",
    "% System",
    "% Wait",
    "% VmWait",
    "% Ready",
    "% Idle",
    "% Overlap",
    "% CoStop",
    "% Max Limited",
    "% Swap Wait",
    "Switches/sec",
    "Migrates/sec",
    "Quantum Expires/sec",
    "Wakeups/sec",
    "Alloc Min",
    "Alloc Max",
    "% Demand",
    "% CPU Latency",
    "Power Usage Now Watts",
];

fn make(path: &Path) -> std::io::Result<()> {
    let mut names = vec!["(PDH-CSV 4.0) (UTC)(0)".to_owned()];
    let mut name =
        |object: String, counter: &str| names.push(format!("\\\\esx01.example\\{object}\\{counter}"));
    for vm in 0..VMS {
        let (gid, called) = (100_000 + vm, format!("desktop-{vm:03}"));
        name(format!("Group Cpu({gid}:{called})"), "Members");
        COUNTERS[..11].iter().for_each(|c| name(format!("Group Cpu({gid}:{called})"), c));
        for world in 0..WORLDS {
            let wid = 2_000_000 + 100 * vm + world;
            let kind = if world < 12 {
                format!("vmx-vcpu-{world}:{called}")
            } else {
                format!("vmx-svga-{world}:{called}")
            };
            COUNTERS.iter().for_each(|c| name(format!("Vcpu({gid}:{called}:{wid}:{kind})"), c));
        }
        name(format!("Group Memory({gid}:{called})"), "Memory Size MBytes");
        name(format!("Group Memory({gid}:{called})"), "Numa % Local");
    }
    (0..72).for_each(|cpu| name(format!("Physical Cpu({cpu})"), "% Util Time"));
    for i in 0.. {
        if names.len() >= COLUMNS {
            break;
        }
        names.push(format!(
            "\\\\esx01.example\\Virtual Disk(desktop-{:03}:scsi0:{i})\\Average MilliSec/Read",
            i % VMS
        ));
    }
    let mut to = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let line = |cells: &[String]| {
        let quoted: Vec<String> = cells.iter().map(|c| format!("\"{c}\"")).collect();
        quoted.join(",") + "\n"
    };
    to.write_all(line(&names).as_bytes())?;
    let mut state = 1u64;
    for row in 0..ROWS {
        let mut text =
            format!("\"11/24/2026 {:02}:{:02}:{:02}\"", row * 5 / 3600, row * 5 / 60 % 60, row * 5 % 60);
        for _ in 1..names.len() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let hundredths = (state >> 33) % 10_000;
            text.push_str(&format!(",\"{}.{:02}\"", hundredths / 100, hundredths % 100));
        }
        text.push('\n');
        to.write_all(text.as_bytes())?;
    }
    to.flush()
}

/// Cells, lines and bytes in cells: every byte is looked at, none is understood.
fn bare(path: &Path) -> std::io::Result<(u64, u64, u64)> {
    let mut from = BufReader::with_capacity(1 << 20, File::open(path)?);
    let (mut cells, mut lines, mut longest, mut length) = (0u64, 0u64, 0u64, 0u64);
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok((cells, lines, longest));
        }
        for b in bytes {
            match b {
                b',' | b'\n' => {
                    cells += 1;
                    lines += u64::from(*b == b'\n');
                    longest = longest.max(length);
                    length = 0;
                }
                _ => length += 1,
            }
        }
        let n = bytes.len();
        from.consume(n);
    }
}

/// How many bytes a compressed file has.
fn inflated(path: &Path) -> std::io::Result<usize> {
    let (mut from, mut bytes) = (packed::open(path).expect("the file was made for it"), 0);
    loop {
        let n = from.fill_buf()?.len();
        if n == 0 {
            return Ok(bytes);
        }
        bytes += n;
        from.consume(n);
    }
}

/// Runs it, and keeps the least time that it took, s.
fn best<T>(least: &mut f64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = std::hint::black_box(work());
    *least = least.min(begun.elapsed().as_secs_f64());
    result
}

/// Reads the file and derives its model; how many VMs it has.
fn whole(path: &Path) -> usize {
    let saved = esxtop::read(path).expect("the file was made for it");
    model::derive(&saved.config, &saved.collector, &saved.batches).expect("it has rows").vms.len()
}

/// The most memory that this process has had, MiB.
fn most_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib / 1024.0)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file] = &words[..]
        && word == "--memory"
    {
        whole(Path::new(file));
        println!("{:.1}", most_mib());
        return;
    }
    let [file, repetitions] = &words[..] else {
        eprintln!("esxtop_speed FILE REPETITIONS");
        std::process::exit(2);
    };
    let (path, repetitions) = (Path::new(file), repetitions.parse::<usize>().unwrap_or(3).max(1));
    if !path.exists() {
        make(path).expect("the file can be written");
    }
    let bytes = std::fs::metadata(path).expect("the file is there").len() as f64 / 1e6;
    let gz = path.with_extension("csv.gz");
    if !gz.exists() {
        let packed = std::process::Command::new("gzip").args(["-1", "-k"]).arg(path).status();
        assert!(packed.expect("gzip starts").success());
    }
    let [mut bare_s, mut read_s, mut inflate_s, mut gzip_s] = [f64::INFINITY; 4];
    for _ in 0..repetitions {
        best(&mut bare_s, || bare(path)).expect("it can be read");
        assert_eq!(best(&mut read_s, || whole(path)), VMS);
        best(&mut inflate_s, || inflated(&gz)).expect("it can be read");
        assert_eq!(best(&mut gzip_s, || whole(&gz)), VMS);
    }
    let own = std::env::current_exe().expect("this program has a path");
    let child =
        std::process::Command::new(own).args(["--memory", file]).output().expect("it can be run again");
    let mib: f64 = String::from_utf8_lossy(&child.stdout).trim().parse().unwrap_or(f64::NAN);
    let (ratio, to_parts) = (bare_s / read_s, gzip_s / (inflate_s + read_s));
    let kept = ratio >= LEAST_RATIO && to_parts <= GZIP_MOST && mib <= MOST_MIB;
    println!(
        "{{\"columns\":{COLUMNS},\"rows\":{ROWS},\"mb\":{bytes:.1},\"bare_mb_s\":{:.0},\"read_mb_s\":{:.0},\"of_bare\":{ratio:.2},\
         \"at_least\":{LEAST_RATIO},\"gzip_to_parts\":{to_parts:.2},\"at_most_parts\":{GZIP_MOST},\"mib\":{mib:.1},\"at_most_mib\":{MOST_MIB},\"kept\":{kept}}}",
        bytes / bare_s,
        bytes / read_s,
    );
    std::process::exit(i32::from(!kept));
}
