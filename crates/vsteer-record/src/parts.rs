//! Where do the files of a recording come from? A folder, or memory, so that a program can read a recording without a
//! disk.
//!
//! Both give the same recording: the rest of the reader knows names only.

use crate::{files, system};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vsteer_core::limits;

/// Is this the name of a file that a recording is made of?
pub fn is_part(name: &str) -> bool {
    ["manifest.json", "config.jsonl", "task.jsonl", "events.json", "marks.jsonl"].contains(&name)
        || name.ends_with(".arrows")
}

/// The files of a recording, by name.
#[derive(Debug, Clone)]
pub enum Parts {
    /// Files in a folder.
    Folder(PathBuf),
    /// Files in memory.
    Memory(Arc<BTreeMap<String, Vec<u8>>>),
}

impl Parts {
    /// What messages call the whole.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Parts::Folder(folder) => folder,
            Parts::Memory(_) => Path::new("memory"),
        }
    }

    /// What messages call a part.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// The names of all parts.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        match self {
            Parts::Folder(folder) => {
                Ok(fs::read_dir(folder)?.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
            }
            Parts::Memory(parts) => Ok(parts.keys().cloned().collect()),
        }
    }

    /// A part from its start. Unbuffered reads would cost a system call per column.
    pub(crate) fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        match self {
            Parts::Folder(folder) => Ok(Box::new(BufReader::new(system::open_ordinary(&folder.join(name))?))),
            Parts::Memory(_) => Ok(Box::new(self.held(name)?)),
        }
    }

    /// All bytes of a part.
    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        match self {
            Parts::Folder(folder) => files::ordinary_at_most(&folder.join(name), limits::RECORDING_TEXT),
            Parts::Memory(_) => Ok(self.held(name)?.to_vec()),
        }
    }

    /// Does a part end with these bytes?
    pub(crate) fn ends_with(&self, name: &str, end: [u8; 8]) -> bool {
        let mut last = [0; 8];
        match self {
            Parts::Folder(folder) => {
                let read = system::open_ordinary(&folder.join(name)).and_then(|mut file| {
                    file.seek(SeekFrom::End(-8))?;
                    file.read_exact(&mut last)
                });
                read.is_ok() && last == end
            }
            Parts::Memory(_) => self.held(name).is_ok_and(|bytes| bytes.ends_with(&end)),
        }
    }

    fn held(&self, name: &str) -> io::Result<&[u8]> {
        let found = match self {
            Parts::Folder(_) => None,
            Parts::Memory(parts) => parts.get(name).map(Vec::as_slice),
        };
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
