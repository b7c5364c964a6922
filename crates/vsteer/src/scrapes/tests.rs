use super::folder::named_ns;
use super::*;
use std::path::Path;

const BEGIN: u64 = 1_700_000_000;
const BOUNDS_S: [f64; 4] = [0.01, 0.02, 0.05, f64::INFINITY];

fn log(folder: &Path) -> Log {
    Log { vm: "web".into(), file: folder.to_owned() }
}

fn named(text: &str) -> Named {
    text.parse().unwrap()
}

/// A scrape of all that ended before a moment, s after [`BEGIN`].
fn scrape(requests: &[Answered], at_s: u64) -> String {
    let before: Vec<f64> = requests
        .iter()
        .filter(|r| r.began_ns + r.took_ns < ns(at_s))
        .map(|r| r.took_ns as f64 / 1e9)
        .collect();
    let bucket = |le: &f64| {
        let name = if le.is_infinite() { "+Inf".to_owned() } else { le.to_string() };
        format!("m_bucket{{le=\"{name}\"}} {}\n", before.iter().filter(|t| *t <= le).count())
    };
    let buckets: String = BOUNDS_S.iter().map(bucket).collect();
    format!("{buckets}m_sum {}\nm_count {}\n", before.iter().sum::<f64>(), before.len())
}

fn ns(s: u64) -> u64 {
    1_000_000_000 * (BEGIN + s)
}

/// Ten a second, of 3 to 42 ms, for two minutes.
fn requests() -> Vec<Answered> {
    let of = |k: u64| Answered { began_ns: ns(0) + 100_000_000 * k, took_ns: 3_000_000 * (1 + k * 7 % 14) };
    (0..1200).map(of).collect()
}

/// Scrapes at these moments, each in a file of this name.
fn saved(at_s: &[u64], name: impl Fn(u64) -> String) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for s in at_s {
        std::fs::write(folder.path().join(name(BEGIN + s)), scrape(&requests(), *s)).unwrap();
    }
    folder
}

fn read(folder: &tempfile::TempDir) -> Result<Saved, Fault> {
    read_of(folder, "m").0
}

/// Also what was noted.
fn read_of(folder: &tempfile::TempDir, histogram: &str) -> (Result<Saved, Fault>, Vec<String>) {
    let mut notes = Vec::new();
    let of = histogram.parse().unwrap();
    let read =
        Saved::read(&log(folder.path()), &of, Some(Unit::Seconds), &mut |note| notes.push(note.to_owned()));
    (read, notes)
}

const VM: Vm = Vm { cpu_ns: 3_000_000_000, weight: 1.0, vcpus: 1 };

#[test]
fn an_interval_is_what_lies_between_its_ends() {
    let folder = saved(&[0, 15, 30, 45, 62, 75, 90], |s| format!("{s}.prom"));
    std::fs::write(folder.path().join(".hidden"), "<html>").unwrap();
    let all = read(&folder).unwrap();
    // Of 0 to 60 s the scrapes at 0 and 62 are the nearest: 620 requests less the one that was under way.
    let of = all.interval((ns(0), ns(60)), VM).unwrap().unwrap();
    let by_log = interval(&requests(), (ns(0), ns(62)), VM).unwrap().seen;
    assert!((of.seen.rate_hz / by_log.rate_hz - 1.0).abs() < 0.003, "{} {}", of.seen.rate_hz, by_log.rate_hz);
    assert!(
        (of.seen.response.mean_s / by_log.response.mean_s - 1.0).abs() < 0.003,
        "{:?} {by_log:?}",
        of.seen
    );
    let lots = of.lots.unwrap();
    assert_eq!(lots.bucket_at(of.seen.response.p95_s), lots.bucket_at(by_log.response.p95_s));
    assert!((165..=175).contains(&lots.most), "{}", lots.most);
    // The CPU time of 60 s, taken to 62.
    assert!((of.seen.service_s * of.seen.rate_hz - 0.05).abs() < 1e-6);
    // What is between two scrapes stays there.
    let one = all.interval((ns(30), ns(45)), VM).unwrap().unwrap();
    assert_eq!(one.seen.rate_hz, 10.0);
}

