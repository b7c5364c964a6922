//! Keeps freed memory in the process for the next sample.
//!
//! Each sample allocates some megabytes and frees them. The C library would return them to the kernel, which clears each page
//! before it hands out the page again. In a VM whose hypervisor reclaims unused memory, a page fault takes 12 to 55 us: up to
//! one percent of a core.

/// Keeps up to 16 MB, in one arena for all threads: each other arena would keep some of its own. Call it before other threads
/// start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn keep() {
    use std::ffi::c_int;
    // glibc, malloc.h; mallopt(3).
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_ARENA_MAX: c_int = -8;
    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    // SAFETY: changes three numbers of the allocator, under its own lock. It refuses values that are out of range.
    unsafe {
        mallopt(M_TRIM_THRESHOLD, 16 << 20);
        mallopt(M_MMAP_THRESHOLD, 16 << 20);
        mallopt(M_ARENA_MAX, 1);
    }
}

/// Other C libraries have no such numbers.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep() {}
