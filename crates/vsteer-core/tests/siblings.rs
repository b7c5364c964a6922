//! Findings about VMs that share the threads of a core.

mod common;

use common::Host;
use vsteer_core::topology;

/// Two VMs on the threads of a core of node 1, while the other cores of both nodes idle.
#[test]
fn the_idle_core_to_pin_to_is_on_the_same_node() {
    let mut host = Host::new(8, 2, 0.1);
    host.config.topology = topology::machine(2, 1, 2, 2).unwrap();
    host.vm("a", 1, 0.9, 0.0, 0.0).vm("b", 1, 0.9, 0.0, 0.0).pin("a", "4").pin("b", "5");
    for cpu in [4, 5] {
        host.model.pcpus.iter_mut().find(|p| p.cpu == cpu).unwrap().busy = 0.9;
    }
    let found = host.found("shared_core").remove(0);
    assert!(found.next.ends_with("vsteer plan --set b:pin.0=6"), "{}", found.next);
}
