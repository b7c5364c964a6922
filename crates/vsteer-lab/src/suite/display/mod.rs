//! Which codec keeps a moving picture legible, and how much CPU does it use? `vsteer display run`, end to end
//! on this machine, without VMs.
//!
//! Claims for any machine are ratios within one run, and facts that do not depend on the clock: what is
//! lossless, what can be read. At full size the frames per second of the original paper are measured (J.
//! Park, J. Korea Inst. Inf. Commun. Eng. 26(10), 2022, its figure of codecs and targets), with those of its
//! findings that hold for software encoders.
//!
//! The program itself starts and stops real servers: TigerVNC always; QEMU's VNC and SPICE, FreeRDP and
//! GStreamer at full size. [`contention`] (at full size, or alone): the same in a VM beside others that
//! compute, before and after a plan.
//!
//! Left out: servers that are not available here (VMware's, Citrix's).

mod contention;

use super::{Bench, Case, Findings, Minutes};
use crate::drive::Vsteer;
use serde_json::{Value, json};
use std::time::Duration;
use vsteer_core::Fault;

/// The case; see the head of this file.
pub const CASE: Case = Case {
    name: "display",
    doc: "remote display: frames that can be read, per codec; a region codec beside PNG; real servers, and what they negotiate; what the harness itself takes",
    in_test: true,
    minutes: Minutes::new(0.9, 40.0),
    beside: false,
    run,
};

/// The part with VMs, as a separate case.
pub const CONTENTION: Case = Case {
    name: "display-contention",
    doc: "remote display in a real VM: frames lost beside VMs that compute, and won back by a plan, in turn, with intervals",
    in_test: false,
    minutes: Minutes::new(3.0, 20.0),
    beside: false,
    run: |bench| {
        let mut findings = Findings::default();
        findings.figures = contention::run(bench, &mut findings)?;
        Ok(findings)
    },
};

/// Time limit of one call: all codecs for all numbers of targets.
const LIMIT: Duration = Duration::from_secs(1800);
/// For text and a table: at least this many times the frames of PNG.
const TIMES_OF_PNG: f64 = 3.0;
/// The similarity requested from all codecs, and the allowed difference of a codec that skips frames.
const SIMILAR: f64 = 0.9;
const SIMILAR_WITHIN: f64 = 0.03;
/// The harness's CPU at 60 frames per second: percent of one CPU.
const HARNESS_MOST: f64 = 3.0;

/// The claims.
///
/// # Errors
/// The program's.
fn run(bench: &Bench) -> Result<Findings, Fault> {
    let vsteer = Vsteer::beside(&bench.lab.program)?;
    let seed = bench.seed.to_string();
    let seconds = if bench.full { "10" } else { "2" };
    let rows = |words: &[&str]| -> Result<Vec<Value>, Fault> {
        let mut all = vec!["display", "run", "--seed", &seed];
        all.extend(words);
        Ok(vsteer.json(&all, LIMIT)?["rows"].as_array().cloned().unwrap_or_default())
    };
    let mut findings = Findings::default();
    let mut figures = Vec::new();
    for picture in ["text", "sheet"] {
        let found =
            rows(&["--picture", picture, "--codec", "png,tiles", "--fps", "120", "--seconds", seconds])?;
        regions(picture, &found, &mut findings);
        figures.extend(found);
    }
    // 60 frames a second on any machine, so that the bytes per frame do not depend on the machine.
    let few = [
        "--codec",
        "h264",
        "--targets",
        "1000,10000",
        "--rate",
        "20M",
        "--rate-fps",
        "60",
        "--seconds",
        seconds,
    ];
    let found = rows(&few)?;
    misled(&found, &mut findings);
    figures.extend(found);
    let small = ["--size", "720p", "--targets", "300", "--seconds", seconds];
    let found = rows(&[&["--server", "tigervnc-tight,tigervnc-zrle"], &small[..]].concat())?;
    for (name, encoding) in [("tigervnc-tight", "Tight copy"), ("tigervnc-zrle", "ZRLE")] {
        lossless_server(of(&found, name, 300), name, encoding, &mut findings);
    }
    figures.extend(found);
    if bench.full {
        let found = rows(&["--picture", "idle", "--size", "720p", "--codec", "tiles", "--seconds", seconds])?;
        let (harness, fps) =
            (number(&found[0], &["cpu", "harness_percent"]), number(&found[0], &["received_fps"]));
        findings.claim(
            format!("beside codec, drawing and copies the harness takes at most {HARNESS_MOST} % of a CPU at 60 frames per second"),
            harness <= HARNESS_MOST && fps > 55.0,
            format!("{harness:.2} % at {fps:.1} frames per second"),
        );
        figures.extend(found);
        let words =
            ["--codec", "jpeg,h264,h265,vp9", "--targets", "1000", "--size", "720p", "--seconds", seconds];
        let found = rows(&[&["--match-ssim", &SIMILAR.to_string()][..], &words].concat())?;
        matched(&found, &mut findings);
        figures.extend(found);
        figures.extend(servers(&rows, &small, &mut findings)?);
        let found = rows(&["--seconds", seconds])?;
        seeds(&found, &mut findings);
        figures.extend(found);
    }
    let contention = if bench.full { contention::run(bench, &mut findings)? } else { json!(null) };
    findings.figures = json!({ "rows": figures, "contention": contention, "seed": bench.seed });
    Ok(findings)
}

