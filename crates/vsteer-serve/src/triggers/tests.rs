//! Do messages arrive, whole and signed, at a receiver that fails first, hangs or is gone, and in a storm?

use super::deliver::Pauses;
use super::message::{Event, Found};
use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use vsteer_core::diagnose::Finding;
use vsteer_core::nouns::VmId;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const QUICK: Pauses = Pauses {
    first: Duration::from_millis(50),
    most: Duration::from_millis(200),
    give_up: Duration::from_secs(60),
};

/// A request: its head, line by line, its body, and when it came.
struct Request {
    head: Vec<String>,
    body: Vec<u8>,
    at: Instant,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Request> {
        let (mut reader, mut head) = (BufReader::new(stream), Vec::new());
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let mut request = Request { head, body: Vec::new(), at: Instant::now() };
        let length = request.value("content-length").parse().unwrap();
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).ok().map(|()| request)
    }

    fn value(&self, name: &str) -> String {
        let pairs = self.head.iter().filter_map(|line| line.split_once(": "));
        let mut found =
            pairs.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned());
        found.next_back().unwrap_or_else(|| panic!("no {name} in {:?}", self.head))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A server that gives these answers, one per connection; 0: none, it hangs. Afterwards it answers 200.
fn server(answers: &[u16]) -> (SocketAddr, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (tell, requests) = std::sync::mpsc::channel();
    let answers: Vec<u16> = answers.to_vec();
    std::thread::spawn(move || {
        let mut hanging = Vec::new();
        for n in 0.. {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let Some(request) = Request::read(&stream) else { continue };
            match answers.get(n).copied().unwrap_or(200) {
                0 => hanging.push(stream),
                status => {
                    let _ = write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                }
            }
            if tell.send(request).is_err() {
                return;
            }
        }
    });
    (at, requests)
}

fn secret_in(folder: &Path) -> PathBuf {
    let file = folder.join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    file
}

fn message(rule: &str) -> Message {
    let finding = Finding {
        rule: rule.into(),
        vm: Some(VmId("id-1".into())),
        title: "VM \"web\" waits".into(),
        loss_pcpus: 0.5,
        ..Finding::default()
    };
    let names = Arc::new(BTreeMap::from([(VmId("id-1".into()), "web".to_owned())]));
    Message {
        event: Event::Began,
        host: "h".into(),
        found: Found { all: Arc::new(vec![finding]), at: 0, names },
        began_unix_ns: 7,
        last_unix_ns: 8,
        unix_ns: 9,
        noticed: Instant::now(),
    }
}

/// Runs a delivery in a thread of its own.
fn started(
    to: To,
    every: Duration,
    pauses: Pauses,
) -> (SyncSender<Message>, Arc<Counts>, Stop, JoinHandle<()>) {
    let (queue, messages) = sync_channel(QUEUE);
    let counts = Arc::new(Counts { trigger: "oncall".into(), ..Counts::default() });
    let (stop, limit) = (Stop::default(), Duration::from_millis(500));
    let delivery = Delivery { to, every, limit, pauses, counts: Arc::clone(&counts), stop: stop.clone() };
    let thread = std::thread::spawn(move || delivery.run(&messages));
    (queue, counts, stop, thread)
}

fn webhook(at: SocketAddr, folder: &Path) -> To {
    To::Url(Target::new(&format!("http://{at}/hook"), None).unwrap(), secret_in(folder))
}

fn next(requests: &Receiver<Request>) -> Request {
    requests.recv_timeout(Duration::from_secs(30)).expect("a request")
}

/// Waits until it holds; a machine under load takes its time.
fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sums(counts: &Counts) -> [u64; 4] {
    [&counts.sent, &counts.failed, &counts.dropped, &counts.failed_tries].map(crate::deliveries::Count::get)
}

