//! Writes an initramfs in the format that Linux reads, "newc" cpio.
//!
//! The format is in the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`: a header of
//! eight-digit hexadecimal fields, the name, the data, each padded to four bytes. Several archives, each
//! compressed or not, may follow one another. Times are zero, so that the same input gives the same bytes.
//! Left out: links and owners, which the lab's images do not have.

/// An archive that is being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Archive::default()
    }

    /// Adds a folder.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, (0, 0), &[]);
    }

    /// Adds a file with the given permissions.
    pub fn file(&mut self, name: &str, permissions: u32, data: &[u8]) {
        self.entry(name, FILE | permissions, (0, 0), data);
    }

    /// Adds a character device.
    pub fn character_device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// The archive with its end mark.
    pub fn finish(mut self) -> Vec<u8> {
        self.entries = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), data: &[u8]) {
        assert!(!name.starts_with('/'), "names in an initramfs are relative to its root: {name}");
        let size = u32::try_from(data.len()).expect("a file of a lab image is far below 4 GiB");
        let inode = self.entries;
        self.entries += 1;
        self.bytes.extend_from_slice(b"070701");
        let name_size = name.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), name size, checksum.
        for field in [inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_by_hand() {
        let mut archive = Archive::new();
        archive.file("init", 0o755, b"hello");
        let bytes = archive.finish();
        let header = "070701\
                      00000000000081ed000000000000000000000001\
                      00000000000000050000000000000000\
                      00000000000000000000000500000000";
        assert_eq!(&bytes[..110], header.as_bytes());
        // The name with its zero ends at 115, padded to 116; the data ends at 121, padded to 124.
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert!(bytes[124..].windows(10).any(|w| w == b"TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }

    /// GNU cpio, if installed, reads what this file writes.
    #[test]
    #[ignore = "needs cpio"]
    fn cpio_agrees() {
        use std::io::Write;
        use std::process::{Command, Stdio};
        let mut archive = Archive::new();
        archive.folder("dev");
        archive.character_device("dev/console", 5, 1);
        archive.file("workload", 0o644, b"burn\n");
        let mut cpio = Command::new("cpio")
            .arg("-itv")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("cpio is installed");
        cpio.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        let listing = String::from_utf8(cpio.wait_with_output().unwrap().stdout).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        assert_eq!(lines.len(), 3, "{listing}");
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(" dev"), "{listing}");
        assert!(lines[1].starts_with("crw-------") && lines[1].contains("5,   1"), "{listing}");
        assert!(lines[2].starts_with("-rw-r--r--") && lines[2].contains("      5 "), "{listing}");
    }
}
