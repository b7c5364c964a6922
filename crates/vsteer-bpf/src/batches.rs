//! All entries of a hash table of the kernel side, by few system calls.
//!
//! `BPF_MAP_LOOKUP_BATCH` copies whole buckets: where the next bucket has no room, the batch is short, and the table goes
//! on. Only ENOENT says that it is at its end (Linux 6.18, kernel/bpf/hashtab.c, `__htab_map_lookup_and_delete_batch`).
//! libbpf-rs 0.27 takes a short batch for the last one, and so loses most of a table of thousands of entries.

use bytemuck::{AnyBitPattern, NoUninit};
use libbpf_rs::{Error, ErrorKind, MapCore};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// Entries asked for at a time. A bucket has a few.
const BATCH: usize = 4_096;

/// Keys and values. What is added or removed meanwhile may be among them or not.
///
/// # Errors
/// What the kernel refuses.
#[allow(unsafe_code)]
pub(crate) fn all<K, V>(map: &impl MapCore) -> Result<Vec<(K, V)>, Error>
where
    K: AnyBitPattern + NoUninit,
    V: AnyBitPattern + NoUninit,
{
    assert!(map.key_size() as usize == size_of::<K>() && map.value_size() as usize == size_of::<V>());
    let mut all = Vec::new();
    let (mut keys, mut values) = (vec![K::zeroed(); BATCH], vec![V::zeroed(); BATCH]);
    // The kernel's mark of where it is: a bucket's number.
    let (mut from, mut to) = (0_u32, 0_u32);
    let mut begun = false;
    loop {
        let mut count = BATCH as u32;
        let since = if begun { (&raw mut from).cast() } else { null_mut() };
        // SAFETY: the mark has four bytes, and there is room for `count` keys and values of the sizes compared above.
        let returned = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                since,
                (&raw mut to).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        let error = (returned < 0).then(|| Error::from_raw_os_error(-returned));
        let is_end = match error {
            Some(e) if e.kind() == ErrorKind::NotFound => true,
            Some(e) => return Err(e),
            None => false,
        };
        let read = count as usize;
        all.extend(keys[..read].iter().copied().zip(values[..read].iter().copied()));
        if is_end {
            return Ok(all);
        }
        (from, begun) = (to, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_rs::{MapFlags, MapHandle, MapType};

    #[test]
    #[ignore = "needs root: it makes an eBPF table"]
    fn a_large_table_is_read_to_its_end() {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let table = MapHandle::create(MapType::Hash, Some("vsteer_test"), 4, 8, 30_000, &options).unwrap();
        for n in [0_u32, 1, 29_999] {
            for key in 0..n {
                table.update(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes(), MapFlags::ANY).unwrap();
            }
            for _ in 0..5 {
                let mut cells = all::<u32, u64>(&table).unwrap();
                cells.sort_unstable();
                assert_eq!(cells.len(), n as usize);
                assert!(cells.iter().enumerate().all(|(i, cell)| *cell == (i as u32, i as u64)));
            }
        }
    }
}
