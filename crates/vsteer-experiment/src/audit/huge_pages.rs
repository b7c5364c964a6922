//! Does VM memory use huge pages?
//!
//! A guest's memory access walks two page tables, and huge pages make both walks shorter. Source:
//! Documentation/admin-guide/mm/{transhuge,hugetlbpage}.rst.

use super::{Check, Finding, Tree};
use vsteer_core::setting::words::in_brackets;

pub const CHECK: Check = Check {
    name: "huge_pages",
    doc: "transparent and static huge pages",
    rests_on: &["transparent_hugepage/enabled", "mm/hugepages/"],
    look,
};

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

fn look(t: &Tree) -> Vec<Finding> {
    let mut found = vec![match t.text(ENABLED).map(in_brackets) {
        None => Finding::none("transparent huge pages", "this kernel does not support them"),
        Some("never") => Finding::bad(
            "transparent huge pages",
            "never",
            "VM memory uses small pages unless a VM gets static huge pages",
            (
                "memory compaction may delay allocations",
                format!("echo madvise > {ENABLED}"),
                format!("echo never > {ENABLED}"),
            ),
        ),
        Some(v) => {
            Finding::good("transparent huge pages", v, "QEMU requests huge pages (madvise), so VMs get them")
        }
    }];
    for (size, count) in t.matching("/sys/kernel/mm/hugepages/", "/nr_hugepages") {
        let free = t.text(&format!("/sys/kernel/mm/hugepages/{size}/free_hugepages"));
        let setting = format!("static {size}");
        let (Ok(count), Some(free)) = (count.parse::<u64>(), free.and_then(|f| f.parse::<u64>().ok())) else {
            found.push(Finding::none(
                setting,
                format!("the kernel does not report how many of the {count} pages are free"),
            ));
            continue;
        };
        if count == 0 {
            found.push(Finding::none(setting, "no page is reserved"));
        } else if free == count {
            found.push(Finding::bad(
                setting,
                format!("{count}, all free"),
                "the pages are reserved but unused, so their memory is wasted",
                (
                    "VMs that request static huge pages no longer start",
                    format!("echo 0 > /sys/kernel/mm/hugepages/{size}/nr_hugepages"),
                    format!("echo {count} > /sys/kernel/mm/hugepages/{size}/nr_hugepages"),
                ),
            ));
        } else {
            found.push(Finding::good(
                setting,
                format!("{count}, {free} free"),
                "VMs or programs use the pages",
            ));
        }
    }
    found
}
