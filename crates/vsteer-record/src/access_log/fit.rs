//! Checks, before any estimate, that the lines match the given format and that the log's clock matches the
//! recording's.
//!
//! If vsteer silently skipped lines of another format, or a clock were an hour off, the VM would look idle.
//! So vsteer reads the first lines, and reports a mismatch together with the format or offset that fits.
//!
//! Left out: clocks that are off by less than a quarter of an hour, because such an error is not visible.

use super::{Format, JSON_BEGINS, JSON_ENDS, JSON_TOOK, MS, NAMED, Request, SECOND, US};
use vsteer_core::{Fault, FaultKind};

/// A quarter of an hour, ns: all time zones are multiples of it.
const QUARTER_NS: u64 = 900 * SECOND;
/// The largest error that a time zone can cause.
const ZONES_NS: u64 = 26 * 3600 * SECOND;
/// Tolerance around a multiple of a quarter: servers log requests when they end, and servers' clocks differ.
const NEAR_NS: u64 = 60 * SECOND;
/// The most bytes of a line to print.
const SHOWN: usize = 120;

/// Reads the requests of the first lines of the log `name` with the format `text`. `line` is the number of
/// the first line. Empty lines are skipped.
///
/// # Errors
/// `BadInput` if the format is not valid, or if more than half of the lines do not match it. The fault shows
/// the first such line, the expected format, and which of the named formats would fit.
pub fn checked_format(name: &str, text: &str, line: usize, lines: &[&[u8]]) -> Result<Vec<Request>, Fault> {
    let format = Format::parse(text)?;
    let lines = || lines.iter().enumerate().filter(|(_, l)| !l.trim_ascii().is_empty());
    let all = lines().count();
    let read = |format: &Format| -> Vec<Request> { lines().filter_map(|(_, l)| format.request(l)).collect() };
    let requests = read(&format);
    if 2 * requests.len() >= all {
        return Ok(requests);
    }
    let Some((at, first)) = lines().find(|(_, l)| format.request(l).is_none()) else { return Ok(requests) };
    let shown: String = String::from_utf8_lossy(first).chars().take(SHOWN).collect();
    let meant = NAMED.iter().find(|(named, _)| *named == text).map_or(text, |(_, format)| format);
    let expected = if text == "json" {
        format!(
            "a JSON object with when a request ended ({}) or began ({}), and how long it took ({})",
            JSON_ENDS.join(", "),
            JSON_BEGINS.join(", "),
            JSON_TOOK.map(|(key, _)| key).join(", ")
        )
    } else {
        format!("{meant:?}")
    };
    let fitting: Vec<&str> = NAMED
        .iter()
        .map(|(named, _)| *named)
        .chain(["json"])
        .filter(|named| *named != text && Format::parse(named).is_ok_and(|f| 2 * read(&f).len() > all))
        .collect();
    let help = match fitting.as_slice() {
        [] => "give the format as in the server's configuration (Apache's LogFormat, nginx's log_format); it must log how long \
        requests take (%D, $request_time)"
            .to_owned(),
        fit => format!("use the format that fits these lines: {}", fit.join(" or ")),
    };
    let what = format!("cannot read {name}, line {}", line + at);
    let why = format!(
        "{} of {all} lines do not match the format: found {shown:?}, expected {expected}",
        all - requests.len()
    );
    Err(Fault::new(FaultKind::BadInput, what).because(why).help(help))
}

