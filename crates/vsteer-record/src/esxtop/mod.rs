//! What did an ESXi host write with `esxtop -b`? Its batch files as samples, a row at a time.
//!
//! A batch file is CSV in the form of Windows' performance logs: the first row names every counter of every object
//! (`\\host\Group Cpu(4711:web)\% Ready`), tens of thousands of columns, and each further row is one sample. Each
//! value is a share of the time since the row before, in percent of one CPU; here they become counters that only rise,
//! as every other collector's are: value times interval.
//!
//! What is read, and what it becomes (`docs/glossary.md` has the words):
//!
//! | esxtop | here |
//! |---|---|
//! | `Vcpu(gid:group:wid:world)`: one world, a vCPU's where it is called `vmx-vcpu-N:…` | a thread |
//! | `Group Cpu(gid:name)`: *all* worlds of a VM added up, 26 for one of 12 vCPUs | [`GroupSample`](vsteer_core::nouns::GroupSample), never a thread |
//! | `% Run`, `% System`, `% Overlap`, `% CoStop`, `% Wait` | run, system, overlap, co-stopped, blocked |
//! | `% Ready`, which holds `% Max Limited` | wait; less `% Max Limited`: ready |
//! | `% Used`, scaled by frequency | used, as ESXi counts it |
//! | `Physical Cpu(n)\% Util Time` | how busy a pCPU was |
//! | `Group Memory(gid:name)\Numa % Local`, `Memory Size MBytes` | local memory, memory |
//!
//! What the file does not tell (sockets, cores and nodes; home nodes; settings) may lie beside it: [`beside`].
//!
//! Reading is streamed: the header is kept as a list of the columns that matter ([`columns`]), rows are split in place
//! ([`rows`], [`cells`]), and what is kept of them is bounded ([`kept`]).
//!
//! Sources: VMware, "Interpreting esxtop Statistics" (communities.vmware.com DOC-9279) for what the counters mean; for
//! the form, what public readers of such files expect and quote: github.com/yukiuuh, vfedotovs and akshaykalia-chd's
//! readers (`c_map.csv`: names of `Vcpu` and `Group Memory` counters), RackHD's (`Group Cpu` counters in their order),
//! a captured header in gsliu/VisualEsxtopOnline, and a class of fr.lelouet's (`Vcpu(3497860:diskless vm
//! 2:5421591:vmx)`; a time that is broken in two lines by some versions). **Untried** on a file of a real host of
//! one's own: there is none here.
//!
//! Left out: disks, networks, interrupts, power; worlds that belong to no VM.

mod account;
pub mod beside;
mod cells;
mod clock;
mod columns;
mod header;
mod kept;
mod rows;
pub mod write;

use account::Accounts;
use columns::Columns;
use kept::Kept;
pub use rows::Input;
use rows::Rows;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

/// What samples of one file may take up, bytes: beyond it, neighbouring samples are joined.
const KEPT_BYTES: usize = 72 << 20;

/// A batch file, read from its begin.
pub struct Reader {
    name: String,
    rows: Rows,
    columns: Columns,
    accounts: Accounts,
    beside: beside::Beside,
    /// The columns' values in the row at hand.
    values: Vec<f64>,
    notes: Vec<String>,
    ended: bool,
}

/// All of a file.
#[derive(Debug)]
pub struct Saved {
    /// Configuration of the host, as far as it is known.
    pub config: HostConfig,
    /// What was counted.
    pub collector: Collector,
    /// The samples.
    pub batches: Vec<Batch>,
    /// What is not whole, not told, or was joined.
    pub notes: Vec<String>,
}

/// Is this a batch file of esxtop's, plain or compressed?
pub fn is_one(file: &Path) -> bool {
    let mut first = [0; 64];
    let read = File::open(file).and_then(|f| read_up_to(&mut Input::of(BufReader::new(f))?, &mut first));
    read.is_ok_and(|n| header::begins(&first[..n]))
}

