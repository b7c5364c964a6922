//! Pictures and printed outputs of the documentation: are they what the program prints now?
//!
//! `make pictures` writes them. Without it, a test compares each with what would be written.

use crate::place::PLACE;
use crate::screen::{TOP, screen};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Size of a character of the terminal, in units of the picture.
const CELL: (f64, f64) = (7.8, 17.0);
const MARGIN: f64 = 10.0;
/// The sixteen colours of a terminal: black, red, green, yellow, blue, magenta, cyan, white, and the bright ones.
const COLOURS: [&str; 16] = [
    "#1d1f21", "#d9534f", "#5fb35f", "#e0b252", "#3465a4", "#b77ee0", "#4fb6c2", "#d8dad9", "#7d8590",
    "#ff7b72", "#7ee787", "#f2cc60", "#79c0ff", "#d2a8ff", "#76e3ea", "#ffffff",
];

fn colour(of: vt100::Color, default: &str) -> String {
    match of {
        vt100::Color::Default => default.to_owned(),
        vt100::Color::Idx(i) => COLOURS.get(usize::from(i)).copied().unwrap_or(default).to_owned(),
        vt100::Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A screen as SVG: runs of equal style, each stretched to its columns, so that any font keeps the table straight.
fn svg(screen: &vt100::Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let size = |n: u16, cell: f64| f64::from(n) * cell + 2.0 * MARGIN;
    let (width, height) = (size(columns, CELL.0), size(rows, CELL.1));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"13\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{}\"/>\n",
        escaped(title),
        COLOURS[0]
    );
    for row in 0..rows {
        let style = |column: u16| {
            let cell = screen.cell(row, column).unwrap();
            let (mut front, mut back) =
                (colour(cell.fgcolor(), COLOURS[7]), colour(cell.bgcolor(), COLOURS[0]));
            if cell.inverse() {
                std::mem::swap(&mut front, &mut back);
            }
            (front, back, cell.bold())
        };
        let mut column = 0;
        while column < columns {
            let (begin, of) = (column, style(column));
            let mut text = String::new();
            while column < columns && style(column) == of {
                let shown = screen.cell(row, column).unwrap().contents();
                text.push_str(if shown.is_empty() { " " } else { shown });
                column += 1;
            }
            let (x, y) = (MARGIN + f64::from(begin) * CELL.0, MARGIN + f64::from(row) * CELL.1);
            let run = f64::from(column - begin) * CELL.0;
            if of.1 != COLOURS[0] {
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{run:.1}\" height=\"{}\" fill=\"{}\"/>",
                    CELL.1, of.1
                );
            }
            if !text.trim().is_empty() {
                let weight = if of.2 { " font-weight=\"bold\"" } else { "" };
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{}\"{weight} xml:space=\"preserve\" textLength=\"{run:.1}\" \
                     lengthAdjust=\"spacingAndGlyphs\">{}</text>",
                    y + 13.0,
                    of.0,
                    escaped(&text)
                );
            }
        }
    }
    out + "</svg>\n"
}

pub fn project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

/// Every page of Markdown, from the project's folder.
pub fn pages() -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![PathBuf::from("docs"), PathBuf::new()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(project(folder.to_str().unwrap())).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if folder != Path::new("") && project(path.to_str().unwrap()).is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                all.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    all.sort();
    all
}

/// Writes a file of the documentation, or demands that it is up to date.
pub fn made(file: &str, content: &str) {
    let path = project(file);
    if std::env::var_os("VSTEER_PICTURES").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        return;
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == content, "{file} is not what the program prints now: run `make pictures`");
}

#[test]
fn the_picture_of_top() {
    let shown = screen(TOP, (112, 14), "pb");
    made(
        "docs/pictures/top.svg",
        &svg(&shown, "vsteer top: four VMs on two pCPUs, and what made the first one wait"),
    );
}

/// What the lab measured, from the files that `vsteer-lab run CASE --claims` wrote.
#[test]
fn results_of_the_lab() {
    let page = std::fs::read_to_string(project("docs/accuracy.md")).unwrap();
    let (before, rest) = page.split_once("<!-- made: docs/results -->\n").expect("the page has this mark");
    let (_, after) = rest.split_once("<!-- end -->").expect("the mark has an end");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(project("docs/results")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut out = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut lines = text.lines().skip(1).peekable();
        let about = lines.next().and_then(|l| l.strip_prefix("# ")).expect("what was run");
        let case = file.file_stem().unwrap().to_str().unwrap();
        let _ = write!(out, "\n### {case}\n\n`vsteer lab run {case}`, {about}.\n\n");
        while let Some(line) = lines.next() {
            let Some((outcome, claim)) = line.split_once(" - ") else { continue };
            let (claim, skipped) = claim.split_once(" # SKIP ").map_or((claim, None), |(c, w)| (c, Some(w)));
            let outcome = match (outcome.starts_with("not"), skipped) {
                (true, _) => "**does not hold**".to_owned(),
                (false, Some(why)) => format!("not judged ({why})"),
                (false, None) => "holds".to_owned(),
            };
            let claim = claim.split_once(": ").map_or(claim, |(_, words)| words);
            let found =
                lines.next_if(|l| l.starts_with("# ")).map_or(String::new(), |l| format!(": {}", &l[2..]));
            let _ = writeln!(out, "- {outcome}: {claim}{found}");
        }
    }
    made("docs/accuracy.md", &format!("{before}<!-- made: docs/results -->\n{out}\n<!-- end -->{after}"));
}

/// Printed outputs stand in Markdown between `<!-- made: vsteer LINE -->` and the end of the code block that follows. With
/// `, the first N lines` at the end of LINE, only those.
#[test]
fn outputs_in_the_documentation() {
    let mut all = 0;
    for file in pages() {
        let mut made_here = 0;
        let text = std::fs::read_to_string(project(&file)).unwrap();
        let mut parts = text.split("<!-- made: vsteer ");
        let mut new = parts.next().unwrap().to_owned();
        for part in parts {
            let (line, rest) =
                part.split_once(" -->\n```text\n").unwrap_or_else(|| panic!("{file}: a code block follows"));
            let (_, after) = rest.split_once("```").unwrap();
            let first = line.strip_suffix(" lines").and_then(|line| line.split_once(", the first "));
            let (command, first) = first.unwrap_or((line, "1000"));
            let printed = PLACE.printed(command);
            let lines: Vec<&str> = printed.lines().skip(1).take(first.parse().unwrap()).collect();
            new += &format!("<!-- made: vsteer {line} -->\n```text\n{}\n```{after}", lines.join("\n"));
            made_here += 1;
        }
        all += made_here;
        if made_here > 0 {
            made(&file, &new);
        }
    }
    assert!(all >= 5, "{all} outputs are marked");
}
