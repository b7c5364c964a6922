//! What a peer that is old, broken or hostile can do: a script stands in for ssh and the agent.

use super::*;
use std::process::Command;
use std::time::Instant;

const HELLO: &str = r#"echo '{"vsteer_agent":{"protocol":1,"version":"0.1.0","host":"far"}}'; "#;

fn asked() -> Open {
    Open { collector: Default::default(), vms: Vec::new(), light: false, libvirt: None }
}

fn peer(script: &str) -> Result<RemoteHost, Fault> {
    let mut program = Command::new("sh");
    program.args(["-c", script]);
    let mut link = Link::run(program, "far").unwrap();
    let hello = link.line(limits::AGENT_HELLO, Duration::from_secs(20))?;
    RemoteHost::begin(link, &hello, &asked(), Vec::new())
}

/// An answer to the first request, of a host with one pCPU and one VM.
fn opened(vm_name: &str, note: &str) -> String {
    let cpus = || vsteer_core::CpuSet::single(0);
    let parts = vsteer_core::topology::Parts {
        present: cpus(),
        online: cpus(),
        allowed: cpus(),
        ..Default::default()
    };
    let config = HostConfig {
        cgroups: vsteer_core::nouns::CgroupLayout::None,
        vms: vec![vsteer_core::nouns::VmConfig::new(vsteer_core::nouns::VmId("a".into()), vm_name, 1)],
        ..HostConfig::new("far", "6", vsteer_core::topology::Topology::new(parts).unwrap())
    };
    let collector = Collector { name: "ebpf".into(), missing: Default::default() };
    let notes = vec![note.to_owned()];
    let answer = Answer { config: Some(config), collector: Some(collector), notes, ..Answer::default() };
    String::from_utf8(line_of(&answer)).unwrap().trim().to_owned()
}

fn sampled(mono_ns: u64) -> String {
    format!(
        r#"echo '{{"batch":{{"mono_ns":{mono_ns},"unix_ns":1,"threads":[],"pcpus":[],"vms":[],"blame":[]}}}}'; "#
    )
}

fn begun(then: &str) -> RemoteHost {
    peer(&format!("{HELLO} read -r line; echo '{}'; {then}", opened("web", "n"))).unwrap()
}

#[test]
fn an_agent_is_asked_and_what_it_says_is_kept() {
    let mut host = begun(&format!("read -r l; {} read -r l; echo '{{}}'; read -r l", sampled(7)));
    assert_eq!(host.take_notes(), ["n"]);
    assert!(host.settles() && host.take_notes().is_empty());
    assert_eq!(host.sample().unwrap().mono_ns, 7);
    assert_eq!(host.config().unwrap().vms[0].name, "web");
    assert_eq!(host.actuator().err().unwrap().kind, FaultKind::Unsupported);
}

#[test]
fn another_protocol_is_named_with_both_versions() {
    let other = r#"echo '{"vsteer_agent":{"protocol":9,"version":"7.1","host":"far","more":1}}'; read -r l"#;
    let fault = peer(other).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Unsupported);
    let text = fault.to_string();
    let both = format!("vsteer 7.1 there has protocol 9, vsteer {VERSION} here has protocol 1");
    assert!(text.contains(&both) && text.contains("--copy-vsteer"), "{text}");
}

#[test]
fn what_is_not_an_agent_is_a_fault_of_one_line() {
    for script in [
        "echo 'Welcome to this host'; sleep 60",
        "printf '\\033[2Jx\\n'; sleep 60",
        "head -c 100000 /dev/zero; sleep 60",
        "echo '{\"vsteer_agent\":{\"protocol\":-1}}'; sleep 60",
        &format!("{HELLO} read -r l; echo nonsense; sleep 60"),
        &format!("{HELLO} read -r l; echo '[[[[[[[[[['; sleep 60"),
        &format!("{HELLO} read -r l; echo '{{}}'; sleep 60"),
        &format!("{HELLO} read -r l; yes | tr -d '\\n'"),
    ] {
        let fault = peer(script).err().unwrap();
        assert_eq!(fault.kind, FaultKind::BadInput, "{script}: {fault}");
        assert!(!fault.to_string().contains('\u{1b}'), "{script}");
    }
}

#[test]
fn a_name_of_any_characters_is_kept_and_one_without_end_is_not() {
    let odd = r"\u001b[2J\u202ename";
    let answer = opened("NAME", "n").replace("NAME", odd);
    let host = peer(&format!("{HELLO} read -r l; cat <<'END'\n{answer}\nEND\nread -r l")).unwrap();
    assert_eq!(host.config.vms[0].name, "\u{1b}[2J\u{202e}name", "what prints it escapes it");
    let long = opened(&"x".repeat(5000), "n");
    let fault = peer(&format!("{HELLO} read -r l; echo '{long}'; read -r l")).err().unwrap();
    assert!(fault.to_string().contains("a VM's name has 5000 bytes"), "{fault}");
}

#[test]
fn notes_have_a_limit_in_length_and_number() {
    let mut host = begun(r#"while read -r l; do echo "{\"notes\":[\"$l $((n=n+1))\"]}"; done"#);
    host.note((0..3 * limits::NOTES).map(|n| format!("{n}")).collect());
    host.note(vec!["x".repeat(1 << 20)]);
    assert!(host.take_notes().len() <= limits::NOTES && host.noted.len() <= limits::NOTES);
    let mut host = begun("read -r l");
    host.note(vec!["x".repeat(1 << 20)]);
    assert!(host.take_notes().iter().all(|n| n.len() <= limits::AGENT_TEXT + 3));
}

#[test]
fn clocks_that_go_back_and_numbers_that_cannot_be_are_refused() {
    let mut host = begun(&format!("read -r l; {} read -r l; {} read -r l", sampled(7), sampled(6)));
    host.sample().unwrap();
    let fault = host.sample().unwrap_err();
    assert!(fault.to_string().contains("6 ns after 7 ns"), "{fault}");
    let mut host = begun(&format!("read -r l; {} read -r l", sampled(u64::MAX)));
    assert_eq!(host.sample().unwrap_err().kind, FaultKind::BadInput);
}

#[test]
fn a_fault_of_the_agent_names_the_host() {
    let told = r#"{"fault":{"kind":"no_privilege","what":"w","cause":"c","help":"h"}}"#;
    let fault = peer(&format!("{HELLO} read -r l; echo '{told}'; read -r l")).err().unwrap();
    let expected = Fault::new(FaultKind::NoPrivilege, "far: w").because("c").help("h");
    assert_eq!(fault, expected);
}

#[test]
fn a_peer_that_ends_is_a_lost_link() {
    let mut host = begun("read -r l; exit 0");
    let begun = Instant::now();
    let fault = host.sample().unwrap_err();
    assert!(fault.to_string().contains("lost the connection to far"), "{fault}");
    drop(host);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_a_request_cannot_have_is_refused_before_ssh_starts() {
    let asked = |uri: &str| Request::of(Some(uri));
    let events = Request { event_buffer: Some(1 << 20), ..asked("ssh://nowhere.invalid") };
    assert_eq!(open(&events).err().unwrap().kind, FaultKind::Usage);
    let bad = asked("ssh://-oProxyCommand=touch");
    assert_eq!(open(&bad).err().unwrap().kind, FaultKind::Usage);
    assert_eq!(change(&asked("ssh://h"), None).err().unwrap().kind, FaultKind::Unsupported);
}
