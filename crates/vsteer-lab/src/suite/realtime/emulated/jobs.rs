//! The jobs of the emulated hosts: cases in the text form of jobs.

use crate::emulated::job::Job;
use std::fmt::Write;
use vsteer_core::Fault;

/// 14.8 ms; with the sleep of 30 ms it is a third of a pCPU.
const WORK_UNITS: u32 = 740;
/// 16.6 ms of a cycle of 44.8 ms; with the work it is 70 % of a pCPU.
const BACKGROUND_UNITS: u32 = 830;

/// When timers end, from a multiple of 40 ms: between two ticks of the host for all that are 1.25 ms apart
/// (250 ticks a second, at multiples of 4 ms), or together with a tick: 10 VMs in 40 ms, each with another
/// tick.
const BESIDE_TICK_US: usize = 620;
const ON_TICK_US: usize = 1;
pub const ON_TICK_VMS: usize = 10;
/// A thread of a class above the policy's, which the policy cannot interrupt: 1 ms of work (50 units) every
/// 40 ms. It starts this long before a VM's timer ends, so that it is running then.
pub const ABOVE_UNITS: u32 = 50;
pub const ABOVE_FIRST_US: usize = 380;
/// A unit of work.
pub const UNIT_US: f64 = 20.0;

/// The nice level of a host thread that competes with one of nice 0.
pub const NICE: i32 = 5;

/// The policy's command, with these additional words.
fn policy(vms: &[&str], more: &[&str]) -> String {
    let mut words = vec!["realtime", "run", "--yes", "--json"];
    vms.iter().for_each(|vm| words.extend(["--vm", vm]));
    words.extend(more);
    let words: Vec<String> = words.iter().map(|w| format!("{w:?}")).collect();
    format!("ahead = true\ncommand = [{}]\n", words.join(", "))
}

/// A VM on the pCPU that [`on_one`] or [`on_two`] leaves to VMs.
fn vm(name: &str, workload: &str, more: &str) -> String {
    format!("[[case.vm]]\nname = {name:?}\nworkload = {workload:?}\ncpus = \"CPU\"\n{more}")
}

fn case(text: &mut String, name: &str, record_s: u32, head: &str, vms: &[String]) {
    let observe = if head.contains("observe") { "" } else { "observe = false\n" };
    let _ = write!(
        text,
        "[[case]]\nname = {name:?}\nsettle_s = 4\nrecord_s = {record_s}\n{observe}{head}{}",
        vms.concat()
    );
}

/// A host whose observer has its own pCPU.
fn on_two(text: &str) -> Result<Job, Fault> {
    Job::parse(&format!("memory_mib = 2048\n{}", text.replace("CPU", "1")))
}

fn on_three(text: &str) -> Result<Job, Fault> {
    Job::parse(&format!("pcpus = 3\nmemory_mib = 2048\n{}", text.replace("CPU", "1")))
}

/// A host with one pCPU, so that nothing else happens during a measurement. With two pCPUs, these are
/// emulated in turn, and the other one's work is visible, sometimes for some 100 us.
fn on_one(text: &str) -> Result<Job, Fault> {
    Job::parse(&format!("pcpus = 1\nmemory_mib = 2048\n{}", text.replace("CPU", "0")))
}

