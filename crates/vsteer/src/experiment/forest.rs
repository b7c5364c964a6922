//! Charts of an experiment as inline SVG: effects with intervals on one scale, runs per setting, and time against watts.
//!
//! Colours are those of the report. Position and text carry the same information, so no reader depends on colour.

use crate::report::chart::step;
use crate::report::markup::{esc, short};
use std::fmt::Write;

/// Low end, likely, high end.
pub type Ends = (f64, f64, f64);
/// A setting: its name, its runs, and the mean's interval.
pub type Runs = (String, Vec<f64>, Option<Ends>);
/// A setting by two measures, and whether it is on the front.
pub type Spot = (String, f64, f64, bool);

pub struct Effect {
    pub name: String,
    /// Low end, likely, high end.
    pub interval: Ends,
    /// `better`, `worse` or `same`.
    pub class: &'static str,
    /// How it is told at the right.
    pub told: String,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 310.0;
const RIGHT: f64 = 150.0;
const ROW: f64 = 24.0;
const TOP: f64 = 10.0;

/// A tick's number: as many decimals as the steps have.
fn tick(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

fn scale(low: f64, high: f64) -> (f64, f64, f64) {
    // Where nothing differs at all, there is a scale all the same.
    let (low, high) = if high - low < 1e-9 { (low - 1.0, high + 1.0) } else { (low, high) };
    let by = step((high - low).max(1e-9), 6.0);
    ((low / by).floor() * by, (high / by).ceil() * by, by)
}

/// The axis below `height`, from `low` to `high`.
fn axis(out: &mut String, x: &dyn Fn(f64) -> f64, (low, high, by): (f64, f64, f64), height: f64, unit: &str) {
    let many = ((high - low) / by).round() as usize;
    for i in 0..=many {
        let v = low + by * i as f64;
        let v = if v.abs() < by * 1e-6 { 0.0 } else { v };
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\"/><text class=\"tick middle\" x=\"{0:.1}\" \
y=\"{2:.1}\">{3}</text>",
            x(v),
            height,
            height + 16.0,
            tick(v, by)
        );
    }
    let _ = write!(
        out,
        "<text class=\"tick middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        x((low + high) / 2.0),
        height + 32.0,
        esc(unit)
    );
}

/// A figure with `rows` rows and its axis; returns the place of a value, and the height of all rows.
fn begun(
    title: &str,
    unit: &str,
    rows: usize,
    (low, high): (f64, f64),
) -> (String, impl Fn(f64) -> f64, f64) {
    let (low, high, by) = scale(low, high);
    let x = move |v: f64| LEFT + (WIDTH - LEFT - RIGHT) * (v - low) / (high - low);
    let height = TOP + ROW * rows as f64;
    let mut out = format!(
        "<figure><figcaption>{0}</figcaption><div class=\"wide\"><svg class=\"timeline whisker\" viewBox=\"0 0 {WIDTH} {1}\" role=\"img\" aria-label=\"{0}\">",
        esc(title),
        height + 40.0
    );
    axis(&mut out, &x, (low, high, by), height, unit);
    (out, x, height)
}

/// Effects one below the other; 0 is no effect.
pub fn effects(title: &str, unit: &str, all: &[Effect]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let low = all.iter().map(|e| e.interval.0).fold(0.0, f64::min);
    let high = all.iter().map(|e| e.interval.2).fold(0.0, f64::max);
    let (mut out, x, height) = begun(title, unit, all.len(), (low, high));
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{height:.1}\"/>",
        x(0.0)
    );
    for (i, e) in all.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        let (a, m, b) = (x(e.interval.0), x(e.interval.1), x(e.interval.2));
        let _ = write!(
            out,
            "<text class=\"end\" x=\"{0:.1}\" y=\"{1:.1}\">{2}</text><line class=\"span\" x1=\"{a:.1}\" x2=\"{b:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
<line class=\"span\" x1=\"{a:.1}\" x2=\"{a:.1}\" y1=\"{3:.1}\" y2=\"{4:.1}\"/><line class=\"span\" x1=\"{b:.1}\" x2=\"{b:.1}\" y1=\"{3:.1}\" \
y2=\"{4:.1}\"/><circle class=\"{5}\" cx=\"{m:.1}\" cy=\"{y:.1}\" r=\"4.5\"/><text x=\"{6:.1}\" y=\"{1:.1}\">{7}</text>",
            LEFT - 12.0,
            y + 4.0,
            short(&e.name, 46),
            y - 4.0,
            y + 4.0,
            e.class,
            WIDTH - RIGHT + 12.0,
            short(&e.told, 24)
        );
    }
    out.push_str("</svg></div></figure>\n");
    out
}

