//! How is Linux asked to run a VM? Its KVM interface, as far as a VM without devices needs it.
//!
//! Source: `Documentation/virt/kvm/api.rst` and `include/uapi/linux/kvm.h`, `arch/x86/include/uapi/asm/kvm.h`
//! (Linux 6.18); the layouts have not changed since 2.6.
//!
//! All that is unsafe about a VM is here: the calls by number, and the two mappings that the kernel or the VM write to
//! while we read. Left out: everything that emulates a machine.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use std::fs::File;
use std::io::Error;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

const GET_API_VERSION: u64 = 0xae00;
const CREATE_VM: u64 = 0xae01;
const GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const GET_SUPPORTED_CPUID: u64 = 0xc008_ae05;
const CREATE_VCPU: u64 = 0xae41;
const SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const SET_TSS_ADDRESS: u64 = 0xae47;
const CREATE_IRQCHIP: u64 = 0xae60;
const RUN: u64 = 0xae80;
const GET_REGISTERS: u64 = 0x8090_ae81;
const SET_REGISTERS: u64 = 0x4090_ae82;
const GET_SPECIAL_REGISTERS: u64 = 0x8138_ae83;
const SET_SPECIAL_REGISTERS: u64 = 0x4138_ae84;
const SET_CPUID: u64 = 0x4008_ae90;
const SET_MP_STATE: u64 = 0x4004_ae99;
const GET_TSC_KHZ: u64 = 0xaea3;
const GET_MSRS: u64 = 0xc008_ae88;

/// The register that holds the time stamp counter.
const TSC: u32 = 0x10;

/// The only version that there has been since 2007.
const API_VERSION: i32 = 12;
/// Entries that a vCPU's CPUID may have.
const CPUID_ENTRIES: usize = 256;
/// Where Linux may keep three pages of its own on old Intel processors: in no VM's memory here.
const TSS_ADDRESS: u64 = 0xfffb_d000;

/// Takes a vCPU out of the VM, where its thread cannot be told otherwise.
const INTERRUPTS: libc::c_int = libc::SIGUSR1;
/// The thread that was interrupted last.
static INTERRUPTED: AtomicI32 = AtomicI32::new(0);

extern "C" fn interrupted(_: libc::c_int) {
    // SAFETY: the call has no conditions, and may be made in a signal handler.
    INTERRUPTED.store(unsafe { libc::gettid() }, Relaxed);
}

/// From here on threads of this process can be [`interrupt`]ed.
pub fn can_be_interrupted() {
    // SAFETY: zeros are a valid value, and the handler does what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupted as *const () as usize;
        libc::sigaction(INTERRUPTS, &raw const action, ptr::null_mut());
    }
}

/// Takes the vCPU whose thread this is out of its VM; it ends. Who is not in the VM just then is not told, but that is for an instant
/// of its life.
///
/// # Errors
/// There is no such thread, or it is somebody else's.
pub fn interrupt(process: u32, thread: i32) -> Result<(), Error> {
    // SAFETY: the call takes three numbers.
    match unsafe { libc::syscall(libc::SYS_tgkill, process, thread, INTERRUPTS) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// `struct kvm_regs`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub r8_to_r15: [u64; 8],
    pub rip: u64,
    pub rflags: u64,
}

/// `struct kvm_segment`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Segment {
    pub base: u64,
    pub limit: u32,
    pub selector: u16,
    pub kind: u8,
    pub present: u8,
    pub privilege: u8,
    pub db: u8,
    pub code_or_data: u8,
    pub long: u8,
    pub pages: u8,
    pub available: u8,
    pub unusable: u8,
    pub padding: u8,
}

/// `struct kvm_dtable`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Table {
    pub base: u64,
    pub limit: u16,
    pub padding: [u16; 3],
}

/// `struct kvm_sregs`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct SpecialRegisters {
    pub cs: Segment,
    pub ds: Segment,
    pub es: Segment,
    pub fs: Segment,
    pub gs: Segment,
    pub ss: Segment,
    pub tr: Segment,
    pub ldt: Segment,
    pub gdt: Table,
    pub idt: Table,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub cr8: u64,
    pub efer: u64,
    pub apic_base: u64,
    pub interrupts: [u64; 4],
}

/// `struct kvm_userspace_memory_region`.
#[repr(C)]
struct MemoryRegion {
    slot: u32,
    flags: u32,
    guest_address: u64,
    bytes: u64,
    host_address: u64,
}

/// `struct kvm_cpuid_entry2`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CpuidEntry {
    leaf: u32,
    index: u32,
    flags: u32,
    eax: u32,
    ebx: u32,
    ecx: u32,
    edx: u32,
    padding: [u32; 3],
}

