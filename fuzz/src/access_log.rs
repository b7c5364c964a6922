//! Any text is a format of access logs and lines of one, or is refused. No request ends before it begins.

use vsteer_record::access_log::{Format, checked_format};

const NAMED: [&str; 4] = ["apache", "apache-combined", "nginx", "json"];

pub fn run(bytes: &[u8]) -> bool {
    // The first line is a format, the others are of it.
    let mut lines = bytes.split(|b| *b == b'\n');
    let own = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let lines: Vec<&[u8]> = lines.collect();
    let mut any = false;
    for format in NAMED.into_iter().chain([own.as_ref()]) {
        if let Ok(found) = checked_format("log", format, 2, &lines) {
            assert!(found.iter().all(|r| r.began_ns() <= r.ended_ns));
            any |= !found.is_empty();
        }
    }
    any | Format::parse(&own).map(|f| f.resolution_ns()).is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        "apache\n127.0.0.1 - - [24/Nov/2026:08:00:00 +0000] \"GET / HTTP/1.1\" 200 5 1500\n",
        "apache-combined\n127.0.0.1 - f [10/Oct/2000:13:55:36 -0700] \"GET /\\\"q\\\" HTTP/1.0\" 200 2 \"http://a/\" \"M (W; N)\" 9\n",
        "nginx\n192.168.33.1 - - [15/Oct/2019:19:41:46 +0000] \"GET / HTTP/1.1\" 200 396 \"-\" \"HTTPie/0.9.8\" 0.017\r\n",
        "%t %D\n[24/Nov/2026:08:00:00 +0000] 1500\n[24/Nov/2026:08:00:01 +0000] 900\n",
        "%{usec}t %{us}T %>s\n1571168506000123 1500 200\n1571168507000123 1500 200\n",
        "%{end:msec}t %{ms}T\n1571168506000 20\n",
        "%{begin:sec}t %{msec_frac}t %T \"%{User-agent}i\" %{x}C\n1571168506 123 2 \"a \\\" b\" c\n",
        "\\\"%r\\\" 100%% %t\\t%D\n\"GET /\" 100% [10/Oct/2000:13:55:36 -0700]\t7\n",
        "$msec $request_time\n1700000000.123 0.050\n1700000001.123 0.051\n",
        "$time_iso8601 ${request_time}s $status\n2019-10-15T19:41:46+02:00 0.017s 200\n",
        "$remote_addr [$time_local] \"$request\" $request_time\n::1 [15/Oct/2019:19:41:46 +0000] \"GET /\" 0.017\n",
        "json\n{\"time\":\"2026-11-24T08:00:00Z\",\"request_time\":0.05}\n{\"ts\": 1571168506.5, \"duration_ms\": 17}\n",
        "json\n{\"timestamp\": 1571168506500, \"duration_us\": \"17000\", \"x\": [1, {\"y\": null}, true, \"\\u00e9\\n\"]}\n",
        "json\n{\"start\": 1571168506483000, \"duration_s\": 1.7e-2, \"path\": \"/\"}\n{\"ts\": 1.5711685065e9, \"duration\": 5E-7}\n",
        "json\n{\"@timestamp\": \"2019-10-15T19:41:46.123456789+02:00\", \"response_ms\": 0, \"n\": -1.5e+300}\nnot json\n\n[1]\n",
    ])
}
