//! The report opens anywhere: every section is there, names with anything in them do nothing, and a real browser finds
//! no error in it, asks nobody for anything, and needs no sideways scrolling on a telephone.
//!
//! The browser's part is left out, and says so, where Chromium is not installed; `VSTEER_REQUIRE_CHROMIUM` makes that
//! a failure. What Chromium asks of its makers on its own account is kept from the network and not counted.

#[path = "common/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use vsteer_core::CpuSet;
use vsteer_core::nouns::*;
use vsteer_core::timeline::Switch;
use vsteer_core::topology::{Parts, Topology};
use vsteer_record::{EventSummary, EventWriter, FORMAT, Manifest, Task, Writer};

const EVIL: &str = "</title></bdi></svg><script>document.title='broken'</script><img src=http://127.0.0.1:9/x \
onerror=\"console.error(1)\">&amp;'\"\n\u{202e}\0";

fn config(vms: usize) -> HostConfig {
    let vm = |i: usize| VmConfig {
        threads: (0..2)
            .map(|v| VmThread {
                tid: Tid(2000 + 2 * i as u32 + v),
                role: Role::Vcpu(v),
                affinity: CpuSet::first(4),
                class: None,
                cgroup: None,
                prefers: None,
                reserved: None,
            })
            .collect(),
        weight: Some(CpuWeight::Weight(100)),
        ..VmConfig::new(
            VmId(format!("id-{i}<b>").into()),
            match i {
                0 => EVIL.to_owned(),
                1 => "a-name-without-any-place-to-break-".repeat(8),
                i => format!("vm{i}"),
            },
            1000 + i as u32,
        )
    };
    HostConfig {
        hostname: format!("host {EVIL}"),
        machine_id: None,
        kernel: "6.18 <i>".into(),
        topology: Topology::new(Parts {
            online: CpuSet::first(4),
            present: CpuSet::first(4),
            allowed: CpuSet::first(4),
            ..Parts::default()
        })
        .unwrap(),
        cgroups: CgroupLayout::V2,
        contenders: Vec::new(),
        scheduler: None,
        vms: (0..vms).map(vm).collect(),
    }
}

/// A recording of `vms` VMs over 6 s whose vCPUs are ready for `ready` of the time.
fn record(folder: &Path, vms: usize, ready: f64, events: bool) {
    record_of(folder, &config(vms), ready, events);
}

fn record_of(folder: &Path, config: &HostConfig, ready: f64, events: bool) {
    let missing = BTreeMap::from([("lag_ns".to_owned(), "not asked <for>".to_owned())]);
    let manifest = Manifest {
        format: FORMAT,
        vsteer: "0".into(),
        hostname: config.hostname.clone(),
        fingerprint: config.fingerprint(),
        mono_ns: 0,
        unix_ns: 1_800_000_000_000_000_000,
        collector: Collector { name: "ebpf".into(), missing },
    };
    let mut w = Writer::create(folder, &manifest, config, None).unwrap();
    for i in 1..=60u64 {
        w.append(&batch(config, manifest.unix_ns, i, ready), config).unwrap();
    }
    w.finish().unwrap();
    if events {
        record_events(folder, config);
    }
}

/// Between two samples, ns.
const STEP: u64 = 100_000_000;

