//! How does vsteer speak to libvirt without linking it? Through this executable, which alone links libvirt.so (LGPL):
//! one JSON request per line on standard input, one JSON answer per line on standard output, in order.
//!
//! A request is an object with `"v": 1` (the protocol's version) and `"op"`; an answer is `{"v": 1, "ok": …}` or
//! `{"v": 1, "fault": {"kind", "what", "cause", "help"}}`, the parts of vsteer's own faults. A bad request is
//! answered with a fault, never with the end of the process; the end of standard input is the end of it. A domain is
//! always named by its UUID, since its name may hold any character.
//!
//! | op             | further members                                      | `ok`                                    |
//! |----------------|------------------------------------------------------|-----------------------------------------|
//! | `open`         | `uri`, `write` (false: a read-only connection)       | `uri`, `driver`, `libvirt`, `hostname`  |
//! | `list`         |                                                      | `domains`: the active ones, see below   |
//! | `schedinfo`    | `uuid`, `persistent` (else live)                     | the scheduler's parameters by name      |
//! | `definition`   | `uuid`                                               | `xml`: the persistent one, secrets too  |
//! | `redefine`     | `uuid`, `expect`, `xml`: only while it is `expect`   | null                                    |
//! | `pin_vcpu`     | `uuid`, `vcpu`, `cpus`, `live`, `persistent`         | null                                    |
//! | `pin_emulator` | `uuid`, `cpus`, `live`, `persistent`                 | null                                    |
//! | `pin_iothread` | `uuid`, `iothread`, `cpus`, `live`, `persistent`     | null                                    |
//! | `set_sched`    | `uuid`, `params` by name, `live`, `persistent`       | null                                    |
//! | `set_nodes`    | `uuid`, `nodes` (`0-1`), `live`, `persistent`        | null                                    |
//! | `node`         |                                                      | `cpus`, `free_bytes` (null: not known)  |
//! | `migratable`   | `uuid`                                               | `xml`: for `migrate`, secrets too       |
//! | `migrate`      | `uuid`, `to`, `xml`, `persist_xml`, `uri`            | null, when it runs there                |
//!
//! `list` also has `undescribed`: `uuid` and `cause` of each domain that runs and cannot be described now.
//!
//! A domain of `list` has `uuid`, `name`, `id`, `state` (`running`, `paused`, …), `persistent`, `xml` (live),
//! `xml_inactive` and `sched` (both null where there is none). `cpus` is a list of numbers. Pins, vcpusched and guest
//! topology are read from `xml` and, in the definition, changed by `redefine`. libvirt tells no process id.
//!
//! `cpus` of `node`: `[number, idle ns, all ns]` of every pCPU that is online. `migrate` moves a running VM, live, to
//! the libvirt at `to`, where it is described by `xml` and defined by `persist_xml` (as here where that is null);
//! `uri` is where QEMU sends its memory to (libvirt's choice where null).
//!
//! Left out: remote hosts' credentials (a connection that asks for a password fails), events, everything that starts
//! or stops a VM, the migration of disks.

mod calls;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};

/// Version of the protocol; requests of another version are refused.
const VERSION: u64 = 1;
/// The longest request, bytes: a domain's XML has some 10 KB, with hundreds of devices 1 MB.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// A fault with the same parts as vsteer's faults. The kinds are those of `vsteer_core::FaultKind`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Fault {
    kind: &'static str,
    what: String,
    cause: Option<String>,
    help: Option<String>,
}

impl Fault {
    fn new(kind: &'static str, what: impl Into<String>, cause: impl ToString) -> Fault {
        Fault { kind, what: what.into(), cause: Some(cause.to_string()), help: None }
    }

    fn help(mut self, remedy: &str) -> Fault {
        self.help = Some(remedy.to_owned());
        self
    }
}

#[derive(Deserialize)]
struct Envelope {
    v: u64,
    #[serde(flatten)]
    request: Value,
}

/// The answer to one line.
fn answer(session: &mut calls::Session, line: &[u8]) -> Value {
    let result = serde_json::from_slice::<Envelope>(line)
        .map_err(|e| Fault::new("bad_input", "the request is not an object with v and op", e))
        .and_then(|envelope| {
            if envelope.v != VERSION {
                return Err(Fault::new(
                    "unsupported",
                    format!("cannot use protocol version {}", envelope.v),
                    "this program uses version 1",
                )
                .help("install vsteer and vsteer-libvirt of the same release"));
            }
            serde_json::from_value::<calls::Request>(envelope.request)
                .map_err(|e| Fault::new("bad_input", "cannot understand the request", e))
        })
        // The bindings panic if they cannot release a reference; that must not end the conversation.
        .and_then(|request| {
            let attempt = std::panic::AssertUnwindSafe(|| session.call(request));
            std::panic::catch_unwind(attempt)
                .unwrap_or_else(|_| Err(Fault::new("failed", "cannot call libvirt", "its bindings panicked")))
        });
    match result {
        Ok(ok) => json!({ "v": VERSION, "ok": ok }),
        Err(fault) => json!({ "v": VERSION, "fault": fault }),
    }
}

