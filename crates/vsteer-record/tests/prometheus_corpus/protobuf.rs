//! Protobuf pages, with fixed and with native buckets. The field numbers are those of metrics.proto in
//! github.com/prometheus/client_model.

use crate::case::{Bounds, Case, NAME, Right};
use crate::writer::{Style, gzip, refused, times};

/// A message being written.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut v: u64) -> Message {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
        self
    }

    fn uint(self, field: u64, v: u64) -> Message {
        self.varint(field << 3).varint(v)
    }

    fn sint(self, field: u64, v: i64) -> Message {
        self.uint(field, if v < 0 { 2 * v.unsigned_abs() - 1 } else { 2 * v as u64 })
    }

    fn double(self, field: u64, v: f64) -> Message {
        let mut with = self.varint(field << 3 | 1);
        with.0.extend(v.to_le_bytes());
        with
    }

    fn bytes(self, field: u64, v: &[u8]) -> Message {
        let mut with = self.varint(field << 3 | 2).varint(v.len() as u64);
        with.0.extend(v);
        with
    }

    fn message(self, field: u64, v: &Message) -> Message {
        self.bytes(field, &v.0)
    }

    /// With its length before it.
    fn framed(&self) -> Vec<u8> {
        [Message::default().varint(self.0.len() as u64).0, self.0.clone()].concat()
    }
}

/// How a histogram is written.
#[derive(Clone)]
struct How {
    /// The schema of native buckets.
    schema: Option<i64>,
    /// Are there fixed buckets too, and the infinite one?
    fixed: bool,
    infinite: bool,
    /// Are counts floating-point numbers?
    float: bool,
    /// Are the native counts one field?
    packed: bool,
    zero_threshold: f64,
    /// May a span hold empty buckets in place of a gap? Up to this many.
    gap: i64,
    created_s: Option<u64>,
}

const FIXED: How = How {
    schema: None,
    fixed: true,
    infinite: true,
    float: false,
    packed: false,
    zero_threshold: 0.0,
    gap: 0,
    created_s: None,
};
const NATIVE: How = How { schema: Some(3), fixed: false, zero_threshold: 1e-128, ..FIXED };

fn histogram(times: &[f64], how: &How) -> Message {
    let upto = |le: f64| times.iter().filter(|t| **t <= le).count();
    let n = times.len();
    let count = |m: Message, whole: u64, float: u64, n: usize| {
        if how.float { m.double(float, n as f64) } else { m.uint(whole, n as u64) }
    };
    let mut h = count(Message::default(), 1, 4, n).double(2, times.iter().sum());
    if how.fixed {
        for le in [0.005, 0.05, 0.5].into_iter().chain(how.infinite.then_some(f64::INFINITY)) {
            let bucket = count(Message::default(), 1, 4, upto(le)).double(2, le);
            h = h.message(3, &bucket.bytes(3, b"\x11\0\0\0\0\0\0\xf0\x3f"));
        }
    }
    if let Some(schema) = how.schema {
        h = count(h.sint(5, schema).double(6, how.zero_threshold), 7, 8, upto(how.zero_threshold));
        h = native(h, times, schema, how);
    }
    match how.created_s {
        Some(s) => h.message(15, &Message::default().uint(1, s).uint(2, 500_000_000)),
        None => h,
    }
}

/// Adds the native buckets of values above 0.
fn native(mut h: Message, times: &[f64], schema: i64, how: &How) -> Message {
    let index = |t: f64| (t.log2() * 2_f64.powi(schema as i32)).ceil() as i64;
    let mut all: Vec<i64> = times.iter().filter(|t| **t > how.zero_threshold).map(|t| index(*t)).collect();
    all.sort_unstable();
    let (mut spans, mut counts): (Vec<(i64, u64)>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut next = 0;
    for of in all.chunk_by(|a, b| a == b) {
        let away = of[0] - next;
        if spans.is_empty() || away > how.gap {
            spans.push((away, 0));
        } else {
            counts.extend((0..away).map(|_| 0));
            spans.last_mut().unwrap().1 += away as u64;
        }
        spans.last_mut().unwrap().1 += 1;
        counts.push(of.len() as i64);
        next = of[0] + 1;
    }
    // A histogram without values has one empty span, which tells that it is native.
    if spans.is_empty() {
        spans.push((0, 0));
    }
    for (offset, length) in spans {
        h = h.message(12, &Message::default().sint(1, offset).uint(2, length));
    }
    let deltas: Vec<i64> = counts.iter().scan(0, |last, n| Some(n - std::mem::replace(last, *n))).collect();
    match (how.float, how.packed) {
        (false, false) => deltas.iter().fold(h, |h, d| h.sint(13, *d)),
        (true, false) => counts.iter().fold(h, |h, n| h.double(14, *n as f64)),
        (false, true) => {
            let zigzag = |d: &i64| if *d < 0 { 2 * d.unsigned_abs() - 1 } else { 2 * *d as u64 };
            let packed = deltas.iter().fold(Message::default(), |m, d| m.varint(zigzag(d)));
            h.message(13, &packed)
        }
        (true, true) => {
            let packed: Vec<u8> = counts.iter().flat_map(|n| (*n as f64).to_le_bytes()).collect();
            h.bytes(14, &packed)
        }
    }
}

const HISTOGRAM: u64 = 4;

fn family(name: &str, kind: u64, metrics: &[Message]) -> Message {
    let head = Message::default().bytes(1, name.as_bytes()).bytes(2, b"How long.").uint(3, kind);
    metrics.iter().fold(head, |family, metric| family.message(4, metric))
}

fn series(labels: &[(&str, &str)], histogram: &Message) -> Message {
    let of = |m: Message, (key, value): &(&str, &str)| {
        m.message(1, &Message::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes()))
    };
    labels.iter().fold(Message::default(), of).message(7, histogram).uint(6, 1_793_520_000_000)
}

