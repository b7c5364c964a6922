//! Reads the values of a row: from one relevant column to the next.
//!
//! A cell without a valid number costs that cell, not the row: its value is missing.

use super::cells::{cell, cells_from, number, plain_number, skip};
use super::columns::Columns;
use super::header;
use super::rows::shown;

/// The largest value of any counter. Memory in MiB is the largest; a share or a rate is much smaller.
const MOST: f64 = 1e9;

/// The parts of a row that are not values.
#[derive(Debug)]
pub(super) struct Cells {
    /// The time of the row.
    pub(super) time: Vec<u8>,
    /// A cell without a valid value, and its place in the row. It counts as missing.
    pub(super) garbled: Option<(usize, String)>,
}

/// Why a row is left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The row is a header.
    Header,
    /// The number of its cells, if it differs from the header.
    Cells(usize),
}

/// Reads the relevant values of a row.
pub(super) fn read(row: &[u8], plan: &Columns, values: &mut [f64]) -> Result<Cells, Refused> {
    if header::begins(row) {
        return Err(Refused::Header);
    }
    // Some versions write an extra comma at the end.
    let has_one_more = || cells_from(row, 0) == plan.count() + 1;
    let row = match row {
        [row @ .., b','] | [row @ .., b',', b'"', b'"'] if has_one_more() => row,
        row => row,
    };
    let few = || Refused::Cells(cells_from(row, 0));
    let mut cells = Cells { time: cell(row, 0).to_vec(), garbled: None };
    cells.time.truncate(64);
    let (mut at, mut column) = (0, 0);
    for w in &plan.wanted {
        at = skip(row, at, w.column as usize - column).ok_or_else(few)?;
        column = w.column as usize;
        if let Some(value) = plain_number(row, at) {
            values[w.slot as usize] = value;
            continue;
        }
        let text = cell(row, at);
        let value = number(text).filter(|v| v.is_nan() || *v <= MOST);
        values[w.slot as usize] = value.unwrap_or_else(|| {
            cells.garbled.get_or_insert_with(|| {
                (at, format!("{:?} is not a share of time: vsteer treats it as missing", shown(text)))
            });
            f64::NAN
        });
    }
    let all = column + cells_from(row, at);
    if all == plan.count() { Ok(cells) } else { Err(Refused::Cells(all)) }
}
