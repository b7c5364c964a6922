//! Reads the batch files that an ESXi host writes with `esxtop -b`, as samples, one row at a time.
//!
//! A batch file is CSV in the form of Windows' performance logs. The first row names every counter of every
//! object (`\\host\Group Cpu(4711:web)\% Ready`) in tens of thousands of columns. Each further row is one
//! sample. Each value is a share of the time since the previous row, in percent of one CPU. vsteer turns it
//! into a counter that only rises, as in every other collector: value times interval.
//!
//! How esxtop's values map to vsteer's (see `docs/glossary.md` for the words):
//!
//! | esxtop | here |
//! |---|---|
//! | `Vcpu(gid:group:wid:world)`: one world; a vCPU's world is called `vmx-vcpu-N:…` | a thread |
//! | `Group Cpu(gid:name)`: *all* worlds of a VM added up, 26 for one of 12 vCPUs | [`GroupSample`](vsteer_core::nouns::GroupSample), never a thread |
//! | `% Run`, `% System`, `% Overlap`, `% CoStop`, `% Wait` | run, system, overlap, co-stopped, blocked |
//! | `% Ready`, which includes `% Max Limited` | wait; ready is wait minus `% Max Limited` |
//! | `% Used`, scaled by frequency | used, as ESXi counts it |
//! | `Physical Cpu(n)\% Util Time` | utilisation of a pCPU |
//! | `Group Memory(gid:name)\Numa % Local`, `Memory Size MBytes` | local memory, memory |
//!
//! A file beside may contain what esxtop does not report (sockets, cores and nodes; home nodes; settings):
//! [`beside`].
//!
//! vsteer streams the file. It keeps the header as a list of the relevant columns ([`columns`]) and parses
//! rows in place ([`rows`], [`values`]). The memory for samples is bounded ([`kept`]). Files that a spreadsheet
//! or another program has rewritten are read if their meaning is certain ([`dialect`], [`times`], [`minutes`]);
//! otherwise the fault says what the file is ([`crate::sniff`]).
//!
//! Sources: VMware, "Interpreting esxtop Statistics" (communities.vmware.com DOC-9279) for the meaning of the
//! counters. For the form, what public readers of such files expect and quote: the readers of
//! github.com/yukiuuh, vfedotovs and akshaykalia-chd (`c_map.csv`: names of `Vcpu` and `Group Memory`
//! counters), RackHD's (`Group Cpu` counters in their order), a captured header in gsliu/VisualEsxtopOnline,
//! and a class by fr.lelouet (`Vcpu(3497860:diskless vm 2:5421591:vmx)`; some versions break the time into
//! two lines). **Untried** with a file from a real host, because the project has none.
//!
//! Left out: disks, networks, interrupts, power; worlds that belong to no VM.

mod account;
pub mod beside;
mod cells;
mod clock;
mod columns;
mod counted;
mod dialect;
mod doubts;
mod header;
mod input;
mod kept;
mod minutes;
mod own;
mod rows;
mod times;
mod utf16;
mod values;
pub mod write;

use account::Accounts;
use columns::Columns;
pub use input::Input;
use kept::Kept;
use rows::Rows;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;
use times::Times;
use vsteer_core::limits;
use vsteer_core::nouns::{Batch, Collector, HostConfig};
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};

/// The most memory for the samples of one file, bytes. Above it, vsteer drops samples.
const KEPT_BYTES: usize = 72 << 20;

/// Reads a batch file from its start.
pub struct Reader {
    name: String,
    rows: Rows,
    columns: Columns,
    accounts: Accounts,
    beside: beside::Beside,
    times: Times,
    /// The columns' values in the current row.
    values: Vec<f64>,
    /// The current row in esxtop's own form, if the file has another one.
    rewritten: Vec<u8>,
    notes: Vec<String>,
    ended: bool,
}

/// The content of a file.
#[derive(Debug)]
pub struct Saved {
    /// The host's configuration, as far as it is known.
    pub config: HostConfig,
    /// Describes what the samples measure.
    pub collector: Collector,
    /// The samples.
    pub batches: Vec<Batch>,
    /// Notes about missing, unreported and dropped data.
    pub notes: Vec<String>,
}

/// Is this a batch file of esxtop, plain or compressed?
pub fn is_one(file: &Path) -> bool {
    let mut first = vec![0; limits::ESXTOP_PREAMBLE];
    let read = File::open(file).and_then(|f| read_up_to(&mut Input::of(BufReader::new(f))?, &mut first));
    read.is_ok_and(|n| dialect::header_at(&first[..n]).is_some())
}

