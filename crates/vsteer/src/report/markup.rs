//! How does text become HTML that no name can break?
//!
//! Names of VMs, threads and hosts may contain anything. Every text passes [`esc`]. Every name passes [`name`], which also
//! isolates its writing direction. The page's policy (`page.rs`) forbids scripts and requests, so a mistake here could only
//! show a wrong character.

use vsteer_core::visible::{line, message};

/// Text for HTML, between tags or inside a quoted attribute. Characters that HTML does not allow, or that change how other
/// text is read, are shown as escapes; line breaks are spaces there anyway.
pub fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in message(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A name as HTML. It is escaped on one line first, so that distinct names stay distinct.
pub fn name(text: &str) -> String {
    format!("<bdi>{}</bdi>", esc(&line(text)))
}

/// A name for a chart's label, where there is room for about `room` characters.
pub fn short(text: &str, room: usize) -> String {
    let mut chars: Vec<char> = line(text).chars().collect();
    if chars.len() > room {
        chars.truncate(room.saturating_sub(1));
        chars.push('…');
    }
    esc(&chars.into_iter().collect::<String>())
}

/// A share in percent of one pCPU, without a `%`; a dash where it was not measured.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(missing, |s| format!("{:.1}", unsigned_zero(100.0 * s)))
}

/// A time in milliseconds, three digits that matter.
pub fn millis(ns: Option<f64>) -> String {
    ns.map_or_else(missing, |ns| {
        let ms = ns / 1e6;
        match ms {
            m if m < 1.0 => format!("{m:.3}"),
            m if m < 10.0 => format!("{m:.2}"),
            m if m < 100.0 => format!("{m:.1}"),
            m => format!("{m:.0}"),
        }
    })
}

fn missing() -> String {
    "<span class=\"none\" title=\"not measured\">–</span>".to_owned()
}

/// -0.04 is printed as 0.0.
pub fn unsigned_zero(v: f64) -> f64 {
    if v.abs() < 0.05 { 0.0 } else { v }
}

/// A horizontal bar of `part` of its room. The number stands beside it: readers of the text need no bar.
pub fn bar(part: f64, class: &str) -> String {
    let width = 72.0 * part.clamp(0.0, 1.0);
    format!(
        "<svg class=\"bar\" width=\"72\" height=\"6\" viewBox=\"0 0 72 6\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"room\" width=\"72\" height=\"6\"/>\
<rect class=\"{class}\" width=\"{width:.1}\" height=\"6\"/></svg>"
    )
}

/// A section with its heading; `id` is what the table of contents leads to.
pub fn section(id: &str, heading: &str, body: &str) -> String {
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\">\n<h2 id=\"{id}-h\">{}</h2>\n{body}</section>\n",
        esc(heading)
    )
}

/// A table that scrolls by itself where it is wider than the page. `head` and `rows` are HTML.
pub fn table(caption: &str, class: &str, head: &str, rows: &str) -> String {
    format!(
        "<div class=\"wide\" role=\"region\" aria-label=\"{0}\" tabindex=\"0\"><table class=\"{class}\"><caption>{0}</caption>\
<thead>{head}</thead><tbody>\n{rows}</tbody></table></div>\n",
        esc(caption)
    )
}

/// A heading cell of a column.
pub fn column(heading: &str, unit: &str, class: &str) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" <small>{}</small>", esc(unit)) };
    format!("<th scope=\"col\" class=\"{class}\">{}{unit}</th>", esc(heading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out() {
        let evil = "</bdi><script>alert('1')</script>\" onload=\"x\0\u{202e}&amp;";
        let safe = name(evil);
        assert!(!safe.contains("<script") && !safe.contains('\0') && safe.contains("&amp;amp;"), "{safe}");
        assert_eq!(safe.matches('<').count(), 2, "{safe}");
        assert!(!esc(evil).contains(['"', '\'', '<', '>']));
        assert_eq!(short("abcdef", 4), "abc…");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((percent(Some(0.1234)), percent(Some(-0.0001))), ("12.3".into(), "0.0".into()));
        assert_eq!((millis(Some(1_234_567.0)), millis(Some(2.5e5))), ("1.23".into(), "0.250".into()));
        assert!(percent(None).contains("not measured"));
    }
}
