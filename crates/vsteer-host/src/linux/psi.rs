//! Reads how long tasks stalled: `/proc/pressure/` of the host, and `*.pressure` of a cgroup of version 2.
//!
//! A file has a line for `some` and mostly one for `full`: `some avg10=0.00 avg60=0.00 avg300=0.00 total=17`. vsteer takes
//! the totals (µs), because their rise is exact over any window. A read brings the totals up to date.
//!
//! Source: `Documentation/accounting/psi.rst`, `psi_show` in `kernel/sched/psi.c`, Linux 6.12. Without `CONFIG_PSI`, or
//! with `psi=0`, the files are missing. `cgroup.pressure` removes those of one cgroup.
//!
//! Left out: the kernel's own averages, and its triggers.

use super::cgroups::Cgroups;
use super::task::text;
use crate::root::Root;
use vsteer_core::nouns::{Pressure, STALLS};

/// The kernel's files; [`STALLS`] has one or two lines of each.
pub const FILES: [&str; 3] = ["cpu", "io", "memory"];

/// The total of the line `some` or `full`, ns.
pub fn total_ns(text: &str, line: &str) -> Option<u64> {
    let words = |l: &'_ str| l.split_ascii_whitespace().next() == Some(line);
    let us = text.lines().find(|l| words(l))?.split_ascii_whitespace().find_map(|w| w.strip_prefix("total="));
    us?.parse::<u64>().ok()?.checked_mul(1_000)
}

/// The totals of texts of the kernel's [`FILES`]; `None` if no text has any.
pub fn parse(texts: &[Option<String>; FILES.len()]) -> Option<Pressure> {
    let of = |i: usize| {
        let file = FILES.iter().position(|f| *f == STALLS[i].file)?;
        total_ns(texts[file].as_deref()?, STALLS[i].line)
    };
    Pressure::new(std::array::from_fn(of)).measured()
}

/// Stalls of the host.
pub fn of_host(root: &Root) -> Option<Pressure> {
    parse(&FILES.map(|file| text(root, &format!("/proc/pressure/{file}"))))
}

/// Stalls of a cgroup of version 2.
pub fn of_group(root: &Root, groups: &Cgroups, cgroup: &str) -> Option<Pressure> {
    parse(&FILES.map(|file| text(root, &groups.file(cgroup, &name(file))?)))
}

/// The name of a cgroup's file.
pub fn name(file: &str) -> String {
    format!("{file}.pressure")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IO: &str = "some avg10=0.06 avg60=0.60 avg300=1.23 total=424585978\n\
                      full avg10=0.00 avg60=0.08 avg300=0.31 total=209841245\n";

    #[test]
    fn totals_are_microseconds() {
        assert_eq!(total_ns(IO, "some"), Some(424_585_978_000));
        assert_eq!(total_ns(IO, "full"), Some(209_841_245_000));
        // Until Linux 5.13 the file of the CPU had no `full`.
        let texts =
            [Some("some avg10=1.00 avg60=0.00 avg300=0.00 total=7\n".to_owned()), None, Some(IO.into())];
        let read = parse(&texts).unwrap();
        assert_eq!((read.cpu_some, read.io_some, read.io_full), (Some(7_000), None, None));
        assert_eq!(read.memory_full, Some(209_841_245_000));
    }

    #[test]
    fn what_cannot_be_read_is_not_0() {
        for bad in [
            "",
            "full avg10=0.00 total=3\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00\n",
            "some total=\n",
            "some total=-3\n",
            "some total=1.5\n",
            "some total=0x10\n",
            "something total=4\n",
            "total=4\n",
            // It does not fit as ns.
            "some total=18446744073709551615\n",
            "some total=99999999999999999999999\n",
        ] {
            assert_eq!(total_ns(bad, "some"), None, "{bad:?}");
        }
        assert_eq!(total_ns("some total=0\n", "some"), Some(0));
        assert_eq!(parse(&[None, None, None]), None);
        assert_eq!(parse(&[Some("x".into()), Some("full total=\n".into()), None]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_passed_over(s in "\\PC{0,60}") {
            let _ = (total_ns(&s, "some"), total_ns(&format!("some {s}"), "some"));
            let _ = total_ns(&format!("full avg10=0 total={s}"), "full");
        }
    }
}
