//! How do bytes reach the machine that carries the emulation, without a device that answers? By memory that both see.
//!
//! QEMU's `ivshmem-plain` is a PCI device that is nothing but memory, backed by a file outside; sysfs maps it. It needs
//! no driver, has no queue and raises no interrupt, so that neither its presence nor its use makes anything here depend
//! on that machine. A disk does: QEMU serves disks from another thread than the emulated pCPUs, when it gets to it, and
//! the firmware already looks at every disk.
//!
//! Source: QEMU 7.2, `docs/specs/ivshmem-spec.rst`; Linux, `Documentation/PCI/sysfs-pci.rst`.
//!
//! Left out: reading.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/bus/pci/devices";
/// Red Hat, inter-VM shared memory.
const IDENTITY: (&str, &str) = ("0x1af4", "0x1110");
/// The memory is the device's third resource; the first is the registers of the variant with interrupts.
const RESOURCE: &str = "resource2";

/// The memory, written from its beginning.
pub struct Window {
    start: *mut u8,
    bytes: usize,
    written: usize,
}

impl Window {
    /// Maps the one that the host has.
    ///
    /// # Errors
    /// There is none, or it cannot be mapped.
    pub fn open() -> Result<Window, String> {
        let device = find(Path::new(DEVICES)).ok_or("there is no device to hand results over by")?;
        let told = |what: &str| {
            let what = format!("{} {}", what, device.display());
            move |e: Error| format!("{what}: {e}")
        };
        std::fs::write(device.join("enable"), "1").map_err(told("switching on"))?;
        let file = File::options().read(true).write(true).open(device.join(RESOURCE));
        let file = file.map_err(told("opening the memory of"))?;
        Window::of(&file).map_err(told("mapping"))
    }

    fn of(file: &File) -> std::io::Result<Window> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of which nothing else in this process knows.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, flags, MapFlags::SHARED, file, 0)? };
        Ok(Window { start: start.cast(), bytes, written: 0 })
    }
}

impl Write for Window {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        if from.len() > self.bytes - self.written {
            let what = format!("results take more than the {} MiB that there are for them", self.bytes >> 20);
            return Err(Error::new(ErrorKind::StorageFull, what));
        }
        // SAFETY: the range lies within the mapping, which lasts as long as this process, and no reference points there.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(self.written), from.len()) };
        self.written += from.len();
        Ok(from.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn find(devices: &Path) -> Option<PathBuf> {
    let is = |device: &Path, file: &str, id: &str| {
        std::fs::read_to_string(device.join(file)).is_ok_and(|text| text.trim() == id)
    };
    let mut all = std::fs::read_dir(devices).ok()?.flatten().map(|e| e.path());
    all.find(|d| is(d, "vendor", IDENTITY.0) && is(d, "device", IDENTITY.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_file_and_no_more_than_fits() {
        let path = std::env::temp_dir().join(format!("vsteer-window-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(8192).unwrap();
        let mut window = Window::of(&file).unwrap();
        window.write_all(b"abc").unwrap();
        window.write_all(&[7; 8000]).unwrap();
        assert_eq!(window.write_all(&[1; 190]).unwrap_err().kind(), ErrorKind::StorageFull);
        window.write_all(&[9; 189]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((&bytes[..4], bytes[8002], bytes[8003], bytes[8191]), (&b"abc\x07"[..], 7, 9, 9));
    }
}
