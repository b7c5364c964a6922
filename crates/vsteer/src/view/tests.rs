//! The screens of the view on a host of the tests' own, drawn into memory.

use super::keys::{clicked, pressed};
use super::pins::tests::{host, vm};
use super::table::ready_style;
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use vsteer_core::model;
use vsteer_core::nouns::{
    Collector, Histogram, PcpuSample, ThreadCounters, ThreadSample, VmConfig, VmId, VmThread,
};

/// What `vsteer top` is asked for, with this configuration.
fn asked(text: &str, words: &[&str]) -> (Top, Config) {
    use clap::FromArgMatches;
    let config = vsteer_record::config::of_text(text).strict().unwrap();
    let all = ["vsteer", "top"].iter().chain(words);
    let matches = crate::settings::with_defaults("top", &config).get_matches_from(all);
    let crate::cli::Command::Top(a) = crate::cli::Cli::from_arg_matches(&matches).unwrap().command else {
        panic!("top was asked for");
    };
    (a, config)
}

/// A view of hosts with these names.
fn view(names: &[&str]) -> View {
    let (a, config) = asked("", &[]);
    let shown = |name: &&str| Shown { name: (*name).to_owned(), ..Shown::default() };
    let look = Look { ascii: false, ..Look::of(&a, &config) };
    View::new(&a, names.iter().map(shown).collect(), Vec::new(), look)
}

/// The sample of a host after this many seconds: the vCPUs of VM `n` are ready `n` thousandths of the time.
fn sample(config: &HostConfig, s: u64) -> Batch {
    let thread = |(n, vm, t): (u64, &VmConfig, &VmThread)| ThreadSample {
        vm: vm.id.clone(),
        role: t.role,
        tid: t.tid,
        last_cpu: t.affinity.iter().next(),
        waiting_ns: None,
        counters: ThreadCounters {
            run_ns: Some(s * 300_000_000),
            ready_ns: Some(s * n * 1_000_000),
            limited_ns: Some(0),
            wait_ns: Some(s * n * 1_000_000),
            blocked_ns: Some(s * (700_000_000 - (n * 1_000_000).min(700_000_000))),
            wake_latency: Some(Histogram { counts: (10..30).map(|bucket| (bucket, s * 7)).collect() }),
            ..ThreadCounters::default()
        },
    };
    let threads = (0..).zip(&config.vms).flat_map(|(n, vm)| vm.threads.iter().map(move |t| (n, vm, t)));
    let pcpu = |cpu: u32| PcpuSample {
        cpu,
        user_ns: s * 500_000_000,
        idle_ns: s * 500_000_000,
        ..PcpuSample::default()
    };
    Batch {
        mono_ns: s * 1_000_000_000,
        unix_ns: s * 1_000_000_000,
        threads: threads.map(thread).collect(),
        pcpus: config.topology.online().iter().map(pcpu).collect(),
        ..Batch::default()
    }
}

/// Shows one update more.
fn update(view: &mut View, place: usize, config: &HostConfig, s: u64) {
    let collector = Collector { name: "test".into(), missing: Default::default() };
    let (before, now) = (sample(config, s), sample(config, s + 1));
    let model = model::derive(config, &collector, &[&before, &now]).unwrap();
    view.see(place, config, [&before, &now], model);
}

