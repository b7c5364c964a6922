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
        for byte in &bytes[..n] {
            parser.process(&[*byte]);
            if parser.screen().alternate_screen() {
                last = parser.screen().clone();
            }
        }
        if last.contents().contains("NAME") {
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
