//! The live table, as a terminal of a given size shows it.
//!
//! `vsteer top` runs on a pseudo-terminal, and `vt100` interprets what it prints.

use crate::place::PLACE;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::LazyLock;

/// The last screen that `vsteer LINE` shows before it ends. `keys` are typed at its start.
pub fn screen(line: &str, size: (u16, u16), keys: &str) -> vt100::Screen {
    played(line, size, UTF_8, keys, "")
}

/// The locale of screens.
const UTF_8: &str = "C.UTF-8";

/// As [`screen`], in this locale. `later` is typed when the first update is on the screen.
fn played(line: &str, (columns, rows): (u16, u16), locale: &str, keys: &str, later: &str) -> vt100::Screen {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = || File::from(rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
    let mut command = PLACE.command(&line.split_whitespace().collect::<Vec<_>>());
    command
        .env("TERM", "xterm-256color")
        .env("LC_ALL", locale)
        .stdin(slave())
        .stdout(slave())
        .stderr(slave());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut master = File::from(master);
    master.write_all(keys.as_bytes()).unwrap();
    let size = |n: u16| NonZero::new(n).unwrap();
    let mut parser = vt100::Parser::new(size(rows), size(columns), 0);
    let mut last = parser.screen().clone();
    let mut later = Some(later);
    let mut bytes = [0; 65536];
    // Reading ends with an error when no process has the terminal open any more.
    while let Ok(n @ 1..) = master.read(&mut bytes) {
        // Only an escape sequence leaves the screen of the view: what stands there before each one is kept.
        for part in bytes[..n].chunk_by(|_, next| *next != 0x1b) {
            if parser.screen().alternate_screen() {
                last = parser.screen().clone();
            }
            parser.process(part);
        }
        if parser.screen().contents().contains("NAME") {
            later.take().into_iter().for_each(|keys| master.write_all(keys.as_bytes()).unwrap());
        }
    }
    assert!(child.wait().unwrap().success(), "{line}: {}", parser.screen().contents());
    last
}

fn lines(screen: &vt100::Screen) -> String {
    let (_, columns) = screen.size();
    screen.rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The table after the first update; at the second one the program ends.
pub const TOP: &str = "top before.vsteer --interval 500ms -n 2";

#[test]
fn top_on_a_small_and_a_large_terminal() {
    insta::assert_snapshot!("top_80x24", lines(&screen(TOP, (80, 24), "")));
    insta::assert_snapshot!("top_160x50", lines(&screen(TOP, (160, 50), "E")));
}

#[test]
fn top_of_several_hosts() {
    let line = "top --connect tree:host --connect tree:host-2 --interval 300ms -n 1";
    insta::assert_snapshot!("top_several", lines(&screen(line, (112, 20), "E")));
}

#[test]
fn top_with_blame_and_with_its_help() {
    insta::assert_snapshot!("top_blame", lines(&screen(TOP, (100, 30), "b")));
    insta::assert_snapshot!("top_settings", lines(&screen(TOP, (100, 30), "s")));
    insta::assert_snapshot!("top_help", lines(&screen(TOP, (100, 30), "h")));
    insta::assert_snapshot!("top_help_80x24", lines(&screen(TOP, (80, 24), "h")));
    insta::assert_snapshot!("top_help_80x24_end", lines(&screen(TOP, (80, 24), "h\u{1b}[F")));
}

/// Fourteen updates: the trends are full.
const TREND: &str = "top before.vsteer --interval 100ms -n 14";

#[test]
fn top_with_trends() {
    insta::assert_snapshot!("top_trend_118x12", lines(&screen(TREND, (118, 12), "p")));
    insta::assert_snapshot!("top_trend_ascii", lines(&played(TREND, (118, 12), "C", "p", "")));
    // One column less, and no trend.
    assert!(!lines(&screen(TREND, (117, 12), "p")).contains("RDYTREND"));
    assert!(!lines(&screen(TREND, (118, 12), "pt")).contains("RDYTREND"), "t hides it");
}

/// A host of 64 pCPUs on two nodes, with VMs that are pinned in different ways.
const PINNED: &str = r#"
title = "VMs that are pinned in different ways"
for = "8s"
[scheduler]
policy = "eevdf"
[machine]
sockets = 2
cores_per_node = 16
threads_per_core = 2
[[vm]]
name = "database"
vcpus = 4
pins = ["0", "1", "2", "3"]
demand = { server = { between = { exponential = "4ms" }, service = { exponential = "2ms" } } }
[[vm]]
name = "batch"
count = 3
vcpus = 4
affinity = "0-3"
quota = { quota = "100ms", period = "100ms" }
demand = "hog"
[[vm]]
name = "a-name-that-is-longer-than-its-column"
vcpus = 8
affinity = "32-47"
demand = { periodic = { period = "10ms", work = "1ms" } }
[[vm]]
name = "web"
count = 20
vcpus = 2
demand = { server = { between = { exponential = "20ms" }, service = { exponential = "5ms" } } }
"#;

static RECORDED: LazyLock<()> = LazyLock::new(|| {
    PLACE.write("pinned.toml", PINNED);
    let out = PLACE.run("simulate pinned.toml -o pinned.vsteer");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
});

/// Slow enough for the keys to be typed before it ends.
const LINE: &str = "top pinned.vsteer --interval 200ms -n 12";

/// The recording of [`PINNED`], in which `keys` are typed.
fn pinned(size: (u16, u16), keys: &str) -> String {
    LazyLock::force(&RECORDED);
    opened(LINE, size, UTF_8, keys)
}

/// As [`played`], where `keys` open another screen. A machine that is busy may type them too late: then once more.
fn opened(line: &str, size: (u16, u16), locale: &str, keys: &str) -> String {
    let shown = || lines(&played(line, size, locale, "", keys));
    let mut tries = std::iter::repeat_with(shown).take(4);
    tries.find(|shown| shown.contains("Esc back")).expect("the keys open another screen")
}

#[test]
fn zoom_into_one_vm() {
    insta::assert_snapshot!("zoom_80x24", pinned((80, 24), "/data\rz"));
    insta::assert_snapshot!("zoom_80x24_end", pinned((80, 24), "/data\rz\u{1b}[F"));
    insta::assert_snapshot!("zoom_160x50", pinned((160, 50), "/data\r\r"));
    insta::assert_snapshot!("zoom_ascii", opened(LINE, (80, 44), "C", "/batch-1\rz"));
}

#[test]
fn the_pin_map() {
    insta::assert_snapshot!("map_80x24", pinned((80, 24), "Nm"));
    insta::assert_snapshot!("map_80x24_right", pinned((80, 24), "Nm\u{1b}[C\u{1b}[C\u{1b}[F"));
    insta::assert_snapshot!("map_160x50", pinned((160, 50), "NmE"));
    let esxtop = "top esxtop.csv.gz --interval 200ms -n 12";
    insta::assert_snapshot!("map_esxtop", opened(esxtop, (80, 12), UTF_8, "m"));
    let several = "top --connect tree:host --connect tree:host-2 --interval 300ms -n 1";
    insta::assert_snapshot!("map_several", lines(&screen(several, (80, 24), "mE")));
}
