//! Batch files of esxtop in the forms in which people have them: is each read with the right numbers, or refused with the
//! true reason?
//!
//! The files are made here ([`made`], [`forms`]), and the right answers are computed from the numbers that went in.

mod forms;
mod made;
mod refused;

use forms::{contents, forms};
use made::{BEGINS_S, COUNTERS, Content, EVERY_S, Form, PLAIN, ROWS, busy};
use std::path::PathBuf;
use vsteer_core::Fault;
use vsteer_core::model::{self, HostModel};
use vsteer_core::nouns::Shares;
use vsteer_record::esxtop::{self, Saved};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let file = self.0.path().join("esxtop.csv");
        std::fs::write(&file, bytes).unwrap();
        file
    }

    fn read(&self, bytes: &[u8]) -> Result<Saved, Fault> {
        let file = self.file(bytes);
        assert!(esxtop::is_one(&file) || !bytes.windows(8).any(|w| w == b"(PDH-CSV"), "not recognised");
        esxtop::read(&file)
    }
}

fn model_of(saved: &Saved) -> HostModel {
    model::derive(&saved.config, &saved.collector, &saved.batches).unwrap()
}

/// The shares in the order of [`COUNTERS`]. `wait` is `% Ready`, which includes limited time.
fn shares(s: &Shares) -> [Option<f64>; 5] {
    [s.run, s.wait, s.costop, s.limited, s.blocked]
}

/// Compares what was read with what was written. Values have two decimals, so no error is larger than rounding.
#[track_caller]
fn compare(what: &str, content: &Content, saved: &Saved) {
    let model = model_of(saved);
    let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-7);
    assert_eq!(model.vms.len(), content.vms.len(), "{what}: {:?}", saved.notes);
    for (i, (gid, name, vcpus)) in content.vms.iter().enumerate() {
        let vm =
            model.vms.iter().find(|vm| vm.name == *name).unwrap_or_else(|| panic!("{what}: no {name:?}"));
        for (k, counter) in COUNTERS.iter().enumerate() {
            let mean = content.mean(k, i, &[]);
            assert!(near(shares(&vm.group)[k], mean), "{what}: group {gid} {counter}: {:?} {mean}", vm.group);
            if *vcpus > 0 {
                assert!(
                    near(shares(&vm.vcpus)[k], mean),
                    "{what}: vCPUs of {gid} {counter}: {:?} {mean}",
                    vm.vcpus
                );
            }
        }
        assert_eq!(vm.vcpu_threads().count(), *vcpus, "{what}");
        assert_eq!(vm.memory_local.map(|l| (l * 1e4).round() as i64), content.local, "{what}");
    }
    for (cpu, pcpu) in model.pcpus.iter().enumerate() {
        let mean = (1..ROWS).map(|row| busy(cpu, row) as f64).sum::<f64>() / (ROWS - 1) as f64 / 1e4;
        assert!((pcpu.busy - mean).abs() < 1e-7, "{what}: pCPU {cpu}: {} {mean}", pcpu.busy);
    }
    assert_eq!(model.pcpus.len(), 4, "{what}");
    assert_eq!(saved.config.hostname, content.host, "{what}");
    assert_eq!(model.window_ns, (ROWS as u64 - 1) * EVERY_S * 1_000_000_000, "{what}: {:?}", saved.notes);
    assert_eq!(saved.batches[0].unix_ns, BEGINS_S * 1_000_000_000, "{what}");
}

#[test]
fn every_form_of_every_content_has_the_right_numbers() {
    let place = Place::new();
    let mut inputs = 0;
    for form in forms() {
        for content in contents() {
            let what = format!("{}: {}", form.name, content.name);
            let bytes = form.file(&content);
            let saved = place.read(&bytes).unwrap_or_else(|why| panic!("{what}: {why}"));
            compare(&what, &content, &saved);
            let says = |word: &str| saved.notes.iter().any(|n| n.contains(word));
            assert_eq!(says("no seconds"), form.coarse, "{what}: {:?}", saved.notes);
            assert_eq!(
                says("before the header"),
                form.name == "a banner in front",
                "{what}: {:?}",
                saved.notes
            );
            assert!(
                !says("is not a share") && !says("is not a time") && !says("values, but"),
                "{what}: {:?}",
                saved.notes
            );
            inputs += 1;
        }
    }
    assert!(inputs >= 120, "{inputs}");
}

