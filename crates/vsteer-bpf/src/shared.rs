//! Tables of the kernel side as memory of this process, and copies of their values that never mix two moments.
//!
//! The system call that looks up a value copies it in no set order while the kernel side writes, so that sequence
//! numbers inside the value prove nothing. Here the order of the loads is ours.

use crate::layout::{Pcpu, RUNNERS, Runner, Slot, WAITS, Wait};
use crate::refused::refused;
use bytemuck::{AnyBitPattern, NoUninit};
use libbpf_rs::MapCore;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};
use vsteer_core::Fault;

const WORD: usize = size_of::<u64>();
/// An update takes a microsecond; longer only if a hypervisor below takes the pCPU away.
const TORN_AT_MOST: Duration = Duration::from_millis(20);
/// Tries before the pCPU is offered to others.
const TORN_TRIES: u32 = 100;

/// A table of the kernel side (`BPF_F_MMAPABLE`). `T` is what one entry looks like.
pub(crate) struct Shared<T> {
    words: *const AtomicU64,
    bytes: usize,
    entries: usize,
    of: PhantomData<T>,
}

// What it points to is read and written here by atomic operations alone, and stays mapped until it is dropped.
#[allow(unsafe_code)]
unsafe impl<T> Send for Shared<T> {}
#[allow(unsafe_code)]
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// # Errors
    /// When the kernel refuses to map the table.
    pub(crate) fn of(map: &impl MapCore) -> Result<Shared<T>, Fault> {
        Shared::mapped(map, ProtFlags::READ)
    }

    /// One in which [`Shared::set`] may write.
    ///
    /// # Errors
    /// As [`Shared::of`].
    pub(crate) fn to_write(map: &impl MapCore) -> Result<Shared<T>, Fault> {
        Shared::mapped(map, ProtFlags::READ | ProtFlags::WRITE)
    }

    #[allow(unsafe_code)]
    fn mapped(map: &impl MapCore, prot: ProtFlags) -> Result<Shared<T>, Fault> {
        const { assert!(size_of::<T>().is_multiple_of(WORD), "the kernel rounds entries up to words") };
        let entries = map.max_entries() as usize;
        let bytes = entries * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice, of a table that holds this many bytes.
        let at = unsafe {
            mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, map.as_fd(), 0).map_err(|e| {
                refused("cannot map a table", &libbpf_rs::Error::from_raw_os_error(e.raw_os_error()))
            })?
        };
        Ok(Shared { words: at.cast(), bytes, entries, of: PhantomData })
    }

    #[allow(unsafe_code)]
    fn entry(&self, i: u32) -> Option<&[AtomicU64]> {
        let (i, len) = (i as usize, size_of::<T>() / WORD);
        // SAFETY: the mapping holds `entries` entries of `len` words and begins at a page.
        (i < self.entries).then(|| unsafe { std::slice::from_raw_parts(self.words.add(i * len), len) })
    }
}

impl<T: AnyBitPattern + NoUninit> Shared<T> {
    /// Entry `i`, whose first and last words are sequence numbers (see `update_begin` in `bpf/observer.bpf.c`);
    /// `None` if there is none, or it was being written all the time.
    pub(crate) fn whole(&self, i: u32) -> Option<T> {
        let mut value = T::zeroed();
        self.whole_into(i, &mut value).then_some(value)
    }

    /// The same, into `value`; false if it is not whole.
    pub(crate) fn whole_into(&self, i: u32, value: &mut T) -> bool {
        self.entry(i).is_some_and(|words| whole(words, value))
    }
}

impl Shared<Slot> {
    /// Writes the u32 at this offset of an entry, of a table mapped by [`Shared::to_write`]. For fields that the kernel
    /// side only reads.
    pub(crate) fn set(&self, i: u32, offset: usize, value: u32) {
        if let Some(words) = self.entry(i) {
            half(words, offset).store(value, Ordering::Release);
        }
    }
}

