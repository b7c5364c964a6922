//! Line charts over time as inline SVG: axes with units, one labelled line per VM.
//!
//! Lines differ by colour and by dashes, and each has its name at its end. So no reader depends on colours. Beyond
//! [`NAMED`] lines, charts draw the rest thin and grey.

use super::markup::{esc, short};
use std::fmt::Write;

/// Lines with a colour and a name of their own.
pub const NAMED: usize = 8;

/// One line: name, colour number, points (seconds, value).
pub struct Line {
    pub name: String,
    /// Which colour; `None`: among the rest.
    pub colour: Option<usize>,
    /// The points; a break where a point is missing is bridged.
    pub points: Vec<(f64, f64)>,
}

/// Steps of 1, 2 or 5 times a power of ten, so that about `wanted` of them fit into `span`.
pub fn step(span: f64, wanted: f64) -> f64 {
    let raw = (span / wanted).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let part = raw / power;
    power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| part <= *s * 1.0001).unwrap_or(10.0)
}

/// A tick's number: no decimals where the steps are whole.
pub fn tick(value: f64, step: f64) -> String {
    if step >= 1.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 118.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;
const LABEL: f64 = 14.0;

/// The chart over seconds. `y_max` is shared by charts that are compared.
pub fn lines(title: &str, y_unit: &str, x_max: f64, y_max: f64, all: &[Line]) -> String {
    lines_over("seconds since the beginning", title, y_unit, x_max, y_max, all)
}

/// As [`lines`], over another unit of time.
pub fn lines_over(x_unit: &str, title: &str, y_unit: &str, x_max: f64, y_max: f64, all: &[Line]) -> String {
    let (x_max, y_max) = (x_max.max(1e-3), y_max.max(1.0));
    let y_step = step(y_max, 5.0);
    let y_top = (y_max / y_step).ceil() * y_step;
    let x = |t: f64| LEFT + (WIDTH - LEFT - RIGHT) * (t / x_max).clamp(0.0, 1.0);
    let y = |v: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (v / y_top).clamp(0.0, 1.0);
    let mut out = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>\n",
        esc(title)
    );
    let (bottom, right) = (y(0.0), WIDTH - RIGHT);
    let mut v = 0.0;
    while v <= y_top * 1.0001 {
        let at = y(v);
        let label = tick(v, y_step);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
<text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        v += y_step;
    }
    let x_step = step(x_max, 5.0);
    let mut t = 0.0;
    while t <= x_max * 1.0001 {
        let at = x(t);
        let label = tick(t, x_step);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\"/>\
<text class=\"tick middle\" x=\"{at:.1}\" y=\"{:.1}\">{label}</text>",
            bottom + 4.0,
            bottom + 17.0
        );
        t += x_step;
    }
    let _ = writeln!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>\
<text class=\"tick middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
<text class=\"tick middle\" transform=\"rotate(-90)\" x=\"{:.1}\" y=\"11\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 5.0,
        esc(x_unit),
        -(TOP + bottom) / 2.0,
        esc(y_unit)
    );
    // The rest first, beneath the named ones.
    for line in all.iter().filter(|l| l.colour.is_none()).chain(all.iter().filter(|l| l.colour.is_some())) {
        let points: Vec<String> =
            line.points.iter().map(|(t, v)| format!("{:.1},{:.1}", x(*t), y(*v))).collect();
        let class = line.colour.map_or("rest".to_owned(), |c| format!("k{} d{}", c % 6, c % 4));
        let _ = writeln!(
            out,
            "<polyline class=\"line {class}\" points=\"{}\"><title>{}</title></polyline>",
            points.join(" "),
            esc(&line.name)
        );
    }
    out.push_str(&labels(all, right, &y));
    out.push_str("</svg>\n");
    out
}

/// The names at the ends of their lines, moved apart where they would lie on each other.
fn labels(all: &[Line], right: f64, y: &impl Fn(f64) -> f64) -> String {
    let mut ends: Vec<(f64, f64, &Line)> = all
        .iter()
        .filter(|l| l.colour.is_some())
        .filter_map(|l| {
            // The mean of the last quarter: where the eye finds the line.
            let last = &l.points[l.points.len() - l.points.len().div_ceil(4)..];
            let mean = last.iter().map(|p| p.1).sum::<f64>() / last.len() as f64;
            (!last.is_empty()).then(|| (y(mean), y(l.points[l.points.len() - 1].1), l))
        })
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (TOP + 4.0, HEIGHT - BOTTOM);
    for i in 0..ends.len() {
        let least = if i == 0 { first } else { ends[i - 1].0 + LABEL };
        ends[i].0 = ends[i].0.max(least);
    }
    for i in (0..ends.len()).rev() {
        let most = if i + 1 == ends.len() { last } else { ends[i + 1].0 - LABEL };
        ends[i].0 = ends[i].0.min(most);
    }
    let mut out = String::new();
    for (at, end, line) in ends {
        let colour = line.colour.unwrap_or(0);
        let _ = writeln!(
            out,
            "<polyline class=\"lead k{0}\" points=\"{right:.1},{end:.1} {1:.1},{at:.1}\"/>\
<line class=\"line k{0} d{2}\" x1=\"{1:.1}\" x2=\"{3:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
<text class=\"label\" x=\"{4:.1}\" y=\"{5:.1}\">{6}</text>",
            colour % 6,
            right + 6.0,
            colour % 4,
            right + 22.0,
            right + 26.0,
            at + 4.0,
            short(&line.name, 13)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([step(100.0, 5.0), step(7.3, 5.0), step(0.9, 5.0)], [20.0, 2.0, 0.2]);
        assert_eq!((tick(40.0, 20.0), tick(0.2, 0.2)), ("40".into(), "0.2".into()));
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let all: Vec<Line> = (0..6)
            .map(|i| Line { name: format!("vm{i}"), colour: Some(i), points: vec![(0.0, 5.0), (1.0, 5.0)] })
            .collect();
        let svg = lines("t", "u", 1.0, 10.0, &all);
        let mut ys: Vec<f64> = svg
            .lines()
            .filter_map(|l| {
                l.split("class=\"label\"").nth(1)?.split("y=\"").nth(1)?.split('"').next()?.parse().ok()
            })
            .collect();
        ys.sort_by(f64::total_cmp);
        assert_eq!(ys.len(), 6);
        assert!(ys.windows(2).all(|w| w[1] - w[0] > LABEL - 0.2), "{ys:?}");
    }

    #[test]
    fn a_line_without_points_is_no_fault() {
        let svg = lines("t", "u", 0.0, 0.0, &[Line { name: "x".into(), colour: Some(0), points: vec![] }]);
        assert!(svg.contains("</svg>"));
    }
}
