//! Which groups of a file without worlds are ESXi's own, and not VMs?
//!
//! ESXi calls the group of a process after the process and its number: `hostd.2099123`. A VM may be called
//! `ubuntu-22.04` or `10.0.0.12`, so the number alone proves nothing. vsteer drops a group only if its name, without
//! the number, is that of a program that ESXi runs. A wrong guess is visible: a note lists what was dropped.
//!
//! Source of the names: the lists that public readers of batch files use to drop system groups (VMware's own
//! performance scripts, EsxtopDrill, fr.lelouet's `ESXTop` classes). Left out: programs of hardware vendors.

/// Groups of ESXi's kernel and resource pools. They have no number.
const POOLS: &[&str] = &[
    "FT",
    "console",
    "drivers",
    "ft",
    "helper",
    "host",
    "idle",
    "init",
    "kernel",
    "minfree",
    "plugins",
    "system",
    "user",
    "vim",
    "vmkapimod",
    "vmotion",
];

/// Programs of ESXi. Their groups have the number of a process behind a dot. esxtop cuts long names to 15 characters.
const PROGRAMS: &[&str] = &[
    "IORETRY_Ingress",
    "awk",
    "busybox",
    "cdp",
    "chardevlogger",
    "cimslp",
    "clomd",
    "cmmdsd",
    "crond",
    "dcbd",
    "dcui",
    "dhclient-uw",
    "envoy",
    "epd",
    "esxtop",
    "fdm",
    "ft",
    "getty",
    "gzip",
    "hostd",
    "hostd-probe",
    "hostdCgiServer",
    "hyperbus",
    "init",
    "ioFilterVPServe",
    "ioFilterVPServer",
    "logchannellogge",
    "logchannellogger",
    "logger",
    "lwsmd",
    "mpa",
    "nestdb-server",
    "net-cdp",
    "net-lacp",
    "net-lbt",
    "netcpa",
    "nfsgssd",
    "nicmgmtd",
    "nscd",
    "nssquery",
    "nsx-ctxteng",
    "nsx-da",
    "nsx-exporter",
    "nsx-sfhc",
    "nsxa",
    "ntpd",
    "openwsmand",
    "osfsd",
    "pktcap-agent",
    "python",
    "rhttpproxy",
    "rm",
    "sdrsInjector",
    "sensord",
    "settingsd",
    "sfcb-HTTP-Daem",
    "sfcb-HTTP-Daemo",
    "sfcb-ProviderMa",
    "sfcb-sfcb",
    "sfcbd",
    "sh",
    "sleep",
    "slpd",
    "smartd",
    "snmpd",
    "sshd",
    "storageRM",
    "swapobjd",
    "tail",
    "timeout",
    "usbarbitrator",
    "vShield-Endpoin",
    "vdpi",
    "vim-cmd",
    "vmkdevmgr",
    "vmkeventd",
    "vmkiscsid",
    "vmsyslogd",
    "vmware-usbarbit",
    "vmware-usbarbitrator",
    "vmware-vmkauthd",
    "vobd",
    "vprobed",
    "vpxa",
    "vsanSoapServer",
    "vsanTraceReader",
    "vsanmgmtd",
    "vsfwd",
    "wsman",
];

/// The name without a number behind its last dot; `None` if there is no such number.
fn program(name: &str) -> Option<&str> {
    let (program, number) = name.rsplit_once('.')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(program)
}

/// Is a group of this name, without worlds, one of ESXi's own?
pub(super) fn is_own(name: &str) -> bool {
    POOLS.contains(&name) || program(name).is_some_and(|p| PROGRAMS.contains(&p))
}

/// Does the name end like that of a process, although vsteer knows no program of ESXi that is called so?
pub(super) fn is_doubtful(name: &str) -> bool {
    program(name).is_some() && !is_own(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_behind_a_dot_is_not_enough() {
        for name in ["idle", "hostd.2099123", "vpxa.4711", "sh.2", "sfcb-ProviderMa.2100001"] {
            assert!(is_own(name) && !is_doubtful(name), "{name}");
        }
        for name in ["ubuntu-22.04", "win.2019", "10.0.0.12", "odd.7", "web.2099123"] {
            assert!(!is_own(name) && is_doubtful(name), "{name}");
        }
        for name in ["hostd", "hostd.", "hostd.x1", "web", "web.prod", "Idle", ""] {
            assert!(!is_own(name) && !is_doubtful(name), "{name}");
        }
    }

    #[test]
    fn the_names_are_sorted_and_single() {
        for list in [POOLS, PROGRAMS] {
            assert!(list.windows(2).all(|w| w[0] < w[1]), "{list:?}");
        }
    }
}