fn number(row: &Value, path: &[&str]) -> f64 {
    path.iter().fold(row, |value, key| &value[*key]).as_f64().unwrap_or(f64::NAN)
}

fn of<'a>(rows: &'a [Value], codec: &str, targets: u64) -> &'a Value {
    let is = |row: &&Value| row["codec"] == codec && row["targets"].as_u64().unwrap_or(0) == targets;
    rows.iter().find(is).unwrap_or(&Value::Null)
}

/// Did all kept frames arrive identical in every bit?
fn exact(row: &Value) -> bool {
    number(row, &["samples"]) > 0.0 && number(row, &["exact_frames"]) == number(row, &["samples"])
}

/// The region codec and PNG, with the pictures for which the region codec is made.
fn regions(picture: &str, rows: &[Value], findings: &mut Findings) {
    let (png, tiles) = (of(rows, "png", 0), of(rows, "tiles", 0));
    // Frames per second of converting, encoding and sending with one whole CPU.
    let per_cpu_s = |row: &Value| 1e3 / number(row, &["cpu", "server_ms"]);
    let bytes = |row: &Value| number(row, &["bytes_per_frame"]);
    findings.claim(
        format!("{picture}: the region codec encodes {TIMES_OF_PNG} times the frames that PNG does on a CPU, in fewer bytes, and all is there"),
        per_cpu_s(tiles) >= TIMES_OF_PNG * per_cpu_s(png)
            && bytes(tiles) < bytes(png)
            && exact(tiles)
            && number(tiles, &["legibility"]) == 1.0,
        format!(
            "{:.0} and {:.0} frames per CPU second ({:.1} times; received {:.1} and {:.1} a second), {:.0} and {:.0} kB a frame, {} of {} frames exact",
            per_cpu_s(tiles),
            per_cpu_s(png),
            per_cpu_s(tiles) / per_cpu_s(png),
            number(tiles, &["received_fps"]),
            number(png, &["received_fps"]),
            bytes(tiles) / 1e3,
            bytes(png) / 1e3,
            tiles["exact_frames"],
            tiles["samples"],
        ),
    );
}

/// Frames per second alone are misleading.
fn misled(rows: &[Value], findings: &mut Findings) {
    let (few, many) = (of(rows, "h264", 1000), of(rows, "h264", 10_000));
    let [encode, ssim, read, received, legible] =
        [&["cpu", "encode_ms"][..], &["ssim"], &["legibility"], &["received_fps"], &["legible_fps"]]
            .map(|path| (number(few, path), number(many, path)));
    findings.claim(
        "at 20 Mbit/s ten times the targets take H.264 less than twice the CPU a frame, and frames go on coming, of which none can be read any more",
        encode.1 < 2.0 * encode.0 && ssim.1 < ssim.0 - 0.3 && received.1 > 0.0 && legible.1 == 0.0 && read.1 < read.0,
        format!(
            "1,000 and 10,000 targets: {:.1} and {:.1} ms a frame, SSIM {:.2} and {:.2}, {:.1} and {:.1} frames received a second, {:.1} and {:.1} legible \
             ({:.0} and {:.0} % of the letters)",
            encode.0, encode.1, ssim.0, ssim.1, received.0, received.1, legible.0, legible.1, 100.0 * read.0, 100.0 * read.1
        ),
    );
}

/// Codecs with pictures of equal quality.
fn matched(rows: &[Value], findings: &mut Findings) {
    let each = |path: &[&str]| rows.iter().map(|row| number(row, path)).collect::<Vec<_>>();
    let (ssim, bytes) = (each(&["ssim"]), each(&["bytes_per_frame"]));
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} at {}: SSIM {:.3}, {:.1} kB and {:.1} ms a frame, {:.1} legible frames a second",
                row["codec"].as_str().unwrap_or("?"),
                row["quantizer"],
                number(row, &["ssim"]),
                number(row, &["bytes_per_frame"]) / 1e3,
                number(row, &["cpu", "encode_ms"]),
                number(row, &["legible_fps"])
            )
        })
        .collect();
    findings.claim(
        format!("asked for one similarity ({SIMILAR}), all codecs have it within {SIMILAR_WITHIN}; H.264 then sends fewer bytes a frame than JPEG"),
        rows.len() == 4 && ssim.iter().all(|ssim| (ssim - SIMILAR).abs() <= SIMILAR_WITHIN) && bytes[1] < bytes[0],
        told.join("; "),
    );
}