/// The groups that vsteer drops without worlds are listed, and names that only look like ESXi's are kept.
#[test]
fn a_note_lists_what_was_dropped() {
    let place = Place::new();
    let content = contents().into_iter().find(|c| c.name == "groups only").unwrap();
    let saved = place.read(&PLAIN.file(&content)).unwrap();
    let note = |word: &str| saved.notes.iter().find(|n| n.contains(word)).cloned().unwrap_or_default();
    assert!(note("groups only").contains("system, idle, hostd.2099123, vpxa.2099456"), "{:?}", saved.notes);
    assert!(
        note("takes these groups for VMs").contains("ubuntu-22.04, win.2019, 10.0.0.12"),
        "{:?}",
        saved.notes
    );
    // With worlds, or with names beside the file, nothing is guessed.
    let two = &contents()[0];
    let saved = place.read(&PLAIN.file(two)).unwrap();
    assert!(!saved.notes.iter().any(|n| n.contains("takes these groups")), "{:?}", saved.notes);
}

/// The cells of the plain form, to be changed.
fn cells(content: &Content) -> Vec<Vec<String>> {
    PLAIN.cells(content)
}

fn column(cells: &[Vec<String>], path: &str) -> usize {
    cells[0].iter().position(|c| c.ends_with(path)).unwrap_or_else(|| panic!("no {path}"))
}

const BAD: [&str; 12] = [
    "",
    " ",
    "nan",
    "-0.03",
    "-1",
    "abc",
    "1,234.50",
    "18446744073709551615.00",
    "N/A",
    "1e400",
    "#####",
    "1.2.3",
];

/// One bad cell: its world lacks the intervals at both sides of that row, everything else is as it was.
#[test]
fn a_bad_cell_costs_that_cell() {
    let place = Place::new();
    let content = &contents()[0];
    for bad in BAD {
        let mut cells = cells(content);
        let at = column(&cells, "Vcpu(101:web-1:10100:vmx-vcpu-0:web-1)\\% Ready");
        let row = 12;
        cells[1 + row][at] = bad.to_owned();
        let saved = place.read(PLAIN.text(&cells).as_bytes()).unwrap();
        let model = model_of(&saved);
        let web = model.vms.iter().find(|vm| vm.name == "web-1").unwrap();
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-7);
        let of_vcpu = |counter: usize, vcpu: usize, skipped: &[usize]| {
            let rows: Vec<usize> = (1..ROWS).filter(|r| !skipped.contains(r)).collect();
            let sum: i64 = rows.iter().map(|r| made::value(counter, 0, vcpu, *r)).sum();
            sum as f64 / rows.len() as f64 / 1e4
        };
        for (k, counter) in COUNTERS.iter().enumerate() {
            let threads = &web.threads;
            assert!(
                near(shares(&threads[0].shares)[k], of_vcpu(k, 0, &[row, row + 1])),
                "{bad:?}: {counter}"
            );
            assert!(near(shares(&threads[1].shares)[k], of_vcpu(k, 1, &[])), "{bad:?}: {counter}");
            assert!(near(shares(&web.group)[k], content.mean(k, 0, &[])), "{bad:?}: {counter}");
        }
        let db = model.vms.iter().find(|vm| vm.name == "db-1").unwrap();
        assert!(near(db.vcpus.wait, content.mean(1, 1, &[])), "{bad:?}");
        assert_eq!(saved.batches.len(), ROWS, "{bad:?}");
        let noted = saved.notes.iter().any(|n| n.contains("line 14") && n.contains("is not a share of time"));
        assert_eq!(noted, !bad.trim().is_empty(), "{bad:?}: {:?}", saved.notes);
        assert!(saved.notes.iter().any(|n| n.contains("worlds are missing from 1 row")), "{:?}", saved.notes);
    }
}

