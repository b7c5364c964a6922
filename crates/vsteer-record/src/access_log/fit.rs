//! Which format has a log, and does its clock match the recording's?
//!
//! If vsteer silently skipped lines of another format, or a clock were an hour off, the VM would look idle.
//! So vsteer looks at the first lines, and reports a mismatch together with the format or offset that fits.
//!
//! Left out: clocks that are off by less than a quarter of an hour, because such an error is not visible.

use super::json::{self, Json};
use super::known::{SERVERS, Server, WITHOUT_DURATION, names};
use super::pattern::Pattern;
use super::w3c::W3c;
use super::wrapped::Wrapping;
use super::{Format, Of, Raw, SECOND, Said, Sure};
use crate::unit::Unit;
use std::borrow::Cow;
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

/// A quarter of an hour, ns: all time zones are multiples of it.
const QUARTER_NS: u64 = 900 * SECOND;
/// The largest error that a time zone can cause.
const ZONES_NS: u64 = 26 * 3600 * SECOND;
/// Tolerance around a multiple of a quarter: servers log requests when they end, and servers' clocks differ.
const NEAR_NS: u64 = 60 * SECOND;
/// The most bytes of a line to print.
const SHOWN: usize = 120;

/// How to read a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    kind: Kind,
    wrapping: Wrapping,
    /// For people.
    pub format: String,
    /// The unit of durations that do not name one.
    pub unit: Unit,
    /// How sure the unit is.
    pub sure: Sure,
    /// Why the unit is what it is.
    pub about: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Pattern(Pattern),
    Json(Json),
    W3c(W3c),
}

impl Layout {
    /// What a line says.
    pub(super) fn read(&mut self, line: &[u8]) -> Raw {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Raw::Nothing;
        }
        let Some(inside) = self.wrapping.inside(line) else { return Raw::Odd };
        match &mut self.kind {
            Kind::Pattern(pattern) => pattern.read(&inside),
            Kind::Json(json) => json.read(&inside),
            Kind::W3c(w3c) => w3c.read(&inside),
        }
    }

    /// The resolution of times, if the format tells it.
    pub(super) fn resolution_ns(&self) -> Option<u64> {
        match &self.kind {
            Kind::Pattern(pattern) => pattern.resolution_ns(),
            Kind::Json(_) | Kind::W3c(_) => None,
        }
    }

    /// The layout of the log `name` by its first lines, as far as a person has not said it. `at`: the number of the first line.
    ///
    /// # Errors
    /// `BadInput` if the lines do not match the format that was said: the fault shows the first such line, and which of the
    /// known formats fit; or if they match no known format.
    pub fn of(name: &str, said: &Said, lines: &[&[u8]]) -> Result<Layout, Fault> {
        let lines: Vec<&[u8]> = lines.iter().map(|l| l.strip_suffix(b"\r").unwrap_or(l)).collect();
        match &said.format {
            Some(format) => said_format(name, format, said.unit, &lines),
            None => best(&lines, said.unit, &|_| true)
                .map(|(_, layout)| layout)
                .ok_or_else(|| unknown(name, &lines)),
        }
    }
}

/// The layout of a format that a person gave.
fn said_format(name: &str, format: &Format, unit: Option<Unit>, lines: &[&[u8]]) -> Result<Layout, Fault> {
    let found = match &format.of {
        Of::Named => best(lines, unit, &|named| named == format.text).map(|(n, mut layout)| {
            if layout.sure == Sure::Assumed && !["json", "iis"].contains(&format.text.as_str()) {
                layout.sure = Sure::Named;
            }
            (n, layout)
        }),
        Of::Pattern(pattern) => wrapped(lines, &mut |wrapping, _| {
            Some(of_pattern(pattern, wrapping, &format.text, unit, (Sure::Known, "the format says it")))
        }),
        Of::Json(keys) => wrapped(lines, &mut |wrapping, inside| {
            Json::recognised(inside, Some(keys), unit).map(|json| of_json(json, wrapping))
        }),
    };
    let all = lines.iter().filter(|l| !l.trim_ascii().is_empty() && l.first() != Some(&b'#')).count();
    match found {
        Some((n, layout)) if 2 * n >= all => Ok(layout),
        None if all == 0 => without_lines(format, unit),
        found => Err(mismatch(name, format, found, lines, all)),
    }
}

/// A log that has no line yet.
fn without_lines(format: &Format, unit: Option<Unit>) -> Result<Layout, Fault> {
    let bare = Wrapping::Bare;
    match &format.of {
        Of::Pattern(pattern) => {
            Ok(of_pattern(pattern, bare, &format.text, unit, (Sure::Known, "the format says it")))
        }
        Of::Named if format.text == "iis" => Ok(of_w3c(W3c::in_unit(unit), bare)),
        Of::Named | Of::Json(_) => match SERVERS.iter().find(|server| server.name == format.text) {
            Some(server) => {
                let sure = if server.sure == Sure::Assumed { Sure::Named } else { server.sure };
                Ok(of_pattern(&server.pattern()?, bare, server.name, unit, (sure, server.about)))
            }
            None => Err(Fault::new(FaultKind::NothingThere, "the log has no line yet")
                .because("the keys of JSON lines are recognised by the first lines")
                .help("begin when the server has written some lines")),
        },
    }
}

