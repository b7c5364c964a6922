//! How fast is an access log read, beside `mawk '{s+=$NF} END {print s/NR}'` on the same file?
//!
//! `log_speed FOLDER REQUESTS [MAWK]` writes a log of Apache's combined form with %D, and the same compressed by gzip, and reads
//! both in turn with mawk and with the bare decompression. User CPU time, medians of five; one JSON line. Exit code 1 if it takes
//! more than [`MAWK_MOST`] times mawk's time, or the compressed log more than [`GZIP_MOST`] times inflating and reading.

mod common;

use common::{OF_CHILDREN, OWN, add_up, cost, median};
use std::io::{BufRead, BufWriter, Read, Write};
use std::path::Path;
use std::process::Command;
use vsteer_record::access_log::{self, Said};
use vsteer_record::packed;

const ROUNDS: usize = 5;
const MAWK_MOST: f64 = 2.5;
const GZIP_MOST: f64 = 1.3;

fn write(file: &Path, requests: u64) {
    let mut out = BufWriter::new(std::fs::File::create(file).unwrap());
    for i in 0..requests {
        let (second, took_us) = (i / 100, 4000 + i * 37 % 9000);
        writeln!(
            out,
            "10.0.{}.{} - - [01/Nov/2026:{:02}:{:02}:{:02} +0000] \"GET /shop/item/{i}?page={} HTTP/1.1\" 200 {} \
            \"https://www.example.com/shop/list\" \"Mozilla/5.0 (X11; Linux x86_64) Firefox/140\" {took_us}",
            i % 200,
            i % 250,
            second / 3600 % 24,
            second / 60 % 60,
            second % 60,
            i % 9,
            500 + i % 4000,
        )
        .unwrap();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (folder, requests) = (Path::new(&words[0]), words[1].parse::<u64>().expect("a number of requests"));
    let mawk = words.get(2).map_or("mawk", String::as_str);
    let (plain, gz) = (folder.join("access.log"), folder.join("access.log.gz"));
    write(&plain, requests);
    let packed = Command::new("gzip").args(["-1", "-k", "-f"]).arg(&plain).status().expect("gzip starts");
    assert!(packed.success());
    // One second of the log is wanted, as with a short recording.
    let times = [(1_793_491_200_000_000_000, 1_793_491_201_000_000_000)];
    let read = |file: &Path| {
        let log = access_log::read(&[file], &Said::default(), &times, false).expect("the log is read");
        assert_eq!(log.all, requests);
    };
    let inflate = |file: &Path| {
        let (mut from, mut bytes) = (packed::open(file).unwrap(), 0);
        loop {
            let n = from.fill_buf().unwrap().len();
            if n == 0 {
                break;
            }
            bytes += n;
            from.consume(n);
        }
        assert!(bytes > 0);
        let _ = from.read(&mut [0]);
    };
    let (mut own, mut theirs, mut packed, mut bare) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        own.push(cost(OWN, &mut || read(&plain)));
        theirs.push(cost(OF_CHILDREN, &mut || add_up(mawk, &[&plain])));
        packed.push(cost(OWN, &mut || read(&gz)));
        bare.push(cost(OWN, &mut || inflate(&gz)));
    }
    let megabytes = std::fs::metadata(&plain).unwrap().len() / 1_000_000;
    let (own, theirs, packed, bare) = (median(own), median(theirs), median(packed), median(bare));
    let (to_mawk, to_parts) = (own / theirs, packed / (own + bare));
    println!(
        "{{\"megabytes\": {megabytes}, \"own_s\": {own:.3}, \"mawk_s\": {theirs:.3}, \"to_mawk\": {to_mawk:.2}, \"gzip_s\": {packed:.3}, \
        \"inflate_s\": {bare:.3}, \"gzip_to_parts\": {to_parts:.2}}}"
    );
    std::process::exit(i32::from(to_mawk > MAWK_MOST || to_parts > GZIP_MOST));
}
