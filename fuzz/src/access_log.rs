//! Any text is a format of access logs and lines of one, or is refused. No request ends before it begins.

use vsteer_record::access_log::{Format, Line, Reader, Said, names};

pub fn run(bytes: &[u8]) -> bool {
    // The first line is a format, the others are of it.
    let mut lines = bytes.split(|b| *b == b'\n');
    let own = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let lines: Vec<&[u8]> = lines.collect();
    let own = Format::parse(&own).ok();
    let named = names().into_iter().filter_map(|name| Format::parse(name).ok());
    let mut any = own.is_some();
    for format in named.map(Some).chain([None, own]) {
        let said = Said { format, ..Said::default() };
        let Ok(mut reader) = Reader::of_lines("log", &said, &lines) else { continue };
        for line in &lines {
            if let Line::Request(request) = reader.line(line) {
                assert!(request.began_ns.checked_add(request.took_ns).is_some());
                any = true;
            }
        }
    }
    any
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
        "json:time=a.start,duration=a.d:us\n{\"a\":{\"start\":\"2026-11-24 08:00:00,5+09\",\"d\":\"1m2.5s\"}}\n",
        "iis\n#Software: Microsoft Internet Information Services 10.0\n#Fields: date time cs-method time-taken\n2026-11-24 08:00:00 GET 17\n",
        "haproxy\nNov 24 08:00:00 lb haproxy[7]: ::1:5 [24/Nov/2026:08:00:00.123] fe be/s1 0/0/1/52/53 200 11 - - ---- 2/1/0/0/0 0/0 \"GET / HTTP/1.1\"\n",
        "envoy\n2026-11-24T08:00:00Z stdout F [2026-11-24T08:00:00.5Z] \"GET /x HTTP/2\" 200 - 0 12 53 52 \"-\"\n",
        "alb\nhttp 2026-11-24T08:00:00.5Z app/x/1 ::1:4 10.0.0.2:80 0.001 0.053 -1 200 200 1 2 \"GET / HTTP/1.1\" \"curl\"\n",
        "log_format m '$msec ' escape=json \"$request_time\";\n{\"log\":\"1700000000.123 0.050\\n\",\"stream\":\"stdout\"}\n",
        "[%START_TIME%] %REQ(A?%B):3% %DURATION%\n[2026-11-24T08:00:00Z] x 17\n",
        "json\n{\"@timestamp\": \"2019-10-15T19:41:46.123456789+02:00\", \"response_ms\": 0, \"n\": -1.5e+300}\nnot json\n\n[1]\n",
    ])
}
