//! Do VMs' memories get huge pages? A guest's access walks two page tables: with huge pages fewer steps. Source:
//! Documentation/admin-guide/mm/{transhuge,hugetlbpage}.rst.

use super::{Check, Finding, Tree};
use vsteer_core::setting::words::in_brackets;

/// See the file's head.
pub const CHECK: Check = Check { name: "huge_pages", doc: "transparent and static huge pages", look };

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

fn look(t: &Tree) -> Vec<Finding> {
    let mut found = vec![match t.text(ENABLED).map(in_brackets) {
        None => Finding::none("transparent huge pages", "this kernel has none"),
        Some("never") => Finding::bad(
            "transparent huge pages",
            "never",
            "VMs' memories are of small pages unless static ones are given",
            (
                "compaction may stall allocations",
                format!("echo madvise > {ENABLED}"),
                format!("echo never > {ENABLED}"),
            ),
        ),
        Some(v) => {
            Finding::good("transparent huge pages", v, "QEMU asks for them (madvise), so VMs get them")
        }
    }];
    for (size, count) in t.matching("/sys/kernel/mm/hugepages/", "/nr_hugepages") {
        let free = t.text(&format!("/sys/kernel/mm/hugepages/{size}/free_hugepages"));
        let setting = format!("static {size}");
        let (Ok(count), Some(free)) = (count.parse::<u64>(), free.and_then(|f| f.parse::<u64>().ok())) else {
            found.push(Finding::none(setting, format!("how many of {count} are free is not told")));
            continue;
        };
        if count == 0 {
            found.push(Finding::none(setting, "none is set aside"));
        } else if free == count {
            found.push(Finding::bad(
                setting,
                format!("{count}, all free"),
                "set aside and used by nobody: memory that is lost",
                (
                    "VMs that ask for them no longer start",
                    format!("echo 0 > /sys/kernel/mm/hugepages/{size}/nr_hugepages"),
                    format!("echo {count} > the same"),
                ),
            ));
        } else {
            found.push(Finding::good(setting, format!("{count}, {free} free"), "in use"));
        }
    }
    found
}
