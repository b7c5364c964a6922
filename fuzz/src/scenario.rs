//! Any text is a scenario or is refused, before it is simulated.

use vsteer_sim::scenario::Scenario;

pub fn run(bytes: &[u8]) -> bool {
    let Ok(scenario) = toml::from_str::<Scenario>(crate::text(bytes)) else { return false };
    scenario.case().is_ok()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let names = ["noisy-neighbour", "realtime-sleeper", "two-hogs", "web-servers"];
    names.iter().map(|name| crate::project_file(&format!("scenarios/{name}.toml"))).collect()
}
