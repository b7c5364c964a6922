use super::*;

/// An answer of prometheus@2.42 to [`query`], for one series and three scrapes.
const CLASSIC: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"__name__":"http_seconds_bucket","instance":"127.0.0.1:19801","job":"web","le":"+Inf","method":"GET"},"values":[[1795970223.937,"28951"],[1795970225.934,"29019"],[1795970227.930,"29107"]]},
{"metric":{"__name__":"http_seconds_bucket","instance":"127.0.0.1:19801","job":"web","le":"0.01","method":"GET"},"values":[[1795970223.937,"15207"],[1795970225.934,"15237"],[1795970227.930,"15283"]]},
{"metric":{"__name__":"http_seconds_bucket","instance":"127.0.0.1:19801","job":"web","le":"0.025","method":"GET"},"values":[[1795970223.937,"26817"],[1795970225.934,"26880"],[1795970227.930,"26964"]]},
{"metric":{"__name__":"http_seconds_count","instance":"127.0.0.1:19801","job":"web","method":"GET"},"values":[[1795970223.937,"28951"],[1795970225.934,"29019"],[1795970227.930,"29107"]]},
{"metric":{"__name__":"http_seconds_sum","instance":"127.0.0.1:19801","job":"web","method":"GET"},"values":[[1795970223.937,"349.74642657386"],[1795970225.934,"350.6133394699028"],[1795970227.930,"351.6657617805303"]]}]}}"#;

/// Another one, whose histogram is native. Its values up to 0.001 are in the zero bucket.
const NATIVE: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[
{"metric":{"__name__":"native_seconds","instance":"127.0.0.1:19801","job":"web"},"histograms":[
[1795970223.937,{"count":"6","sum":"0.05","buckets":[[3,"-0.001","0.001","1"],[0,"0.00390625","0.0078125","2"],[0,"0.0078125","0.015625","3"]]}],
[1795970225.934,{"count":"10","sum":"0.2","buckets":[[3,"-0.001","0.001","2"],[0,"0.00390625","0.0078125","3"],[0,"0.0078125","0.015625","4"],[0,"0.0625","0.125","1"]]}]]}]}}"#;

const ALWAYS: (i64, i64) = (0, i64::MAX);

fn of(name: &str) -> Histogram {
    name.parse().unwrap()
}

/// Targets, times (ms) and scrapes of consecutive answers.
fn all(name: &str, answers: &[(&str, (i64, i64))]) -> Vec<(String, u64, Result<Scrape, Fault>)> {
    let of = of(name);
    let (mut samples, mut all) = (Samples::new(&of, None), Vec::new());
    for (answer, times) in answers {
        let mut each = |s: Stored| all.push((s.target.to_string(), s.unix_ns / MS_NS, s.scrape));
        samples.take(answer.as_bytes(), *times, &mut each).unwrap();
    }
    all
}

fn between(before: &Result<Scrape, Fault>, after: &Result<Scrape, Fault>) -> super::super::Between {
    after.as_ref().unwrap().since(before.as_ref().unwrap()).unwrap()
}

/// An answer with the series `m_bucket{le="+Inf"}` and `m_sum` of these labels: times (s) and counts. Each request took 1 s.
fn answer(series: &[(&str, &[(f64, u32)])]) -> String {
    let mut all = Vec::new();
    for (labels, values) in series {
        let values: Vec<String> = values.iter().map(|(s, n)| format!("[{s},\"{n}\"]")).collect();
        for name in [r#""__name__":"m_bucket","le":"+Inf""#, r#""__name__":"m_sum""#] {
            all.push(format!("{{\"metric\":{{{name}{labels}}},\"values\":[{}]}}", values.join(",")));
        }
    }
    let all = all.join(",");
    format!("{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{all}]}}}}")
}