fn drawn(view: &mut View, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|f| draw(f, view)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = buffer.content().chunks(usize::from(width));
    let line = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    cells.map(|row| line(row).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn keys(view: &mut View, keys: &[KeyCode]) {
    keys.iter().for_each(|key| assert!(!pressed(view, *key, KeyModifiers::NONE), "{key:?} ends the view"));
}

/// Three VMs; the last one waits most, and so is the first.
fn three() -> (View, HostConfig) {
    let vms = vec![vm("idle", &["0-3"]), vm("web", &["0", "2"]), vm("db", &["0-3", "0-3"])];
    let (mut view, config) = (view(&["h"]), host(2, vms));
    (0..3).for_each(|s| update(&mut view, 0, &config, s));
    (view, config)
}

const SMALL: (u16, u16) = (80, 24);

#[test]
fn enter_shows_one_vm_and_esc_goes_back() {
    let (mut view, config) = three();
    keys(&mut view, &[KeyCode::Char('j'), KeyCode::Enter]);
    let screen = drawn(&mut view, SMALL);
    assert!(screen.contains("web, 2 vCPUs, on host h") && screen.contains("last 3 updates"), "{screen}");
    assert!(screen.contains("full height 5 %") && screen.contains("not measured: co-stop, lag"), "{screen}");
    // What does not fit scrolls, also while paused; what is drawn limits the place.
    keys(&mut view, &[KeyCode::Char(' '), KeyCode::End]);
    let screen = drawn(&mut view, SMALL);
    assert!(view.paused && screen.contains("PAUSED") && screen.contains("vcpu1"), "{screen}");
    assert!(screen.lines().last().unwrap().contains(" of "), "{screen}");
    keys(&mut view, &[KeyCode::Home]);
    assert!(drawn(&mut view, SMALL).contains("web, 2 vCPUs"));
    // The table's order is by ready time: db, web, idle.
    keys(&mut view, &[KeyCode::Left]);
    assert!(drawn(&mut view, SMALL).contains("db, 2 vCPUs"));
    keys(&mut view, &[KeyCode::Left, KeyCode::Right, KeyCode::Right]);
    assert!(drawn(&mut view, SMALL).contains("idle, 1 vCPU,"));
    // Keys of the table do nothing here, and a VM that ended stays on the screen.
    keys(&mut view, &[KeyCode::Char('e'), KeyCode::Char('f'), KeyCode::Char('/')]);
    assert!(view.expanded.is_empty() && view.choosing.is_none() && view.typing.is_none());
    let without = HostConfig { vms: config.vms[1..].to_vec(), ..config };
    update(&mut view, 0, &without, 3);
    assert!(drawn(&mut view, SMALL).contains("idle, on host h, not in the last update"));
    keys(&mut view, &[KeyCode::Esc]);
    assert!(matches!(view.page, Page::Table) && drawn(&mut view, SMALL).contains("NAME"));
    assert!(pressed(&mut view, KeyCode::Char('q'), KeyModifiers::NONE));
}

#[test]
fn an_estimate_is_marked() {
    let (mut view, _) = three();
    let vms = &mut view.hosts[0].model.as_mut().unwrap().vms;
    vms.iter_mut().for_each(|vm| (vm.vcpus.limited, vm.limited_estimate) = (None, Some(0.1)));
    keys(&mut view, &[KeyCode::Char('z')]);
    assert!(drawn(&mut view, SMALL).contains("~limited"));
}

#[test]
fn a_pause_is_a_gap_in_the_trend() {
    let (mut view, config) = three();
    let trend = |view: &View| view.hosts[0].past.sparkline(&VmId("db".into()), 0.2, false).trim().to_owned();
    assert_eq!(trend(&view), "▁▁▁");
    view.hosts[0].past.missed = true;
    update(&mut view, 0, &config, 9);
    update(&mut view, 0, &config, 10);
    assert_eq!(trend(&view), "▁▁▁-▁▁");
}

#[test]
fn a_recording_waits_while_the_view_is_paused() {
    struct Asked(u32);
    impl Observe for Asked {
        fn config(&mut self) -> Result<HostConfig, Fault> {
            unreachable!("a paused view asks for samples at most")
        }
        fn collector(&self) -> Collector {
            unreachable!("a paused view asks for samples at most")
        }
        fn sample(&mut self) -> Result<Batch, Fault> {
            self.0 += 1;
            Ok(Batch::default())
        }
    }
    let (mut view, _) = three();
    view.paused = true;
    let asked = |view: &mut View, waits: bool| {
        let mut host = Asked(0);
        let (described, before) = (Described::default(), Batch::default());
        One { host: &mut host, described, before, left: 9, waits }.feed(view, true).unwrap();
        host.0
    };
    assert_eq!([asked(&mut view, true), asked(&mut view, false)], [0, 1]);
}

#[test]
fn a_double_click_shows_one_vm() {
    let (mut view, _) = three();
    drawn(&mut view, SMALL);
    let click = |view: &mut View, button, line: u16, at: Instant| {
        let row = view.area.y + line;
        let mouse =
            MouseEvent { kind: MouseEventKind::Down(button), column: 4, row, modifiers: KeyModifiers::NONE };
        clicked(view, mouse, at);
    };
    let (begin, ms) = (Instant::now(), Duration::from_millis);
    click(&mut view, MouseButton::Left, 1, begin);
    click(&mut view, MouseButton::Left, 2, begin + ms(100));
    assert!(matches!(view.page, Page::Table), "two clicks on two VMs");
    click(&mut view, MouseButton::Left, 2, begin + ms(900));
    assert!(matches!(view.page, Page::Table), "two slow clicks");
    click(&mut view, MouseButton::Right, 2, begin + ms(1000));
    assert_eq!(view.expanded.len(), 1, "the right button expands");
    click(&mut view, MouseButton::Right, 2, begin + ms(1000));
    click(&mut view, MouseButton::Left, 2, begin + ms(1100));
    click(&mut view, MouseButton::Left, 2, begin + ms(1200));
    assert!(matches!(&view.page, Page::Zoom(zoom) if zoom.vm.0 == "web".into()));
}

#[test]
fn the_map_shows_pins_and_where_vcpus_ran() {
    let (mut view, _) = three();
    keys(&mut view, &[KeyCode::Char('m')]);
    let screen = drawn(&mut view, SMALL);
    assert!(screen.contains("web              0,2        =1=1 . ."), "{screen}");
    assert!(screen.contains("db               not pinned  2 . . ."), "{screen}");
    keys(&mut view, &[KeyCode::Char('E')]);
    assert!(drawn(&mut view, SMALL).contains("  vcpu1          2           .=1 . ."));
    keys(&mut view, &[KeyCode::Char('m')]);
    assert!(matches!(view.page, Page::Table));
}

#[test]
fn the_map_of_many_pcpus_and_several_hosts_scrolls() {
    let mut view = view(&["one", "two"]);
    let vms = (0..40).map(|n| vm(&format!("vm-{n}"), &[&n.to_string()])).collect();
    let (large, small) = (host(64, vms), host(1, vec![vm("last", &["1"])]));
    update(&mut view, 0, &large, 0);
    update(&mut view, 1, &small, 0);
    keys(&mut view, &[KeyCode::Char('m')]);
    let screen = drawn(&mut view, SMALL);
    assert!(screen.contains("host one") && screen.contains("rows 1 to "), "{screen}");
    assert!(screen.contains("pCPUs 0 to 20 %"), "{screen}");
    keys(&mut view, &[KeyCode::End]);
    (0..20).for_each(|_| keys(&mut view, &[KeyCode::Right]));
    let screen = drawn(&mut view, SMALL);
    assert!(
        screen.contains("host two") && screen.contains("to 41 of 41") && screen.contains("to 100 %"),
        "{screen}"
    );
    // The heading of the first host stands above its rows on every page.
    assert!(screen.contains("host one") && screen.contains("siblings"), "{screen}");
    assert_eq!(screen.lines().filter(|line| !line.is_empty()).count(), 24, "the last page is full: {screen}");
}

#[test]
fn the_help_scrolls_on_a_small_screen() {
    let (mut view, _) = three();
    keys(&mut view, &[KeyCode::Char('h')]);
    let screen = drawn(&mut view, SMALL);
    assert!(screen.contains("the pin map") && !screen.contains("not measured by this collector"), "{screen}");
    keys(&mut view, &[KeyCode::End]);
    assert!(drawn(&mut view, SMALL).contains("not measured by this collector"));
    keys(&mut view, &[KeyCode::PageUp, KeyCode::PageUp, KeyCode::PageUp, KeyCode::Down]);
    assert_eq!(view.help, Some(1));
    keys(&mut view, &[KeyCode::Char('x')]);
    assert!(view.help.is_none());
}

/// Prints the times of drawing: `cargo test -p vsteer --release --bin vsteer thousand -- --nocapture`.
#[test]
fn a_thousand_vms_are_drawn_in_time() {
    let vms = (0..1000).map(|n| vm(&format!("vm-{n}"), &["0-127", "0-127", "0-127", "0-127"])).collect();
    let (mut view, config) = (view(&["h"]), host(64, vms));
    let timed = |what: &str, times: u32, run: &mut dyn FnMut()| {
        run();
        let begin = Instant::now();
        (0..times).for_each(|_| run());
        let ms = begin.elapsed().as_secs_f64() * 1e3 / f64::from(times);
        println!("1,000 VMs of 4 vCPUs: {what}: {ms:.2} ms");
        ms
    };
    let mut s = 0;
    let mut next = || {
        update(&mut view, 0, &config, s);
        s += 1;
    };
    timed("an update, samples and model included", 12, &mut next);
    let of = |view: &mut View, what: &str, key: &[KeyCode]| {
        keys(view, key);
        timed(what, 20, &mut || drop(drawn(view, (160, 50))))
    };
    let frames = [
        of(&mut view, "the table", &[]),
        of(&mut view, "the table, all expanded", &[KeyCode::Char('E')]),
        of(&mut view, "the pin map, all expanded", &[KeyCode::Char('m')]),
        of(&mut view, "the pin map", &[KeyCode::Char('E')]),
        of(&mut view, "one VM", &[KeyCode::Esc, KeyCode::Enter]),
    ];
    // Far above what it takes, and below what a person would call slow, also without optimisation and beside other work.
    assert!(frames.iter().all(|ms| *ms < 500.0), "{frames:?} ms");
}

#[test]
fn what_a_person_chooses_for_the_live_table() {
    let look = |text: &str, words: &[&str]| {
        let (a, config) = asked(text, words);
        Look::of(&a, &config)
    };
    <crate::cli::Cli as clap::CommandFactory>::command().debug_assert();
    let plain = look("", &[]);
    assert!(plain.colour && plain.columns.is_empty() && plain.fg(Color::Red).fg == Some(Color::Red));
    let chosen = look("[display]\ncolour = \"never\"\n[top]\ncolumns = [\"%RDY\", \"%USED\"]\n", &[]);
    assert_eq!((chosen.colour, &chosen.columns), (false, &vec![2, 0]));
    assert!(chosen.fg(Color::Red) == Style::new() && chosen.selected().bg.is_none());
    assert_eq!(look("[top]\ncolumns = [\"%RDY\"]\n", &["--columns", "%RUN,SW/s"]).columns, [1, 11]);
    // Ready at 7 % of a pCPU: yellow by default, red with another threshold.
    let colour = |look: &Look| ready_style(Some(0.07), 1, look).fg;
    assert_eq!(colour(&plain), Some(Color::Yellow));
    assert_eq!(colour(&look("[thresholds]\nready_per_vcpu_critical = \"6%\"\n", &[])), Some(Color::Red));
    assert_eq!(colour(&look("[thresholds]\nready_per_vcpu = \"8%\"\n", &[])), None);
    assert_eq!(colour(&chosen), None);
}
