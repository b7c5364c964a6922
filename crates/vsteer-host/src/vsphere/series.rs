//! Reads the counter values that a service kept, with their times.
//!
//! Four calls: the numbers of the counters (the property `perfCounter`), which counters exist for a VM
//! (`QueryAvailablePerfMetric`), the service's clock (`CurrentTime`, because the local clock may differ), and
//! the values since a given time (`QueryPerf`), for many VMs per call. vsteer asks for each instance by name,
//! never for `*`. So the answer contains exactly the requested values, in any order.
//!
//! A vCenter answers at most 64 metrics of statistics in one query (`config.vpxd.stats.maxQueryMetrics`).
//! Real-time queries have no such limit.
//!
//! Source: VMware, vSphere Web Services API reference (7.0): PerformanceManager, PerfQuerySpec,
//! PerfEntityMetric, PerfMetricIntSeries; XML Schema Part 2 for dateTime. Left out: the CSV form of answers.

use super::Client;
use super::counters::{Counter, Instance, Metrics, Numbers};
use super::soap::{Refused, child_text, escaped, text_of};
use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use roxmltree::Node;
use std::collections::BTreeMap;
use vsteer_core::{Fault, FaultKind};

/// Metrics per query. In real time, only the size of the answer limits them.
const METRICS_OF_STATISTICS: usize = 60;
const METRICS_OF_REAL_TIME: usize = 2_000;
/// The most values of one series: a year of days, an hour of 20 s, or a month of two hours. A longer answer
/// is not valid.
const VALUES_MOST: usize = 100_000;
/// The longest valid interval, s.
const INTERVAL_MOST_S: u64 = 400 * 86_400;

/// The values of one interval, by instance and counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) seconds: u64,
    /// -1 means that there was no value.
    pub(super) values: BTreeMap<(Instance, Counter), i64>,
}

/// The intervals of one VM or host, by their end in s since 1970.
pub(super) type Series = BTreeMap<u64, Interval>;

/// The metrics to read from one object.
#[derive(Debug, Clone)]
pub(super) struct Asked<'a> {
    pub(super) kind: &'static str,
    pub(super) object: &'a str,
    pub(super) metrics: &'a Metrics,
}

impl Client {
    fn counters_of(&self) -> Result<String, Fault> {
        self.managers.performance.as_deref().map(escaped).ok_or_else(|| {
            Fault::new(FaultKind::Unsupported, format!("{} keeps no performance counters", self.place))
        })
    }

    /// The service's clock, s since 1970.
    pub(super) fn now_s(&mut self) -> Result<u64, Refused> {
        let answer = self.call(
            "<CurrentTime xmlns=\"urn:vim25\"><_this type=\"ServiceInstance\">ServiceInstance</_this></CurrentTime>",
        )?;
        let text = answer.read(|a| text_of(a, "returnval")).flatten().unwrap_or_default();
        moment(&text).ok_or_else(|| {
            let what = format!("cannot read the clock of {}", self.place);
            Fault::new(FaultKind::BadInput, what).because(format!("{text:?} is not a time")).into()
        })
    }

    /// The numbers of the counters.
    pub(super) fn numbers(&mut self) -> Result<Numbers, Fault> {
        self.counters_of()?;
        let manager = self.managers.performance.clone().unwrap_or_default();
        let answer = self.properties_of("PerformanceManager", &manager, &["perfCounter"])?;
        let numbers = answer.read(Numbers::of).unwrap_or_default();
        if numbers == Numbers::default() {
            return Err(Fault::new(FaultKind::NoPrivilege, format!("{} shows no counters", self.place))
                .because("this user can see no counters there")
                .help("give the user at least the role Read-only on the root"));
        }
        Ok(numbers)
    }

    /// The counters that an object has for intervals of this number of seconds.
    pub(super) fn metrics(
        &mut self,
        kind: &str,
        object: &str,
        interval_s: u64,
        numbers: &Numbers,
    ) -> Result<Metrics, Refused> {
        let manager = self.counters_of()?;
        let answer = self.call(&format!(
            "<QueryAvailablePerfMetric xmlns=\"urn:vim25\"><_this type=\"PerformanceManager\">{manager}</_this>\
             <entity type=\"{kind}\">{}</entity><intervalId>{interval_s}</intervalId></QueryAvailablePerfMetric>",
            escaped(object)
        ))?;
        let read = |a: Node<'_, '_>| {
            let ids = a.children().filter(|n| n.tag_name().name() == "returnval");
            ids.filter_map(|id| metric(id, numbers)).collect::<Metrics>()
        };
        Ok(answer.read(read).unwrap_or_default())
    }