#[test]
fn samples_of_one_time_are_a_scrape() {
    let all = all("http_seconds", &[(CLASSIC, ALWAYS)]);
    let times: Vec<u64> = all.iter().map(|(_, ms, _)| *ms).collect();
    assert_eq!(times, [1_795_970_223_937, 1_795_970_225_934, 1_795_970_227_930]);
    assert_eq!(all[0].0, "127.0.0.1:19801 (web)");
    let one = between(&all[0].2, &all[1].2);
    assert_eq!(one.counted.buckets, [(0.01, 30.0), (0.025, 63.0), (f64::INFINITY, 68.0)]);
    assert!((one.counted.sum_s - 0.866_912_896).abs() < 1e-6, "{one:?}");
    assert_eq!((one.series, one.resets, one.left_out), (1, 0, 0));
}

#[test]
fn native_buckets_have_their_bounds() {
    let all = all("native_seconds", &[(NATIVE, ALWAYS)]);
    let one = between(&all[0].2, &all[1].2).counted;
    let inf = f64::INFINITY;
    let right = [
        (0.001, 1.0),
        (0.00390625, 1.0),
        (0.0078125, 2.0),
        (0.015625, 3.0),
        (0.0625, 3.0),
        (0.125, 4.0),
        (inf, 4.0),
    ];
    assert_eq!(one.buckets, right);
    let said = |from: &str, to: &str| {
        let changed = NATIVE.replace(from, to);
        super::tests::all("native_seconds", &[(&changed, ALWAYS)]).remove(0).2.unwrap_err().to_string()
    };
    assert!(said("\"-0.001\",\"0.001\"", "\"-0.5\",\"-0.1\"").contains("so they are not times"));
    assert!(
        said("[0,\"0.0078125\",\"0.015625\",\"3\"]", "[0,\"a\",\"1\",\"3\"]")
            .contains("\"a\" is not a number")
    );
}

/// However a time is cut into pieces, the scrapes are the same, and none is there twice.
#[test]
fn pieces_are_one_sequence() {
    let whole = all("http_seconds", &[(CLASSIC, ALWAYS)]);
    let middle = 1_795_970_225_934;
    let pieces = all("http_seconds", &[(CLASSIC, (0, middle)), (CLASSIC, (middle, i64::MAX))]);
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
}

#[test]
fn a_series_counts_from_0_only_if_its_target_was_scraped_without_it() {
    let target = r#","instance":"a:1","method":"GET""#;
    let later = r#","instance":"a:1","method":"PUT""#;
    let other = r#","instance":"b:1""#;
    let answer = answer(&[
        (target, &[(1.0, 5), (2.0, 7), (3.0, 9), (4.0, 9)]),
        // Not in the scrape at 3 s.
        (later, &[(2.0, 4), (4.0, 6)]),
        (other, &[(1.5, 100), (2.5, 130)]),
    ]);
    let all = all("m", &[(&answer, ALWAYS)]);
    let (a, b) = all.split_at(4);
    assert!(a.iter().all(|(target, ..)| target == "a:1") && b.iter().all(|(target, ..)| target == "b:1"));
    let grown = |of: &[(String, u64, Result<Scrape, Fault>)]| -> Vec<f64> {
        of.windows(2).map(|two| between(&two[0].2, &two[1].2).counted.count()).collect()
    };
    assert_eq!((grown(a), grown(b)), (vec![6.0, 2.0, 2.0], vec![30.0]));
    // Cut where the series is missing.
    let pieces = super::tests::all("m", &[(&answer, (0, 3000)), (&answer, (3000, 9000))]);
    let a: Vec<_> = pieces.into_iter().filter(|(target, ..)| target == "a:1").collect();
    assert_eq!(grown(&a), [6.0, 2.0, 2.0]);
}

