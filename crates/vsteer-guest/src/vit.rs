//! How does a guest tell its host when a timer that matters ends? By a hypercall that no hypervisor answers.
//!
//! KVM does not know the number: it answers with an error, which is ignored, and costs an exit. A host that listens
//! (`vsteer realtime`) hears it by KVM's own tracepoint. It is heard from user mode as well, where the error is another one.
//!
//! AMD's processors know `vmmcall`, Intel's `vmcall`; the other one is an invalid instruction, so the vendor decides. Intel's is
//! untried. A processor that is neither, or no KVM below: nothing is said.
//!
//! Source: Linux 6.18, arch/x86/kvm/x86.c (kvm_emulate_hypercall), arch/x86/include/asm/kvm_para.h; the idea: Park et al., "VIT", J. KIISE
//! 37(1), 2010. The number and what it means: bpf/realtime.h.

#![allow(unsafe_code)]

const NUMBER: u64 = 0x5649_5400;
const ARM: u64 = 0;

/// By which instruction, if by any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vit {
    Vmmcall,
    Vmcall,
    /// None: nothing is said.
    Silent,
}

impl Vit {
    #[cfg(target_arch = "x86_64")]
    pub fn of_this_cpu() -> Vit {
        let __cpuid = |leaf| core::arch::x86_64::__cpuid(leaf);
        // Bit 31 of leaf 1: there is a hypervisor. One that is not KVM, such as QEMU's emulation, may have the instruction end the program.
        if __cpuid(1).ecx >> 31 == 0 {
            return Vit::Silent;
        }
        let below = __cpuid(0x4000_0000);
        if [below.ebx, below.ecx, below.edx].map(u32::to_le_bytes).as_flattened() != b"KVMKVMKVM\0\0\0" {
            return Vit::Silent;
        }
        let vendor = __cpuid(0);
        match [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() {
            b"AuthenticAMD" | b"HygonGenuine" => Vit::Vmmcall,
            b"GenuineIntel" => Vit::Vmcall,
            _ => Vit::Silent,
        }
    }

    /// None is known.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn of_this_cpu() -> Vit {
        Vit::Silent
    }

    /// A timer that matters ends so soon; one that was told before does not.
    pub fn arm(self, in_ns: u64) {
        self.say(ARM, in_ns);
    }

    #[cfg(target_arch = "x86_64")]
    fn say(self, what: u64, ns: u64) {
        use core::arch::asm;
        // rbx, the first argument, is the compiler's own.
        macro_rules! call {
            ($instruction:literal) => {
                unsafe {
                    asm!("xchg rbx, {what}", $instruction, "xchg rbx, {what}", what = inout(reg) what => _,
                        inout("rax") NUMBER => _, in("rcx") ns, in("rdx") 0, in("rsi") 0, options(nostack))
                }
            };
        }
        match self {
            Vit::Vmmcall => call!("vmmcall"),
            Vit::Vmcall => call!("vmcall"),
            Vit::Silent => {}
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn say(self, _what: u64, _ns: u64) {}
}