/// The sample with this number.
fn batch(config: &HostConfig, begun_unix_ns: u64, i: u64, ready: f64) -> Batch {
    let of = |share: f64| Some((i as f64 * STEP as f64 * share) as u64 + i % 3 * 1_000_000);
    let threads = config.vms.iter().flat_map(|vm| {
        vm.threads.iter().map(move |t| ThreadSample {
            vm: vm.id.clone(),
            role: t.role,
            tid: t.tid,
            last_cpu: Some(0),
            waiting_ns: None,
            counters: ThreadCounters {
                run_ns: of(0.9 - ready),
                ready_ns: of(ready),
                wait_ns: of(ready),
                limited_ns: Some(0),
                blocked_ns: of(0.1),
                wakeups: Some(i),
                wake_latency: Some(Histogram { counts: vec![(40, i * 50), (90, i)] }),
                ready_spell: Some(Histogram { counts: vec![(40, i)] }),
                ..ThreadCounters::default()
            },
        })
    });
    let pcpus = (0..4).map(|cpu| PcpuSample { cpu, user_ns: i * STEP, idle_ns: i, ..PcpuSample::default() });
    let culprits = [
        Culprit::Vm(config.vms[config.vms.len() - 1].id.clone()),
        Culprit::process(&EVIL[..15], 5),
        Culprit::Kernel { comm: "kworker/0:1".into() },
        Culprit::Placement,
        Culprit::Process { comm: "cc1".into(), pid: 6, container: Some("lxc web".into()) },
        Culprit::Process { comm: "make".into(), pid: 7, container: Some("lxc web".into()) },
        Culprit::Process { comm: "cc1".into(), pid: 8, container: Some(EVIL.into()) },
    ];
    let blame = culprits.into_iter().enumerate().map(|(n, culprit)| BlameSample {
        victim: config.vms[0].id.clone(),
        role: Role::Vcpu(0),
        culprit,
        ns: 1_000_000 * (n as i64 + 1),
    });
    Batch {
        mono_ns: i * STEP,
        unix_ns: begun_unix_ns + i * STEP,
        threads: threads.collect(),
        pcpus: pcpus.collect(),
        vms: vec![],
        blame: blame.collect(),
        pressure: None,
    }
}

/// Switches between all vCPUs, a process and nobody, each ms.
fn record_events(folder: &Path, config: &HostConfig) {
    let mut w = EventWriter::create(folder, None).unwrap();
    w.name(Task { mono_ns: 0, tid: Tid(77), tgid: 77, comm: EVIL[..15].into(), vm: None, role: None })
        .unwrap();
    for vm in &config.vms {
        for t in &vm.threads {
            w.name(Task {
                mono_ns: 0,
                tid: t.tid,
                tgid: vm.pid,
                comm: "CPU".into(),
                vm: Some(vm.id.clone()),
                role: Some(t.role),
            })
            .unwrap();
        }
    }
    let runners: Vec<u32> =
        config.vms.iter().flat_map(|v| &v.threads).map(|t| t.tid.0).chain([77, 0]).collect();
    for cpu in 0..4u32 {
        for i in 0..6_000u64 {
            let who = |i: u64| Tid(runners[(i + u64::from(cpu)) as usize % runners.len()]);
            w.push(Switch { ns: i * 1_000_000, cpu, prev: who(i), prev_state: 0, next: who(i + 1) }).unwrap();
        }
    }
    w.finish(&EventSummary { recorded: 24_000, closed: true, ..EventSummary::default() }).unwrap();
}

