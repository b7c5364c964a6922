//! Prints a plan as a PowerShell script that a vSphere administrator can review before running it.
//!
//! For each step the script finds the VM by name and refuses if the setting is not the plan's former value. It then
//! sets the new value and reads it back. `-Undo` runs the steps in reverse. Without `-Apply` the script is a dry
//! run.
//!
//! A VM's name may contain any character. PowerShell accepts five characters as a single quote, `Get-VM -Name`
//! treats `*`, `?` and brackets as patterns, and PowerShell 5 reads a file without a byte order mark in the
//! machine's code page. So the script compares names instead of matching them, and writes all but ASCII as
//! `[char]0x2019`.
//!
//! Source: VMware PowerCLI's cmdlets `Get-VM`, `Get-AdvancedSetting`, `New-AdvancedSetting`, `Set-VM`,
//! `Set-VMResourceConfiguration`. **Untried**: never run with PowerCLI or a vCenter.
//!
//! Left out: settings that vSphere does not have (threads, cgroups, classes, limits in pCPUs) are refused.

use super::Plan;
use crate::nouns::CpuWeight;
use crate::setting;
use crate::setting::{Change, Step};
use crate::{CpuSet, Fault, FaultKind};
use std::fmt::Write;

/// A PowerShell expression for `text`, in ASCII.
fn quoted(text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut plain = String::new();
    let flush = |plain: &mut String, parts: &mut Vec<String>| {
        if !plain.is_empty() {
            parts.push(format!("'{}'", std::mem::take(plain)));
        }
    };
    for unit in text.encode_utf16() {
        match u8::try_from(unit) {
            Ok(b'\'') => plain.push_str("''"),
            Ok(b @ 0x20..=0x7e) => plain.push(char::from(b)),
            _ => {
                flush(&mut plain, &mut parts);
                parts.push(format!("[char]0x{unit:04X}"));
            }
        }
    }
    flush(&mut plain, &mut parts);
    match &parts[..] {
        [] => "''".to_owned(),
        [one] if one.starts_with('\'') => one.clone(),
        // In PowerShell a sum that begins with a [char] is a number, so an empty string comes first.
        _ => format!("('' + {})", parts.join(" + ")),
    }
}