#[test]
fn a_receiver_that_fails_twice_gets_the_same_message_again() {
    let folder = tempfile::tempdir().unwrap();
    let (at, requests) = server(&[500, 503]);
    let (queue, counts, ..) = started(webhook(at, folder.path()), Duration::ZERO, QUICK);
    queue.send(message("limited")).unwrap();
    let tries = [next(&requests), next(&requests), next(&requests)];
    wait_for("sent", || sums(&counts) == [1, 0, 0, 2]);
    let [first, second, third] = &tries;
    assert!(first.head[0].starts_with("POST /hook ") && first.value("content-type") == "application/json");
    assert!(first.body == second.body && second.body == third.body, "each try sends the same");
    assert_eq!(first.value("webhook-id"), third.value("webhook-id"));
    let (one, two) = (second.at - first.at, third.at - second.at);
    assert!(one >= QUICK.first && two >= 2 * QUICK.first, "pauses grow: {one:?}, {two:?}");
    let body = first.json();
    assert_eq!((&body["schema"], &body["event"]), (&"vsteer.trigger/1".into(), &"began".into()));
    assert_eq!(body["id"].as_str(), Some(first.value("webhook-id").as_str()));
    assert_eq!(body["vms"][0]["name"], "web");
    assert_eq!(
        (&body["finding"]["rule"], &body["ended_unix_ns"]),
        (&"limited".into(), &serde_json::Value::Null)
    );
    // The same secret signs the time and the body of this try.
    let unix_s: u64 = third.value("webhook-timestamp").parse().unwrap();
    let secrets = Secrets::read(&secret_in(folder.path())).unwrap();
    let signed = |body: &[u8]| secrets.signature(&third.value("webhook-id"), unix_s, body);
    assert_eq!(third.value("webhook-signature"), signed(&third.body));
    assert_ne!(third.value("webhook-signature"), signed(b"{}"));
}

/// Another program computes the signature from what the receiver has.
#[test]
#[ignore = "needs python3, which tools/install-missing.sh test installs"]
fn python_verifies_the_signature() {
    const CHECK: &str = "\
import base64, hmac, sys
secret, id, at, signature = sys.argv[1:]
signed = id.encode() + b'.' + at.encode() + b'.' + sys.stdin.buffer.read()
mac = hmac.new(base64.b64decode(secret.removeprefix('whsec_')), signed, 'sha256').digest()
sys.exit(0 if hmac.compare_digest('v1,' + base64.b64encode(mac).decode(), signature) else 9)";
    let folder = tempfile::tempdir().unwrap();
    let (at, requests) = server(&[]);
    let (queue, ..) = started(webhook(at, folder.path()), Duration::ZERO, QUICK);
    queue.send(message("limited")).unwrap();
    let request = next(&requests);
    let check = |body: &[u8]| {
        let words = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| request.value(name));
        let mut python = std::process::Command::new("python3")
            .args(["-c", CHECK, SECRET])
            .args(words)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(body).unwrap();
        python.wait().unwrap().code()
    };
    assert_eq!(check(&request.body), Some(0));
    assert_eq!(check(b"{}"), Some(9), "the check can fail");
}

#[test]
fn a_receiver_that_refuses_gets_no_second_try_and_one_that_hangs_does() {
    let folder = tempfile::tempdir().unwrap();
    let (at, requests) = server(&[404, 0, 200]);
    let (queue, counts, ..) = started(webhook(at, folder.path()), Duration::ZERO, QUICK);
    queue.send(message("refused")).unwrap();
    queue.send(message("late")).unwrap();
    let rules: Vec<_> = (0..3).map(|_| next(&requests).json()["finding"]["rule"].clone()).collect();
    assert_eq!(rules, ["refused", "late", "late"]);
    wait_for("one failed, one sent", || sums(&counts) == [1, 1, 0, 2]);
}

#[test]
fn a_receiver_that_is_gone_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pauses = Pauses { give_up: Duration::from_millis(300), ..QUICK };
    let (queue, counts, ..) = started(webhook(gone, folder.path()), Duration::ZERO, pauses);
    queue.send(message("limited")).unwrap();
    wait_for("given up", || counts.failed.get() == 1);
    assert!(counts.failed_tries.get() >= 2 && counts.sent.get() == 0, "{:?}", sums(&counts));
}

