//! Which moment does a time on the command line or in a recording name?
//!
//! Files hold ns since 1970, UTC. Printed and typed times are in the system's time zone (`TZ`, else the configuration's, else
//! /etc/localtime). Each
//! printed time has its offset from UTC, so a reader can copy it into `--at` on any machine.
//!
//! A simulation begins at second 0 of 1970. Its times are seconds, and `--at` counts from its beginning.
//!
//! Left out: names of zones, which are ambiguous when clocks go back.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::sync::OnceLock;
use vsteer_core::{Fault, FaultKind};

/// No real recording is from before 1980.
const SIMULATED_BEFORE_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// The zone that the configuration names.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// From here on, shows and reads times in this zone of the time zone database; in the system's if the database lacks it.
pub fn set_zone(name: &str) {
    if let Ok(zone) = TimeZone::get(name) {
        let _ = ZONE.set(zone);
    }
}

fn zone() -> TimeZone {
    ZONE.get().cloned().unwrap_or_else(TimeZone::system)
}

/// A moment as `YYYY-MM-DD HH:MM:SS+09:00`; UTC is named; one of a simulation as its second.
pub fn text(unix_ns: u64) -> String {
    text_in(unix_ns, &zone())
}

/// The same in one word, as `--at` takes it.
pub fn word(unix_ns: u64) -> String {
    if unix_ns < SIMULATED_BEFORE_NS {
        return simulated(unix_ns);
    }
    text(unix_ns).replacen(' ', "T", 1).replace(" UTC", "Z")
}

/// A moment as a name of a file that sorts by time, in UTC: `20261121T160205Z`.
#[cfg(feature = "host")]
pub fn file_name(at: std::time::SystemTime) -> String {
    let at = Timestamp::try_from(at).unwrap_or_default();
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// The moment that `--at` names: `HH:MM[:SS]` on the last day that has it before `last_ns`, or a date with a time; ns since 1970.
///
/// # Errors
/// `Usage` for what is not a time, and for a time that the clocks skipped or showed twice.
pub fn moment(text: &str, last_ns: u64) -> Result<u64, Fault> {
    let zone = if last_ns < SIMULATED_BEFORE_NS { TimeZone::UTC } else { zone() };
    moment_in(text, last_ns, &zone)
}

/// The moment in the past that an option names: as [`moment`], or with `today` or `yesterday` in place of a date.
///
/// # Errors
/// As [`moment`], with the name of the option.
pub fn past(option: &str, text: &str, now_ns: u64) -> Result<u64, Fault> {
    past_in(text, now_ns, &zone()).map_err(|fault| Fault {
        what: fault
            .what
            .replacen("--at", option, 1)
            .replace(" is not a time of the recording", " is not a time"),
        help: fault.help.map(|help| help.replacen("use HH:MM", "use \"yesterday HH:MM\", HH:MM", 1)),
        ..fault
    })
}

fn past_in(text: &str, now_ns: u64, zone: &TimeZone) -> Result<u64, Fault> {
    let today = zone.to_datetime(at(now_ns)).date();
    let days = [("yesterday", today.yesterday().ok()), ("today", Some(today))];
    let named = days.into_iter().find_map(|(word, day)| Some((text.trim().strip_prefix(word)?.trim(), day?)));
    match named {
        Some((time, day)) => moment_in(&format!("{day}T{time}"), now_ns, zone),
        None => moment_in(text, now_ns, zone),
    }
}

fn at(unix_ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(unix_ns)).expect("64 bits of ns end in 2554")
}

/// A time of a simulation, as `--at` takes it: since its beginning, or with a date from its second day on.
fn simulated(unix_ns: u64) -> String {
    let form = if unix_ns < 86_400_000_000_000 { "%H:%M:%S" } else { "%Y-%m-%dT%H:%M:%SZ" };
    at(unix_ns).strftime(form).to_string()
}

