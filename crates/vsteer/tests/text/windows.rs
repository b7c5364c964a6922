//! Does the program for Windows print and write what this one does?
//!
//! Each command runs twice on the same files: here, and under Wine with the program of tools/windows.sh. Standard output, the
//! exit code and the files that are written must be the same, byte for byte.

use crate::place::PLACE;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;

/// Debian's Wine has its programs in the first folder.
const WINE: [&str; 3] = ["/usr/lib/wine/wine64", "/usr/bin/wine64", "/usr/bin/wine"];

fn wine() -> &'static str {
    WINE.iter().find(|p| Path::new(p).is_file()).expect("needs Wine: apt-get install wine64")
}

fn program() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/windows/vsteer.exe");
    assert!(built.is_file(), "{} is not there: run tools/windows.sh", built.display());
    built
}

/// Wine's own folder: a Windows without programs.
static PREFIX: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// Runs `vsteer.exe LINE` in the folder of the inputs.
///
/// Output goes to files: Wine's services inherit a pipe and keep it open for seconds after the program has ended.
fn on_windows(line: &str) -> Output {
    let mut command = std::process::Command::new(wine());
    command.arg(program()).args(line.split_whitespace()).current_dir(PLACE.path());
    command.env("WINEPREFIX", PREFIX.path()).env("WINEDEBUG", "-all").env("VSTEER_CONFIG", "none");
    command.env("COLUMNS", "100").env("TZ", "UTC").stdin(std::process::Stdio::null());
    let [out, err] = ["stdout", "stderr"].map(|name| PREFIX.path().join(name));
    command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
    let status = command.status().expect("Wine starts");
    Output { status, stdout: std::fs::read(out).unwrap(), stderr: std::fs::read(err).unwrap() }
}

/// A page says when it was written. That time becomes zeros.
fn timeless(mut page: Vec<u8>) -> Vec<u8> {
    const SHAPE: &[u8] = b"0000-00-00 00:00:00 UTC</dd";
    let is_time = |part: &[u8]| {
        part.iter().zip(SHAPE).all(|(a, b)| if *b == b'0' { a.is_ascii_digit() } else { a == b })
    };
    let last = page.len().saturating_sub(SHAPE.len());
    if page.starts_with(b"<!")
        && let Some(at) = (0..last).find(|at| is_time(&page[*at..at + SHAPE.len()]))
    {
        page[at..at + SHAPE.len()].copy_from_slice(SHAPE);
    }
    page
}

/// All files of a folder, or the one file, by their names within it.
fn written(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut left = vec![at.to_owned()];
    while let Some(one) = left.pop() {
        if one.is_dir() {
            left.extend(std::fs::read_dir(&one).unwrap().map(|e| e.unwrap().path()));
        } else {
            all.insert(one.strip_prefix(at).unwrap().to_owned(), timeless(std::fs::read(&one).unwrap()));
        }
    }
    all
}

