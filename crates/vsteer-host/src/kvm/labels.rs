//! What do the users of a VM call it? Its project, namespace, instance, flavour or pod.
//!
//! | manager | label | from |
//! |---|---|---|
//! | OpenStack | `instance`, `project`, `flavour` | `<nova:instance>` in the definition's metadata |
//! | KubeVirt | `namespace`, `instance` | the VM's name, `NAMESPACE_INSTANCE` |
//! | Incus | `project`, `instance` | the folder of its pid file, `/run/incus/PROJECT_INSTANCE` |
//! | Kata | `pod`, `sandbox` | the cgroup |
//!
//! Anybody can write a name or a path on a command line. So vsteer reads them only of processes that cannot be a person's.
//!
//! Source: `nova/virt/libvirt/config.py` (OpenStack 2024.1); `pkg/util/util.go`, `DomainFromNamespaceName` (KubeVirt 1.2);
//! `internal/server/project/project.go`, `Instance` (Incus 6.0); `pkg/resourcecontrol` (Kata 3.2). **Untried**.
//!
//! Left out: labels that only the cluster's own interface tells.

use super::processes::{Origin, Process};
use std::collections::BTreeMap;

/// Labels, by name.
pub type Labels = BTreeMap<String, String>;

fn labels<const N: usize>(all: [(&str, &str); N]) -> Labels {
    all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The labels of a VM that a manager made, by its process.
pub fn of_process(process: &Process) -> Labels {
    if process.is_a_persons() {
        return Labels::new();
    }
    let found = match process.origin {
        Origin::KubeVirt => process.line.name.as_deref().and_then(kubevirt),
        Origin::Kata => process.cgroup.lines().find_map(kata),
        Origin::Nobody => {
            process.line.pid_file.as_deref().and_then(|file| incus(file, process.line.name.as_deref()?))
        }
        Origin::Libvirt | Origin::Proxmox(_) => None,
    };
    found.unwrap_or_default()
}

/// Names of Kubernetes have no underscore.
fn kubevirt(name: &str) -> Option<Labels> {
    let (namespace, instance) = name.split_once('_')?;
    (!namespace.is_empty() && !instance.is_empty())
        .then(|| labels([("namespace", namespace), ("instance", instance)]))
}

/// A project may have an underscore, so the VM's name divides them. The project `default` stands in no path.
fn incus(pid_file: &str, name: &str) -> Option<Labels> {
    let folder = pid_file.strip_prefix("/run/incus/")?.strip_suffix("/qemu.pid")?;
    let project = if folder == name { "default" } else { folder.strip_suffix(name)?.strip_suffix('_')? };
    (!name.is_empty() && !project.is_empty() && !project.contains('/'))
        .then(|| labels([("project", project), ("instance", name)]))
}

/// `...-podUID.slice/cri-containerd:ID`, `.../podUID/kata_ID`: systemd writes underscores for the dashes of a UID.
fn kata(line: &str) -> Option<Labels> {
    let path = line.splitn(3, ':').nth(2)?;
    let mut parts = path.split('/').rev();
    let sandbox = parts.next()?.strip_prefix("kata_")?;
    let pod = parts.next()?.trim_end_matches(".slice").rsplit("pod").next()?;
    let plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    (plain(sandbox) && plain(pod)).then(|| labels([("pod", &pod.replace('_', "-")), ("sandbox", sandbox)]))
}

/// Is this what the users call the VM: its instance, also after its project or namespace, or its pod?
pub fn is_meant(pattern: &str, labels: &Labels) -> bool {
    let of = |key: &str| labels.get(key).map(String::as_str);
    let group = of("project").or_else(|| of("namespace"));
    let whole = || Some(format!("{}/{}", group?, of("instance")?));
    ["instance", "pod", "sandbox"].iter().any(|key| of(key) == Some(pattern))
        || whole().as_deref() == Some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(found: Option<Labels>) -> String {
        let pair = |(key, value): (String, String)| format!("{key}={value}");
        found.unwrap_or_default().into_iter().map(pair).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_of_managers() {
        assert_eq!(text(kubevirt("default_fedora")), "instance=fedora namespace=default");
        assert_eq!(text(kubevirt("web").or_else(|| kubevirt("_x"))), "");
        let of = |file: &str| text(incus(file, "my-vm"));
        assert_eq!(of("/run/incus/my-vm/qemu.pid"), "instance=my-vm project=default");
        assert_eq!(of("/run/incus/a_b_my-vm/qemu.pid"), "instance=my-vm project=a_b");
        for odd in [
            "/tmp/my-vm/qemu.pid",
            "/run/incus/x/qemu.pid",
            "/run/incus/_my-vm/qemu.pid",
            "/run/incus/../a_my-vm/qemu.pid",
        ] {
            assert_eq!(of(odd), "", "{odd}");
        }
        let group = "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podab_c1.slice/kata_9f";
        assert_eq!(text(kata(group)), "pod=ab-c1 sandbox=9f");
        assert_eq!(text(kata("0::/kubepods.slice/x.scope")), "");
    }

    #[test]
    fn what_users_name() {
        let vm = labels([("project", "shop"), ("instance", "web")]);
        assert!(is_meant("web", &vm) && is_meant("shop/web", &vm));
        assert!(!is_meant("shop", &vm) && !is_meant("web", &Labels::new()));
    }
}