fn of_pattern(
    pattern: &Pattern,
    wrapping: Wrapping,
    name: &str,
    unit: Option<Unit>,
    (sure, about): (Sure, &str),
) -> Layout {
    let pattern = unit.map_or(pattern.clone(), |unit| pattern.clone().with_unit(unit));
    let (sure, about) = if unit.is_some() { (Sure::Stated, "as you say") } else { (sure, about) };
    let unit = pattern.unit().unwrap_or(Unit::Seconds);
    named(Kind::Pattern(pattern), wrapping, name, unit, sure, about)
}

fn of_json(json: Json, wrapping: Wrapping) -> Layout {
    let (unit, sure, about) = (json.unit(), json.sure, json.about.clone());
    named(Kind::Json(json), wrapping, "json", unit, sure, &about)
}

fn of_w3c(w3c: W3c, wrapping: Wrapping) -> Layout {
    let (unit, sure, about) = match (w3c.unit, w3c.is_iis) {
        (Some(unit), _) => (unit, Sure::Stated, "as you say"),
        (None, true) => (Unit::Milliseconds, Sure::Known, "IIS writes milliseconds"),
        (None, false) => {
            (Unit::Seconds, Sure::Assumed, "the W3C's draft says seconds, but IIS writes milliseconds")
        }
    };
    named(Kind::W3c(w3c), wrapping, "iis", unit, sure, about)
}

fn named(kind: Kind, wrapping: Wrapping, name: &str, unit: Unit, sure: Sure, about: &str) -> Layout {
    let format = wrapping.name().map_or(name.to_owned(), |outer| format!("{name} in {outer}"));
    Layout { kind, wrapping, format, unit, sure, about: about.to_owned() }
}

/// Makes a layout for lines that lay in this wrapping.
type Make<'a> = dyn FnMut(Wrapping, &[Cow<'_, [u8]>]) -> Option<Layout> + 'a;

/// The best of what `make` makes of the lines in each wrapping, with the number of its requests.
fn wrapped(lines: &[&[u8]], make: &mut Make<'_>) -> Option<(usize, Layout)> {
    let mut best: Option<(usize, Layout)> = None;
    for wrapping in Wrapping::ALL {
        let inside: Vec<Cow<'_, [u8]>> = lines.iter().filter_map(|line| wrapping.inside(line)).collect();
        let Some(layout) = make(wrapping, &inside).filter(|_| !inside.is_empty()) else { continue };
        let mut reads = layout.clone();
        let n = lines.iter().filter(|line| matches!(reads.read(line), Raw::Found(_))).count();
        if n > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((n, layout));
        }
    }
    best
}

/// The known format with the most requests in these lines, of those that `wanted` lets through by name.
fn best(lines: &[&[u8]], unit: Option<Unit>, wanted: &dyn Fn(&str) -> bool) -> Option<(usize, Layout)> {
    let of_server = |server: &Server| {
        let pattern = server.pattern().ok()?;
        wrapped(lines, &mut |wrapping, _| {
            Some(of_pattern(&pattern, wrapping, server.name, unit, (server.sure, server.about)))
        })
    };
    let of_w3c = || {
        wrapped(lines, &mut |wrapping, inside| {
            let mut w3c = W3c::in_unit(unit);
            inside.iter().filter(|line| line.starts_with(b"#")).for_each(|line| w3c.directive(line));
            w3c.is_complete().then(|| of_w3c(w3c, wrapping))
        })
    };
    let of_json = || {
        wrapped(lines, &mut |wrapping, inside| {
            Json::recognised(inside, None, unit).map(|json| of_json(json, wrapping))
        })
    };
    let servers = SERVERS.iter().filter(|server| wanted(server.name)).filter_map(of_server);
    let others = [wanted("json").then(of_json), wanted("iis").then(of_w3c)].into_iter().flatten().flatten();
    servers.chain(others).fold(None, |best, one| match best {
        Some(best) if best.0 >= one.0 => Some(best),
        _ => Some(one),
    })
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(SHOWN).collect()
}