/// The tables, and the shares of VMs that always ask.
pub fn tables(full: bool) -> Result<Job, Fault> {
    let mut text = String::new();
    let long = if full { 20 } else { 10 };
    let sleeper = format!("sleeper,sleep_us=30000,work_units={WORK_UNITS}");
    let with_thread = format!("{sleeper},background_units={BACKGROUND_UNITS},call=1");
    let (hog, fifo) = (vm("job", "burn", ""), "class = \"fifo:50\"\n");
    let vit = policy(&["rt"], &[]);
    case(&mut text, "job-alone", long, "", std::slice::from_ref(&hog));
    for (load, workload) in [("sleeper", &sleeper), ("thread", &with_thread)] {
        let (rt, first) = (vm("rt", workload, ""), vm("rt", workload, fifo));
        let mut set_up = |name: &str, head: &str, vms: &[String]| {
            case(&mut text, &format!("{load}-{name}"), long, head, vms);
        };
        set_up("alone", "", std::slice::from_ref(&rt));
        set_up("competitor", "", &[rt.clone(), hog.clone()]);
        set_up("vit", &vit, &[rt.clone(), hog.clone()]);
        set_up("priority", "", &[first, hog.clone()]);
        if load == "thread" && full {
            set_up("timer", &policy(&["rt"], &["--source", "timer"]), &[rt, hog.clone()]);
        }
    }
    // 20 us apart, with 0.4 ms of work each: each waits for those before it.
    let together: Vec<String> = (0..8)
        .map(|i| {
            let phase_us = 1 + 20 * i;
            vm(&format!("rt{i}"), &format!("periodic,period_us=40000,work_units=20,phase_us={phase_us}"), "")
        })
        .chain(hogs())
        .collect();
    case(&mut text, "together", long, &policy(&["rt*"], &[]), &together);
    let fair = [
        vm("sleeper", &with_thread, ""),
        vm("flood", "flood", ""),
        vm("often", "waker,every_us=1000,sleep_us=1", ""),
        vm("job", "burn", ""),
        vm("double", "burn", "weight = 200\n"),
    ];
    // The sleeper runs 31 ms in one go. Where the measurement begins or ends within that, its share is off by up to
    // 31 ms: 0.5 % of the 6.7 s that it is due.
    case(&mut text, "fair", 40, &policy(&["*"], &[]), &fair);
    let limited = |quota_us: u32| vm("limited", "burn", &format!("quota_us = {quota_us}\n"));
    let parts = vm("parts", "burn", "vcpus = 2\nvcpu_quota_us = 5_000\nquota_period_us = 70_000\n");
    // Whole periods; one more or fewer in 20 s has little effect.
    let exactly = ["--warm-up", "1s", "--for", "20s"];
    case(&mut text, "quota", 24, &policy(&["*"], &exactly), &[limited(20_000), parts, hog.clone()]);
    let head =
        format!("{}event = [{{ at_s = 4, vm = \"limited\", what = \"unlimit\" }}]\n", policy(&["*"], &[]));
    case(&mut text, "unlimited", 10, &head, &[limited(1_000), hog.clone()]);
    // Each of these starts with loading the policy, which is not possible while another one is loaded.
    let pair = [vm("rt", &sleeper, ""), vm("other", &sleeper, ""), vm("job", "burn", "")];
    let event = |what: &str| format!("{}event = [{{ at_s = 4, {what} }}]\n", policy(&["rt", "other"], &[]));
    case(&mut text, "policy-killed", 10, &event("vm = \"command\", what = \"kill\""), &pair);
    // A VM that is gone cannot be asked. It comes back, as by migration.
    let goes = "vm = \"other\", what = \"stop\" }, { at_s = 7, vm = \"other\", what = \"start\"";
    case(&mut text, "guest-killed", 10, &format!("ask = false\n{}", event(goes)), &pair);
    // So little that they ask for less than their shares, and wait for each other equally.
    let little = format!("sleeper,sleep_us=30000,work_units={}", WORK_UNITS / 4);
    let pair = [vm("rt", &little, ""), vm("other", &little, "vcpus = 2\n"), hog];
    let unplugs = event("vm = \"other\", what = \"unplug\"");
    case(&mut text, "vcpu-unplugged", 20, &format!("ask = false\n{unplugs}"), &pair);
    on_two(&text)
}

/// The host's own work beside a VM that computes and one with timers, all on one pCPU, under the kernel's
/// scheduler and the policy. The timers of the latter VM end by the clock, so that it asks for the same under
/// both. A VM that sleeps again after its work (`own-eager`) does more if it waits less, at the others' cost.
pub fn own_work() -> Result<Job, Fault> {
    let mut text = String::new();
    let timers = format!("periodic,period_us=33700,work_units={}", WORK_UNITS / 4);
    let eager = format!("sleeper,sleep_us=30000,work_units={}", WORK_UNITS / 4);
    let make = "[[case.process]]\nname = \"make\"\nworkload = \"build,jobs=4\"\ncpus = \"CPU\"\n";
    let beside = |workload: &str| [vm("rt", workload, ""), vm("job", "burn", ""), make.to_owned()];
    let all = beside(&timers);
    case(&mut text, "own-alone", 30, "", &[vm("asleep", "idle", ""), all[2].clone()]);
    case(&mut text, "own-kernel", 60, "", &all);
    case(&mut text, "own-policy", 60, &policy(&["rt", "job"], &[]), &all);
    case(&mut text, "own-eager-kernel", 40, "", &beside(&eager));
    case(&mut text, "own-eager-policy", 40, &policy(&["rt", "job"], &[]), &beside(&eager));
    let switch = "[[case.process]]\nname = \"switch\"\nworkload = \"switch\"\ncpus = \"CPU\"\n".to_owned();
    let pair = [vm("asleep", "idle", ""), switch];
    case(&mut text, "switch-kernel", 5, "", &pair);
    case(&mut text, "switch-policy", 5, &policy(&["asleep"], &[]), &pair);
    // Beside a VM that computes, so that the process does not get everything.
    let niced =
        format!("[[case.process]]\nname = \"niced\"\nworkload = \"niced,nice={NICE}\"\ncpus = \"CPU\"\n");
    let pair = [vm("job", "burn", ""), niced];
    case(&mut text, "niced-kernel", 10, "", &pair);
    case(&mut text, "niced-policy", 10, &policy(&["job"], &[]), &pair);
    let pair = [vm("rt", &eager, ""), vm("job", "burn", "")];
    let head = format!("ask = false\nobserve = true\n{}", policy(&["rt"], &[]));
    case(&mut text, COUNTED[0], 10, &head, &pair);
    case(&mut text, COUNTED[1], 10, &head, &pair[..1]);
    on_two(&text)
}

/// The case in which a VM moves.
pub const MOVED: &str = "moved";

/// The cases in which an observer counts while the policy schedules: beside a VM that computes, and alone.
pub const COUNTED: [&str; 2] = ["counted", "counted-alone"];

