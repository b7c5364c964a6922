//! Names of others for the same values, for dashboards that exist: libvirt's exporters and KubeVirt's. Off unless asked for.
//!
//! libvirt counts a vCPU's `delay` as the kernel's run delay, which does not tell a quota from a busy pCPU: ready and limited
//! together. Sources: `libvirt_domain_vcpu_time_seconds_total` and `libvirt_domain_vcpu_delay_seconds_total` of
//! prometheus-libvirt-exporter; `kubevirt_vmi_vcpu_delay_seconds_total` of KubeVirt's docs/observability/metrics.md.

use super::guests::each_vcpu;
use super::{Metric, OfRole, Series, View};
use prometheus_client::metrics::MetricType::Counter;
use vsteer_core::nouns::{Manager, Role, ThreadCounters};

pub const METRICS: &[Metric] = &[
    Metric {
        name: "libvirt_domain_vcpu_time",
        help: "Run time of a vCPU",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            each_vcpu(seen, &mut |domain, vcpu, c| {
                c.run_ns.iter().for_each(|ns| series.add_ns(&[("domain", domain), ("vcpu", vcpu)], *ns));
            });
        },
    },
    Metric {
        name: "libvirt_domain_vcpu_delay",
        help: "Time in which a vCPU was runnable and did not run: ready and limited",
        unit: "seconds",
        kind: Counter,
        of: |seen, series| {
            each_vcpu(seen, &mut |domain, vcpu, c| {
                delay(c).iter().for_each(|ns| series.add_ns(&[("domain", domain), ("vcpu", vcpu)], *ns));
            });
        },
    },
    Metric {
        name: "kubevirt_vmi_vcpu_delay",
        help: "Time in which a vCPU was runnable and did not run: ready and limited",
        unit: "seconds",
        kind: Counter,
        of: kubevirt,
    },
];

fn delay(c: &ThreadCounters) -> Option<u64> {
    c.wait_ns.or_else(|| Some(c.ready_ns?.saturating_add(c.limited_ns.unwrap_or(0))))
}

fn kubevirt(seen: &View<'_>, series: &mut Series<'_>) {
    for OfRole { vm, role, counters, .. } in &seen.roles {
        let (Role::Vcpu(number), Some(config)) = (role, seen.config.vm(vm)) else { continue };
        if config.manager != Manager::KubeVirt {
            continue;
        }
        let label = |name: &str| config.labels.get(name).map_or("", String::as_str);
        let labels =
            [("namespace", label("namespace")), ("name", label("instance")), ("id", &number.to_string())];
        delay(counters).iter().for_each(|ns| series.add_ns(&labels, *ns));
    }
}