#[test]
fn times_are_the_files_own_where_names_tell_none() {
    let folder = saved(&[0, 60], |s| format!("scrape-{s}"));
    for (s, entry) in [0, 60].iter().zip(["0", "60"]) {
        let name = format!("scrape-{}", BEGIN + entry.parse::<u64>().unwrap());
        let file = std::fs::File::options().write(true).open(folder.path().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(BEGIN + s)).unwrap();
    }
    let of = read(&folder).unwrap().interval((ns(0), ns(60)), VM).unwrap().unwrap();
    assert!((of.seen.rate_hz - 10.0).abs() < 0.02);
    assert_eq!(named_ns(Path::new("/x/1700000000.5.prom")), Some(1_700_000_000_500_000_000));
    for odd in ["web.prom", "nan.prom", "-3.prom", "inf", "0", "20260101.prom", "20260101120000.prom"] {
        assert_eq!(named_ns(Path::new(odd)), None, "{odd}");
    }
}

#[test]
fn what_is_not_there_is_told() {
    let said = |r: Result<Saved, Fault>| r.unwrap_err().to_string();
    assert!(said(read(&saved(&[0], |s| format!("{s}.prom")))).contains("VM \"web\""));
    let folder = saved(&[0, 30, 90], |s| format!("{s}.prom"));
    let all = read(&folder).unwrap();
    let far = all.interval((ns(0), ns(60)), VM).unwrap_err();
    assert_eq!(far.kind, FaultKind::NothingThere);
    let far = far.to_string();
    assert!(far.contains("near time 1700000060") && far.contains("30.0 s away, the limit is 6.0 s"), "{far}");
    assert!(said(read_of(&folder, "n").0).contains("choose among m"));
    // Nobody asked.
    let folder = saved(&[200, 260], |s| format!("{s}.prom"));
    assert_eq!(read(&folder).unwrap().interval((ns(200), ns(260)), VM).unwrap(), None);
}

/// A pair of scrapes that is whole, with other files beside it.
#[test]
fn scrapes_that_cannot_be_read_are_noted_and_passed_over() {
    let folder = saved(&[0, 15, 60], |s| format!("{s}.prom"));
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let at = |s: u64| format!("{}.prom", BEGIN + s);
    let whole = scrape(&requests(), 30);
    write(&at(20), b"");
    write(&at(25), &whole.as_bytes()[..40]);
    write(&at(30), whole.trim_end().as_bytes());
    write(&at(35), b"<html>\n");
    write(&at(40), b"up 1\n");
    let (all, notes) = read_of(&folder, "m");
    let of = all.unwrap().interval((ns(0), ns(60)), VM).unwrap().unwrap();
    assert!((of.seen.rate_hz - 10.0).abs() < 0.02, "{}", of.seen.rate_hz);
    for (said, name, why) in [
        (&notes[0], at(20), "the file is empty"),
        (&notes[1], at(25), "so the scrape was cut"),
        (&notes[2], at(30), "it does not end with a line feed, so it was cut"),
        (&notes[3], at(35), "is not a sample"),
        (&notes[4], at(40), "it does not hold the histogram m"),
    ] {
        assert!(said.contains(&name) && said.contains(why) && said.contains("passed over"), "{said}");
    }
    write("README.md", b"# Scrapes\n");
    let (all, notes) = read_of(&folder, "m");
    assert!(all.is_ok() && notes.len() == 6 && notes[5].contains("passed over 1 more scrape"), "{notes:?}");
    // The first scrape was cut at the end of a line, which the second one shows.
    let folder = saved(&[30, 60], |s| format!("{s}.prom"));
    std::fs::write(folder.path().join(at(0)), scrape(&requests(), 0).trim_end()).unwrap();
    let (all, notes) = read_of(&folder, "m");
    assert!(all.unwrap().targets[0].all.len() == 2 && notes[0].contains("it was cut"), "{notes:?}");
    // Fewer than two are left.
    std::fs::write(folder.path().join(at(30)), "").unwrap();
    let said = read(&folder).unwrap_err().to_string();
    assert!(said.contains("holds 1 readable scrape: ") && said.contains("the file is empty"), "{said}");
}

#[test]
fn what_is_assumed_is_told() {
    let folder = saved(&[0, 30], |s| format!("{s}.prom"));
    let mut notes = Vec::new();
    let of = "m".parse().unwrap();
    Saved::read(&log(folder.path()), &of, None, &mut |note| notes.push(note.to_owned())).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("times of the histogram m are seconds"), "{notes:?}");
    // Another version of the server has one bound more and one less. A page of others has odd lines.
    let next = format!("<pre>\n{}", scrape(&requests(), 60).replace("0.02", "0.03"));
    std::fs::write(folder.path().join(format!("{}.prom", BEGIN + 60)), next).unwrap();
    let (all, notes) = read_of(&folder, "m");
    assert!(
        notes[0].contains("passed over 1 line of other metrics (line 1: ") && notes.len() == 2,
        "{notes:?}"
    );
    assert!(notes[1].contains("leaves out up to 1 bound"), "{notes:?}");
    let of = all.unwrap().interval((ns(30), ns(60)), VM).unwrap().unwrap();
    // No request took between 10 and 30 ms, so the count at 20 ms is known in both.
    assert_eq!((of.seen.rate_hz, of.lots.unwrap().bounds_s), (10.0, BOUNDS_S.to_vec()));
}