/// `struct kvm_cpuid2`.
#[repr(C)]
struct Cpuid {
    count: u32,
    padding: u32,
    entries: [CpuidEntry; CPUID_ENTRIES],
}

/// `struct kvm_msrs` with one entry.
#[repr(C)]
struct Msr {
    count: u32,
    padding: u32,
    index: u32,
    reserved: u32,
    value: u64,
}

const _: () = assert!(size_of::<Registers>() == 0x90 && size_of::<SpecialRegisters>() == 0x138);
const _: () = assert!(size_of::<MemoryRegion>() == 0x20 && size_of::<CpuidEntry>() == 40);

/// Calls with a number, or with nothing.
fn call(fd: BorrowedFd<'_>, request: u64, argument: u64) -> Result<i32, Error> {
    // SAFETY: every request here either takes a number or, by `call_with`, a pointer to the structure it names.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Calls with a structure, which the kernel reads or fills.
fn call_with<T>(fd: BorrowedFd<'_>, request: u64, value: &mut T) -> Result<i32, Error> {
    call(fd, request, ptr::from_mut(value) as u64)
}

/// Takes what a call created.
fn created(result: Result<i32, Error>) -> Result<OwnedFd, Error> {
    // SAFETY: the kernel has just made this descriptor, for us alone.
    result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Memory that a VM and we share.
pub struct Memory {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is mapped until the process ends; what several write at a time they write by atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// So many bytes, all zero: nobody else's, or those of a file that others read meanwhile.
    fn new(bytes: usize, file: Option<&Path>) -> Result<Memory, Error> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let at = match file {
            None => {
                let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
                // SAFETY: a fresh mapping, chosen by the kernel.
                unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags)? }
            }
            Some(file) => {
                let file = File::options().read(true).write(true).create(true).truncate(true).open(file)?;
                file.set_len(bytes as u64)?;
                let flags = MapFlags::SHARED | MapFlags::POPULATE;
                // SAFETY: a fresh mapping, chosen by the kernel; who else has the file open only reads it.
                unsafe { mmap(ptr::null_mut(), bytes, access, flags, &file, 0)? }
            }
        };
        Ok(Memory { at: at.cast(), bytes })
    }

    /// Writes bytes there. Only before the VM runs.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= self.bytes, "writing behind the VM's memory");
        // SAFETY: within the mapping, by the line above.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at as usize), bytes.len()) };
    }

    /// Writes a plain structure there. Only before the VM runs.
    pub fn write_value<T: Copy>(&self, at: u64, value: &T) {
        // SAFETY: any `T: Copy` can be read as bytes; the types written here have no padding.
        let bytes = unsafe { std::slice::from_raw_parts(ptr::from_ref(value).cast(), size_of::<T>()) };
        self.write(at, bytes);
    }

    /// What lies there while the VM writes to it.
    ///
    /// # Safety
    /// `T` must consist of atomics alone, and zero must be a value of it.
    pub unsafe fn shared<T>(&self, at: u64, count: usize) -> &'static [T] {
        assert!(
            at as usize + count * size_of::<T>() <= self.bytes
                && (at as usize).is_multiple_of(align_of::<T>())
        );
        // SAFETY: within the mapping, aligned (pages are), mapped until the process ends; the rest is the caller's.
        unsafe { std::slice::from_raw_parts(self.at.add(at as usize).cast(), count) }
    }
}

/// A VM without devices but for the interrupt controllers in the kernel.
pub struct Vm {
    kvm: OwnedFd,
    vm: OwnedFd,
    /// Its memory, from address 0 on.
    pub memory: Memory,
}

impl Vm {
    /// A VM of so many bytes, which lie in this file if one is named.
    pub fn new(bytes: usize, file: Option<&Path>) -> Result<Vm, String> {
        let told = |what: &'static str| move |e: Error| format!("{what}: {e}");
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let kvm = rustix::fs::open("/dev/kvm", flags, Mode::empty());
        let kvm = kvm.map_err(|e| format!("opening /dev/kvm: {e}"))?;
        let version = call(kvm.as_fd(), GET_API_VERSION, 0).map_err(told("asking KVM's version"))?;
        if version != API_VERSION {
            return Err(format!("KVM has version {version}, not {API_VERSION}"));
        }
        let vm = created(call(kvm.as_fd(), CREATE_VM, 0)).map_err(told("creating the VM"))?;
        call(vm.as_fd(), SET_TSS_ADDRESS, TSS_ADDRESS).map_err(told("setting KVM's own pages apart"))?;
        call(vm.as_fd(), CREATE_IRQCHIP, 0).map_err(told("creating the interrupt controllers"))?;
        let memory = Memory::new(bytes, file).map_err(told("mapping the VM's memory"))?;
        let mut region = MemoryRegion {
            slot: 0,
            flags: 0,
            guest_address: 0,
            bytes: bytes as u64,
            host_address: memory.at as u64,
        };
        call_with(vm.as_fd(), SET_USER_MEMORY_REGION, &mut region)
            .map_err(told("giving the VM its memory"))?;
        Ok(Vm { kvm, vm, memory })
    }