    /// The values of `asked` whose intervals end after `from_s` and not after `to_s`, in the order of `asked`.
    pub(super) fn values(
        &mut self,
        asked: &[Asked<'_>],
        numbers: &Numbers,
        interval_s: u64,
        is_real_time: bool,
        (from_s, to_s): (u64, u64),
    ) -> Result<Vec<Series>, Refused> {
        let manager = self.counters_of()?;
        let most = if is_real_time { METRICS_OF_REAL_TIME } else { METRICS_OF_STATISTICS };
        let mut all: Vec<Series> = vec![Series::new(); asked.len()];
        let place_of: BTreeMap<&str, usize> = asked.iter().enumerate().map(|(i, a)| (a.object, i)).collect();
        for specs in queries(asked, numbers, most) {
            let specs: String = specs
                .iter()
                .map(|(object, metrics)| {
                    let a = &asked[*object];
                    format!(
                        "<querySpec><entity type=\"{}\">{}</entity><startTime>{}</startTime><endTime>{}</endTime>{metrics}\
                         <intervalId>{interval_s}</intervalId><format>normal</format></querySpec>",
                        a.kind,
                        escaped(a.object),
                        written(from_s),
                        written(to_s)
                    )
                })
                .collect();
            let answer = self.call(&format!(
                "<QueryPerf xmlns=\"urn:vim25\"><_this type=\"PerformanceManager\">{manager}</_this>{specs}</QueryPerf>"
            ))?;
            answer.read(|a| {
                for entity in a.children().filter(|n| n.tag_name().name() == "returnval") {
                    let Some(i) =
                        child_text(entity, "entity").and_then(|id| place_of.get(id.as_str()).copied())
                    else {
                        continue;
                    };
                    read_entity(entity, numbers, asked[i].metrics, (from_s, to_s), &mut all[i]);
                }
            });
        }
        Ok(all)
    }
}

/// Splits the request into queries. Each has some objects (by their position in `asked`) with their metrics,
/// at most `most` metrics.
fn queries(asked: &[Asked<'_>], numbers: &Numbers, most: usize) -> Vec<Vec<(usize, String)>> {
    let mut all: Vec<Vec<(usize, String)>> = vec![Vec::new()];
    let mut room = most;
    for (i, a) in asked.iter().enumerate() {
        let ids: Vec<String> = a
            .metrics
            .iter()
            .filter_map(|(instance, counter)| {
                let number = numbers.number(*counter)?;
                Some(format!(
                    "<metricId><counterId>{number}</counterId><instance>{}</instance></metricId>",
                    instance.text()
                ))
            })
            .collect();
        let mut rest = &ids[..];
        while !rest.is_empty() {
            if room == 0 {
                all.push(Vec::new());
                room = most;
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            if let Some(last) = all.last_mut() {
                last.push((i, now.concat()));
            }
            (rest, room) = (later, room - now.len());
        }
    }
    all.retain(|specs| !specs.is_empty());
    all
}

fn metric(id: Node<'_, '_>, numbers: &Numbers) -> Option<(Instance, Counter)> {
    let counter = numbers.counter(child_text(id, "counterId")?.trim().parse().ok()?)?;
    Some((Instance::of(&child_text(id, "instance").unwrap_or_default())?, counter))
}

fn read_entity(
    entity: Node<'_, '_>,
    numbers: &Numbers,
    asked: &Metrics,
    (from_s, to_s): (u64, u64),
    into: &mut Series,
) {
    let infos = entity.children().filter(|n| n.tag_name().name() == "sampleInfo").take(VALUES_MOST);
    let times: Vec<Option<(u64, u64)>> = infos
        .map(|info| {
            let at = moment(&child_text(info, "timestamp")?)?;
            let seconds = child_text(info, "interval")?.trim().parse::<u64>().ok()?;
            ((1..=INTERVAL_MOST_S).contains(&seconds) && at > from_s && at <= to_s).then_some((at, seconds))
        })
        .collect();
    for series in entity.children().filter(|n| n.tag_name().name() == "value") {
        let id = series.children().find(|n| n.tag_name().name() == "id");
        let Some(whose) = id.and_then(|id| metric(id, numbers)).filter(|m| asked.contains(m)) else {
            continue;
        };
        let values = series.children().filter(|n| n.tag_name().name() == "value");
        for (time, value) in times.iter().zip(values) {
            let (Some((at, seconds)), Some(value)) =
                (time, value.text().and_then(|v| v.trim().parse::<i64>().ok()))
            else {
                continue;
            };
            let interval =
                into.entry(*at).or_insert_with(|| Interval { seconds: *seconds, ..Interval::default() });
            interval.values.insert(whose, value);
        }
    }
}

/// Converts an xsd:dateTime to s since 1970; `None` if it is not valid or before 1970.
pub(super) fn moment(text: &str) -> Option<u64> {
    let text = text.trim();
    let (date, time) = text.split_once('T')?;
    let number = |t: &str| {
        (!t.is_empty() && t.bytes().all(|b| b.is_ascii_digit())).then(|| t.parse::<u64>().ok()).flatten()
    };
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if parts.next().is_some() || !(1970..=9999).contains(&year) {
        return None;
    }
    let (clock, zone_min) = match time.find(['Z', '+', '-']) {
        None => (time, 0i64),
        Some(i) if &time[i..] == "Z" => (&time[..i], 0),
        Some(i) => {
            let (hours, minutes) = time[i + 1..].split_once(':')?;
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let min = (hours <= 14 && minutes < 60).then_some((hours * 60 + minutes) as i64)?;
            (&time[..i], if time[i..].starts_with('-') { -min } else { min })
        }
    };
    let clock = clock.split('.').next()?;
    let mut parts = clock.split(':');
    let (h, m, s) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if parts.next().is_some() || h > 24 || m >= 60 || s > 60 {
        return None;
    }
    let date =
        Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let day_s = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?.as_second();
    let of_day = i64::try_from(h * 3600 + m * 60 + s).ok()?;
    u64::try_from(day_s + of_day - zone_min * 60).ok()
}

/// s since 1970 as an xsd:dateTime.
pub(super) fn written(unix_s: u64) -> String {
    let s = i64::try_from(unix_s).unwrap_or(i64::MAX);
    // jiff's last year is 9999; later times become its last second.
    Timestamp::from_second(s).unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::super::soap::{Reply, envelope};
    use super::*;
    use proptest::prelude::*;

    fn reply(body: &str) -> Reply {
        let place = Place { user: "u".into(), host: "h".into(), port: 443 };
        Reply::of(&place, 200, envelope(body)).unwrap()
    }

    fn numbers() -> Numbers {
        let info = |key: u32, name: &str, group: &str, rollup: &str| {
            format!(
                "<PerfCounterInfo><key>{key}</key><nameInfo><label>x</label><key>{name}</key></nameInfo>\
                 <groupInfo><key>{group}</key></groupInfo><unitInfo><key>ms</key></unitInfo><rollupType>{rollup}</rollupType></PerfCounterInfo>"
            )
        };
        let all = [
            info(12, "ready", "cpu", "summation"),
            info(402, "run", "cpu", "summation"),
            info(1, "ready", "disk", "summation"),
            info(2, "run", "cpu", "average"),
        ];
        reply(&format!("<a>{}</a>", all.concat())).read(Numbers::of).unwrap()
    }

    #[test]
    fn counters_are_known_by_group_name_and_rollup() {
        let n = numbers();
        assert_eq!(
            (n.number(Counter::Ready), n.number(Counter::Run), n.number(Counter::CoStop)),
            (Some(12), Some(402), None)
        );
        assert_eq!((n.counter(1), n.counter(2)), (None, None));
    }

    fn answer(values: &str) -> Series {
        let asked: Metrics = [(Instance::Group, Counter::Ready), (Instance::Cpu(1), Counter::Ready)].into();
        let body = format!(
            "<r><returnval><entity type=\"VirtualMachine\">vm-1</entity>\
             <sampleInfo><timestamp>2026-11-24T12:00:40Z</timestamp><interval>20</interval></sampleInfo>\
             <sampleInfo><timestamp>2026-11-24T13:00:20+01:00</timestamp><interval>20</interval></sampleInfo>\
             <sampleInfo><timestamp>2026-11-24T11:00:00Z</timestamp><interval>20</interval></sampleInfo>{values}</returnval></r>"
        );
        let mut series = Series::new();
        let from_s = moment("2026-11-24T12:00:00Z").unwrap();
        reply(&body).read(|a| {
            read_entity(
                a.first_element_child().unwrap(),
                &numbers(),
                &asked,
                (from_s, from_s + 60),
                &mut series,
            )
        });
        series
    }

    #[test]
    fn values_lie_at_their_times_in_whatever_order() {
        let series = answer(
            "<value xsi:type=\"PerfMetricIntSeries\"><id><counterId>12</counterId><instance></instance></id><value>7</value><value>-1</value><value>3</value></value>\
             <value><id><counterId>12</counterId><instance>1</instance></id><value>5</value></value>\
             <value><id><counterId>12</counterId><instance>2</instance></id><value>9</value></value>\
             <value><id><counterId>99</counterId><instance></instance></id><value>9</value></value>",
        );
        let from_s = moment("2026-11-24T12:00:00Z").unwrap();
        assert_eq!(
            series.keys().copied().collect::<Vec<_>>(),
            [from_s + 20, from_s + 40],
            "an hour before is left out"
        );
        let at = |s: u64, i: Instance| series[&(from_s + s)].values.get(&(i, Counter::Ready)).copied();
        assert_eq!(at(20, Instance::Group), Some(-1));
        assert_eq!(
            (at(40, Instance::Group), at(40, Instance::Cpu(1)), at(20, Instance::Cpu(1))),
            (Some(7), Some(5), None)
        );
        assert_eq!(at(40, Instance::Cpu(2)), None, "nobody asked");
    }

    #[test]
    fn a_query_of_statistics_has_so_many_metrics() {
        let metrics: Metrics = (0..40).map(|i| (Instance::Cpu(i), Counter::Ready)).collect();
        let names: Vec<String> = (0..5).map(|i| format!("vm-{i}")).collect();
        let asked: Vec<Asked<'_>> =
            names.iter().map(|n| Asked { kind: "VirtualMachine", object: n, metrics: &metrics }).collect();
        let all = queries(&asked, &numbers(), 60);
        let counts: Vec<usize> = all
            .iter()
            .map(|specs| specs.iter().map(|(_, text)| text.matches("<metricId>").count()).sum())
            .collect();
        assert_eq!(counts, [60, 60, 60, 20]);
        assert!(queries(&[], &numbers(), 60).is_empty());
    }

    #[test]
    fn times() {
        assert_eq!(moment("1970-01-01T00:00:10Z"), Some(10));
        assert_eq!(moment(" 2026-11-24T11:50:58.123456Z "), moment("2026-11-24T12:50:58+01:00"));
        assert_eq!(moment("2026-11-24T11:50:58"), moment("2026-11-24T11:50:58Z"));
        for wrong in [
            "",
            "T",
            "2026-13-01T00:00:00Z",
            "1969-01-01T00:00:00Z",
            "2026-11-24T1:2Z",
            "2026-11-24T11:50:58+9",
        ] {
            assert_eq!(moment(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn times_round_trip(s in 0u64..200_000_000_000) {
            prop_assert_eq!(moment(&written(s)), Some(s));
        }

        #[test]
        fn any_answer_is_survived(text in any::<String>(), a in "[0-9TZ:.+-]{0,30}", n in any::<i128>()) {
            let _ = moment(&text);
            let _ = moment(&a);
            let body = format!(
                "<r><sampleInfo><timestamp>{a}</timestamp><interval>{n}</interval></sampleInfo><value><id><counterId>{n}</counterId>\
                 <instance>{n}</instance></id><value>{n}</value></value></r>"
            );
            let asked: Metrics = [(Instance::Group, Counter::Ready)].into();
            let _ = reply(&body).read(|r| read_entity(r, &numbers(), &asked, (0, u64::MAX), &mut Series::new()));
        }
    }
}
