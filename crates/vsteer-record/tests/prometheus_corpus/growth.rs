//! What happens between two scrapes: restarts, new and lost series and buckets, pods of two versions.

use crate::case::{Bounds, Case, Right};
use crate::writer::{Style, times};

fn style(labels: &'static str, bounds: &[f64]) -> Style {
    Style { name: "m", labels, bounds: bounds.to_vec(), head: String::new(), ..Style::default() }
}

fn read(name: &str, before: String, after: String, new: &[f64], bounds: &[f64], resets: usize) -> Case {
    Case {
        name: name.to_owned(),
        before: before.into(),
        after: after.into(),
        wanted: "m".to_owned(),
        unit: None,
        right: Right::Read { new: new.to_vec(), bounds: Bounds::These(bounds.to_vec()), resets },
    }
}

const SOME: [f64; 4] = [0.01, 0.05, 0.2, 1.0];

/// One series.
fn restarts() -> Vec<Case> {
    let all = times(11, 400);
    let of = |times: &[f64]| style("", &SOME).page(times);
    let created = |times: &[f64], at: &str| of(times) + &format!("m_created {at}\n");
    let (short, long): (Vec<f64>, Vec<f64>) = all.iter().partition(|t| **t < 0.05);
    vec![
        read("growth: none", of(&all), of(&all), &[], &SOME, 0),
        read("growth: from an empty page", String::new(), of(&all), &all, &SOME, 0),
        read("growth: from a page without it", "up 1\n".to_owned(), of(&all), &all, &SOME, 0),
        read("growth: from zeros without a sum", of(&[]).replace("m_sum", "other"), of(&all), &all, &SOME, 0),
        read("growth: from zeros", of(&[]), of(&all), &all, &SOME, 0),
        read("restart: the count fell", of(&all), of(&all[..30]), &all[..30], &SOME, 1),
        read("restart: to nothing", of(&all), of(&[]), &[], &SOME, 1),
        // More requests than before, but all are long.
        read("restart: a bucket fell", of(&short[..40]), of(&long[..60]), &long[..60], &SOME, 1),
        // No count fell, but the times are shorter in all.
        read("restart: the sum fell", of(&[0.9; 3]), of(&[0.06; 4]), &[0.06; 4], &SOME, 1),
        read("restart: created again", created(&all[..30], "100.5"), created(&all, "200.5"), &all, &SOME, 1),
        read(
            "no restart: created as before",
            created(&all[..30], "100.5"),
            created(&all, "1.005e2"),
            &all[30..],
            &SOME,
            0,
        ),
        read("no restart: created only once", of(&all[..30]), created(&all, "200.5"), &all[30..], &SOME, 0),
    ]
}

/// Bounds that are not in both pages, or not in all series.
fn bounds() -> Vec<Case> {
    let all = times(12, 400);
    let of = |labels, times: &[f64], bounds: &[f64]| style(labels, bounds).page(times);
    let long: Vec<f64> = all.iter().copied().filter(|t| *t > 0.05).collect();
    vec![
        read(
            "bounds: one appeared",
            of("", &all[..90], &[0.05, 1.0]),
            of("", &all, &[0.01, 0.05, 1.0]),
            &all[90..],
            &[0.05, 1.0],
            0,
        ),
        read(
            "bounds: one disappeared",
            of("", &all[..90], &SOME),
            of("", &all, &[0.05, 1.0]),
            &all[90..],
            &[0.05, 1.0],
            0,
        ),
        // Nothing was that short before, so the count before was 0.
        read(
            "bounds: one appeared that was empty",
            of("", &long[..50], &[0.05, 1.0]),
            of("", &[&long[..50], &all].concat(), &[0.01, 0.05, 1.0]),
            &all,
            &[0.01, 0.05, 1.0],
            0,
        ),
        read("bounds: all appeared", of("", &[], &[]), of("", &all, &SOME), &all, &SOME, 0),
        read(
            "bounds: above all values",
            of("", &all[..90], &[0.05, 30.0]),
            of("", &all, &[0.05, 30.0, 90.0]),
            &all[90..],
            &[0.05, 30.0, 90.0],
            0,
        ),
        read(
            "bounds: restart with others",
            of("", &all, &SOME),
            of("", &all[..90], &[0.02, 0.3]),
            &all[..90],
            &[0.02, 0.3],
            1,
        ),
    ]
}