    /// One more vCPU, with the processor's features, a time stamp counter's deadline timer and the x2APIC.
    pub fn vcpu(&self, index: usize) -> Result<Vcpu, Error> {
        let fd = created(call(self.vm.as_fd(), CREATE_VCPU, index as u64))?;
        let bytes = call(self.kvm.as_fd(), GET_VCPU_MMAP_SIZE, 0)? as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of the vCPU's own page, never unmapped.
        let run = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0)? };
        let mut cpuid = Box::new(Cpuid {
            count: CPUID_ENTRIES as u32,
            padding: 0,
            entries: [CpuidEntry::default(); CPUID_ENTRIES],
        });
        call_with(self.kvm.as_fd(), GET_SUPPORTED_CPUID, &mut *cpuid)?;
        for entry in cpuid.entries.iter_mut().filter(|e| e.leaf == 1) {
            // Its timer by deadline, the x2APIC, and that it is a virtual machine.
            entry.ecx |= 1 << 24 | 1 << 21 | 1 << 31;
        }
        call_with(fd.as_fd(), SET_CPUID, &mut *cpuid)?;
        // Those after the first would wait for the first to start them.
        call_with(fd.as_fd(), SET_MP_STATE, &mut 0u32)?;
        Ok(Vcpu { fd, run: run.cast() })
    }
}

pub struct Vcpu {
    fd: OwnedFd,
    run: *const u8,
}

// SAFETY: the mapping lives as long as the process, and one thread at a time has the vCPU.
unsafe impl Send for Vcpu {}

/// Why a vCPU left the VM for good.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// It wrote to a port.
    Port(u16),
    /// Its thread was told to end.
    Unplugged,
    /// Anything else; the number is `KVM_EXIT_*`.
    Other(u32),
}

impl Vcpu {
    /// Ticks of its time stamp counter in a millisecond.
    pub fn tsc_khz(&self) -> Result<u64, Error> {
        call(self.fd.as_fd(), GET_TSC_KHZ, 0).map(|khz| khz as u64)
    }

    /// Its time stamp counter, now.
    pub fn tsc(&self) -> Result<u64, Error> {
        let mut msr = Msr { count: 1, padding: 0, index: TSC, reserved: 0, value: 0 };
        match call_with(self.fd.as_fd(), GET_MSRS, &mut msr)? {
            1 => Ok(msr.value),
            _ => Err(Error::other("KVM does not tell it")),
        }
    }

    pub fn registers(&self) -> Result<Registers, Error> {
        let mut registers = Registers::default();
        call_with(self.fd.as_fd(), GET_REGISTERS, &mut registers).map(|_| registers)
    }

    /// Sets its registers.
    pub fn set_registers(&self, registers: &mut Registers) -> Result<(), Error> {
        call_with(self.fd.as_fd(), SET_REGISTERS, registers).map(drop)
    }

    /// Changes its special registers.
    pub fn change_special(&self, change: impl FnOnce(&mut SpecialRegisters)) -> Result<(), Error> {
        let mut special = SpecialRegisters::default();
        call_with(self.fd.as_fd(), GET_SPECIAL_REGISTERS, &mut special)?;
        change(&mut special);
        call_with(self.fd.as_fd(), SET_SPECIAL_REGISTERS, &mut special).map(drop)
    }

    /// Runs it until it leaves for a reason that the kernel does not serve itself.
    pub fn run(&self) -> Result<Exit, Error> {
        const PORT: u32 = 2;
        loop {
            match call(self.fd.as_fd(), RUN, 0) {
                Ok(_) => break,
                // SAFETY: the call has no conditions.
                Err(_) if INTERRUPTED.load(Relaxed) == unsafe { libc::gettid() } => {
                    return Ok(Exit::Unplugged);
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // What the kernel asks for when a vCPU was made runnable meanwhile.
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        // SAFETY: `struct kvm_run`: exit_reason lies at byte 8, io.port at byte 34; the page is mapped.
        let (reason, port) = unsafe {
            (self.run.add(8).cast::<u32>().read_volatile(), self.run.add(34).cast::<u16>().read_volatile())
        };
        Ok(if reason == PORT { Exit::Port(port) } else { Exit::Other(reason) })
    }
}