/// More than half of the lines are not of the format that a person gave.
fn mismatch(
    name: &str,
    format: &Format,
    found: Option<(usize, Layout)>,
    lines: &[&[u8]],
    all: usize,
) -> Fault {
    let n = found.as_ref().map_or(0, |(n, _)| *n);
    let mut layout = found.map(|(_, layout)| layout);
    let mut is_odd =
        |line: &[u8]| layout.as_mut().is_none_or(|l| matches!(l.read(line), Raw::Odd | Raw::Other));
    let odd = lines.iter().enumerate().find(|(_, line)| !line.trim_ascii().is_empty() && is_odd(line));
    let (at, first) = odd.map_or((0, &b""[..]), |(at, line)| (at, *line));
    let expected = match &format.of {
        Of::Named if format.text == "json" => format!(
            "a JSON object with when a request ended ({}) or began ({}), and how long it took ({})",
            json::ENDS.join(", "),
            json::BEGINS.join(", "),
            json::TOOK.map(|(key, _)| key).join(", ")
        ),
        Of::Named if format.text == "iis" => {
            "columns that a line #Fields: names, among them date, time and time-taken".to_owned()
        }
        Of::Named => {
            let texts = SERVERS
                .iter()
                .filter(|server| server.name == format.text)
                .map(|server| format!("{:?}", server.text()));
            texts.collect::<Vec<_>>().join(" or ")
        }
        Of::Pattern(_) | Of::Json(_) => format!("{:?}", format.text),
    };
    let fitting = best(lines, None, &|named| named != format.text).filter(|(fits, _)| 2 * fits > all);
    let help = match fitting {
        None => "give the format as in the server's configuration (Apache's LogFormat, nginx's log_format); it must log how long \
            requests take (%D, $request_time)"
            .to_owned(),
        Some((_, fit)) => format!("use the format that fits these lines: {}", fit.format),
    };
    let why = format!(
        "{} of {all} lines do not match the format: found {:?}, expected {expected}",
        all - n,
        shown(first)
    );
    Fault::new(FaultKind::BadInput, format!("cannot read {name}, line {}", at + 1)).because(why).help(help)
}

/// No known format fits any line.
fn unknown(name: &str, lines: &[&[u8]]) -> Fault {
    let fault = Fault::new(FaultKind::BadInput, format!("cannot recognise the format of {name}"));
    let Some(first) = lines.iter().find(|line| !line.trim_ascii().is_empty()) else {
        return Fault::new(FaultKind::BadInput, format!("the log {name} holds no request"))
            .because("it has no line")
            .help("name the access log of a web server");
    };
    let has_shape = |text: &str| {
        let pattern = Pattern::without_duration(text);
        pattern.is_ok_and(|pattern| matches!(pattern.read(first), Raw::Found(_)))
    };
    if WITHOUT_DURATION.iter().any(|text| has_shape(text)) {
        return fault
            .because(format!("its lines do not say how long a request took: {:?}", shown(first)))
            .help("add %D to Apache's LogFormat, or $request_time to nginx's log_format, and use what is logged from then on");
    }
    if first.starts_with(b"#") && lines.iter().any(|line| line.starts_with(b"#Fields:")) {
        return fault
            .because("its line #Fields: lacks one of the columns date, time and time-taken")
            .help("select these columns in the server's logging settings");
    }
    if serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(first).is_ok() {
        return fault
            .because(format!(
                "no JSON line has both a known key of a time and one of a duration: {:?}",
                shown(first)
            ))
            .help("name the keys: --format json:time=KEY,duration=KEY:ms");
    }
    fault
        .because(format!("its first line is {:?}; vsteer tried {}", shown(first), names().join(", ")))
        .help("give --format as in the server's LogFormat or log_format")
}

/// Checks that the log `name`, of which `n` requests ended from `first` to `last` (ns since 1970), is from the time of a recording,
/// `from_ns..to_ns`.
///
/// # Errors
/// `BadInput` if no request ended in that time and all are off by a time zone or in the recording's future;
/// `NothingThere` if they are from another time. A log with some requests in that time may also have others.
pub fn checked_clock(
    name: &str,
    n: u64,
    (first, last): (u64, u64),
    (from_ns, to_ns): (u64, u64),
) -> Result<(), Fault> {
    if n == 0 || first <= to_ns && last >= from_ns {
        return Ok(());
    }
    let future = first > to_ns;
    let away = if future { first - to_ns } else { from_ns - last };
    let direction = if future { "after" } else { "before" };
    let seconds = away / SECOND;
    let requests = counted(usize::try_from(n).unwrap_or(usize::MAX), "request");
    let off = format!(
        "all {requests} ended {direction} the recording, by at least {} h {} min",
        seconds / 3600,
        seconds / 60 % 60
    );
    // With a shift of this many quarters, the middle of the log equals the middle of the recording.
    let middle = |a: u64, b: u64| a / 2 + b / 2;
    let shift = middle(first, last).abs_diff(middle(from_ns, to_ns));
    let quarters = (shift + QUARTER_NS / 2) / QUARTER_NS;
    let spread = (last - first).abs_diff(to_ns - from_ns) / 2;
    let near = shift.abs_diff(quarters * QUARTER_NS) <= NEAR_NS + spread;
    let what = format!("cannot use the log {name}");
    if quarters > 0 && shift <= ZONES_NS && near {
        let (hours, minutes) = (quarters / 4, quarters % 4 * 15);
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(format!("{off}: its clock may be {hours} h {minutes} min off, as in another time zone"))
            .help("give the zone of times that name none with --zone; or log the time with its zone (%t, $time_iso8601)"));
    }
    if future {
        return Err(Fault::new(FaultKind::BadInput, what)
            .because(off)
            .help("compare the clocks of server and host; write a JSON time in ns, us, ms or s since 1970, because vsteer derives the unit from its size"));
    }
    Err(Fault::new(FaultKind::NothingThere, what)
        .because(off)
        .help("give the log of the time of the recording"))
}