/// ESXi writes `-0.03` into the same column of every row: that counter is missing, and the rest is read.
#[test]
fn a_counter_without_valid_cells_is_missing() {
    let place = Place::new();
    let content = &contents()[0];
    for bad in BAD {
        let mut cells = cells(content);
        let all: Vec<usize> = (0..cells[0].len()).filter(|i| cells[0][*i].ends_with("% Wait")).collect();
        cells[1..].iter_mut().for_each(|row| all.iter().for_each(|i| row[*i] = bad.to_owned()));
        let saved = place.read(PLAIN.text(&cells).as_bytes()).unwrap();
        for (i, vm) in model_of(&saved).vms.iter().enumerate() {
            let i = content.vms.iter().position(|(_, name, _)| *name == vm.name).unwrap_or(i);
            for k in 0..4 {
                let share = shares(&vm.vcpus)[k].unwrap_or(9.0);
                assert!((share - content.mean(k, i, &[])).abs() < 1e-7, "{bad:?} {share}");
            }
            assert_eq!((vm.vcpus.blocked, vm.group.blocked), (None, None), "{bad:?}");
        }
        let says = |word: &str| saved.notes.iter().any(|n| n.contains(word));
        assert!(says("\"% Wait\" is missing for 2 VMs"), "{bad:?}: {:?}", saved.notes);
        assert!(
            saved.collector.missing["blocked_ns"].contains("no valid number"),
            "{:?}",
            saved.collector.missing
        );
    }
}

/// A counter loses its values in the middle of a file: after some rows, its world is counted without it.
#[test]
fn a_counter_that_ends_does_not_hide_its_vm() {
    let place = Place::new();
    let content = &contents()[0];
    let mut cells = cells(content);
    let at = column(&cells, "Vcpu(101:web-1:10100:vmx-vcpu-0:web-1)\\% Wait");
    cells[11..].iter_mut().for_each(|row| row[at] = "-0.03".to_owned());
    let saved = place.read(PLAIN.text(&cells).as_bytes()).unwrap();
    let in_last = saved.batches[ROWS - 1].threads.iter().filter(|t| t.vm.0 == "web-1".into()).count();
    assert_eq!(in_last, 2, "{:?}", saved.notes);
}

/// A pCPU without a value in some rows has the mean of the others; without any, it is missing. Never idle.
#[test]
fn a_pcpu_without_values_is_not_idle() {
    let place = Place::new();
    let content = &contents()[0];
    for bad in BAD {
        let mut cells = cells(content);
        let [one, all] = ["(1)", "(2)"].map(|cpu| column(&cells, &format!("Physical Cpu{cpu}\\% Util Time")));
        (10..15).for_each(|row| cells[1 + row][one] = bad.to_owned());
        cells[1..].iter_mut().for_each(|row| row[all] = bad.to_owned());
        let model = model_of(&place.read(PLAIN.text(&cells).as_bytes()).unwrap());
        assert_eq!(model.pcpus.iter().map(|p| p.cpu).collect::<Vec<_>>(), [0, 1, 3], "{bad:?}");
        let rows: Vec<usize> = (1..ROWS).filter(|r| !(10..15).contains(r)).collect();
        let mean = rows.iter().map(|r| busy(1, *r) as f64).sum::<f64>() / rows.len() as f64 / 1e4;
        assert!((model.pcpus[1].busy - mean).abs() < 1e-6, "{bad:?}: {} {mean}", model.pcpus[1].busy);
    }
}

