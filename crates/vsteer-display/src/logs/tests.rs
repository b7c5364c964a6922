//! Tests that the counters of Horizon and Citrix are reported for the runs at their time. `testlog.csv` was
//! made by hand in the documented format, because no real log was available.

use super::*;

mod corpus;

const LOG: &str = include_str!("testlog.csv");

/// A run that begins this long after the log, s.
fn row(after: Option<f64>, window_s: f64) -> Row {
    let begins = "2026-11-25T02:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second() as f64;
    let text = r#"{"codec":"h264","encoder":"x","picture":"targets","targets":1,"width":8,"height":8,"link_bit_s":null,"codec_bit_s":null,
        "window_s":1.0,"source_fps":1.0,"sent_fps":null,"received_fps":1.0,"received_fps_margin":null,"legible_fps":null,"legibility":null,
        "legibility_least":null,"samples":0,"psnr_db":null,"ssim":null,"gap_ms":null,"stalls":0,"jitter_ms":null,"fluctuation_percent":null,
        "latency_ms":null,"stages_ms":null,"bytes_per_frame":null,"mbit_s":0.0,"cpu":{"draw_ms":0.0,"server_ms":null,"encode_ms":null,
        "viewer_ms":null,"harness_percent":0.0},"broken":0,"wrong":0,"why":null,"window_offset":[0,0]}"#;
    let mut row: Row = serde_json::from_str(text).unwrap();
    row.from_unix_s = after.map(|s| begins + s);
    row.window_s = window_s;
    row
}

fn told<'a>(beside: &'a Beside, counter: &str) -> &'a Told {
    beside.counters.iter().find(|t| t.counter == counter).unwrap()
}

#[test]
fn counters_stand_beside_the_run_in_whose_time_they_were() {
    let log = of("log", LOG, &[row(Some(-60.0), 10.0), row(Some(0.5), 2.0)]).unwrap();
    assert_eq!((log.samples, log.unknown_columns, log.beside.len()), (4, 1, 1));
    assert_eq!(log.products, ["Citrix", "Horizon", "VMware Tools"]);
    let beside = &log.beside[0];
    assert_eq!((beside.row, beside.codec.as_deref()), (Some(1), Some("h264")));
    let fps = told(beside, "frames_per_s");
    assert_eq!((fps.samples, fps.mean, fps.least, fps.most), (2, 22.0, 20.0, 24.0));
    // A blank cell is not a sample.
    assert_eq!((told(beside, "round_trip_ms").samples, told(beside, "round_trip_ms").mean), (1, 14.0));
    assert_eq!(told(beside, "estimated_mbit_s").mean, 17.0);
    assert_eq!(told(beside, "latency_ms").mean, 21.0);
    assert_eq!(told(beside, "stolen_ms").most, 500.0);
    // Two totals of bytes give the bytes since the previous line; Citrix's counter is a rate.
    let sent: Vec<f64> =
        beside.counters.iter().filter(|t| t.counter == "sent_mbit_s").map(|t| t.mean).collect();
    assert_eq!(sent, [12.0, 3.0]);
    let text = table(&[log]);
    assert!(
        text.contains("untried") && text.contains("beside h264") && text.contains("1 columns unknown"),
        "{text}"
    );
}

#[test]
fn without_a_common_clock_the_whole_is_told_by_itself() {
    let zoneless = LOG.replace(" (Pacific Standard Time)(480)", "");
    for (text, rows) in [(LOG, vec![row(None, 2.0)]), (&zoneless, vec![row(Some(0.5), 2.0)]), (LOG, vec![])] {
        let log = of("log", text, &rows).unwrap();
        assert_eq!((log.beside.len(), log.beside[0].row), (1, None));
        assert_eq!(told(&log.beside[0], "frames_per_s").samples, 4);
        // A total that fell has started again.
        assert_eq!(told(&log.beside[0], "sent_mbit_s").samples, 2);
        assert!(table(&[log]).contains("the whole log"));
    }
    assert_eq!(of("log", &zoneless, &[]).unwrap().between_unix_s, None);
}

#[test]
fn a_log_without_a_known_counter_is_told_of_with_the_way_to_one() {
    let foreign = LOG
        .replace("VMware Blast", "Explosion de VMware")
        .replace("ICA", "ACI")
        .replace("VM Proc", "Proc")
        .replace(r"\Processor(", r"\Xyz(");
    let why = of("log", &foreign, &[]).unwrap_err().to_string();
    assert!(why.contains("localised") && why.contains("typeperf"), "{why}");
}