/// `text` as one comment line, in ASCII.
fn comment(text: &str) -> String {
    text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

/// PowerShell code that reads and writes a setting, and the setting's values as text.
struct Setting {
    /// Expression for the present value of `$vm`.
    read: String,
    /// Statement that sets `$value`.
    write: String,
    from: String,
    to: String,
    /// Whether the VM must be powered off.
    off: bool,
    note: Option<&'static str>,
}

fn nodes(set: &Option<CpuSet>) -> String {
    set.as_ref().map_or_else(String::new, |s| s.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(","))
}

fn setting(step: &Step) -> Option<Setting> {
    let plain = |read: &str, write: &str, from: String, to: String| Setting {
        read: read.to_owned(),
        write: write.to_owned(),
        from,
        to,
        off: false,
        note: None,
    };
    match &step.change {
        Change::NodeAffinity(setting::NodeAffinity { from, to }) => Some(Setting {
            note: Some("ESXi reads it when the VM powers on or arrives at a host by vMotion"),
            ..plain(
                "Get-Advanced $vm 'numa.nodeAffinity'",
                "Set-Advanced $vm 'numa.nodeAffinity' $value",
                nodes(from),
                nodes(to),
            )
        }),
        Change::Topology(setting::Topology { from, to }) => Some(Setting {
            off: true,
            note: Some(
                "the guest sees it at its next start; the script refuses a powered-on VM before it changes \
                    anything",
            ),
            ..plain(
                "[string]$vm.ExtensionData.Config.Hardware.NumCoresPerSocket",
                "Set-VM -VM $vm -CoresPerSocket ([int]$value) -Confirm:$false | Out-Null",
                from.map_or_else(|| "1".to_owned(), |t| (t.cores * t.threads).to_string()),
                (to.cores * to.threads).to_string(),
            )
        }),
        Change::VmAffinity(setting::VmAffinity { from, to }) => Some(plain(
            "(@($vm.ExtensionData.Config.CpuAffinity.AffinitySet | Sort-Object) -join ',')",
            &with_spec(
                "CpuAffinity = New-Object VMware.Vim.VirtualMachineAffinityInfo; \
                    $spec.CpuAffinity.AffinitySet = \
                        @($value -split ',' | Where-Object { $_ } | ForEach-Object { [int]$_ })",
            ),
            nodes(from),
            nodes(to),
        )),
        Change::ReservationMhz(setting::ReservationMhz { from, to }) => Some(plain(
            "[string]$vm.ExtensionData.Config.CpuAllocation.Reservation",
            "$vm | Get-VMResourceConfiguration | Set-VMResourceConfiguration -CpuReservationMhz \
                ([long]$value) | Out-Null",
            from.to_string(),
            to.to_string(),
        )),
        Change::LimitMhz(setting::LimitMhz { from, to }) => Some(plain(
            "[string]$vm.ExtensionData.Config.CpuAllocation.Limit",
            &with_spec(
                "CpuAllocation = New-Object VMware.Vim.ResourceAllocationInfo; $spec.CpuAllocation.Limit = \
                    [long]$value",
            ),
            limit(*from),
            limit(*to),
        )),
        Change::Latency(setting::Latency { from, to }) => Some(Setting {
            off: true,
            note: Some("high needs all memory reserved, otherwise the VM does not start"),
            ..plain(
                "[string]$vm.ExtensionData.Config.LatencySensitivity.Level",
                &with_spec(
                    "LatencySensitivity = New-Object VMware.Vim.LatencySensitivity; \
                        $spec.LatencySensitivity.Level = $value",
                ),
                from.to_string(),
                to.to_string(),
            )
        }),
        Change::Weight(setting::Weight { from: CpuWeight::Esxi(from), to: CpuWeight::Esxi(to) }) => {
            Some(plain(
                "[string]$vm.ExtensionData.Config.CpuAllocation.Shares.Shares",
                "$vm | Get-VMResourceConfiguration | Set-VMResourceConfiguration -CpuSharesLevel Custom \
                    -NumCpuShares \
             ([int]$value) | Out-Null",
                from.to_string(),
                to.to_string(),
            ))
        }
        _ => None,
    }
}

/// A limit in the API's form: -1 is no limit.
fn limit(mhz: Option<u64>) -> String {
    mhz.map_or_else(|| "-1".to_owned(), |n| n.to_string())
}

/// Statement that sets a value that has no cmdlet, through the API call ReconfigVM.
fn with_spec(assignment: &str) -> String {
    format!(
        "$spec = New-Object VMware.Vim.VirtualMachineConfigSpec; $spec.{assignment}; \
            $vm.ExtensionData.ReconfigVM($spec)"
    )
}

const HEAD: &str = r#"param([switch]$Apply, [switch]$Undo)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

function Get-TheVM([string]$Name) {
    # Compared, not matched: a name may contain * and ?.
    $found = @(Get-VM | Where-Object { $_.Name -ceq $Name })
    if ($found.Count -ne 1) { throw "expected one VM with the name '$Name', found $($found.Count)" }
    $found[0]
}
function Get-Advanced($vm, [string]$Name) {
    $setting = @(Get-AdvancedSetting -Entity $vm -Name $Name)
    if ($setting.Count -eq 0) { '' } else { [string]$setting[0].Value }
}
function Set-Advanced($vm, [string]$Name, [string]$Value) {
    if ($Value -eq '') {
        Get-AdvancedSetting -Entity $vm -Name $Name | Remove-AdvancedSetting -Confirm:$false
    } else {
        New-AdvancedSetting -Entity $vm -Name $Name -Value $Value -Force -Confirm:$false | Out-Null
    }
}
function Set-Step([string]$Name, [string]$What, [string]$From, [string]$To, [bool]$Off, [scriptblock]$Read, [scriptblock]$Write) {
    if ($Undo) { $From, $To = $To, $From }
    $vm = Get-TheVM $Name
    $is = & $Read $vm
    if ($is -ceq $To) { Write-Output "$Name, ${What}: already '$To'"; return }
    if ($is -cne $From) { throw "$Name, ${What}: the value is '$is', but the plan expects '$From'" }
    if ($Off -and $vm.PowerState -ne 'PoweredOff') { throw "$Name, ${What}: power off the VM first" }
    if (-not $Apply) { Write-Output "$Name, ${What}: would become '$To' (is '$is')"; return }
    & $Write $vm $To
    $is = & $Read (Get-TheVM $Name)
    if ($is -cne $To) { throw "$Name, ${What}: set to '$To', but the value is '$is'" }
    Write-Output "$Name, ${What}: '$From' -> '$To'"
}
"#;

/// The plan as a script.
///
/// # Errors
/// `Unsupported` if a VM is not on vSphere, or if PowerCLI has no setting for a step.
pub fn script(plan: &Plan) -> Result<String, Fault> {
    if let Some(vm) = plan.parent.vms.iter().find(|vm| !vm.manager.has_powercli()) {
        return Err(Fault::new(
            FaultKind::Unsupported,
            format!("cannot make a PowerCLI script for VM {:?}", vm.name),
        )
        .because("the VM is not on vSphere")
        .help("apply the plan with vsteer apply"));
    }
    let mut out = String::new();
    let _ = writeln!(out, "# vsteer plan {}: {}", plan.id, comment(&plan.title));
    let _ = writeln!(out, "# Host {}, {}.", comment(&plan.parent.hostname), comment(&plan.parent.kernel));
    out.push_str(
        "# For review. Needs VMware PowerCLI and Connect-VIServer. Without -Apply the script is a dry run.\n\
         # With -Apply -Undo it restores the former values. This script was never tested with PowerCLI.\n#\n",
    );
    for f in &plan.forecast.vms {
        if f.withheld {
            let off = f.null_error_told().unwrap_or_default();
            let _ = writeln!(
                out,
                "# No forecast of {}: for the unchanged host it would say that the VM waits {off}.",
                comment(&f.name)
            );
            continue;
        }
        let _ = writeln!(
            out,
            "# Expected: {}: ready {:.1} -> {:.1} % ({:.1} to {:.1}), sum over its vCPUs.",
            comment(&f.name),
            100.0 * f.ready_before,
            100.0 * f.ready_after.likely,
            100.0 * f.ready_after.low,
            100.0 * f.ready_after.high
        );
    }
    plan.irreversible.iter().for_each(|line| {
        let _ = writeln!(out, "# No undo for: {}", comment(line));
    });
    out.push_str(HEAD);
    let mut steps = Vec::new();
    for (i, step) in plan.steps.iter().enumerate() {
        let s = setting(step).ok_or_else(|| {
            Fault::new(
                FaultKind::Unsupported,
                format!("step {}, {}: PowerCLI has no such setting", i + 1, step.change),
            )
        })?;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "    # {}. {}: {}",
            i + 1,
            comment(&step.vm_name),
            comment(&step.change.to_string())
        );
        let _ = writeln!(text, "    #    because {}", comment(&step.reason));
        s.note.iter().for_each(|note| {
            let _ = writeln!(text, "    #    {note}");
        });
        let _ = write!(
            text,
            "    {{ Set-Step {} {} {} {} ${} {{ param($vm) {} }} {{ param($vm, $value) {} }} }}",
            quoted(&step.vm_name),
            quoted(what(&step.change)),
            quoted(&s.from),
            quoted(&s.to),
            s.off,
            s.read,
            s.write
        );
        steps.push(text);
    }
    if steps.is_empty() {
        out.push_str("\nWrite-Output 'nothing needs to change'\n");
        return Ok(out);
    }
    let _ = write!(out, "\n$steps = @(\n{}\n)\n", steps.join("\n"));
    out.push_str("if ($Undo) { [array]::Reverse($steps) }\nforeach ($step in $steps) { & $step }\n");
    Ok(out)
}

