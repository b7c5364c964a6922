//! In which form do results leave the emulated host? As one "newc" cpio archive, which the lab reads.
//!
//! What carries it ([`super::window`]) knows of no file systems, and an archive tells its own end. Source of the format: the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`. Names are sorted and times are zero, so that the same
//! results are the same bytes. Left out: links, owners, permissions.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes all files below `folder`; the archive's length.
///
/// # Errors
/// The file that could not be read, or what `out` says.
pub fn write(folder: &Path, mut out: impl Write) -> Result<u64, String> {
    let told = |what: &Path| {
        let what = what.display().to_string();
        move |e: std::io::Error| format!("{what}: {e}")
    };
    let mut length = 0;
    for file in files(folder).map_err(told(folder))? {
        let bytes = std::fs::read(&file).map_err(told(&file))?;
        let name = file.strip_prefix(folder).expect("it lies below").to_string_lossy().into_owned();
        length += entry(&mut out, &name, &bytes).map_err(told(&file))?;
    }
    length += entry(&mut out, "TRAILER!!!", &[]).map_err(|e| e.to_string())?;
    Ok(length)
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

fn entry(out: &mut impl Write, name: &str, data: &[u8]) -> std::io::Result<u64> {
    let size = u32::try_from(data.len()).map_err(|_| std::io::Error::other("a file of 4 GiB or more"))?;
    let name_size = name.len() as u32 + 1;
    // inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), name size, checksum.
    let fields = [0, 0o100_644, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
    let mut bytes = b"070701".to_vec();
    bytes.extend(fields.iter().flat_map(|f| format!("{f:08x}").into_bytes()));
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    pad(&mut bytes);
    bytes.extend_from_slice(data);
    pad(&mut bytes);
    out.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the lab's reader is tested with as well.
    #[test]
    fn entries_are_padded_and_ended() {
        let mut out = Vec::new();
        let length = entry(&mut out, "a/b", b"hello").unwrap();
        assert_eq!((out.len() as u64, length), (124, 124));
        assert_eq!(&out[..14], b"07070100000000");
        assert_eq!(&out[54..62], b"00000005", "the size of the data");
        assert_eq!(&out[110..124], b"a/b\0\0\0hello\0\0\0");
    }
}
