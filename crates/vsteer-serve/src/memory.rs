//! Memory that was freed stays with the process, for the next sample.
//!
//! Every second takes some megabytes and frees them. The C library would give them back to the kernel, which clears every
//! page before it hands it out again. Beneath a hypervisor that reclaims unused memory such a page takes 20 us and more: a
//! percent of a core for nothing.

/// Keeps up to 64 MB for later. To be called before other threads start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn keep() {
    use std::ffi::c_int;
    // glibc, malloc.h; mallopt(3).
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    // SAFETY: changes two numbers of the allocator, under its own lock. It refuses values that are out of range.
    unsafe {
        mallopt(M_TRIM_THRESHOLD, 64 << 20);
        mallopt(M_MMAP_THRESHOLD, 32 << 20);
    }
}

/// Other C libraries have no such numbers.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep() {}