/// A page with another family before and after.
fn page(times: &[f64], how: &How) -> Vec<u8> {
    let up = family("up", 1, &[Message::default().message(2, &Message::default().double(1, 1.0))]).framed();
    [up.clone(), family(NAME, HISTOGRAM, &[series(&[], &histogram(times, how))]).framed(), up].concat()
}

fn case(name: &str, before: Vec<u8>, after: Vec<u8>, new: &[f64], bounds: Bounds) -> Case {
    let right = Right::Read { new: new.to_vec(), bounds, resets: 0 };
    Case { name: format!("protobuf: {name}"), before, after, wanted: NAME.to_owned(), unit: None, right }
}

fn of(name: &str, how: &How) -> Case {
    let all = times(name.len() as u64, 250);
    let bounds = match how.schema {
        None => Bounds::These(vec![0.005, 0.05, 0.5]),
        Some(schema) => Bounds::Factor(2_f64.powf(2_f64.powi(-schema as i32))),
    };
    case(name, page(&all[..90], how), page(&all, how), &all[90..], bounds)
}

fn styles() -> Vec<Case> {
    let schema = |schema: i64| of(&format!("schema {schema}"), &How { schema: Some(schema), ..NATIVE });
    let mut all: Vec<Case> = [-4, -2, -1, 0, 1, 2, 4, 5, 8].into_iter().map(schema).collect();
    all.extend([
        of("fixed", &FIXED),
        of("fixed without the infinite bucket", &How { infinite: false, ..FIXED }),
        of("fixed, floating", &How { float: true, ..FIXED }),
        of("fixed, created", &How { created_s: Some(100), ..FIXED }),
        of("native", &NATIVE),
        of("native, packed", &How { packed: true, ..NATIVE }),
        of("native, floating", &How { float: true, ..NATIVE }),
        of("native, floating and packed", &How { float: true, packed: true, ..NATIVE }),
        of("native with short gaps", &How { gap: 3, ..NATIVE }),
        of("native without gaps", &How { gap: 1000, packed: true, ..NATIVE }),
        of("native, created", &How { created_s: Some(100), ..NATIVE }),
        of("native, threshold 0", &How { zero_threshold: 0.0, ..NATIVE }),
        of("native and fixed", &How { fixed: true, ..NATIVE }),
    ]);
    let all_times = times(5, 250);
    let zero = How { zero_threshold: 0.002, ..NATIVE };
    let long: Vec<f64> = all_times.iter().copied().filter(|t| *t > 0.003).collect();
    let with_zeros = [long.clone(), vec![0.0; 7], vec![0.0011; 5]].concat();
    let new = &with_zeros[40..];
    all.push(case(
        "native with zeros",
        page(&long[..40], &zero),
        page(&with_zeros, &zero),
        new,
        Bounds::Factor(f64::INFINITY),
    ));
    all.push(case(
        "native that was empty",
        page(&[], &NATIVE),
        page(&all_times, &NATIVE),
        &all_times,
        Bounds::Factor(2_f64.powf(0.125)),
    ));
    let bare = family(NAME, HISTOGRAM, &[series(&[], &Message::default())]).framed();
    all.push(case(
        "native that was not begun",
        bare,
        page(&all_times, &NATIVE),
        &all_times,
        Bounds::Factor(2_f64.powf(0.125)),
    ));
    let coarse = How { schema: Some(1), ..NATIVE };
    all.push(case(
        "native that became coarser",
        page(&all_times[..99], &NATIVE),
        page(&all_times, &coarse),
        &all_times[99..],
        Bounds::Factor(2_f64.sqrt()),
    ));
    all.push(case(
        "fixed in one, both in the other",
        page(&all_times[..99], &FIXED),
        page(&all_times, &How { fixed: true, ..NATIVE }),
        &all_times[99..],
        Bounds::These(vec![0.005, 0.05, 0.5]),
    ));
    all.push(case(
        "nothing new",
        page(&all_times, &NATIVE),
        page(&all_times, &NATIVE),
        &[],
        Bounds::Factor(1.0),
    ));
    all
}

