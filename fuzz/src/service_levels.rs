//! Any text is a file of service levels or is refused.

use vsteer_act::levels::Sla;

const FILE: &str = "period = \"30s\"\n[[vm]]\nname = \"web\"\nlog = \"/var/log/access.log\"\nmean = \"20ms\"\np95 = \"80ms\"\n\
[[vm]]\nname = \"db\"\nmetrics = \"http://10.0.0.7:9100/metrics\"\nhistogram = \"request_seconds\"\nrate = 50\n";

pub fn run(bytes: &[u8]) -> bool {
    let Ok(sla) = Sla::parse(crate::text(bytes)) else { return false };
    assert_eq!(sla.promises.len(), sla.sources.len());
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[FILE])
}
