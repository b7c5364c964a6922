//! Does every link of the documentation lead to a file, and every anchor to a heading?

use crate::pictures::{pages, project};
use std::path::Path;

/// The anchor of a heading: lower case, hyphens for blanks, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace('`', "");
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

fn anchors(text: &str) -> Vec<String> {
    let heads = prose(text).filter(|l| l.starts_with('#'));
    heads.map(|l| anchor(l.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut links = 0;
    for page in pages() {
        let text = std::fs::read_to_string(project(&page)).unwrap();
        let folder = Path::new(&page).parent().unwrap();
        for line in prose(&text) {
            for part in line.split("](").skip(1) {
                let target = part.split(')').next().unwrap();
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                links += 1;
                let (file, at) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() {
                    project(&page)
                } else {
                    project(folder.join(file).to_str().unwrap())
                };
                let there = path.exists();
                let found = at.is_empty()
                    || std::fs::read_to_string(&path).is_ok_and(|t| anchors(&t).iter().any(|a| a == at));
                if !there || !found {
                    wrong.push(format!("{page}: {target}"));
                }
            }
        }
    }
    assert!(links > 30 && wrong.is_empty(), "{links} links; these lead nowhere:\n{}", wrong.join("\n"));
}

/// A longer cell is prose: it belongs under the table.
#[test]
fn table_cells_are_short() {
    let readmes = ["crates/vsteer-guest/README.md", "crates/vsteer-lab/README.md"].map(str::to_owned);
    let (mut cells, mut wrong) = (0, Vec::new());
    for page in pages().into_iter().chain(readmes) {
        let text = std::fs::read_to_string(project(&page)).unwrap();
        for row in prose(&text).filter(|l| l.starts_with('|')) {
            for cell in row.split('|').map(str::trim) {
                cells += 1;
                if cell.chars().count() > 160 {
                    wrong.push(format!("{page}: {} characters: {cell}", cell.chars().count()));
                }
            }
        }
    }
    assert!(cells > 1_000 && wrong.is_empty(), "{cells} cells; too long:\n{}", wrong.join("\n"));
}