/// Lines that read files, and what each writes (`-` where that is nothing).
const LINES: &[(&str, &str)] = &[
    ("--version", "-"),
    ("exit-codes", "-"),
    ("replay before.vsteer", "-"),
    ("replay before.vsteer --json", "-"),
    ("replay esxtop.csv.gz", "-"),
    ("diagnose before.vsteer", "-"),
    ("diagnose before.vsteer --json", "-"),
    ("diagnose esxtop.csv.gz", "-"),
    ("diagnose semicolons.csv", "-"),
    ("plan before.vsteer", "-"),
    ("plan before.vsteer -o OUT", "file"),
    ("plan before.vsteer --by fluid --set timer-1:weight=400 --json", "-"),
    ("plan esxtop.csv.gz --set timer-1:weight=400 --format powercli", "-"),
    ("report before.vsteer -o OUT", "file"),
    ("report before.vsteer after.vsteer -o OUT", "file"),
    ("verify before.vsteer after.vsteer", "-"),
    ("verify before.vsteer after.vsteer --plan plan.json --json", "-"),
    ("export before.vsteer --to parquet -o OUT", "folder"),
    ("export before.vsteer --to csv -o OUT", "folder"),
    ("export before.vsteer --to perfetto -o OUT", "file"),
    ("export before.vsteer --to esxtop -o OUT", "file"),
    ("export before.vsteer --to zip -o OUT", "file"),
    ("simulate scenarios/noisy-neighbour.toml --set for=2s", "-"),
    ("simulate scenarios/web-servers.toml --set for=2s --json", "-"),
    ("simulate scenarios/two-hogs.toml --sweep vm.large.weight=256,512,1024 --json", "-"),
    ("simulate scenarios/noisy-neighbour.toml --set for=2s -o OUT", "folder"),
    ("simulate --from before.vsteer --json", "-"),
    ("headroom scenarios/web-servers.toml --kind web --level ready=10% --seeds 2 --set for=2s", "-"),
    ("numa --host 2x18 --vcpus 12", "-"),
    ("numa before.vsteer", "-"),
    ("estimate timer-1=requests.log --from before.vsteer --json", "-"),
    ("estimate timer-1=requests.log.gz --from before.vsteer --zone Asia/Seoul", "-"),
    ("history --from 2026-11-21T00:00Z --to 2026-11-21T02:10Z --dir past", "-"),
    ("history web --json --from 2026-11-21T00:00+09:00 --to 2026-11-21T11:10+09:00 --dir past", "-"),
    ("config example", "-"),
    ("config check good.toml", "-"),
    ("config check faulty.toml", "-"),
    // Refused, each with its exit code.
    ("replay missing.vsteer", "-"),
    ("replay empty.vsteer", "-"),
    ("replay foreign.json", "-"),
    ("diagnose requests.log.gz", "-"),
    ("verify before.vsteer plan.json", "-"),
    ("simulate scenarios/none.toml", "-"),
    ("plan before.vsteer --set nobody:weight=5", "-"),
    ("plan before.vsteer --only nothing", "-"),
];

/// Files beside those that [`PLACE`] has: a log of requests within `before.vsteer`, and a batch file that a spreadsheet saved.
fn inputs() {
    let requests: String = (0..600)
        .map(|n| format!("{{\"ts\": {}.5, \"duration_s\": 0.0{}}}\r\n", 2 + n / 20, 1 + n % 7))
        .collect();
    PLACE.write("requests.log", &requests);
    let packed = std::fs::File::create(PLACE.path().join("requests.log.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, requests.as_bytes()).unwrap();
    packed.finish().unwrap();
    let mut batch = String::new();
    let plain = std::fs::File::open(PLACE.path().join("esxtop.csv.gz")).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(plain), &mut batch).unwrap();
    PLACE.write("semicolons.csv", &batch.replace("\",\"", "\";\"").replace('\n', "\r\n"));
}

#[test]
#[ignore = "needs Wine and the program for Windows: tools/windows.sh"]
fn commands_print_and_write_the_same_under_wine() {
    inputs();
    let mut unlike = Vec::new();
    for (line, kind) in LINES {
        let folder = |name: &str| PLACE.path().join(name);
        let (here, there) =
            (PLACE.run(&line.replace("OUT", "out-here")), on_windows(&line.replace("OUT", "out-there")));
        let text = |out: &Output, name: &str| String::from_utf8_lossy(&out.stdout).replace(name, "OUT");
        let (a, b) = (text(&here, "out-here"), text(&there, "out-there"));
        if here.status.code() != there.status.code() {
            let said = String::from_utf8_lossy(&there.stderr).into_owned();
            unlike.push(format!(
                "{line}: exit code {:?}, {:?}: {said}",
                here.status.code(),
                there.status.code()
            ));
        } else if a != b {
            let first = a.lines().zip(b.lines()).find(|(a, b)| a != b);
            unlike.push(format!(
                "{line}: printed {} and {} bytes; first difference: {first:#?}",
                a.len(),
                b.len()
            ));
        }
        if *kind != "-" {
            let (a, b) = (written(&folder("out-here")), written(&folder("out-there")));
            assert!(!a.is_empty(), "{line} wrote nothing");
            for (name, bytes) in &a {
                if b.get(name) != Some(bytes) {
                    let other = b.get(name).map(Vec::len);
                    unlike.push(format!("{line}: file {:?}: {} bytes, {other:?}", name, bytes.len()));
                }
            }
            for name in ["out-here", "out-there"].map(folder) {
                let _ =
                    if name.is_dir() { std::fs::remove_dir_all(name) } else { std::fs::remove_file(name) };
            }
        }
    }
    assert!(unlike.is_empty(), "{} of {} lines differ:\n{}", unlike.len(), LINES.len(), unlike.join("\n"));
    println!("{} lines are the same", LINES.len());
}
