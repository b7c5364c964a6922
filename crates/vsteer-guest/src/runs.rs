//! How is a histogram written in a report? The runs of its buckets that are not empty.
//!
//! So that the line grows with the spread of the samples, not with their number. For programs without an operating
//! system as well, hence `core` alone.

use crate::counters::BUCKETS;
use core::fmt::{Result, Write};

/// `"NAME":{"n":3,"sum_ns":9,"runs":[[4,2,1]]},`: a run is its first bucket and its counts.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, name: &str, sum_ns: u64, count_of: impl Fn(usize) -> u64) -> Result {
    let n: u64 = (0..BUCKETS).map(&count_of).sum();
    write!(out, "\"{name}\":{{\"n\":{n},\"sum_ns\":{sum_ns},\"runs\":[")?;
    let (mut in_run, mut first) = (false, true);
    for bucket in 0..BUCKETS {
        match (count_of(bucket), in_run) {
            (0, true) => {
                out.write_str("]")?;
                in_run = false;
            }
            (0, false) => {}
            (count, true) => write!(out, ",{count}")?,
            (count, false) => {
                write!(out, "{}[{bucket},{count}", if first { "" } else { "," })?;
                (in_run, first) = (true, false);
            }
        }
    }
    out.write_str(if in_run { "]]}," } else { "]}," })
}
