//! A real Debian host with systemd, cgroup v2 and libvirt, on which a package can be installed as a person would.
//!
//! [`image`] builds a root file system from the distribution's archive once, and caches it. [`host`] boots a copy of it in
//! QEMU and runs commands in it over ssh. All of QEMU is emulation (TCG), so times in the host mean little, and what
//! happens means everything. Needs root, mmdebstrap, e2fsprogs, QEMU and ssh's client.
//!
//! Left out: distributions without apt.

pub mod host;
pub mod image;