fn main() -> std::io::Result<()> {
    // libvirt also prints every error to standard error; the answers already hold them.
    virt::error::clear_error_callback();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut session = calls::Session::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut input).take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let whole = line.last() == Some(&b'\n') || (line.len() as u64) < REQUEST_BYTES_MAX;
        let mut text = if whole {
            answer(&mut session, &line).to_string()
        } else {
            skip_line(&mut input)?;
            json!({ "v": VERSION, "fault": Fault::new("bad_input", "cannot read the request", "it exceeds 16 MiB") })
                .to_string()
        };
        text.push('\n');
        output.write_all(text.as_bytes())?;
        output.flush()?;
    }
}

/// Skips the rest of the line.
fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let (used, done) = match input.fill_buf()? {
            [] => (0, true),
            bytes => match bytes.iter().position(|b| *b == b'\n') {
                Some(at) => (at + 1, true),
                None => (bytes.len(), false),
            },
        };
        input.consume(used);
        if done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(session: &mut calls::Session, line: &str) -> String {
        answer(session, line.as_bytes())["fault"]["kind"].as_str().unwrap_or("ok").to_owned()
    }

    #[test]
    fn bad_requests_are_answered() {
        let mut s = calls::Session::default();
        for line in ["", "nonsense", "[]", "{}", r#"{"v":1}"#, r#"{"v":1,"op":"format"}"#, "\u{0}"] {
            assert_eq!(kind(&mut s, line), "bad_input", "{line:?}");
        }
        assert_eq!(kind(&mut s, r#"{"v":2,"op":"list"}"#), "unsupported");
        assert_eq!(kind(&mut s, r#"{"v":1,"op":"list"}"#), "bad_input", "nothing is open");
        assert_eq!(
            kind(&mut s, "{\"v\":1,\"op\":\"open\",\"uri\":\"a\\u0000b\",\"write\":false}"),
            "bad_input"
        );
    }

    // libvirt's own test driver needs no daemon. It knows neither live nor persistent, only "current".
    #[test]
    fn the_test_driver_is_listed_and_pinned() {
        let mut s = calls::Session::default();
        assert_eq!(kind(&mut s, r#"{"v":1,"op":"open","uri":"test:///default","write":true}"#), "ok");
        let list = answer(&mut s, br#"{"v":1,"op":"list"}"#);
        assert_eq!(list["ok"]["undescribed"], json!([]));
        let domain = &list["ok"]["domains"][0];
        assert_eq!((domain["name"].as_str(), domain["state"].as_str()), (Some("test"), Some("running")));
        let uuid = domain["uuid"].as_str().unwrap();
        let pin = |cpus: &str| {
            format!(
                r#"{{"v":1,"op":"pin_vcpu","uuid":"{uuid}","vcpu":0,"cpus":{cpus},"live":false,"persistent":false}}"#
            )
        };
        assert_eq!(kind(&mut s, &pin("[0]")), "ok");
        assert_eq!(kind(&mut s, &pin("[9999999]")), "bad_input");
        assert_eq!(kind(&mut s, &pin("[]")), "bad_input");
        let after = answer(&mut s, br#"{"v":1,"op":"list"}"#);
        assert!(after["ok"]["domains"][0]["xml"].as_str().unwrap().contains("vcpupin vcpu='0' cpuset='0'"));
        let gone = r#"{"v":1,"op":"definition","uuid":"00000000-0000-0000-0000-000000000001"}"#;
        assert_eq!(kind(&mut s, gone), "nothing_there");
    }

    #[test]
    fn a_definition_is_replaced_only_while_it_is_the_expected_one() {
        let mut s = calls::Session::default();
        assert_eq!(kind(&mut s, r#"{"v":1,"op":"open","uri":"test:///default","write":true}"#), "ok");
        let list = answer(&mut s, br#"{"v":1,"op":"list"}"#);
        let uuid = list["ok"]["domains"][0]["uuid"].as_str().unwrap().to_owned();
        let get = json!({"v": 1, "op": "definition", "uuid": uuid}).to_string();
        let old = answer(&mut s, get.as_bytes())["ok"]["xml"].as_str().unwrap().to_owned();
        let new = old.replace("</os>", "</os>\n  <description>it's \"ünïcode\"</description>");
        let put = |expect: &str, xml: &str| {
            json!({"v": 1, "op": "redefine", "uuid": uuid, "expect": expect, "xml": xml}).to_string()
        };
        assert_eq!(kind(&mut s, &put(&old, &new)), "ok");
        assert_eq!(kind(&mut s, &put(&old, &old)), "changed");
        let now = answer(&mut s, get.as_bytes())["ok"]["xml"].as_str().unwrap().to_owned();
        assert!(now.contains("ünïcode"), "{now}");
        let other =
            now.replace(&uuid, "00000000-0000-0000-0000-00000000000a").replace("<name>test<", "<name>t2<");
        assert_eq!(kind(&mut s, &put(&now, &other)), "bad_input", "must not define another domain");
    }
}
