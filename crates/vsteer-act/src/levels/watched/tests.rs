use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::UNIX_EPOCH;

const PERIOD: Duration = Duration::from_secs(12);
const BEGIN: u64 = 1_700_000_000;

fn ns(s: u64) -> u64 {
    1_000_000_000 * (BEGIN + s)
}

/// A page after this number of requests of 20 ms each.
fn page(n: u64) -> String {
    let sum = n as f64 * 0.02;
    format!(
        "up 1\nm_seconds_bucket{{le=\"0.01\"}} 0\nm_seconds_bucket{{le=\"0.05\"}} {n}\nm_seconds_bucket{{le=\"+Inf\"}} {n}\nm_seconds_sum {sum}\nm_seconds_count {n}\n"
    )
}

/// A file as somebody writes it again and again.
struct Page {
    _keep: tempfile::TempDir,
    file: PathBuf,
}

impl Page {
    fn new(n: u64) -> Page {
        let folder = tempfile::tempdir().unwrap();
        let page = Page { file: folder.path().join("web.prom"), _keep: folder };
        page.write(n, 0);
        page
    }

    fn write(&self, n: u64, at_s: u64) {
        std::fs::write(&self.file, page(n)).unwrap();
        let file = std::fs::File::options().write(true).open(&self.file).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(BEGIN + at_s)).unwrap();
    }

    fn watched(&self) -> Watched {
        Watched::new(&metrics(self.file.to_str().unwrap())).unwrap()
    }
}

fn metrics(place: &str) -> Source {
    Source::Metrics {
        place: Place::parse(place).unwrap(),
        histogram: "m_seconds".parse().unwrap(),
        unit: None,
    }
}

fn look(watched: &mut Watched) {
    Watched::look(std::slice::from_mut(watched), true, PERIOD);
}

fn sight(watched: &mut Watched, from_s: u64, now_s: u64) -> Sight {
    watched.sight(ns(from_s), ns(now_s), PERIOD)
}

#[test]
fn what_came_between_scrapes_is_a_periods() {
    let page = Page::new(1000);
    let mut watched = page.watched();
    for (n, at_s) in [(1060, 4), (1100, 8), (1200, 12)] {
        page.write(n, at_s);
        look(&mut watched);
        // Nothing new.
        look(&mut watched);
    }
    // Between two scrapes it is only asked where that was said.
    page.write(5000, 13);
    Watched::look(std::slice::from_mut(&mut watched), false, PERIOD);
    assert_eq!(sight(&mut watched, 0, 12), Sight::Whole);
    assert_eq!(watched.behind(ns(13), PERIOD), Some(1_000_000_000));
    let (requests, lots) = watched.take((ns(0), ns(12)));
    let until = |s: u64| requests.iter().filter(|r| r.began_ns + r.took_ns <= ns(s)).count();
    assert_eq!((until(4), until(8), until(12)), (60, 100, 200));
    let mean_ns = requests.iter().map(|r| r.took_ns).sum::<u64>() as f64 / 200.0;
    assert!((mean_ns - 2e7).abs() < 10.0, "{mean_ns}");
    assert_eq!(lots, Some(Lots { most: 100, bounds_s: vec![0.01, 0.05, f64::INFINITY] }));
    assert_eq!((watched.notes(), watched.waiting().len()), (Vec::new(), 0));
    // A period that is short, since the one before took long.
    assert_eq!(sight(&mut watched, 10, 13), Sight::Whole);
    assert!(matches!(sight(&mut watched, 12, 24), Sight::Later(_)));
    // The next period begins between two scrapes: each request belongs to one period.
    page.write(1320, 24);
    look(&mut watched);
    let (requests, lots) = watched.take((ns(12), ns(18)));
    let (rest, _) = watched.take((ns(18), ns(24)));
    assert!((30..=90).contains(&requests.len()), "{}", requests.len());
    assert_eq!((requests.len() + rest.len(), lots.map(|l| l.most)), (120, Some(120)));
}

#[test]
fn a_server_that_began_anew_is_noted() {
    let page = Page::new(1000);
    let mut watched = page.watched();
    page.write(30, 12);
    look(&mut watched);
    assert_eq!(sight(&mut watched, 0, 12), Sight::Whole);
    assert_eq!(watched.take((ns(0), ns(12))).0.len(), 30);
    let notes = watched.notes();
    assert!(notes.len() == 1 && notes[0].contains("counters restarted"), "{notes:?}");
    assert_eq!(watched.notes(), Vec::<String>::new());
    // What came before the first period belongs to none.
    page.write(60, 18);
    look(&mut watched);
    watched.forget();
    assert_eq!(watched.take((ns(12), ns(24))), (Vec::new(), None));
}

