//! A folder with one of each kind of file that a command reads, made once by the program itself.

use crate::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The folder; commands run in it, so texts name files without a path.
pub static PLACE: LazyLock<Place> = LazyLock::new(Place::new);

/// A configuration with one fault of each kind.
const FAULTY: &str = "\
interval = \"2s\"
[top]
intervall = \"2s\"
interval = 2
columns = [\"%RDY\", \"%RUM\", \"%RDY\"]
[record]
interval = \"90s\"
ring = \"2\"
event_buffer = \"3M\"
[plan]
work_loss = \"10\"
[thresholds]
wake_p99_ns = \"5%\"
[paths]
state = \"journals\"
[display]
time_zone = \"Mars\"
\"colour\\u001b[31m\" = \"red\"
[collecter]
[connection]
connect = \"lba\"
connect = \"lab\"
[hosts.lab]
connect = \"qemu+ext:///system?command=/tmp/x\"
ca = \"ca.pem\"
";

pub struct Place {
    folder: tempfile::TempDir,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        let link = |from: &str, to: &str| {
            std::os::unix::fs::symlink(project().join(from), place.path().join(to)).unwrap();
        };
        link("scenarios", "scenarios");
        link("crates/vsteer/tests/captured", "host");
        link("crates/vsteer/tests/captured", "host-2");
        let noisy = "scenarios/noisy-neighbour.toml";
        for line in [
            format!("simulate {noisy} -o before.vsteer"),
            format!("simulate {noisy} --set vm.timer.weight=800 -o after.vsteer"),
            "plan before.vsteer -o plan.json".to_owned(),
            "export before.vsteer --to esxtop -o esxtop.csv.gz".to_owned(),
        ] {
            let out = place.run(&line);
            assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        }
        place.write("enabled", "madvise");
        // The shipped example, on a file of its own: what is in force differs from machine to machine.
        let example = include_str!("../../../../experiments/examples/huge-pages.toml");
        let (in_force, file) = ("/sys/kernel/mm/transparent_hugepage/enabled", place.path().join("enabled"));
        assert!(example.contains(in_force));
        place.write("huge-pages.toml", &example.replace(in_force, file.to_str().unwrap()));
        place.write("foreign.json", "{\"hello\": 1}");
        place.write("faulty.toml", FAULTY);
        place.write("good.toml", "[top]\ninterval = \"5s\"\n");
        std::fs::create_dir(place.path().join("empty.vsteer")).unwrap();
        crate::past::write(&place.path().join("past"));
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// Runs `vsteer LINE` without a shell: words are separated by blanks.
    pub fn run(&self, line: &str) -> Output {
        self.command(&line.split_whitespace().collect::<Vec<_>>()).output().expect("vsteer starts")
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = program::vsteer();
        command.args(words).current_dir(self.path());
        command.env("VSTEER_STATE", self.path().join("state")).env("TZ", "UTC").env("COLUMNS", "100");
        command
    }

    /// What `vsteer LINE` prints on both streams, with its exit code, without names of this machine.
    pub fn printed(&self, line: &str) -> String {
        let out = self.run(line);
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(self.path().to_str().unwrap(), "FOLDER");
        let mut all = format!("$ vsteer {line}\n{}", text(&out.stdout));
        for printed in text(&out.stderr).lines().filter(|l| !l.contains('\r')) {
            all += &format!("{printed}\n");
        }
        match out.status.code() {
            Some(0) => all,
            code => format!("{all}[exit code {}]\n", code.map_or("none".into(), |c| c.to_string())),
        }
    }
}