/// The case in which the policy starts and ends repeatedly.
pub const CYCLES: &str = "cycles";

/// See [`CYCLES`]; tests functions only. No VM computes in it, nor in [`comings`]. The reason: a pCPU's timer
/// may end every few us (as with Linux 7.3's `hrtick`). Another pCPU that is emulated in turn with it may
/// then find that timer's lock taken at every look, forever.
pub fn cycles(times: u32) -> Result<Job, Fault> {
    let mut text = String::new();
    let sleeper = format!("sleeper,sleep_us=30000,work_units={}", WORK_UNITS / 4);
    let head = format!("ask = false\ncycles = {times}\n{}", policy(&["rt"], &[]));
    case(&mut text, CYCLES, 3, &head, &[vm("rt", &sleeper, "")]);
    on_three(&text)
}

/// A pCPU that goes offline and online while the policy schedules; tests functions only.
pub fn comings() -> Result<Job, Fault> {
    let mut text = String::new();
    let sleeper = format!("sleeper,sleep_us=30000,work_units={}", WORK_UNITS / 4);
    let rt = [vm("rt", &sleeper, "")];
    let events =
        "{ at_s = 3, vm = \"cpu2\", what = \"offline\" }, { at_s = 30, vm = \"cpu2\", what = \"online\" }";
    let head = format!("ask = false\n{}event = [{events}]\n", policy(&["rt"], &[]));
    case(&mut text, "pcpu-goes", 60, &head, &rt);
    on_three(&text)
}

/// A VM of several vCPUs with the smallest weight beside one with the largest, for several times as long as the kernel lets a
/// thread wait; tests functions only.
pub fn starved() -> Result<Job, Fault> {
    let all = [vm("heavy", "burn", "weight = 10000\n"), vm("light", "burn", "vcpus = 3\nweight = 1\n")];
    let mut text = "shift = 3\nsettle_s = 8\n".to_owned();
    case(&mut text, "starved", 120, &format!("ask = false\n{}", policy(&["heavy", "light"], &[])), &all);
    on_two(&text)
}

/// A VM with Linux that moves, live, to another process while its timers are honoured, beside one that does
/// the same and one that computes.
pub fn moved(before_s: u32) -> Result<Job, Fault> {
    let sleeper = format!("sleeper,sleep_us=30000,work_units={}", WORK_UNITS / 4);
    let all = [vm("rt", &sleeper, "linux = true\n"), vm("other", &sleeper, ""), vm("job", "burn", "")];
    let event = "event = [{ at_s = 10, vm = \"rt\", what = \"migrate\" }]\n";
    let mut text = format!("settle_s = {before_s}\n");
    case(&mut text, MOVED, 50, &format!("{}{event}", policy(&["rt*", "other"], &[])), &all);
    // Its Linux boots beside a VM that computes.
    on_two(&text.replace("settle_s = 4", "settle_s = 30"))
}

fn hogs() -> Vec<String> {
    (0..4).map(|i| vm(&format!("hog{i}"), "burn", "")).collect()
}

/// The numbers of VMs with timers beside four that compute.
pub fn many(full: bool) -> &'static [usize] {
    if full { &[1, 8, 32] } else { &[8] }
}

/// From the end of a timer to running. The VMs are known when counting begins, and no guest is asked.
pub fn expiries(full: bool) -> Result<Job, Fault> {
    let mut text = String::new();
    let quiet = ["--warm-up", "3s", "--for", if full { "18s" } else { "8s" }];
    let long = if full { 20 } else { 10 };
    for &n in many(full) {
        // 40 ms in equal parts for each: 1.25 ms apart for 32, and each works 0.1 ms.
        let from = |n: usize, first_us: usize| -> Vec<String> {
            let timer = |i: usize| {
                let phase_us = first_us + 40_000 / n * i;
                vm(
                    &format!("rt{i}"),
                    &format!("periodic,period_us=40000,work_units=5,phase_us={phase_us}"),
                    "",
                )
            };
            (0..n).map(timer).chain(hogs()).collect()
        };
        let vms = from(n, BESIDE_TICK_US);
        let head = |more: &[&str]| format!("ask = false\n{}", policy(&["rt*"], &[&quiet[..], more].concat()));
        case(&mut text, &format!("expiry-{n}"), long, &head(&[]), &vms);
        if full && n == 1 {
            case(&mut text, "expiry-tick", long, &head(&[]), &from(ON_TICK_VMS, ON_TICK_US));
            let phase_us = BESIDE_TICK_US - ABOVE_FIRST_US;
            let workload = format!("periodic,period_us=40000,work_units={ABOVE_UNITS},phase_us={phase_us}");
            let above = vm("above", &workload, "class = \"fifo:50\"\n");
            let vms: Vec<String> = vms.iter().cloned().chain([above]).collect();
            case(&mut text, "expiry-above", long, &head(&[]), &vms);
        }
        if full && n == 8 {
            case(&mut text, "expiry-8-measured", long, &head(&["--measure-only"]), &vms);
            case(&mut text, "costs", long, &head(&["--costs"]), &vms);
        }
    }
    on_one(&text)
}