/// Checks that the requests of the log `name` are from the time of a recording, `from_ns..to_ns` since 1970.
///
/// # Errors
/// `BadInput` if no request ended in that time and all are off by a time zone or in the recording's future;
/// `NothingThere` if they are from another time. A log with some requests in that time may also have others.
pub fn checked_clock(name: &str, requests: &[Request], (from_ns, to_ns): (u64, u64)) -> Result<(), Fault> {
    let ended = || requests.iter().map(|r| r.ended_ns);
    let (Some(first), Some(last)) = (ended().min(), ended().max()) else { return Ok(()) };
    if first <= to_ns && last >= from_ns {
        return Ok(());
    }
    let future = first > to_ns;
    let away = if future { first - to_ns } else { from_ns - last };
    let direction = if future { "after" } else { "before" };
    let seconds = away / SECOND;
    let off = format!(
        "all {} requests ended {direction} the recording, by at least {} h {} min",
        requests.len(),
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
            .help("log the time with its zone (%t, $time_local, $time_iso8601), or set the server's zone"));
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

/// The resolution of the requests' times, as far as it is visible: the largest of 1 s, 1 ms, 1 us and 1 ns
/// that divides all ends (or all starts, if the log contains starts). `None` without requests.
pub fn resolution_ns(requests: &[Request]) -> Option<u64> {
    let whole = |of: &dyn Fn(&Request) -> u64, unit: u64| requests.iter().all(|r| of(r).is_multiple_of(unit));
    let said = |unit: &u64| whole(&|r| r.ended_ns, *unit) || whole(&Request::began_ns, *unit);
    (!requests.is_empty()).then(|| [SECOND, MS, US].into_iter().find(said).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const APACHE: &[u8] =
        br#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326 52013"#;
    const NGINX: &[u8] =
        br#"192.168.33.1 - - [15/Oct/2019:19:41:46 +0000] "GET / HTTP/1.1" 200 396 "-" "HTTPie/0.9.8" 0.017"#;

    #[test]
    fn another_format_is_told_with_the_one_that_fits() {
        let found = checked_format("access.log", "apache", 1, &[APACHE, b"", APACHE]).unwrap();
        assert_eq!(found.len(), 2);
        let fault = checked_format("access.log", "apache", 1, &[b"", NGINX, NGINX]).unwrap_err().to_string();
        assert!(
            fault.contains("access.log, line 2")
                && fault.contains("fits these lines: nginx")
                && fault.contains("%D"),
            "{fault}"
        );
        let json =
            checked_format("l", "nginx", 7, &[br#"{"ts": 1, "duration": 2}"#]).unwrap_err().to_string();
        assert!(json.contains("line 7") && json.contains("fits these lines: json"), "{json}");
        // Apache's common format does not contain the duration.
        let none = checked_format("l", "apache", 1, &[&APACHE[..APACHE.len() - 6]]).unwrap_err().to_string();
        assert!(none.contains("LogFormat"), "{none}");
        // A line that a crash cut off does not mean another format.
        assert_eq!(checked_format("l", "apache", 1, &[APACHE, APACHE, b"127."]).unwrap().len(), 2);
        assert!(checked_format("l", "apache", 1, &[]).unwrap().is_empty());
    }

    #[test]
    fn another_clock_is_told() {
        let (from, to) = (1_700_000_000 * SECOND, 1_700_000_600 * SECOND);
        let of = |shift_s: i64| -> Vec<Request> {
            let at = |k: u64| (1_700_000_000 + 60 * k as i64 + shift_s) as u64 * SECOND;
            (0..=10).map(|k| Request { ended_ns: at(k), took_ns: 1 }).collect()
        };
        let told =
            |shift_s| checked_clock("l", &of(shift_s), (from, to)).map_err(|f| (f.kind, f.to_string()));
        assert_eq!(told(0), Ok(()));
        assert_eq!(told(300), Ok(()));
        assert_eq!(checked_clock("l", &[], (from, to)), Ok(()));
        let (kind, text) = told(9 * 3600).unwrap_err();
        assert!(kind == FaultKind::BadInput && text.contains("9 h 0 min off"), "{text}");
        let (_, text) = told(-(5 * 3600 + 1800)).unwrap_err();
        assert!(text.contains("5 h 30 min off"), "{text}");
        let (kind, text) = told(1_000_000).unwrap_err();
        assert!(kind == FaultKind::BadInput && text.contains("after"), "{text}");
        assert_eq!(told(-1_000_000).unwrap_err().0, FaultKind::NothingThere);
    }

    #[test]
    fn whole_seconds_are_seen() {
        let of = |ended_ns, took_ns| Request { ended_ns, took_ns };
        assert_eq!(resolution_ns(&[]), None);
        assert_eq!(resolution_ns(&[of(3 * SECOND, 17), of(5 * SECOND, 18)]), Some(SECOND));
        // As with Apache's %t, the starts are whole seconds.
        assert_eq!(resolution_ns(&[of(3 * SECOND + 17, 17), of(5 * SECOND + 18, 18)]), Some(SECOND));
        assert_eq!(resolution_ns(&[of(3_017_000_000, 17), of(5_000_000_000, 18)]), Some(1_000_000));
        assert_eq!(resolution_ns(&[of(3_017_000_001, 17)]), Some(1));
    }
}