/// Columns that come twice, a number that two groups share, exactly as many columns as a spreadsheet holds.
#[test]
fn doubtful_headers_have_a_note() {
    let place = Place::new();
    let content = &contents()[0];
    let twice = |rename: &dyn Fn(&str) -> String| {
        let mut cells = cells(content);
        let all: Vec<usize> = (0..cells[0].len()).filter(|i| cells[0][*i].contains("(101:web-1")).collect();
        for (n, row) in cells.iter_mut().enumerate() {
            let more: Vec<String> =
                all.iter().map(|i| if n == 0 { rename(&row[*i]) } else { "9.00".to_owned() }).collect();
            row.extend(more);
        }
        place.read(PLAIN.text(&cells).as_bytes()).unwrap()
    };
    for (what, saved) in
        [("twice", twice(&str::to_owned)), ("one number", twice(&|c| c.replace("web-1", "newvm")))]
    {
        compare(what, content, &saved);
        assert!(saved.notes.iter().any(|n| n.contains("repeat another one's counter")), "{:?}", saved.notes);
    }
    let mut cells = cells(content);
    let more = 16_384 - cells[0].len();
    for (n, row) in cells.iter_mut().enumerate() {
        row.extend(
            (0..more).map(|i| if n == 0 { format!("\\\\h\\Disk(d{i})\\Reads") } else { "1".to_owned() }),
        );
    }
    cells.truncate(5);
    let saved = place.read(PLAIN.text(&cells).as_bytes()).unwrap();
    assert!(saved.notes.iter().any(|n| n.contains("16384 columns")), "{:?}", saved.notes);
}

/// A spreadsheet saves names in its machine's own code page. The numbers are right all the same.
#[test]
fn names_in_another_code_page_have_a_note() {
    let place = Place::new();
    let content = contents().into_iter().find(|c| c.name == "odd names").unwrap();
    let text = PLAIN.text(&cells(&content));
    let latin1: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let saved = place.read(&latin1).unwrap();
    assert!(saved.notes.iter().any(|n| n.contains("not in UTF-8")), "{:?}", saved.notes);
    let model = model_of(&saved);
    let odd = model.vms.iter().find(|vm| vm.name.starts_with('w') && vm.name.contains('\u{fffd}')).unwrap();
    assert!((odd.vcpus.wait.unwrap() - content.mean(1, 2, &[])).abs() < 1e-7);
}

/// Times without seconds: the interval shows where enough rows do, and is assumed otherwise. Shares are right in any case.
#[test]
fn an_interval_that_does_not_show_is_assumed() {
    let place = Place::new();
    let content = &contents()[0];
    let form = Form { time: |h, m, _| format!("11/24/2026 {h}:{m:02}"), quoted: false, ..PLAIN };
    let mut cells = form.cells(content);
    cells.truncate(7);
    let saved = place.read(form.text(&cells).as_bytes()).unwrap();
    assert!(saved.notes.iter().any(|n| n.contains("vsteer assumes 5 s")), "{:?}", saved.notes);
    let mean = (1..6).map(|row| content.sum(1, 0, row) as f64).sum::<f64>() / 5.0 / 1e4;
    assert!((model_of(&saved).vms[1].vcpus.wait.unwrap() - mean).abs() < 1e-7);
    // Rows five minutes apart show their interval by themselves.
    let times = ["8:00", "8:05", "8:10", "8:15", "8:20", "8:25"];
    (0..6).for_each(|i| cells[1 + i][0] = format!("11/24/2026 {}", times[i]));
    let saved = place.read(form.text(&cells).as_bytes()).unwrap();
    assert_eq!(model_of(&saved).window_ns, 5 * 300 * 1_000_000_000);
    assert!(saved.notes.iter().any(|n| n.contains("300.0 s apart")), "{:?}", saved.notes);
}

/// Up to the 12th of a month, a date with dots may have been made from esxtop's.
#[test]
fn a_date_that_may_be_swapped_has_a_note() {
    let place = Place::new();
    let form = Form {
        time: |h, m, s| format!("09.11.2026 {h:02}:{m:02}:{s:02}"),
        separator: ';',
        decimal: ',',
        quoted: false,
        ..PLAIN
    };
    let saved = place.read(&form.file(&contents()[0])).unwrap();
    assert!(saved.notes.iter().any(|n| n.contains("day and month are swapped")), "{:?}", saved.notes);
    assert_eq!(saved.batches[0].unix_ns, (BEGINS_S - 15 * 86_400) * 1_000_000_000);
}
