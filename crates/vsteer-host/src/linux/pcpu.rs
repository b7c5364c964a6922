//! Reads what each pCPU did, from `/proc/stat`, and its frequency from cpufreq if there is one.
//!
//! Source: `man 5 proc`; `fs/proc/stat.c`, Linux 6.12. `user` includes `guest` and `nice` includes
//! `guest_nice`. The unit is the clock tick (`sysconf(_SC_CLK_TCK)`, 10 ms everywhere today), so a window of
//! a second has an error of 1 %.
//!
//! Left out: the kernel's own error if it samples at ticks. Without `CONFIG_VIRT_CPU_ACCOUNTING_GEN` it does
//! not see short bursts between two ticks.

use crate::root::Root;
use vsteer_core::nouns::PcpuSample;

/// The length of a clock tick of this machine, ns.
pub fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The pCPUs of a text of `/proc/stat`, without frequencies. Lines of other kinds are skipped.
pub fn parse(text: &str, tick_ns: u64) -> Vec<PcpuSample> {
    text.lines().filter_map(|line| pcpu(line, tick_ns)).collect()
}

fn pcpu(line: &str, tick_ns: u64) -> Option<PcpuSample> {
    let mut words = line.split_ascii_whitespace();
    let cpu = super::files::numbered(words.next()?, "cpu")?;
    let mut columns = [None; 10];
    for (column, word) in columns.iter_mut().zip(words) {
        *column = Some(word.parse::<u64>().ok()?.saturating_mul(tick_ns));
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = columns;
    let plus = |a: u64, b: Option<u64>| a.saturating_add(b.unwrap_or(0));
    Some(PcpuSample {
        cpu,
        user_ns: plus(user?, nice),
        system_ns: system?,
        irq_ns: irq.unwrap_or(0),
        softirq_ns: softirq.unwrap_or(0),
        steal_ns: steal,
        idle_ns: plus(idle?, iowait),
        guest_ns: guest.map(|g| plus(g, guest_nice)),
        frequency_khz: None,
    })
}

/// The counters of every pCPU up to now.
pub fn read(root: &Root) -> Vec<PcpuSample> {
    let Ok(text) = root.bytes("/proc/stat") else { return Vec::new() };
    let mut all = parse(&String::from_utf8_lossy(&text), tick_ns());
    for sample in &mut all {
        sample.frequency_khz = frequency_khz(root, sample.cpu);
        if sample.frequency_khz.is_none() && sample.cpu == 0 {
            // If one pCPU has no cpufreq, none has, so the others need not be read.
            break;
        }
    }
    all
}

fn frequency_khz(root: &Root, cpu: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    String::from_utf8_lossy(&root.bytes(&path).ok()?).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_of_new_and_old_kernels() {
        let text = "cpu  9 9 9 9\ncpu0 10 1 20 30 5 2 3 4 6 1\ncpu12 1 0 2 3\nintr 5\ncpufoo 1 2 3 4\n";
        let all = parse(text, 10);
        assert_eq!(all.len(), 2);
        assert_eq!(
            all[0],
            PcpuSample {
                cpu: 0,
                user_ns: 110,
                system_ns: 200,
                irq_ns: 20,
                softirq_ns: 30,
                steal_ns: Some(40),
                idle_ns: 350,
                guest_ns: Some(70),
                frequency_khz: None,
            }
        );
        assert_eq!((all[1].cpu, all[1].steal_ns, all[1].guest_ns, all[1].idle_ns), (12, None, None, 30));
    }

    #[test]
    fn this_machine_advances() {
        let root = Root::live().unwrap();
        let sum = |all: &[PcpuSample]| -> u64 {
            all.iter().map(|p| p.user_ns + p.system_ns + p.idle_ns + p.irq_ns + p.softirq_ns).sum()
        };
        let before = read(&root);
        assert!(!before.is_empty());
        std::thread::sleep(std::time::Duration::from_millis(60));
        assert!(sum(&read(&root)) > sum(&before));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_skipped(s in "\\PC{0,60}") {
            let _ = (parse(&s, 10_000_000), parse(&format!("cpu0 {s}"), u64::MAX));
        }
    }
}