/// Two series, and what the sum has.
fn pods() -> Vec<Case> {
    let all = times(14, 400);
    let of = |labels, times: &[f64], bounds: &[f64]| style(labels, bounds).page(times);
    let (a, b) = ("pod=\"a\",", "pod=\"b\",");
    let idle = |n| of(b, &all[..n], &[0.03, 0.3]);
    vec![
        read(
            "pods: the same bounds",
            of(a, &all[..50], &SOME) + &of(b, &all[..70], &SOME),
            of(a, &all, &SOME) + &of(b, &all[..80], &SOME),
            &[&all[50..], &all[70..80]].concat(),
            &SOME,
            0,
        ),
        read(
            "pods: other bounds",
            of(a, &all[..50], &SOME) + &of(b, &all[..70], &[0.05, 0.3]),
            of(a, &all, &SOME) + &of(b, &all, &[0.05, 0.3]),
            &[&all[50..], &all[70..]].concat(),
            &[0.05],
            0,
        ),
        read(
            "pods: one is idle",
            of(a, &all[..50], &SOME) + &idle(70),
            of(a, &all, &SOME) + &idle(70),
            &all[50..],
            &SOME,
            0,
        ),
        read(
            "pods: one is new",
            of(a, &all[..50], &SOME),
            of(a, &all, &SOME) + &of(b, &all[..70], &SOME),
            &[&all[50..], &all[..70]].concat(),
            &SOME,
            0,
        ),
        read(
            "pods: one is gone",
            of(a, &all[..50], &SOME) + &of(b, &all[..70], &SOME),
            of(a, &all, &SOME),
            &all[50..],
            &SOME,
            0,
        ),
        read(
            "pods: one restarted",
            of(a, &all[..50], &SOME) + &of(b, &all[..70], &SOME),
            of(a, &all, &SOME) + &of(b, &all[..20], &SOME),
            &[&all[50..], &all[..20]].concat(),
            &SOME,
            1,
        ),
        read(
            "pods: both restarted",
            of(a, &all[..50], &SOME) + &of(b, &all[..70], &SOME),
            of(a, &all[..9], &SOME) + &of(b, &all[..20], &SOME),
            &[&all[..9], &all[..20]].concat(),
            &SOME,
            2,
        ),
    ]
}

/// A server counts while it writes the page, and other things that are no contradiction.
fn races() -> Vec<Case> {
    let all = times(13, 400);
    let of = |times: &[f64]| style("", &SOME).page(times);
    let two = style("code=\"200\",", &SOME).page(&all[..90]) + &style("code=\"500\",", &SOME).page(&all[..9]);
    let then =
        style("code=\"200\",", &SOME).page(&all[..20]) + &style("code=\"500\",", &SOME).page(&all[..3]);
    let wanted = |wanted: &str, case: Case| Case { wanted: wanted.to_owned(), ..case };
    vec![
        read(
            "race: the count is ahead",
            of(&all[..90]),
            of(&all).replace("_count 400", "_count 401"),
            &all[90..],
            &SOME,
            0,
        ),
        read(
            "race: the count was ahead",
            of(&all[..90]).replace("_count 90", "_count 93"),
            of(&all),
            &all[90..],
            &SOME,
            0,
        ),
        wanted(
            "m{code=\"500\"}",
            read("labels: one of two", then.clone(), two.clone(), &all[3..9], &SOME, 0),
        ),
        wanted(
            "m_bucket{code=\"200\",le=\"0.2\"}",
            read("labels: as a line has them", then, two, &all[20..90], &SOME, 0),
        ),
    ]
}

pub fn cases() -> Vec<Case> {
    [restarts(), bounds(), pods(), races()].concat()
}
