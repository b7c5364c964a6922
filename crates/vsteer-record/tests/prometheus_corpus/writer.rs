//! Writes text expositions from lists of request times.

use crate::case::{Bounds, Case, NAME, Right};

/// Bounds as client libraries have them, seconds.
pub const USUAL_S: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// As many request times, from 1 ms to some seconds (MMIX's generator). None is at a bound.
pub fn times(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    };
    (0..n).map(|_| 0.001 - 0.3 * draw().ln() * draw()).collect()
}

/// How a page looks.
#[derive(Clone)]
pub struct Style {
    pub name: &'static str,
    /// With a comma at the end, if there are any.
    pub labels: &'static str,
    pub bounds: Vec<f64>,
    /// The bounds' and times' unit, seconds.
    pub unit_s: f64,
    pub le: fn(f64) -> String,
    pub count: fn(usize) -> String,
    /// What stands after the value of a line: a time, an exemplar.
    pub tail: &'static str,
    pub head: String,
    pub end: &'static str,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            name: NAME,
            labels: "",
            bounds: USUAL_S.to_vec(),
            unit_s: 1.0,
            le: |le| le.to_string(),
            count: |n| n.to_string(),
            tail: "",
            head: format!("# HELP {NAME} How long.\n# TYPE {NAME} histogram\n"),
            end: "",
        }
    }
}

impl Style {
    /// The page after these requests.
    pub fn page(&self, times: &[f64]) -> String {
        let Style { name, labels, unit_s, tail, .. } = self;
        let mut text = self.head.clone();
        let mut bucket = |le: &str, n: usize| {
            text += &format!("{name}_bucket{{{labels}le=\"{le}\"}} {}{tail}\n", (self.count)(n));
        };
        for le in &self.bounds {
            bucket(&(self.le)(le / unit_s), times.iter().filter(|t| *t <= le).count());
        }
        bucket("+Inf", times.len());
        let alone = labels.trim_end_matches(',');
        let alone = if alone.is_empty() { String::new() } else { format!("{{{alone}}}") };
        let sum: f64 = times.iter().sum();
        text += &format!(
            "{name}_sum{alone} {}\n{name}_count{alone} {}\n",
            sum / unit_s,
            (self.count)(times.len())
        );
        text + self.end
    }

    /// Two pages of this style, each changed by `change`.
    pub fn case(&self, name: &str, change: impl Fn(String) -> Vec<u8>) -> Case {
        let all = times(name.len() as u64, 300);
        let bounds = Bounds::These(self.bounds.clone());
        Case {
            name: name.to_owned(),
            before: change(self.page(&all[..100])),
            after: change(self.page(&all)),
            wanted: self.name.to_owned(),
            unit: None,
            right: Right::Read { new: all[100..].to_vec(), bounds, resets: 0 },
        }
    }
}

/// A pair of pages that is refused.
pub fn refused(
    name: &str,
    before: impl Into<Vec<u8>>,
    after: impl Into<Vec<u8>>,
    words: &'static str,
) -> Case {
    Case {
        name: name.to_owned(),
        before: before.into(),
        after: after.into(),
        wanted: NAME.to_owned(),
        unit: None,
        right: Right::Refused(words),
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}