fn text_in(unix_ns: u64, zone: &TimeZone) -> String {
    if unix_ns < SIMULATED_BEFORE_NS {
        return format!("{} of the simulation", simulated(unix_ns));
    }
    // A system whose zone is not known has UTC.
    if zone.is_unknown() || *zone == TimeZone::UTC || matches!(zone.iana_name(), Some("UTC" | "Etc/UTC")) {
        return at(unix_ns).strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    }
    at(unix_ns).to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

fn moment_in(text: &str, last_ns: u64, zone: &TimeZone) -> Result<u64, Fault> {
    let bad = || {
        Fault::new(FaultKind::Usage, format!("--at {text:?} is not a time of the recording")).help(
            if last_ns < SIMULATED_BEFORE_NS {
                "the clock of a simulation starts at 00:00:00; use HH:MM:SS, for example 00:00:12"
            } else {
                "use HH:MM, HH:MM:SS or YYYY-MM-DDTHH:MM:SS for local time; after a date, Z or an offset is allowed"
            },
        )
    };
    let ns = |t: Timestamp| u64::try_from(t.as_nanosecond()).map_err(|_| bad());
    let text = text.trim();
    if let Some(time) = time_of(text) {
        let last = zone.to_datetime(at(last_ns));
        let day = if time <= last.time() { Ok(last.date()) } else { last.date().yesterday() };
        return day.map_err(|_| bad()).and_then(|day| only(text, day.to_datetime(time), zone)).and_then(ns);
    }
    let utc = text.strip_suffix(" UTC").map(|t| format!("{t}Z"));
    let text = utc.as_deref().unwrap_or(text);
    // With Z or an offset there is one such moment, without there may be none or two.
    if let Ok(moment) = text.parse::<Timestamp>() {
        return ns(moment);
    }
    let (date, time) = text.split_once(['T', ' ']).ok_or_else(bad)?;
    let date: Date = date.parse().map_err(|_| bad())?;
    only(text, date.to_datetime(time_of(time).ok_or_else(bad)?), zone).and_then(ns)
}

/// `HH:MM[:SS]`.
fn time_of(text: &str) -> Option<Time> {
    let clock = text.len() <= "HH:MM:SS".len() && text.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let form = if text.matches(':').count() == 2 { "%H:%M:%S" } else { "%H:%M" };
    Time::strptime(form, text).ok().filter(|_| clock)
}

/// The one moment at which clocks of this zone show that.
fn only(text: &str, shown: DateTime, zone: &TimeZone) -> Result<Timestamp, Fault> {
    let of = |offset: jiff::tz::Offset| offset.to_timestamp(shown);
    let word = |offset: jiff::tz::Offset| {
        let moment = of(offset).map(|t| t.to_zoned_datetime(TimeZone::fixed(offset)));
        moment.map_or_else(|e| e.to_string(), |z| z.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
    };
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    let name = zone.iana_name().unwrap_or("this time zone");
    let what = format!("--at {text:?}");
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } => {
            of(offset).map_err(|e| Fault::new(FaultKind::Usage, what).because(e))
        }
        AmbiguousOffset::Gap { before, after } => Err(Fault::new(FaultKind::Usage, what)
            .because(format!(
                "{} never existed in {name}: clocks went forward that day",
                shown.strftime("%Y-%m-%d %H:%M:%S")
            ))
            .help(format!("give a time with an offset: {} or {}", word(before), word(after)))),
        AmbiguousOffset::Fold { before, after } => Err(Fault::new(FaultKind::Usage, what)
            .because(format!(
                "{} existed twice in {name}: clocks went back that day",
                shown.strftime("%Y-%m-%d %H:%M:%S")
            ))
            .help(format!("give a time with an offset: {}, or an hour later {}", word(before), word(after)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond().try_into().unwrap()
    }

    /// As tzdata has them, without needing it.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn seoul() -> TimeZone {
        TimeZone::posix("KST-9").unwrap()
    }

    #[test]
    fn moments_are_printed_in_the_zone_and_with_it() {
        let at = ns("2026-11-21T16:02:05Z");
        assert_eq!(text_in(at, &TimeZone::UTC), "2026-11-21 16:02:05 UTC");
        assert_eq!(text_in(at, &seoul()), "2026-11-22 01:02:05+09:00");
        assert_eq!(text_in(at, &berlin()), "2026-11-21 17:02:05+01:00");
        assert_eq!(text_in(ns("2026-06-21T16:02:05Z"), &berlin()), "2026-06-21 18:02:05+02:00");
        assert_eq!(text_in(12_300_000_000, &seoul()), "00:00:12 of the simulation");
        assert!(text_in(u64::MAX, &seoul()).starts_with("2554-"));
    }

    #[test]
    fn what_is_printed_is_read() {
        for zone in [TimeZone::UTC, seoul(), berlin()] {
            // An hour in which clocks are set back has each time twice.
            for at in [
                "2026-11-21T16:02:05Z",
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:30:00Z",
                "2026-03-29T01:00:00Z",
            ] {
                let text = text_in(ns(at), &zone);
                assert_eq!(moment_in(&text, 0, &zone).unwrap(), ns(at), "{text}");
                let word = text.replacen(' ', "T", 1).replace(" UTC", "Z");
                assert_eq!(moment_in(&word, 0, &zone).unwrap(), ns(at), "{word}");
            }
        }
    }

    #[test]
    fn times_are_local() {
        let last = ns("2026-11-21T16:02:05Z");
        let of = |text: &str, zone: &TimeZone| moment_in(text, last, zone).unwrap();
        // It is 01:02:05 of the 22nd in Seoul.
        assert_eq!(of("01:02", &seoul()), ns("2026-11-21T16:02:00Z"));
        assert_eq!(of("1:02:05", &seoul()), last);
        assert_eq!(of("03:12", &seoul()), ns("2026-11-20T18:12:00Z"), "not yet on the last day");
        assert_eq!(of("03:12", &TimeZone::UTC), ns("2026-11-21T03:12:00Z"));
        assert_eq!(of("2026-11-21T03:12:05", &seoul()), ns("2026-11-20T18:12:05Z"));
        assert_eq!(of("2026-11-21 03:12", &seoul()), ns("2026-11-20T18:12:00Z"));
        for there in ["2026-11-21T03:12:05Z", "2026-11-21T04:12:05+01:00", "2026-11-21 03:12:05 UTC"] {
            assert_eq!(of(there, &seoul()), ns("2026-11-21T03:12:05Z"), "{there}");
        }
        for wrong in [
            "",
            "3",
            "24:00",
            "12:60",
            "12:30:61",
            "noon",
            "2026-11-21",
            "2026-02-30T12:00",
            "2026-11-21T",
            "-1:00",
            "1:2:3:4",
        ] {
            let said = moment_in(wrong, last, &seoul()).unwrap_err();
            assert!(
                said.kind == FaultKind::Usage && said.to_string().contains("is not a time"),
                "{wrong:?}: {said}"
            );
        }
    }

    #[test]
    fn yesterday_is_a_day() {
        // It is 01:02:05 of the 22nd in Seoul.
        let now = ns("2026-11-21T16:02:05Z");
        let of = |text: &str| past_in(text, now, &seoul()).unwrap();
        assert_eq!(of("yesterday 03:12"), ns("2026-11-20T18:12:00Z"));
        assert_eq!(of("today 00:12:30"), ns("2026-11-21T15:12:30Z"));
        assert_eq!(of("2026-11-21T03:12Z"), ns("2026-11-21T03:12:00Z"));
        let said = past("--from", "yesterday", now).unwrap_err().to_string();
        assert!(said.starts_with("--from") && said.contains("is not a time\n"), "{said}");
    }

    #[test]
    fn what_clocks_skipped_or_showed_twice_is_refused() {
        let said = |text: &str, last: &str| moment_in(text, ns(last), &berlin()).unwrap_err().to_string();
        let gap = said("2026-03-29T02:30", "2026-03-29T12:00:00Z");
        assert!(gap.contains("2026-03-29 02:30:00 never existed"), "{gap}");
        assert!(gap.contains("2026-03-29T02:30:00+01:00"), "{gap}");
        assert_eq!(gap, said("02:30", "2026-03-29T12:00:00Z").replacen("02:30", "2026-03-29T02:30", 1));
        let fold = said("2026-10-25T02:30", "2026-10-25T12:00:00Z");
        assert!(
            fold.contains("twice")
                && fold.contains("2026-10-25T02:30:00+02:00, or an hour later 2026-10-25T02:30:00+01:00"),
            "{fold}"
        );
        // The same time on the day after is there once.
        assert!(moment_in("02:30", ns("2026-03-30T12:00:00Z"), &berlin()).is_ok());
    }
}