impl Shared<Pcpu> {
    /// The most steps that a loop of the kernel side took on any pCPU.
    pub(crate) fn most_tries(&self) -> u32 {
        let of = |words| half(words, offset_of!(Pcpu, most_tries)).load(Ordering::Relaxed);
        (0..self.entries as u32).filter_map(|cpu| self.entry(cpu)).map(of).fold(1, u32::max)
    }

    /// Number of switches on all pCPUs that the kernel did not report and the observer inferred from the next one.
    pub(crate) fn unseen(&self) -> u64 {
        let of = |words| u64::from(half(words, offset_of!(Pcpu, unseen)).load(Ordering::Relaxed));
        (0..self.entries as u32).filter_map(|cpu| self.entry(cpu)).map(of).sum()
    }

    /// Who got this pCPU, oldest first: what has come since `read`, which then counts them. And the number of those that
    /// were overwritten before.
    pub(crate) fn runners(&self, cpu: u32, read: &mut u32) -> (Vec<Runner>, u32) {
        let at = Ring { counter: offset_of!(Pcpu, next), entries: offset_of!(Pcpu, runners), len: RUNNERS };
        self.entry(cpu).map_or((Vec::new(), 0), |words| at.unread(words, read))
    }

    /// The waits that ended while their threads came to this pCPU, or were moved by it, as [`Shared::runners`].
    pub(crate) fn waits(&self, cpu: u32, read: &mut u32) -> (Vec<Wait>, u32) {
        let at = Ring { counter: offset_of!(Pcpu, next_wait), entries: offset_of!(Pcpu, waits), len: WAITS };
        self.entry(cpu).map_or((Vec::new(), 0), |words| at.unread(words, read))
    }
}

/// Entries that the kernel side writes in turn, the oldest of which it overwrites. It writes an entry, then counts it.
#[derive(Clone, Copy)]
struct Ring {
    counter: usize,
    entries: usize,
    len: usize,
}

impl Ring {
    fn unread<E: AnyBitPattern + NoUninit>(self, words: &[AtomicU64], read: &mut u32) -> (Vec<E>, u32) {
        const { assert!(size_of::<E>().is_multiple_of(WORD), "entries are whole words") };
        // One less than there are: the oldest may be about to be overwritten.
        let room = self.len as u32 - 1;
        let counted = || half(words, self.counter).load(Ordering::Acquire);
        let next = counted();
        let first = next.wrapping_sub(next.wrapping_sub(*read).min(room));
        let of = |n: u32| {
            let at = (self.entries + n as usize % self.len * size_of::<E>()) / WORD;
            copied(&words[at..at + size_of::<E>() / WORD])
        };
        let mut all: Vec<E> = (0..next.wrapping_sub(first)).map(|i| of(first.wrapping_add(i))).collect();
        fence(Ordering::Acquire);
        // Those that were overwritten while they were copied.
        let spoilt = counted().wrapping_sub(first).saturating_sub(room).min(all.len() as u32);
        all.drain(..spoilt as usize);
        let lost = first.wrapping_sub(*read) + spoilt;
        *read = next;
        (all, lost)
    }
}

impl<T> Drop for Shared<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.words.cast_mut().cast(), self.bytes) };
    }
}

/// The u32 at this offset.
#[allow(unsafe_code)]
fn half(words: &[AtomicU64], offset: usize) -> &AtomicU32 {
    assert!(offset.is_multiple_of(size_of::<u32>()) && offset < size_of_val(words));
    // SAFETY: within the words, aligned, and read only.
    unsafe { &*words.as_ptr().cast::<AtomicU32>().add(offset / size_of::<u32>()) }
}

fn copied<T: AnyBitPattern + NoUninit>(words: &[AtomicU64]) -> T {
    let mut value = T::zeroed();
    copy(words, &mut value);
    value
}

fn copy<T: AnyBitPattern + NoUninit>(words: &[AtomicU64], value: &mut T) {
    let to = bytemuck::cast_slice_mut::<T, u64>(std::slice::from_mut(value));
    for (to, word) in to.iter_mut().zip(words) {
        *to = word.load(Ordering::Relaxed);
    }
}