/// A real server with a lossless encoding: what it sent is known from the received data.
fn lossless_server(row: &Value, name: &str, encoding: &str, findings: &mut Findings) {
    let negotiated = row["negotiated"].as_str().unwrap_or_default();
    findings.claim(
        format!("{name}: the server sends the encoding that is asked for, and its frames come to the pixel"),
        negotiated.contains(encoding)
            && !negotiated.contains("JPEG")
            && row["why"].is_null()
            && number(row, &["received_fps"]) > 0.0
            && exact(row),
        format!(
            "{} frames a second of {} drawn, {} of {} exact, {:.1} ms of a CPU a frame; {negotiated}",
            row["received_fps"],
            row["source_fps"],
            row["exact_frames"],
            row["samples"],
            number(row, &["cpu", "server_ms"])
        ),
    );
}

/// Runs with these words; returns the rows.
type Rows<'a> = &'a dyn Fn(&[&str]) -> Result<Vec<Value>, Fault>;

/// The other servers, at full size.
fn servers(rows: Rows, small: &[&str], findings: &mut Findings) -> Result<Vec<Value>, Fault> {
    let mut figures = rows(&[&["--server", "freerdp,qemu-zrle,qemu-raw,tigervnc-jpeg"], small].concat())?;
    for (name, word) in [
        ("freerdp-rfx", "RemoteFX ("),
        ("freerdp-avc420", "AVC420 ("),
        ("freerdp-avc444", "AVC444"),
        ("qemu-zrle", "ZRLE 100.0 %"),
        ("qemu-raw", "Raw 100.0 %"),
        ("tigervnc-jpeg", "Tight JPEG"),
    ] {
        let row = of(&figures, name, 300);
        let negotiated = row["negotiated"].as_str().unwrap_or_default();
        findings.claim(
            format!("{name}: frames come, in what was asked for"),
            negotiated.contains(word) && row["why"].is_null() && number(row, &["received_fps"]) > 0.0,
            format!("{} frames a second; {negotiated}", row["received_fps"]),
        );
    }
    figures.extend(spice(rows, small, findings)?);
    let mut lossy = Vec::new();
    for percent in ["0", "0.5"] {
        let link =
            ["--server", "gstreamer-h264", "--rate", "20M", "--delay-ms", "10", "--loss-percent", percent];
        lossy.extend(rows(&[&link[..], small].concat())?);
    }
    let [none, some] = [0, 1].map(|i| number(&lossy[i], &["legible_fps"]));
    findings.claim(
        "RTP with H.264: one datagram lost of 200 takes more than half of the frames that can be read, for each stays broken until the next whole one",
        none > 0.0 && some < 0.5 * none,
        format!("{none:.1} and {some:.1} legible frames a second; {}", lossy[1]["negotiated"]),
    );
    figures.extend(lossy);
    Ok(figures)
}

/// QEMU's SPICE. It may read its guest's screen while it is being drawn. Then a frame contains parts of two
/// frames, so not every frame of a lossless encoding is exact.
fn spice(rows: Rows, small: &[&str], findings: &mut Findings) -> Result<Vec<Value>, Fault> {
    let names = "spice-raw,spice-lz,spice-glz,spice-glz-zlib";
    let mut figures = rows(&[&["--server", names], small].concat())?;
    let video = ["--server", "spice-streams", "--picture", "video", "--size", "720p", "--seconds", "5"];
    figures.extend(rows(&video)?);
    for (name, targets, word) in [
        ("spice-raw", 300, "raw "),
        ("spice-lz", 300, "LZ "),
        ("spice-glz", 300, "GLZ "),
        ("spice-glz-zlib", 300, "GLZ and zlib "),
        ("spice-streams", 0, "stream of JPEG "),
    ] {
        let row = of(&figures, name, targets);
        let negotiated = row["negotiated"].as_str().unwrap_or_default();
        let why = row["why"].as_str().unwrap_or_default();
        // A picture without letters has no legibility, but its number can be read.
        let read = row["legibility"].is_null() || number(row, &["legibility"]) > 0.5;
        findings.claim(
            format!("{name}: frames come, in what was asked for, and can be read"),
            negotiated.contains(word)
                && !why.contains("what was asked for")
                && number(row, &["received_fps"]) > 0.0
                && read,
            format!(
                "{} frames a second, legibility {}; {negotiated}",
                row["received_fps"], row["legibility"]
            ),
        );
    }
    Ok(figures)
}

/// The findings of the paper, with software encoders.
fn seeds(rows: &[Value], findings: &mut Findings) {
    let fps = |codec: &str, targets: u64| number(of(rows, codec, targets), &["received_fps"]);
    for targets in [3000, 5000, 10_000] {
        let [h264, jpeg, png, h265] = ["h264", "jpeg", "png", "h265"].map(|codec| fps(codec, targets));
        findings.claim(
            format!("{targets} targets: H.264 sends more frames than codecs of single images, as the paper has it; H.265 fewer than H.264, which its hardware hid"),
            h264 > jpeg && h264 > png && h265 < h264,
            format!("H.264 {h264:.1}, JPEG {jpeg:.1}, PNG {png:.1}, H.265 {h265:.1} frames a second"),
        );
    }
}