/// Pages with several series, other families, and other envelopes.
fn pages() -> Vec<Case> {
    let all = times(21, 300);
    let fixed = || Bounds::These(vec![0.005, 0.05, 0.5]);
    let pods = |a: usize, b: usize, how: &How| {
        let (a, b) = (histogram(&all[..a], how), histogram(&all[..b], how));
        family(NAME, HISTOGRAM, &[series(&[("pod", "a")], &a), series(&[("pod", "b")], &b)]).framed()
    };
    let both = [&all[50..90], &all[70..200]].concat();
    let good = |n: usize| page(&all[..n], &FIXED);
    let broken = [vec![5, 0x0a, 1, b'x', 0x22, 0x7f], vec![2, 0xff, 0xff]].concat();
    let text = Style { bounds: vec![0.005, 0.05, 0.5], ..Style::default() };
    let one = case("one pod", pods(50, 70, &FIXED), pods(90, 200, &FIXED), &all[70..200], fixed());
    let ms: Vec<f64> = all.iter().map(|t| t * 1e3).collect();
    let unit = |n: usize| {
        family("latency", HISTOGRAM, &[series(&[], &histogram(&ms[..n], &NATIVE))])
            .bytes(5, b"milliseconds")
            .framed()
    };
    vec![
        case("two pods", pods(50, 70, &FIXED), pods(90, 200, &FIXED), &both, fixed()),
        case(
            "two native pods",
            pods(50, 70, &NATIVE),
            pods(90, 200, &NATIVE),
            &both,
            Bounds::Factor(2_f64.powf(0.125)),
        ),
        Case { wanted: format!("{NAME}{{pod=\"b\"}}"), ..one },
        case("gzip", gzip(&good(40)), gzip(&good(300)), &all[40..], fixed()),
        case(
            "broken families of others",
            [good(40), broken.clone()].concat(),
            [good(300), broken].concat(),
            &all[40..],
            fixed(),
        ),
        case(
            "fields of a later version",
            good(40),
            family(
                NAME,
                HISTOGRAM,
                &[series(&[], &histogram(&all, &FIXED).uint(99, 7).bytes(100, b"x")).uint(98, 1)],
            )
            .double(97, 1.0)
            .framed(),
            &all[40..],
            fixed(),
        ),
        case("text before, protobuf after", text.page(&all[..40]).into(), good(300), &all[40..], fixed()),
        case("protobuf before, text after", good(40), text.page(&all).into(), &all[40..], fixed()),
        Case {
            wanted: "latency".to_owned(),
            ..case("a unit", unit(40), unit(300), &all[40..], Bounds::Factor(2_f64.powf(0.125)))
        },
    ]
}

fn restarts() -> Vec<Case> {
    let all = times(23, 300);
    let restarted = case(
        "created again",
        page(&all[..30], &How { created_s: Some(1), ..NATIVE }),
        page(&all, &How { created_s: Some(2), ..NATIVE }),
        &all,
        Bounds::Factor(2_f64.powf(0.125)),
    );
    let fell = case(
        "native restart",
        page(&all, &NATIVE),
        page(&all[..30], &NATIVE),
        &all[..30],
        Bounds::Factor(2_f64.powf(0.125)),
    );
    let reset = |case: Case| match case.right.clone() {
        Right::Read { new, bounds, .. } => Case { right: Right::Read { new, bounds, resets: 1 }, ..case },
        Right::Refused(_) => case,
    };
    vec![reset(restarted), reset(fell)]
}