#[test]
fn who_tells_nothing_is_waited_for_and_then_left() {
    let page = Page::new(0);
    let mut watched = page.watched();
    page.write(120, 12);
    look(&mut watched);
    assert_eq!((sight(&mut watched, 0, 12), watched.take((ns(0), ns(12))).0.len()), (Sight::Whole, 120));
    // A file that is not written any more: nothing is lost yet.
    look(&mut watched);
    let Sight::Later(why) = sight(&mut watched, 12, 24) else { panic!() };
    assert!(why.to_string().contains("12 s old") && why.to_string().contains("write it more often"), "{why}");
    page.write(360, 36);
    look(&mut watched);
    assert_eq!(sight(&mut watched, 12, 36), Sight::Whole);
    assert_eq!(watched.take((ns(12), ns(36))).0.len(), 240);
    // One that is not there any more, or no page.
    std::fs::write(&page.file, "<html>").unwrap();
    look(&mut watched);
    let Sight::Later(why) = sight(&mut watched, 36, 48) else { panic!() };
    assert!(why.kind == FaultKind::Failed && why.to_string().contains("is not a sample"), "{why}");
    std::fs::remove_file(&page.file).unwrap();
    look(&mut watched);
    assert!(matches!(sight(&mut watched, 36, 72), Sight::Later(_)));
    assert!(matches!(sight(&mut watched, 36, 73), Sight::Lost(_)));
    look(&mut watched);
    let Sight::Lost(why) = sight(&mut watched, 73, 84) else { panic!() };
    assert!(why.to_string().contains("web.prom"), "{why}");
    // It is back: what it counted meanwhile is nobody's, and half a period is none.
    page.write(10_000, 90);
    look(&mut watched);
    page.write(10_060, 96);
    look(&mut watched);
    assert!(matches!(sight(&mut watched, 84, 96), Sight::Lost(_)));
    page.write(10_180, 108);
    look(&mut watched);
    assert_eq!(sight(&mut watched, 96, 108), Sight::Whole);
    assert_eq!(watched.take((ns(96), ns(108))).0.len(), 120);
}

/// A file that is written once a period, at any moment of it, is enough: periods end when it was.
#[test]
fn a_file_that_is_always_old_is_behind() {
    let page = Page::new(0);
    let mut watched = page.watched();
    let mut from_s = 0;
    for k in 0..5 {
        page.write(120 * (k + 1), 12 * k + 3);
        look(&mut watched);
        let now_s = 12 * (k + 1);
        match sight(&mut watched, from_s, now_s) {
            Sight::Whole => {
                assert_eq!(watched.behind(ns(now_s), PERIOD), Some(9_000_000_000));
                let (requests, _) = watched.take((ns(from_s), ns(now_s - 9)));
                assert_eq!(requests.len(), if from_s == 0 { 240 } else { 120 });
                from_s = now_s - 9;
            }
            // Three of twelve seconds are not enough.
            other => assert!(k == 0 && matches!(other, Sight::Later(_)), "{k}: {other:?}"),
        }
    }
}

#[test]
fn servers_are_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}/metrics", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for answer in [Some(page(10)), Some(page(25)), None, Some(page(60))] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1024];
            assert!(stream.read(&mut asked).unwrap() > 0);
            let answer = match answer {
                Some(text) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()),
                None => "HTTP/1.1 503 Service Unavailable\r\n\r\n".to_owned(),
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut watched = Watched::new(&metrics(&at)).unwrap();
    look(&mut watched);
    look(&mut watched);
    let now_ns = || std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let Sight::Later(why) = watched.sight(now_ns(), now_ns(), PERIOD) else { panic!() };
    assert!(why.to_string().contains("503 Service Unavailable"), "{why}");
    // What one scrape did not tell the next one does.
    look(&mut watched);
    assert_eq!(watched.take((0, u64::MAX)).0.len(), 50);
    server.join().unwrap();
    look(&mut watched);
    let Sight::Later(why) = watched.sight(now_ns(), now_ns(), PERIOD) else { panic!() };
    assert!(why.to_string().contains("listens on this port"), "{why}");
    // At the beginning it has to be there, with the histogram.
    assert!(Watched::new(&metrics(&at)).unwrap_err().to_string().contains(&at));
    let other = Page::new(0);
    std::fs::write(&other.file, "up 1\n").unwrap();
    let said = Watched::new(&metrics(other.file.to_str().unwrap())).unwrap_err().to_string();
    assert!(
        said.contains("web.prom: cannot read the histogram m_seconds: the scrape holds no such histogram"),
        "{said}"
    );
}

#[test]
fn what_is_assumed_is_told_once() {
    let page = Page::new(1000);
    let text = std::fs::read_to_string(&page.file).unwrap().replace("m_seconds", "m");
    std::fs::write(&page.file, format!("<pre>\n{text}")).unwrap();
    let place = Place::parse(page.file.to_str().unwrap()).unwrap();
    let mut watched =
        Watched::new(&Source::Metrics { place, histogram: "m".parse().unwrap(), unit: None }).unwrap();
    let notes = watched.notes();
    assert!(
        notes.len() == 2 && notes[0].contains("passed over 1 line of other metrics (line 1"),
        "{notes:?}"
    );
    assert!(notes[1].contains("m: vsteer assumes that its times are seconds"), "{notes:?}");
    assert_eq!(watched.notes(), Vec::<String>::new());
}

#[test]
fn a_log_is_read_on_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.jsonl");
    std::fs::write(&file, "{\"ts\": 1700000000, \"duration_s\": 0.5}\n").unwrap();
    let mut watched = Watched::new(&Source::Log { file: file.clone(), said: Said::default() }).unwrap();
    let mut more = std::fs::File::options().append(true).open(&file).unwrap();
    more.write_all(
        b"{\"ts\": 1700000003, \"duration_s\": 0.5}\nodd\n{\"ts\": 1700000020, \"duration_s\": 0.5}\n",
    )
    .unwrap();
    Watched::look(std::slice::from_mut(&mut watched), false, PERIOD);
    assert_eq!((sight(&mut watched, 0, 12), watched.behind(ns(12), PERIOD)), (Sight::Whole, None));
    let of = Answered { began_ns: ns(3) - 500_000_000, took_ns: 500_000_000 };
    assert_eq!(watched.take((ns(0), ns(12))), (vec![of], None));
    assert_eq!(
        (watched.waiting().len(), watched.notes()),
        (1, vec!["some lines of its log do not match the log's format".to_owned()])
    );
}
