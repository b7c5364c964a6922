//! Any text is a configuration or is refused with a place for each fault. What is read is shown as a file that says the same.

use vsteer_record::config::{self, of_text};

pub fn run(bytes: &[u8]) -> bool {
    let loaded = of_text(crate::text(bytes));
    for wrong in &loaded.wrong {
        assert!(wrong.line >= 1 && wrong.column >= 1);
        assert!(!wrong.to_string().contains(|c: char| vsteer_core::visible::acts(c) && c != '\n'));
    }
    let _ = loaded.config.thresholds();
    let shown = config::show(&loaded.config, &|_| None);
    let again = of_text(&shown);
    assert!(again.wrong.is_empty(), "{shown}");
    for (one, other) in
        config::rows(&loaded.config, &|_| None).iter().zip(config::rows(&again.config, &|_| None))
    {
        assert_eq!(one.toml, other.toml, "{}", one.key);
    }
    let said = |config: &config::Config| -> Vec<(String, Vec<(&str, String)>)> {
        config.triggers().map(|(name, trigger)| (name.to_owned(), trigger.said().collect())).collect()
    };
    assert_eq!(said(&loaded.config), said(&again.config));
    loaded.wrong.is_empty()
}

pub fn seeds() -> Vec<Vec<u8>> {
    const HOSTS: &str = "[connection]\nconnect = \"lab\"\n[hosts.lab]\nconnect = \"qemu+ssh://root@lab/system\"\n\
        [top]\ncolumns = [\"%RDY\", \"%RUN\"]\n[thresholds]\nsteal = \"3%\"\nwake_p99_ns = \"4ms\"\n\
        [triggers.a]\nurl = \"https://h/x\"\nsecret_file = \"/s\"\nrules = [\"limited\"]\nloss_pcpus = \"0.5\"\n\
        [triggers.\"b.c\"]\ncommand = [\"/bin/x\", \"-v\", \"-v\"]\nvms = [\"web\"]\nlasts = \"2m\"\n";
    let mut all = crate::seeds_of(&[HOSTS]);
    let example = config::example();
    // Every key with its default, in force.
    let is_key = |line: &str| line.starts_with('#') && line.contains(" = ") && !line.starts_with("# ");
    let lines = example.lines().map(|line| if is_key(line) { &line[1..] } else { line });
    all.push(
        lines
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| [line, "\n"])
            .collect::<String>()
            .into_bytes(),
    );
    all.push(example.into_bytes());
    all
}