fn read_up_to(from: &mut Input, into: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < into.len() {
        match from.read(&mut into[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            // Of a compressed file that is cut short, what came before counts.
            Err(_) if n > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

impl Reader {
    /// Opens a file and reads its header, and what lies beside it.
    ///
    /// # Errors
    /// `BadInput` where it does not begin as such a file does, names no VM, or is contradicted by what lies beside it.
    pub fn open(file: &Path) -> Result<Reader, Fault> {
        let failed = |e: &std::io::Error| Fault::io(format!("cannot read {}", file.display()), e);
        let input = File::open(file).map_err(|e| failed(&e))?;
        let input = Input::of(BufReader::with_capacity(1 << 16, input)).map_err(|e| failed(&e))?;
        let beside = beside::Beside::of_file(file)?;
        Reader::of(input, file.display().to_string(), beside)
    }

    /// Reads a header; `name` is what faults and notes call the file.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of(input: Input, name: String, beside: beside::Beside) -> Result<Reader, Fault> {
        let mut rows = Rows::new(input, name.clone());
        let header = rows.header()?;
        let mut notes = Vec::new();
        let columns = Columns::of(&header, &beside, &name, &mut notes)?;
        drop(header);
        let accounts = Accounts::new(&columns, &beside, &name, &mut notes)?;
        let values = vec![f64::NAN; columns.slots()];
        Ok(Reader { name, rows, columns, accounts, beside, values, notes, ended: false })
    }

    /// The next sample; `None` at the end. The first says when counting begins: what its row tells is of a time whose
    /// begin the file does not say.
    ///
    /// # Errors
    /// Where the file cannot be read. A row that cannot is left out and noted.
    pub fn sample(&mut self) -> Result<Option<Batch>, Fault> {
        Ok(if self.advance()? { Some(self.accounts.batch()) } else { None })
    }

    /// Counts one row more; `false` at the end.
    fn advance(&mut self) -> Result<bool, Fault> {
        loop {
            if self.accounts.next(self.ended) {
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            self.ended = !self.row()?;
        }
    }

    /// Reads a row into the accounts; `false` at the end.
    fn row(&mut self) -> Result<bool, Fault> {
        let Some(row) = self.rows.next()? else { return Ok(false) };
        let bytes = self.rows.bytes(&row);
        // A number that is cut off is another number: only a closing quote tells that it is whole.
        let cut = row.is_cut && !(bytes.ends_with(b"\"") || bytes.ends_with(b"\","));
        match columns::read(bytes, &self.columns, &mut self.values) {
            Ok(_) if cut => self.rows.note(&row, 0, "the file ends inside this row: vsteer leaves it out"),
            Ok(cells) => {
                if let Some((offset, why)) = cells.garbled {
                    self.rows.note(&row, offset, &why);
                }
                match clock::moment(&cells.time, self.columns.bias_min) {
                    Some(unix_ns) => self.accounts.see(unix_ns, &self.values),
                    None => self.rows.note(&row, 0, &format!("{:?} is not a time", rows::shown(&cells.time))),
                }
            }
            Err(columns::Refused::Header) => {
                self.rows.note(&row, 0, "a second header: vsteer leaves out everything after it");
                return Ok(false);
            }
            Err(columns::Refused::Cells(_)) if row.is_cut => {
                self.rows.note(&row, 0, "the file ends inside this row: vsteer leaves it out");
            }
            Err(columns::Refused::Cells(n)) => {
                let wanted = self.columns.count();
                self.rows.note(&row, 0, &format!("{n} values, but the header names {wanted}"));
            }
        }
        Ok(true)
    }

    /// The host as far as it was told up to now.
    ///
    /// # Errors
    /// `BadInput` where what lies beside the file cannot be.
    pub fn config(&self) -> Result<HostConfig, Fault> {
        self.accounts.config(&self.columns, &self.beside)
    }

    /// What is counted, and what is not.
    pub fn collector(&self) -> Collector {
        self.columns.collector()
    }

    /// What was not whole, not told or odd up to now.
    pub fn notes(&self) -> Vec<String> {
        let mut all = self.notes.clone();
        all.extend(self.rows.notes());
        all.extend(self.accounts.notes(&self.name));
        all
    }
}

/// Reads a file whole. Where its samples would take up too much, neighbours are joined two by two, and again: the
/// counters rise, so that what remains tells the same over longer steps.
///
/// # Errors
/// As [`Reader::open`] and [`Reader::sample`]; `BadInput` for a file of fewer than two rows, of which no interval is
/// known.
pub fn read(file: &Path) -> Result<Saved, Fault> {
    read_within(file, KEPT_BYTES)
}

/// The same with another bound of what samples may take up, bytes.
///
/// # Errors
/// As [`read`].
pub fn read_within(file: &Path, kept_bytes: usize) -> Result<Saved, Fault> {
    let mut reader = Reader::open(file)?;
    let mut kept = Kept::new(kept_bytes);
    while reader.advance()? {
        kept.offer(|| reader.accounts.batch());
    }
    let (batches, joined) = kept.finish(|| reader.accounts.batch());
    let mut notes = reader.notes();
    if joined > 1 {
        notes
            .push(format!("{}: vsteer joined each {joined} samples into one to save memory", file.display()));
    }
    if batches.len() < 2 {
        return Err(too_few(file, batches.len() as u64, &notes));
    }
    Ok(Saved { config: reader.config()?, collector: reader.collector(), batches, notes })
}

/// That a file has too few rows; `notes` tell what became of others.
pub fn too_few(file: &Path, rows: u64, notes: &[String]) -> Fault {
    let what = format!("{} holds {}, vsteer needs 2", file.display(), counted(rows, "complete row"));
    let fault =
        Fault::new(FaultKind::BadInput, what).help("record more rows: esxtop -b -a -d 5 -n 12 > esxtop.csv");
    // Only a note about a row says why rows are missing: others are about the host.
    match notes.iter().rev().find(|n| n.contains(", line ") || n.contains("compressed data")) {
        Some(note) => fault.because(note),
        None if rows == 1 => fault.because("the first row only gives the start of the counting"),
        None => fault,
    }
}