/// `vsteer` with these arguments; it must succeed.
fn vsteer(args: &[&std::ffi::OsStr]) -> Output {
    let out = program::vsteer().args(args).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

const ALWAYS: [&str; 7] = [
    "In short",
    "Findings",
    "Where the VMs&#39; time went",
    "Who ran on which pCPU",
    "Waiting over time",
    "Who waited for what",
    "How it was measured",
];

/// A report of two recordings and a plan between them.
fn whole_report(dir: &Path) -> PathBuf {
    let (before, after, plan, html) =
        (dir.join("before.vsteer"), dir.join("after.vsteer"), dir.join("plan.json"), dir.join("report.html"));
    record(&before, 9, 0.5, true);
    record(&after, 9, 0.1, false);
    vsteer(&["plan".as_ref(), before.as_ref(), "-o".as_ref(), plan.as_ref()]);
    let args: [&std::ffi::OsStr; 7] = [
        "report".as_ref(),
        before.as_ref(),
        after.as_ref(),
        "--plan".as_ref(),
        plan.as_ref(),
        "-o".as_ref(),
        html.as_ref(),
    ];
    vsteer(&args);
    html
}

/// `--set`: a forecast of what a person wants, whatever the rules say, and a clear word where it cannot be.
#[test]
fn a_plan_of_ones_own_is_foretold() {
    let dir = tempfile::tempdir().unwrap();
    let before = dir.path().join("before.vsteer");
    record(&before, 4, 0.5, false);
    let ask = |setting: &str| {
        let mut command = program::vsteer();
        command.arg("plan").arg(&before).args(["--set", setting, "--json"]).output().unwrap()
    };
    let out = ask("vm2:weight=400");
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan["steps"].as_array().map(Vec::len), Some(1), "{plan}");
    let of = |name: &str| {
        let vms = plan["forecast"]["vms"].as_array().unwrap();
        vms.iter().find(|vm| vm["name"] == name).unwrap().clone()
    };
    let waits = |vm: &serde_json::Value| {
        (vm["ready_before"].as_f64().unwrap(), vm["ready_after"]["likely"].as_f64().unwrap())
    };
    let ((before_2, after_2), (before_3, after_3)) = (waits(&of("vm2")), waits(&of("vm3")));
    assert!(after_2 < before_2 && after_3 > before_3, "{before_2} {after_2} {before_3} {after_3}");
    for (setting, word) in
        [("vm9:weight=1", "vm2"), ("vm2:colour=1", "weight=N"), ("vm2:prefer=1", "only Xen")]
    {
        let out = ask(setting);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(word), "{setting}: {said}");
    }
}

#[test]
fn recordings_of_other_vms_get_no_verdict_and_an_exit_code_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before.vsteer"), dir.path().join("after.vsteer"));
    record(&before, 1, 0.3, false);
    let mut others = config(1);
    others.vms[0].id = VmId("another".into());
    record_of(&after, &others, 0.3, false);
    let verify = |second: &Path, more: &[&str]| {
        let mut command = program::vsteer();
        command.arg("verify").arg(&before).arg(second).args(more).output().unwrap()
    };
    let none: &[&str] = &[];
    for more in [none, &["--json"]] {
        let out = verify(&after, more);
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains("nothing could be compared") && !said.contains("no difference"), "{said}");
        assert!(!said.contains("no_difference"), "{said}");
        assert_eq!(verify(&before, more).status.code(), Some(0));
    }
}

#[test]
fn all_sections_are_there_and_names_do_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(whole_report(dir.path())).unwrap();
    for heading in ALWAYS.iter().chain(&["Changes", "Did it help?"]) {
        assert!(page.contains(&format!(">{heading}</h2>")), "no section {heading:?}");
    }
    assert!(page.contains("▲ better"));
    // Two processes of one container are one column of each of the two recordings.
    assert_eq!(page.matches("<bdi>lxc web</bdi><br><small>container</small>").count(), 2);
    // One title, no script, nothing that is fetched.
    assert_eq!(page.matches("</title>").count(), page.matches("<title>").count());
    for never in ["<script", "<img", "<iframe", "<link", "@import", "src=", "http://", "\0"] {
        let escaped = page.replace("src=http://127.0.0.1:9/x", "");
        assert!(!escaped.contains(never), "{never:?} in the page");
    }
    for link in page.split("href=\"").skip(1).chain(page.split("url(").skip(1)) {
        assert!(link.starts_with('#'), "a link leads away: {}", &link[..link.len().min(40)]);
    }
    // Nine VMs: the colours repeat, hatched.
    assert!(page.contains("url(#hatch0)") && page.contains("<pattern id=\"hatch2\""));
}