/// Every run that counts as a point, the mean's interval as a line: outliers are seen, and kept.
pub fn runs(title: &str, unit: &str, all: &[Runs]) -> String {
    let values = || all.iter().flat_map(|a| a.1.iter().copied());
    if values().next().is_none() {
        return String::new();
    }
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    // All equal: room for one tick at least.
    let pad = (high - low).max(high.abs() * 0.01).max(1e-6) * 0.05;
    let (mut out, x, _) = begun(title, unit, all.len(), (low - pad, high + pad));
    for (i, (name, values, interval)) in all.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        let _ = write!(
            out,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 12.0,
            y + 4.0,
            short(name, 46)
        );
        for v in values {
            let _ = write!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\" fill-opacity=\".55\"/>",
                x(*v),
                y + 3.0
            );
        }
        if let Some((a, m, b)) = interval {
            let clamp = |v: f64| x(v).clamp(LEFT, WIDTH - RIGHT);
            let _ = write!(
                out,
                "<line class=\"span\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{3:.1}\" y2=\"{3:.1}\"/><rect class=\"after\" x=\"{:.1}\" y=\"{4:.1}\" width=\"2\" height=\"10\"/>\
<text x=\"{5:.1}\" y=\"{6:.1}\">{7}</text>",
                clamp(*a),
                clamp(*b),
                x(*m) - 1.0,
                y - 4.0,
                y - 9.0,
                WIDTH - RIGHT + 12.0,
                y + 4.0,
                esc(&format!("{} ± {}", super::number(*m), super::number(b - m)))
            );
        }
    }
    out.push_str("</svg></div></figure>\n");
    out
}

/// Settings by two measures; those on the front are filled.
pub fn front(title: &str, x_unit: &str, y_unit: &str, all: &[Spot]) -> String {
    if all.len() < 2 {
        return String::new();
    }
    let range = |of: fn(&Spot) -> f64| {
        let (low, high) =
            all.iter().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let pad = (high - low).max(high.abs() * 0.01).max(1e-6) * 0.12;
        scale(low - pad, high + pad)
    };
    let ((xl, xh, xb), (yl, yh, yb)) = (range(|p| p.1), range(|p| p.2));
    let (left, right, top, height) = (64.0, 190.0, 28.0, 280.0);
    let x = move |v: f64| left + (WIDTH - left - right) * (v - xl) / (xh - xl);
    let y = move |v: f64| height - (height - top) * (v - yl) / (yh - yl);
    let mut out = format!(
        "<figure><figcaption>{0}</figcaption><div class=\"wide\"><svg class=\"timeline whisker\" viewBox=\"0 0 {WIDTH} {1}\" role=\"img\" aria-label=\"{0}\">",
        esc(title),
        height + 40.0
    );
    axis(&mut out, &x, (xl, xh, xb), height, x_unit);
    for i in 0..=((yh - yl) / yb).round() as usize {
        let v = yl + yb * i as f64;
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/><text class=\"tick end\" x=\"{2:.1}\" y=\"{3:.1}\">{4}</text>",
            WIDTH - right,
            y(v),
            left - 8.0,
            y(v) + 4.0,
            tick(if v.abs() < yb * 1e-6 { 0.0 } else { v }, yb)
        );
    }
    let _ = write!(out, "<text class=\"tick\" x=\"4\" y=\"{:.1}\">{}</text>", 16.0, esc(y_unit));
    for (name, a, b, on) in all {
        let class = if *on { "better" } else { "" };
        let _ = write!(
            out,
            "<circle class=\"{class}\" cx=\"{0:.1}\" cy=\"{1:.1}\" r=\"5\"/><text x=\"{2:.1}\" y=\"{3:.1}\">{4}</text>",
            x(*a),
            y(*b),
            x(*a) + 9.0,
            y(*b) + 4.0,
            short(name, 26)
        );
    }
    out.push_str("</svg></div></figure>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_told_apart() {
        assert_eq!(
            [tick(0.25, 0.05), tick(0.3, 0.05), tick(40.0, 20.0), tick(0.002, 0.001)],
            ["0.25", "0.30", "40", "0.002"]
        );
        let svg =
            runs("t", "s", &[("a".into(), vec![1.0; 3], Some((1.0, 1.0, 1.0))), ("b".into(), vec![], None)]);
        assert!(svg.contains("</svg>") && !svg.contains("NaN"), "{svg}");
        let one = Effect { name: "<b>".into(), interval: (0.0, 0.0, 0.0), class: "same", told: "0".into() };
        let svg = effects("t", "%", &[one]);
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("NaN"), "{svg}");
    }
}