fn read_up_to(from: &mut Input, into: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < into.len() {
        match from.read(&mut into[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            // If a compressed file is cut short, the part before the cut counts.
            Err(_) if n > 0 => break,
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

impl Reader {
    /// Opens a file and reads its header, and the file beside it.
    ///
    /// # Errors
    /// `BadInput` if it does not start like a batch file, names no VM, or contradicts the file beside it.
    pub fn open(file: &Path) -> Result<Reader, Fault> {
        let failed = |e: &std::io::Error| Fault::io(format!("cannot read {}", file.display()), e);
        let input = File::open(file).map_err(|e| failed(&e))?;
        let input = Input::of(BufReader::with_capacity(1 << 16, input)).map_err(|e| failed(&e))?;
        let beside = beside::Beside::of_file(file)?;
        Reader::of(input, file.display().to_string(), beside)
    }

    /// Reads a header; faults and notes call the file `name`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of(input: Input, name: String, beside: beside::Beside) -> Result<Reader, Fault> {
        let mut rows = Rows::new(input, name.clone());
        let header = rows.header()?;
        let mut notes = Vec::new();
        let columns =
            Columns::of(&header, &beside, &name, &mut notes).map_err(|fault| match rows.damage() {
                Some(damage) => fault.because(damage).help("copy the file again; gzip -t FILE checks it"),
                None => fault,
            })?;
        drop(header);
        let accounts = Accounts::new(&columns, &beside, &name, &mut notes)?;
        let values = vec![f64::NAN; columns.slots()];
        let (times, rewritten) = (Times::new(columns.bias_min), Vec::new());
        Ok(Reader { name, rows, columns, accounts, beside, times, values, rewritten, notes, ended: false })
    }

    /// The next sample; `None` at the end. The first sample only marks the start of counting, because the
    /// start of the first row's interval is unknown.
    ///
    /// # Errors
    /// If the file cannot be read. A row that cannot be parsed is left out, with a note.
    pub fn sample(&mut self) -> Result<Option<Batch>, Fault> {
        Ok(if self.advance()? { Some(self.accounts.batch()) } else { None })
    }

    /// Counts one more row; `false` at the end.
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
        // A number that was cut off is a wrong number. Only a closing quote shows that it is complete.
        let cut = row.is_cut && !(bytes.ends_with(b"\"") || bytes.ends_with(b"\","));
        let (read, is_rewritten) = self.values_of(&row);
        match read {
            Ok(_) if cut => self.rows.note(&row, 0, "the file ends inside this row: vsteer leaves it out"),
            Ok(cells) => {
                if let Some((offset, why)) = cells.garbled {
                    self.rows.note(&row, if is_rewritten { 0 } else { offset }, &why);
                }
                match self.times.read(&cells.time) {
                    Some(moment) => self.accounts.see(moment, &self.values),
                    None => self.rows.note(&row, 0, &times::why_not(&cells.time, &rows::shown(&cells.time))),
                }
            }
            Err(values::Refused::Header) => {
                self.rows.note(&row, 0, "a second header: vsteer leaves out everything after it");
                return Ok(false);
            }
            Err(values::Refused::Cells(_)) if row.is_cut => {
                self.rows.note(&row, 0, "the file ends inside this row: vsteer leaves it out");
            }
            Err(values::Refused::Cells(n)) => {
                let wanted = self.columns.count();
                self.rows.note(&row, 0, &format!("{n} values, but the header names {wanted}"));
            }
        }
        Ok(true)
    }

    /// Reads the values of a row, and says whether it had to be rewritten: because of the file's separator, or because
    /// a quoted cell contains a comma.
    fn values_of(&mut self, row: &rows::Row) -> (Result<values::Cells, values::Refused>, bool) {
        let (bytes, dialect) = (self.rows.bytes(row), self.rows.dialect);
        if dialect.is_own() {
            let read = values::read(bytes, &self.columns, &mut self.values);
            if !matches!(read, Err(values::Refused::Cells(n)) if n > self.columns.count()) {
                return (read, false);
            }
        }
        dialect.own(bytes, &mut self.rewritten);
        (values::read(&self.rewritten, &self.columns, &mut self.values), true)
    }

    /// The host's configuration, as far as it is known up to now.
    ///
    /// # Errors
    /// `BadInput` if the file beside is not possible.
    pub fn config(&self) -> Result<HostConfig, Fault> {
        self.accounts.config(&self.columns, &self.beside)
    }

    /// Describes what the file contains, and what it lacks.
    pub fn collector(&self) -> Collector {
        self.columns.collector(&|k| self.accounts.lost(k))
    }

    /// Notes about missing, unreported and unexpected data up to now.
    pub fn notes(&self) -> Vec<String> {
        let mut all = self.notes.clone();
        all.extend(self.rows.notes());
        all.extend(self.accounts.notes(&self.name));
        if self.times.may_be_swapped {
            all.push(format!(
                "{}: vsteer reads its dates as DAY.MONTH.YEAR; if a spreadsheet made them from esxtop's, day and month \
                 are swapped",
                self.name
            ));
        }
        all
    }
}

/// Reads a whole file. If its samples would need too much memory, vsteer drops every second one, repeatedly.
/// Counters rise, so the rest gives the same sums over longer steps.
///
/// # Errors
/// As [`Reader::open`] and [`Reader::sample`]; `BadInput` for a file with fewer than two rows, because then
/// no interval is known.
pub fn read(file: &Path) -> Result<Saved, Fault> {
    read_within(file, KEPT_BYTES)
}

/// The same with another memory limit for the samples, bytes.
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

/// The fault for a file with too few rows; `notes` say what happened to the other rows.
pub fn too_few(file: &Path, rows: u64, notes: &[String]) -> Fault {
    let what = format!("{} holds {}, vsteer needs 2", file.display(), counted(rows, "complete row"));
    let fault =
        Fault::new(FaultKind::BadInput, what).help("record more rows: esxtop -b -a -d 5 -n 12 > esxtop.csv");
    // Only a note about a row says why rows are missing. Other notes are about the host.
    match notes.iter().rev().find(|n| n.contains(", line ") || n.contains("compressed data")) {
        Some(note) => fault.because(note),
        None if rows == 1 => fault.because("the first row only gives the start of the counting"),
        None => fault,
    }
}