#[test]
fn one_recording_gets_a_proposal_and_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, html) = (dir.path().join("a.vsteer"), dir.path().join("a.html"));
    record(&recording, 2, 0.4, false);
    vsteer(&["report".as_ref(), recording.as_ref(), "-o".as_ref(), html.as_ref()]);
    let page = fs::read_to_string(&html).unwrap();
    for heading in ALWAYS.iter().chain(&["Proposed changes"]) {
        assert!(page.contains(&format!(">{heading}</h2>")), "no section {heading:?}");
    }
    assert!(!page.contains("Did it help?") && page.contains("context switches were not recorded"));
}

/// The first Chromium that can be started.
fn chromium() -> &'static str {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()))
        .expect("Chromium is installed")
}

/// Ends a browser that does not end.
fn wait(mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(90) {
            let _ = child.kill();
            panic!("Chromium did not end within 90 s");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    child.wait_with_output().unwrap()
}

/// What Chromium makes of a page: the document, its console's lines, and what the page asked for.
fn browse(browser: &str, page: &Path) -> (String, Vec<String>, Vec<String>) {
    let profile = tempfile::tempdir().unwrap();
    let (net, dom, log) =
        (profile.path().join("net.json"), profile.path().join("dom.html"), profile.path().join("log.txt"));
    // Into files: a pipe that nobody empties would fill.
    let child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"])
        .args(["--allow-file-access-from-files", "--virtual-time-budget=3000", "--dump-dom"])
        .arg("--enable-logging=stderr")
        .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
        .arg(format!("--log-net-log={}", net.display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let status = wait(child).status;
    let text = |p: &Path| String::from_utf8_lossy(&fs::read(p).unwrap_or_default()).into_owned();
    assert!(status.success(), "Chromium: {status}: {}", text(&log));
    let console = text(&log).lines().filter(|l| l.contains(":CONSOLE")).map(str::to_owned).collect();
    // One event a line. What the browser asks on its own account has no page as its initiator.
    let asked = text(&net)
        .lines()
        .filter(|l| l.contains("\"initiator\":\"") && !l.contains("\"initiator\":\"not an origin\""))
        .filter(|l| !l.contains("\"url\":\"file://"))
        .map(str::to_owned)
        .collect();
    (text(&dom), console, asked)
}

#[test]
#[ignore = "needs Chromium"]
fn a_browser_finds_nothing_wrong() {
    let browser = chromium();
    let dir = tempfile::tempdir().unwrap();
    let page = whole_report(dir.path());
    let (dom, console, asked) = browse(browser, &page);
    assert!(console.is_empty() && asked.is_empty(), "console {console:?}, asked for {asked:?}");
    assert!(dom.contains("<title>vsteer report: host "), "{}", &dom[..dom.len().min(500)]);
    for id in ["short", "findings", "vms", "timeline", "ready", "blame", "plan", "verdict", "measured"] {
        assert!(dom.contains(&format!("<h2 id=\"{id}-h\">")), "no heading of section {id}");
    }

    // The same eyes do see a page that logs and asks.
    let bad = dir.path().join("bad.html");
    fs::write(&bad, "<img src='http://127.0.0.1:9/x.png'><script>console.error('seen')</script>").unwrap();
    let (_, console, asked) = browse(browser, &bad);
    assert!(console.iter().any(|l| l.contains("seen")), "{console:?}");
    assert!(asked.iter().any(|l| l.contains("x.png")), "{asked:?}");

    // On 400 pixels only tables and figures scroll sideways, each by itself.
    let frame = dir.path().join("frame.html");
    let script = "document.title = f.contentDocument.documentElement.scrollWidth + ' of ' + f.clientWidth";
    fs::write(
        &frame,
        format!("<iframe id=f src=report.html style='width:400px;border:0' onload=\"{script}\"></iframe>"),
    )
    .unwrap();
    let (dom, ..) = browse(browser, &frame);
    // A scroll bar takes some of the 400.
    let wide = dom.split("<title>").nth(1).and_then(|t| t.split(' ').next()?.parse::<u32>().ok());
    assert!(wide.is_some_and(|w| (350..=400).contains(&w)), "{}", &dom[..dom.len().min(400)]);
}