#[test]
fn messages_keep_the_rate_and_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let (at, requests) = server(&[]);
    let every = Duration::from_millis(200);
    let (queue, ..) = started(webhook(at, folder.path()), every, QUICK);
    ["a", "b", "c"].into_iter().for_each(|rule| queue.send(message(rule)).unwrap());
    let three = [next(&requests), next(&requests), next(&requests)];
    assert_eq!(three.each_ref().map(|r| r.json()["finding"]["rule"].clone()), ["a", "b", "c"]);
    // The receiver's clock reads after the sender's.
    let apart = three[2].at - three[0].at;
    assert!(apart >= 2 * every - Duration::from_millis(50), "{apart:?}");
}

/// A thousand findings at once, and a command that hangs: nobody waits, and what is lost is counted.
#[test]
fn a_storm_fills_the_queue_and_delays_nobody() {
    let to = To::Command(["/bin/sleep", "100"].map(str::to_owned).into());
    let (queue, counts, stop, thread) = started(to, Duration::ZERO, QUICK);
    let mut watching = Watching(vec![(Follow::new(Filter::default()), queue, Arc::clone(&counts))]);
    let findings: Vec<Finding> = (0..1000)
        .map(|n| Finding {
            rule: "limited".into(),
            vm: Some(VmId(n.to_string().into())),
            ..Finding::default()
        })
        .collect();
    let names = Arc::default();
    let mut look = |s: u64, findings: &Arc<Vec<Finding>>| {
        let ns = s * 1_000_000_000;
        let begun = Instant::now();
        watching.look(&Look { host: "h", findings, names: &names, mono_ns: ns, unix_ns: ns });
        begun.elapsed()
    };
    let took = look(0, &Arc::new(findings));
    assert!(took < Duration::from_millis(500), "{took:?}");
    // The thread may have taken one.
    let dropped = counts.dropped.get();
    assert!((1000 - QUEUE as u64 - 1..=1000 - QUEUE as u64).contains(&dropped), "{dropped}");
    look(100, &Arc::default());
    let ended = counts.dropped.get() - dropped;
    assert!(ended <= QUEUE as u64 + 1, "only what was told has an end: {ended}");
    wait_for("the command is stopped", || counts.failed_tries.get() >= 1);
    let begun = Instant::now();
    stop.set();
    drop(watching);
    Deliverers(vec![thread]).finish();
    assert!(begun.elapsed() < ENDS_WITHIN, "{:?}", begun.elapsed());
}

#[test]
fn a_trial_says_whether_a_message_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let (at, requests) = server(&[200, 403]);
    let secret = secret_in(folder.path());
    let text = format!("[triggers.oncall]\nurl = \"http://{at}/x\"\nsecret_file = {secret:?}\n");
    let trial = |name: &str| {
        let config = vsteer_record::config::of_text(&text).strict().unwrap();
        Triggers::of(&config).unwrap().try_one(name).map_err(|fault| fault.to_string())
    };
    assert_eq!(trial("oncall"), Ok(()));
    let body = next(&requests).json();
    assert_eq!((&body["event"], &body["finding"]["rule"]), (&"test".into(), &"test".into()));
    assert!(trial("oncall").unwrap_err().contains("status 403"), "the next answer");
    assert!(trial("nobody").unwrap_err().contains("known: oncall"));
}

#[test]
fn a_configuration_is_checked_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let secret = secret_in(folder.path());
    let of = |rest: &str| {
        let config = vsteer_record::config::of_text(&format!("[triggers.a]\n{rest}")).strict().unwrap();
        Triggers::of(&config).map(|all| all.0.len()).map_err(|fault| fault.kind)
    };
    let url = format!("url = \"http://localhost:9/x\"\nsecret_file = {secret:?}\n");
    assert_eq!(of(&url), Ok(1));
    assert_eq!(of("command = [\"/bin/true\"]\n"), Err(vsteer_core::FaultKind::NoPrivilege));
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(of(&url), Err(vsteer_core::FaultKind::NoPrivilege));
    std::fs::remove_file(&secret).unwrap();
    assert_eq!(of(&url), Err(vsteer_core::FaultKind::NothingThere));
}
