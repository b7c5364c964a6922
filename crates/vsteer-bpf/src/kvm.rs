//! Can the observer see when a vCPU leaves its guest?
//!
//! KVM's tracepoints are described by the types of the module `kvm`, which the kernel shows once the module is loaded
//! (`/sys/kernel/btf/kvm`); a kernel with KVM built in describes them among its own. What a tracepoint hands over has
//! been as the programs expect since Linux 5.16 (`arch/x86/kvm/trace.h`).
//!
//! Left out: Arm, whose tracepoints differ; exits by their reason.
//!
//! GAP(kvm-exits): not by exit reason, not on Arm, and not if the module is loaded after the observer.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;

/// The programs that need KVM's types.
pub(crate) const PROGRAMS: [&str; 3] = ["on_kvm_exit", "on_kvm_entry", "on_kvm_halt_ends"];
pub(crate) const COUNTERS: [&str; 2] = ["exit_ns", "halt_poll_ns"];
/// The first kernel in which the first argument of `kvm_exit` is the vCPU.
const SINCE: (u32, u32) = (5, 16);

/// Why the programs cannot be loaded; `None` if they can.
pub(crate) fn missing(kernel: &Btf<'_>) -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("vsteer measures KVM exits only on x86-64".to_owned());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if version(&release).is_none_or(|v| v < SINCE) {
        return Some(format!(
            "vsteer measures KVM exits from Linux {}.{} on, this is {release}",
            SINCE.0, SINCE.1
        ));
    }
    let built_in = kernel.type_by_name::<Typedef<'_>>("btf_trace_kvm_exit").is_some();
    let as_module = std::path::Path::new("/sys/kernel/btf/kvm").exists();
    (!built_in && !as_module).then(|| {
        "the module kvm was not loaded, or had no type information (BTF), when the observer started"
            .to_owned()
    })
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.15+deb13-cloud-amd64"), Some((6, 18)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
    }
}