/// Copies the value; false if it was being written. A writer increments the last word, stores the value, and then
/// increments the first word. So the value is whole if both words are equal.
/// GAP(arm-order): the kernel side's atomic adds order these stores on x86 only.
fn whole<T: AnyBitPattern + NoUninit>(words: &[AtomicU64], value: &mut T) -> bool {
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return false };
    let mut begun = None;
    for tries in 1_u32.. {
        let before = first.load(Ordering::Acquire);
        copy(words, value);
        fence(Ordering::Acquire);
        if last.load(Ordering::Relaxed) == before {
            return true;
        }
        if tries < TORN_TRIES {
            std::hint::spin_loop();
        } else if begun.get_or_insert_with(Instant::now).elapsed() < TORN_AT_MOST {
            std::thread::yield_now();
        } else {
            break;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const WORDS: usize = 24;

    /// All words between the sequence numbers are the number of the update. Fences, because an
    /// atomic add of x86 is a full barrier and Rust's is not.
    fn update(words: &[AtomicU64], n: u64) {
        words[WORDS - 1].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for word in &words[1..WORDS - 1] {
            word.store(n, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        words[0].fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_copy_is_of_one_moment() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        let copies = if cfg!(miri) { 50 } else { 200_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|n| update(&words, n))
            });
            let mixed = |copy: &[u64; WORDS]| copy[1..WORDS - 1].iter().any(|w| *w != copy[0]);
            let begun = Instant::now();
            let in_time = |_: &i32| begun.elapsed() < Duration::from_secs(5);
            let copy = |_| {
                let mut copy = [0; WORDS];
                whole(&words, &mut copy).then_some(copy)
            };
            let copies: Vec<[u64; WORDS]> = (0..copies).take_while(in_time).filter_map(copy).collect();
            // Before anything may fail, or the scope waits for ever.
            stop.store(true, Ordering::Relaxed);
            assert!(!copies.is_empty());
            assert_eq!(copies.iter().find(|c| mixed(c)), None);
        });
    }

    #[test]
    fn a_ring_is_read_entry_by_entry_and_says_what_it_lost() {
        const RING: Ring = Ring { counter: 0, entries: WORD, len: 4 };
        let words: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(0)).collect();
        let (mut read, mut written) = (0, 0_u64);
        for (more, expected, lost) in
            [(2, vec![1, 2], 0), (0, vec![], 0), (1, vec![3], 0), (9, vec![10, 11, 12], 6)]
        {
            for _ in 0..more {
                words[1 + written as usize % 4].store(written + 1, Ordering::Relaxed);
                written += 1;
                words[0].store(written, Ordering::Release);
            }
            assert_eq!(RING.unread::<u64>(&words, &mut read), (expected, lost));
        }
    }

    #[test]
    fn entries_that_are_overwritten_while_they_are_read_are_lost_not_mixed() {
        const RING: Ring = Ring { counter: 0, entries: WORD, len: 8 };
        let words: Vec<AtomicU64> = (0..1 + 8 * 4).map(|_| AtomicU64::new(0)).collect();
        let entries: u64 = if cfg!(miri) { 500 } else { 2_000_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..entries {
                    let at = 1 + n as usize % 8 * 4;
                    words[at..at + 4].iter().for_each(|w| w.store(n, Ordering::Relaxed));
                    fence(Ordering::SeqCst);
                    words[0].store(n + 1, Ordering::Release);
                }
            });
            let (mut read, mut next) = (0, 0_u64);
            while next < entries {
                let (all, lost) = RING.unread::<[u64; 4]>(&words, &mut read);
                next += u64::from(lost);
                for entry in all {
                    assert_eq!(entry, [next; 4]);
                    next += 1;
                }
            }
            assert_eq!(next, entries);
        });
    }

    #[test]
    fn an_update_that_never_ends_is_given_up() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        words[WORDS - 1].store(1, Ordering::Relaxed);
        assert!(!whole(&words, &mut [0; WORDS]));
    }
}
