//! User CPU time of this process and of its children, for ratios to a peer in the same run; and the peer, mawk.

use std::path::Path;
use std::process::{Command, Stdio};

/// Whose CPU time: fields of /proc/self/stat.
pub const OWN: usize = 14;
/// That of children that have ended.
pub const OF_CHILDREN: usize = 16;

/// User CPU time so far, s.
fn user_s(field: usize) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The second field is a name in parentheses, which may have spaces.
    let after = stat.rsplit_once(')').unwrap().1;
    let ticks: f64 = after.split_whitespace().nth(field - 3).unwrap().parse().unwrap();
    ticks / 100.0
}

/// User CPU time of `work`, s.
pub fn cost(field: usize, work: &mut dyn FnMut()) -> f64 {
    let before = user_s(field);
    work();
    user_s(field) - before
}

pub fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// mawk adds up the last column of these files.
pub fn add_up(mawk: &str, files: &[impl AsRef<Path>]) {
    let mut awk = Command::new(mawk);
    awk.arg("{s+=$NF} END {print s/NR}").args(files.iter().map(AsRef::as_ref)).stdout(Stdio::null());
    assert!(awk.status().expect("mawk starts").success());
}