fn what(change: &Change) -> &'static str {
    match change {
        Change::NodeAffinity(_) => "numa.nodeAffinity",
        Change::Topology(_) => "cores per socket",
        Change::VmAffinity(_) => "CPU affinity",
        Change::ReservationMhz(_) => "CPU reservation, MHz",
        Change::LimitMhz(_) => "CPU limit, MHz",
        Change::Latency(_) => "latency sensitivity",
        _ => "CPU shares",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::Forecast;
    use crate::nouns::Manager;
    use crate::nouns::{HostConfig, VmConfig, VmId};
    use crate::setting::Scope;
    use crate::topology::machine;
    use proptest::prelude::*;

    fn plan(name: &str, change: Change) -> Plan {
        let vm = VmConfig {
            manager: Manager::Vsphere(String::new()),
            ..VmConfig::new(VmId("id".into()), name, 1)
        };
        let parent = HostConfig {
            cgroups: crate::nouns::CgroupLayout::None,
            vms: vec![vm],
            ..HostConfig::new("esx", "VMware ESXi 7.0.2", machine(2, 1, 2, 1).unwrap())
        };
        let step = Step {
            vm: VmId("id".into()),
            vm_name: name.into(),
            change,
            reason: "node 0 is full\n# rm".into(),
        };
        let none = Forecast { method: String::new(), vms: Vec::new() };
        Plan::new(parent, "title".into(), vec![step], Scope::Persistent, none)
    }

    fn to_node_1() -> Change {
        Change::NodeAffinity(setting::NodeAffinity { from: None, to: Some(CpuSet::single(1)) })
    }

    /// What PowerShell makes of an expression of ours: strings and characters, added up.
    fn read_back(expression: &str) -> String {
        let inner = expression.strip_prefix('(').and_then(|e| e.strip_suffix(')')).unwrap_or(expression);
        let (mut units, mut rest) = (Vec::new(), inner);
        while !rest.is_empty() {
            if let Some(text) = rest.strip_prefix('\'') {
                let mut chars = text.char_indices().peekable();
                loop {
                    let (i, c) = chars.next().expect("it is closed");
                    if c != '\'' {
                        units.push(c as u16);
                    } else if chars.peek().is_some_and(|(_, c)| *c == '\'') {
                        chars.next();
                        units.push(u16::from(b'\''));
                    } else {
                        rest = &text[i + 1..];
                        break;
                    }
                }
            } else {
                let hex = rest.strip_prefix("[char]0x").expect("a character");
                units.push(u16::from_str_radix(&hex[..4], 16).unwrap());
                rest = &hex[4..];
            }
            rest = rest.strip_prefix(" + ").unwrap_or(rest);
        }
        String::from_utf16(&units).unwrap()
    }

    #[test]
    fn a_move_as_a_script() {
        let script = script(&plan("it's *", to_node_1())).unwrap();
        assert!(script.contains("Set-Step 'it''s *' 'numa.nodeAffinity' '' '1' $false"), "{script}");
        assert!(script.contains("because node 0 is full?# rm"), "a comment is one line");
        let off = Change::Topology(setting::Topology {
            from: None,
            to: crate::nouns::GuestTopology { sockets: 2, cores: 6, threads: 1 },
        });
        let script = super::script(&plan("web", off)).unwrap();
        assert!(script.contains("Set-Step 'web' 'cores per socket' '1' '6' $true"), "{script}");
    }

    #[test]
    fn every_setting_of_vspheres_has_its_statement() {
        use crate::nouns::LatencySensitivity as L;
        let cpus = |text: &str| Some(text.parse::<CpuSet>().unwrap());
        for (change, words) in [
            (
                Change::VmAffinity(setting::VmAffinity { from: None, to: cpus("0-2") }),
                "'CPU affinity' '' '0,1,2' $false",
            ),
            (
                Change::ReservationMhz(setting::ReservationMhz { from: 0, to: 500 }),
                "'CPU reservation, MHz' '0' '500' $false",
            ),
            (
                Change::LimitMhz(setting::LimitMhz { from: Some(2000), to: None }),
                "'CPU limit, MHz' '2000' '-1' $false",
            ),
            (
                Change::Latency(setting::Latency { from: L::Normal, to: L::High }),
                "'latency sensitivity' 'normal' 'high' $true",
            ),
            (
                Change::Weight(setting::Weight { from: CpuWeight::Esxi(1000), to: CpuWeight::Esxi(4000) }),
                "'CPU shares' '1000' '4000' $false",
            ),
        ] {
            let script = script(&plan("web", change)).unwrap();
            assert!(script.contains(words), "{script}");
        }
    }

    #[test]
    fn threads_of_a_core_count_as_cores_and_notes_say_when_it_takes_effect() {
        let shown = |cores, threads| crate::nouns::GuestTopology { sockets: 1, cores, threads };
        let change = setting::Topology { from: Some(shown(6, 3)), to: shown(4, 3) };
        let of = |change| script(&plan("web", change)).unwrap();
        let topology = of(Change::Topology(change));
        assert!(topology.contains("'cores per socket' '18' '12' $true"), "{topology}");
        assert!(topology.contains("#    the guest sees it at its next start"), "{topology}");
        let node = of(to_node_1());
        assert!(node.contains("#    ESXi reads it when the VM powers on"), "{node}");
        let latency = of(Change::Latency(setting::Latency {
            from: crate::nouns::LatencySensitivity::High,
            to: crate::nouns::LatencySensitivity::Low,
        }));
        assert!(latency.contains("#    high needs all memory reserved"), "{latency}");
        let spec = "$spec.LatencySensitivity.Level = $value; $vm.ExtensionData.ReconfigVM($spec)";
        assert!(latency.contains(spec), "{latency}");
    }

    #[test]
    fn a_plan_without_steps_is_a_script_that_says_so() {
        let mut nothing = plan("web", to_node_1());
        nothing.steps.clear();
        let script = script(&nothing).unwrap();
        assert!(script.ends_with("Write-Output 'nothing needs to change'\n"), "{script}");
        assert!(script.starts_with(&format!("# vsteer plan {}: title\n", nothing.id)), "{script}");
    }

    #[test]
    fn what_powercli_cannot_is_refused() {
        let class = Change::RtBudget(setting::RtBudget { cgroup: "/a".into(), from_us: 0, to_us: 1 });
        assert_eq!(script(&plan("a", class)).unwrap_err().kind, FaultKind::Unsupported);
        let mut kvm = plan("a", to_node_1());
        kvm.parent.vms[0].manager = Manager::Bare;
        assert_eq!(script(&kvm).unwrap_err().kind, FaultKind::Unsupported);
    }

    #[test]
    fn quotes_of_every_kind() {
        assert_eq!(quoted("a'b"), "'a''b'");
        assert_eq!(quoted("a\u{2019}; rm"), "('' + 'a' + [char]0x2019 + '; rm')");
        assert_eq!(quoted("\u{1f600}"), "('' + [char]0xD83D + [char]0xDE00)");
        assert_eq!(quoted("$(x)`n\"{0}"), "'$(x)`n\"{0}'");
        assert_eq!(quoted(""), "''");
    }

    proptest! {
        #[test]
        fn any_name_is_quoted(name in any::<String>()) {
            prop_assert_eq!(read_back(&quoted(&name)), name.clone());
            let script = script(&plan(&name, to_node_1())).unwrap();
            prop_assert!(script.bytes().all(|b| b == b'\n' || (0x20..0x7f).contains(&b)), "ASCII alone");
            prop_assert_eq!(script.lines().count(), super::script(&plan("web", to_node_1())).unwrap().lines().count());
        }
    }
}