#[test]
fn a_server_that_began_anew_counts_from_then() {
    let folder = saved(&[0, 30], |s| format!("{s}.prom"));
    std::fs::write(folder.path().join(format!("{}.prom", BEGIN + 60)), scrape(&requests(), 10)).unwrap();
    let of = read(&folder).unwrap().interval((ns(0), ns(60)), VM).unwrap().unwrap();
    // 30 s, and the first 10 s over again.
    assert!((of.seen.rate_hz - 40.0 / 6.0).abs() < 0.05, "{}", of.seen.rate_hz);
}

/// Two processes of a VM are scraped at times of their own, and a third one begins later.
#[test]
fn targets_are_added_up() {
    let of = |at_s: &[u64]| read(&saved(at_s, |s| format!("{s}.prom"))).unwrap();
    let mut all = of(&[0, 15, 30, 45, 60, 75]);
    all.targets.extend(of(&[3, 18, 33, 48, 63]).targets);
    // Between the scrapes at 3 s and at 60 s.
    let two = all.interval((ns(0), ns(60)), VM).unwrap().unwrap();
    assert!((two.seen.rate_hz - 20.0).abs() < 0.2, "{}", two.seen.rate_hz);
    assert!((two.seen.service_s * two.seen.rate_hz - 0.05).abs() < 1e-6);
    let lots = two.lots.unwrap();
    assert!((295..=305).contains(&lots.most) && lots.bounds_s == BOUNDS_S, "{lots:?}");
    // Times between arrivals are those of all.
    assert!((two.seen.gap_cv2 - 1.0).abs() < 0.2, "{}", two.seen.gap_cv2);
    all.targets.extend(of(&[31, 46, 61]).targets);
    let three = all.interval((ns(0), ns(60)), VM).unwrap().unwrap();
    assert!((three.seen.rate_hz - 20.0 - 10.0 * 29.0 / 57.0).abs() < 0.3, "{}", three.seen.rate_hz);
    // One process ends and the next one begins.
    let mut all = of(&[0, 15, 30]);
    all.targets.extend(of(&[32, 45, 60]).targets);
    let both = all.interval((ns(0), ns(60)), VM).unwrap().unwrap();
    assert!((both.seen.rate_hz - 10.0 * 58.0 / 60.0).abs() < 0.2, "{}", both.seen.rate_hz);
    let far = all.interval((ns(0), ns(110)), VM).unwrap_err().to_string();
    assert!(far.contains("near time 1700000110"), "{far}");
}

#[test]
fn histograms_are_somebodys() {
    let all = [named("m"), named("web=http_seconds{job=\"a=b\"}")];
    assert_eq!((all[0].vm.as_deref(), all[1].vm.as_deref()), (None, Some("web")));
    assert_eq!(named("m{job=\"web\"}").vm, None);
    assert!("web=m n".parse::<Named>().unwrap_err().contains("write NAME"));
    assert_eq!(of_vm(&all, "web").unwrap().to_string(), "http_seconds{job=\"a=b\"}");
    assert_eq!(of_vm(&all, "db").unwrap().to_string(), "m");
    let none = of_vm(&all[1..], "db").unwrap_err();
    assert!(none.kind == FaultKind::Usage && none.to_string().contains("VM \"db\""), "{none}");
    let folder = tempfile::tempdir().unwrap();
    let logs = [log(folder.path()), Log { vm: "db".into(), file: "/nowhere/db.log".into() }];
    assert!(all_used(&all, &logs).is_ok() && all_used(&[], &logs).is_ok());
    let odd = all_used(&[named("db=m")], &logs).unwrap_err().to_string();
    assert!(
        odd.contains("--histogram db=m: no VM has scrapes with this histogram")
            && odd.contains("VMs with scrapes: web"),
        "{odd}"
    );
    assert!(all_used(&all[..1], &logs[1..]).unwrap_err().to_string().contains("VM=FOLDER"));
}
