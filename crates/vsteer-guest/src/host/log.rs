//! What became of every request? A line in the access log of its VM, read out of the VM's memory.
//!
//! The memory of a VM whose server has a schedule is a file of /run; the server keeps its responses there (vmm/abi.rs). They
//! are read by the observer's pCPU: nothing of the VM is asked, woken or stopped. But all pCPUs share one clock, which
//! stands still for the VMs while another works, so this is done seldom: at the end of a case, and every `log_every_s`.
//!
//! A line is `{"ts":1767225600.123456789,"duration_us":6600.123}`: CLOCK_REALTIME when the request was answered, and how
//! long that took since it arrived, by the VM's own clock. Lines are in order within what is read at a time.
//!
//! Left out: what is still being served.

use super::job::Start;
use crate::vmm::abi::{BEGUN_AT, Begun, Response, TABLES_AT, Table};
use crate::workload::{Plan, Workload};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where the memory of such VMs lies.
const MEMORY: &str = "/run/memory";
/// Responses that are read at a time.
const CHUNK: usize = 4096;

/// The log of one VM.
pub struct Log {
    memory: File,
    memory_path: PathBuf,
    out: File,
    out_path: PathBuf,
    /// Responses read, of each vCPU.
    taken: Vec<u64>,
}

impl Log {
    /// A log of this VM in the folder, if its workload has one.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn of(start: &Start, folder: &str) -> Result<Option<Log>, String> {
        let scheduled = matches!(Plan::parse(&start.workload)?.workload, Workload::Scheduled(_));
        let Some(vcpus) = start.vcpus.filter(|_| scheduled) else { return Ok(None) };
        std::fs::create_dir_all(MEMORY).map_err(|e| format!("making {MEMORY}: {e}"))?;
        let memory = Path::new(MEMORY).join(&start.name);
        Log::between(&memory, &Path::new(folder).join(format!("{}.log", start.name)), vcpus).map(Some)
    }

    fn between(memory_path: &Path, out: &Path, vcpus: usize) -> Result<Log, String> {
        let made = |path: &Path| {
            let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
            file.map_err(|e| format!("making {}: {e}", path.display()))
        };
        Ok(Log {
            memory: made(memory_path)?,
            memory_path: memory_path.to_owned(),
            out: made(out)?,
            out_path: out.to_owned(),
            taken: vec![0; vcpus],
        })
    }

    /// The file that is to be the VM's memory.
    pub fn memory(&self) -> &Path {
        &self.memory_path
    }

    /// Is it of this VM?
    pub fn is_of(&self, name: &str) -> bool {
        self.memory_path.file_name().is_some_and(|n| n == name)
    }

    /// Goes on with a VM that is started anew: its memory is empty.
    ///
    /// # Errors
    /// It cannot be emptied.
    pub fn anew(&mut self) -> Result<(), String> {
        self.taken.fill(0);
        self.memory.set_len(0).map_err(|e| format!("emptying {}: {e}", self.memory_path.display()))
    }

    /// Gives what was written another name, and begins a new file, as logrotate does.
    ///
    /// # Errors
    /// A file that cannot be renamed or made.
    pub fn rotate(&mut self) -> Result<(), String> {
        let told = |e: std::io::Error| format!("rotating {}: {e}", self.out_path.display());
        let mut old = self.out_path.clone().into_os_string();
        old.push(".1");
        std::fs::rename(&self.out_path, old).map_err(told)?;
        self.out = File::create(&self.out_path).map_err(told)?;
        Ok(())
    }

    /// Writes what has been answered since this was last done.
    ///
    /// # Errors
    /// The memory cannot be read, or the log not be written.
    pub fn drain(&mut self) -> Result<(), String> {
        let done = self.new_responses().and_then(|new| self.out.write_all(new.as_bytes()));
        done.map_err(|e| format!("from {} to its log: {e}", self.memory_path.display()))
    }

    fn new_responses(&mut self) -> std::io::Result<String> {
        let wall_ns = self.word(BEGUN_AT + offset_of!(Begun, wall_ns) as u64)?;
        // The VM has not begun.
        if wall_ns == 0 {
            return Ok(String::new());
        }
        let mut new = Vec::new();
        for vcpu in 0..self.taken.len() {
            let table = TABLES_AT + (vcpu * size_of::<Table>()) as u64;
            let first = self.word(table + offset_of!(Table, responses_at) as u64)?;
            let count = self.word(table + offset_of!(Table, responses) as u64)?;
            while self.taken[vcpu] < count {
                let entries = (count - self.taken[vcpu]).min(CHUNK as u64);
                let mut bytes = vec![0; entries as usize * size_of::<Response>()];
                let at = first + self.taken[vcpu] * size_of::<Response>() as u64;
                self.memory.read_exact_at(&mut bytes, at)?;
                let words: Vec<u64> = bytes.chunks_exact(8).map(word_of).collect();
                new.extend(words.chunks_exact(2).map(|w| Response { arrived_ns: w[0], done_ns: w[1] }));
                self.taken[vcpu] += entries;
            }
        }
        new.sort_by_key(|r| r.done_ns);
        let mut text = String::with_capacity(60 * new.len());
        new.iter().for_each(|r| line(&mut text, wall_ns, r));
        Ok(text)
    }

    /// Sleeps of the VM that ended without its timer's interrupt, and its name; `None` where there were none.
    pub fn lost(&self) -> Option<(u64, String)> {
        let table = |vcpu: usize| TABLES_AT + (vcpu * size_of::<Table>()) as u64;
        let of = |vcpu| self.word(table(vcpu) + offset_of!(Table, lost) as u64).unwrap_or(0);
        let lost = (0..self.taken.len()).map(of).sum();
        let name = self.memory_path.file_name()?.to_string_lossy().into_owned();
        (lost > 0).then_some((lost, name))
    }

    /// A word of the memory; 0 where there is none yet.
    fn word(&self, at: u64) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        let read = self.memory.read_at(&mut bytes, at)?;
        Ok(if read == bytes.len() { u64::from_le_bytes(bytes) } else { 0 })
    }

    /// Gives back the memory of a VM that has ended.
    ///
    /// # Errors
    /// It cannot be.
    pub fn end(self) -> Result<(), String> {
        let path = &self.memory_path;
        std::fs::remove_file(path).map_err(|e| format!("removing {}: {e}", path.display()))
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn line(text: &mut String, wall_ns: u64, response: &Response) {
    let (ts, took) = (wall_ns + response.done_ns, response.done_ns - response.arrived_ns);
    let (s, ns, us, part) = (ts / 1_000_000_000, ts % 1_000_000_000, took / 1_000, took % 1_000);
    // Into a string: it does not fail.
    let _ = writeln!(text, "{{\"ts\":{s}.{ns:09},\"duration_us\":{us}.{part:03}}}");
}

/// Drains all.
///
/// # Errors
/// As the first that fails.
pub fn drain_all(logs: &Mutex<Vec<Log>>) -> Result<(), String> {
    logs.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().try_for_each(Log::drain)
}

/// Drains all every so many seconds, until there is nobody left who could say `end`.
///
/// # Errors
/// As [`drain_all`].
pub fn drain_every(seconds: u64, logs: &Mutex<Vec<Log>>, end: &Receiver<()>) -> Result<(), String> {
    let mut due = std::time::Instant::now();
    loop {
        due += Duration::from_secs(seconds);
        let left = due.saturating_duration_since(std::time::Instant::now());
        match end.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => drain_all(logs)?,
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM's memory with so many responses of two vCPUs, as the program inside writes them.
    fn answer(memory: &File, vcpu: u64, from: u64, responses: &[(u64, u64)]) {
        let table = TABLES_AT + vcpu * size_of::<Table>() as u64;
        let at = 0x60_0000 + vcpu * 0x1000;
        let put = |at: u64, word: u64| memory.write_all_at(&word.to_le_bytes(), at).unwrap();
        put(table + 16, at);
        for (i, (arrived, done)) in (from..).zip(responses) {
            put(at + 16 * i, *arrived);
            put(at + 16 * i + 8, *done);
        }
        put(table + 24, from + responses.len() as u64);
    }

    #[test]
    fn every_response_becomes_a_line_once() {
        let folder = std::env::temp_dir().join(format!("vsteer-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, out) = (folder.join("web"), folder.join("web.log"));
        let mut log = Log::between(&path, &out, 2).unwrap();
        log.drain().unwrap();
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "", "the VM has no memory yet");
        let memory = File::options().write(true).open(&path).unwrap();
        memory.set_len(8 << 20).unwrap();
        memory.write_all_at(&1_767_225_600_000_000_000_u64.to_le_bytes(), BEGUN_AT).unwrap();
        answer(&memory, 0, 0, &[(1_000, 6_601_123), (2_000_000_000, 3_000_000_007)]);
        answer(&memory, 1, 0, &[(5, 123_456_789)]);
        log.drain().unwrap();
        log.drain().unwrap();
        answer(&memory, 0, 2, &[(3_000_000_000, 3_000_000_999)]);
        log.drain().unwrap();
        let lines = "{\"ts\":1767225600.006601123,\"duration_us\":6600.123}\n\
            {\"ts\":1767225600.123456789,\"duration_us\":123456.784}\n\
            {\"ts\":1767225603.000000007,\"duration_us\":1000000.007}\n\
            {\"ts\":1767225603.000000999,\"duration_us\":0.999}\n";
        assert_eq!(std::fs::read_to_string(&out).unwrap(), lines);
        log.rotate().unwrap();
        log.anew().unwrap();
        memory.set_len(8 << 20).unwrap();
        memory.write_all_at(&1_767_225_700_000_000_000_u64.to_le_bytes(), BEGUN_AT).unwrap();
        answer(&memory, 0, 0, &[(0, 1_000)]);
        log.drain().unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("web.log.1")).unwrap(), lines);
        let new = "{\"ts\":1767225700.000001000,\"duration_us\":1.000}\n";
        assert_eq!(std::fs::read_to_string(&out).unwrap(), new);
        assert!(log.is_of("web") && !log.is_of("web.log"));
        log.end().unwrap();
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