/// Pages and families that are refused.
fn wrong_pages() -> Vec<Case> {
    let all = times(22, 60);
    let good = || page(&all, &NATIVE);
    let page_of =
        |name: &str, page: Vec<u8>, words| refused(&format!("protobuf: {name}"), good(), page, words);
    let empty = Message::default;
    let cut = good().len() - 5;
    vec![
        page_of("cut", good()[..cut].to_vec(), "the page ends within this message, so the scrape was cut"),
        page_of(
            "cut in the first message",
            family(NAME, HISTOGRAM, &[]).framed()[..40].to_vec(),
            "the scrape was cut",
        ),
        page_of(
            "gauge histogram",
            family(NAME, 5, &[series(&[], &histogram(&all, &FIXED))]).framed(),
            "a gauge histogram",
        ),
        page_of("summary", family(NAME, 2, &[empty()]).framed(), "it is a summary"),
        page_of(
            "another name",
            family("http_request_seconds", HISTOGRAM, &[]).framed(),
            "choose among http_request_seconds",
        ),
        page_of("another type", family(NAME, 1, &[empty()]).framed(), "the scrape has no histogram at all"),
        page_of(
            "no histogram in it",
            family(NAME, HISTOGRAM, &[empty()]).framed(),
            "one of its series has no histogram",
        ),
        page_of(
            "a series that is not protobuf",
            family(NAME, HISTOGRAM, &[Message(vec![0xff])]).framed(),
            "is not protobuf",
        ),
        page_of(
            "a unit that is no time",
            family(NAME, HISTOGRAM, &[series(&[], &histogram(&all, &FIXED))]).bytes(5, b"bytes").framed(),
            "not a unit of time",
        ),
        page_of(
            "a wanted family that is not protobuf",
            Message::default()
                .varint(NAME.len() as u64 + 4)
                .0
                .into_iter()
                .chain([0x0a, NAME.len() as u8])
                .chain(NAME.bytes())
                .chain([0x22, 0x7f])
                .collect(),
            "is not protobuf",
        ),
    ]
}

/// Histograms that are refused.
fn wrong_histograms() -> Vec<Case> {
    let good = || page(&times(22, 60), &NATIVE);
    let of = |name: &str, h: Message, words| {
        refused(
            &format!("protobuf: {name}"),
            good(),
            family(NAME, HISTOGRAM, &[series(&[], &h)]).framed(),
            words,
        )
    };
    let empty = Message::default;
    let span = |offset: i64, length: u64| empty().sint(1, offset).uint(2, length);
    let native = || empty().uint(1, 3).double(2, 1.0).double(6, 1e-9);
    vec![
        of("counts without buckets", empty().uint(1, 4).double(2, 1.0), "a sum and a count, but no buckets"),
        of("a huge span", native().message(12, &span(0, u64::MAX)).sint(13, 3), "but it has 1 counts"),
        of(
            "spans without counts",
            native().message(12, &span(0, 3)),
            "its spans have 3 buckets, but it has 0 counts",
        ),
        of("counts without spans", native().sint(13, 3), "its spans have 0 buckets, but it has 1 counts"),
        of(
            "spans that go back",
            native().message(12, &span(9, 1)).message(12, &span(-4, 1)).sint(13, 1).sint(13, 1),
            "before the end of the last",
        ),
        of(
            "a negative native count",
            native().message(12, &span(0, 2)).sint(13, 1).sint(13, -2),
            "has the count -1",
        ),
        of("a native count NaN", native().message(12, &span(0, 1)).double(14, f64::NAN), "has the count NaN"),
        of(
            "more in buckets than in all",
            native().message(12, &span(0, 1)).sint(13, 40),
            "40 values were 1 or less, but 3 were inf or less",
        ),
        of("schema 9", native().sint(5, 9), "its schema is 9, but vsteer knows -4 to 8"),
        of("schema of custom bounds", native().sint(5, -53), "its schema is -53"),
        of(
            "a zero threshold NaN",
            empty().uint(1, 3).double(6, f64::NAN).uint(7, 1),
            "its zero threshold is NaN",
        ),
        of("values below 0", native().message(9, &span(0, 1)).sint(10, 3), "3 of its values are below 0"),
        of("an infinite count", empty().double(4, f64::INFINITY).double(6, 1e-9), "one of its counts is inf"),
        of("a sum NaN", native().double(2, f64::NAN), "its _sum is NaN"),
        of(
            "a fixed bound NaN",
            empty().message(3, &empty().uint(1, 2).double(2, f64::NAN)),
            "one of its bounds is not a number",
        ),
        of(
            "fixed buckets that fall",
            empty()
                .uint(1, 3)
                .message(3, &empty().uint(1, 3).double(2, 0.1))
                .message(3, &empty().uint(1, 2).double(2, 0.2)),
            "3 values were 0.1 or less, but 2 were 0.2 or less",
        ),
        of(
            "two million buckets",
            native().message(12, &span(0, 2_000_000)).bytes(13, &vec![0; 2_000_000]),
            "it has more than 1000000 buckets",
        ),
    ]
}

pub fn cases() -> Vec<Case> {
    [styles(), pages(), restarts(), wrong_pages(), wrong_histograms()].concat()
}