#[test]
fn a_target_may_have_been_scraped_before_it_had_the_histogram() {
    let target = Target { job: "we\"b".into(), instance: "a:1".into() };
    assert_eq!(target.query(7).unwrap(), r#"up{job="we\"b",instance="a:1"}[7ms]"#);
    assert_eq!(Target::default().query(7), None);
    let up = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up"},"values":[[1,"1"],[2.5,"0"],[3.25,"1"]]}]}}"#;
    assert_eq!(times(up.as_bytes()).unwrap(), [1000, 3250]);
    let m = of("m");
    let samples = Samples::new(&m, None);
    assert_eq!(samples.targets().count(), 0);
    let before = samples.without(&target, 3250);
    assert_eq!((before.unix_ns, before.target), (3_250_000_000, target));
    let all = all("m", &[(&answer(&[("", &[(4.0, 6)])]), ALWAYS)]);
    assert_eq!(between(&before.scrape, &all[0].2).counted.count(), 6.0);
}

#[test]
fn a_reset_is_noticed() {
    let answer = answer(&[("", &[(1.0, 50), (2.0, 60), (3.0, 4)])]);
    let all = all("m", &[(&answer, ALWAYS)]);
    assert_eq!(all[0].0, "");
    let one = between(&all[1].2, &all[2].2);
    assert_eq!((one.counted.count(), one.resets), (4.0, 1));
}

#[test]
fn what_is_not_an_answer_is_refused() {
    let m = of("m");
    let take = |text: &str| {
        Samples::new(&m, None).take(text.as_bytes(), ALWAYS, &mut |_| ()).unwrap_err().to_string()
    };
    assert!(take("<html>").contains("is not JSON of Prometheus' HTTP API"));
    let vector = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    assert!(take(vector).contains("it is a vector"));
    let error = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
    assert!(take(error).contains("parse error"));
    assert_eq!(
        refusal(error.as_bytes()),
        Some(Refusal { kind: "bad_data".into(), why: "parse error".into() })
    );
    assert_eq!((refusal(vector.as_bytes()), refusal(b"404 page not found")), (None, None));
    let odd = answer(&[("", &[(1.0, 5)])]).replace("\"5\"", "\"NaN\"");
    assert!(all("m", &[(&odd, ALWAYS)])[0].2.as_ref().unwrap_err().to_string().contains("its counts is NaN"));
    let warned =
        vector.replace("vector", "matrix").replace("\"data\"", "\"warnings\":[\"a store is down\"],\"data\"");
    let told = Samples::new(&m, None).take(warned.as_bytes(), ALWAYS, &mut |_| ()).unwrap();
    assert_eq!(told, ["a store is down"]);
}

#[test]
fn a_query_names_all_series_of_both_forms() {
    assert_eq!(
        query(&of("http_seconds{job=\"we\\\"b\",x=\"a\\\\b\"}"), 5000),
        r#"{__name__=~"http_seconds|http_seconds_bucket|http_seconds_sum|http_seconds_count|http_seconds_created|http_seconds_gcount",job="we\"b",x="a\\b"}[5000ms]"#
    );
    let dotted = selector(&of("{\"my.m\",\"a.b\"=\"c\"}"));
    assert!(
        dotted.starts_with(r#"{__name__=~"my\\.m|my\\.m_bucket|"#) && dotted.ends_with(r#""a.b"="c"}"#),
        "{dotted}"
    );
}

#[test]
fn what_a_server_lacks_is_told() {
    let names = r#"{"status":"success","data":["http_seconds_bucket","http_seconds_count","up"]}"#;
    let series = |all: &str| format!("{{\"status\":\"success\",\"data\":[{all}]}}");
    let said = |name: &str, all: &str| {
        lacks(&of(name), series(all).as_bytes(), names.as_bytes()).unwrap().to_string()
    };
    let bucket = r#"{"__name__":"m_bucket","job":"web","le":"1"}"#;
    assert!(said("m", bucket).contains("it has samples of other times"));
    assert!(said("m{job=\"x\"}", bucket).contains("choose among {job=\"web\"}"));
    assert!(said("m", r#"{"__name__":"m","job":"web"}"#).contains("it has samples of other times"));
    assert!(said("m", r#"{"__name__":"m","job":"web","quantile":"0.5"}"#).contains("is a summary"));
    assert!(said("m", r#"{"__name__":"m_count","job":"web"}"#).contains("but no buckets"));
    let none = said("http_second", "");
    assert!(
        none.contains("the server has no such histogram") && none.contains("choose among http_seconds"),
        "{none}"
    );
}
