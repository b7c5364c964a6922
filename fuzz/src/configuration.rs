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
    loaded.wrong.is_empty()
}

pub fn seeds() -> Vec<Vec<u8>> {
    const HOSTS: &str = "[connection]\nconnect = \"lab\"\n[hosts.lab]\nconnect = \"qemu+ssh://root@lab/system\"\n\
        [top]\ncolumns = [\"%RDY\", \"%RUN\"]\n[thresholds]\nsteal = \"3%\"\nwake_p99_ns = \"4ms\"\n";
    let mut all = crate::seeds_of(&[HOSTS]);
    all.push(config::example().into_bytes());
    all
}
