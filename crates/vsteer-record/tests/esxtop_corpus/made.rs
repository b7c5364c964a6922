//! Makes batch files in many forms, and says what is in them. Nothing here uses the reader.

/// The number of rows, and the time between them, s.
pub const ROWS: usize = 30;
pub const EVERY_S: u64 = 5;
/// 2026-11-24 08:00:00 UTC, s since 1970.
pub const BEGINS_S: u64 = 1_795_507_200;

/// A column: the path behind the host, and its value in each row, hundredths.
pub struct Column {
    pub path: String,
    pub values: Vec<i64>,
}

/// What a file describes.
pub struct Content {
    pub name: &'static str,
    pub host: &'static str,
    /// Number, name, vCPUs in the file.
    pub vms: Vec<(u64, &'static str, usize)>,
    /// Names of groups that are ESXi's own.
    pub own: Vec<&'static str>,
    /// The share of a VM's memory that is local, hundredths of a percent.
    pub local: Option<i64>,
}

/// Counters and their values in hundredths of a percent for the VM, the vCPU and the row; sums are 10,000 per vCPU.
pub const COUNTERS: [&str; 5] = ["% Run", "% Ready", "% CoStop", "% Max Limited", "% Wait"];

pub fn value(counter: usize, vm: usize, vcpu: usize, row: usize) -> i64 {
    let (vm, vcpu, row) = (vm as i64, vcpu as i64, (row % 7) as i64);
    let run = 3000 + 500 * vm + 11 * vcpu + 100 * row;
    let ready = 1000 + 250 * vm + 7 * vcpu + 30 * row;
    let costop = 200 + 3 * vcpu + 5 * row;
    match counter {
        0 => run,
        1 => ready,
        2 => costop,
        3 => 150 + 10 * vm + row,
        _ => 10_000 - run - ready - costop,
    }
}

pub fn busy(cpu: usize, row: usize) -> i64 {
    4000 + 1000 * cpu as i64 + 50 * (row % 5) as i64
}

impl Content {
    /// The sum of a counter over a VM's vCPUs in a row, hundredths.
    pub fn sum(&self, counter: usize, vm: usize, row: usize) -> i64 {
        (0..self.vms[vm].2.max(1)).map(|v| value(counter, vm, v, row)).sum()
    }

    pub fn columns(&self) -> Vec<Column> {
        let mut all = Vec::new();
        let mut add = |path: String, of: &dyn Fn(usize) -> i64| {
            all.push(Column { path, values: (0..ROWS).map(of).collect() });
        };
        (0..4).for_each(|cpu| add(format!("Physical Cpu({cpu})\\% Util Time"), &|row| busy(cpu, row)));
        for (i, own) in self.own.iter().enumerate() {
            add(format!("Group Cpu({}:{own})\\% Run", i + 1), &|_| 300);
        }
        for (i, (gid, name, vcpus)) in self.vms.iter().enumerate() {
            add(format!("Group Cpu({gid}:{name})\\Members"), &|_| 800);
            for (k, counter) in COUNTERS.iter().enumerate() {
                add(format!("Group Cpu({gid}:{name})\\{counter}"), &|row| self.sum(k, i, row));
            }
            for v in 0..*vcpus {
                for (k, counter) in COUNTERS.iter().enumerate() {
                    let path =
                        format!("Vcpu({gid}:{name}:{}:vmx-vcpu-{v}:{name})\\{counter}", gid * 100 + v as u64);
                    add(path, &|row| value(k, i, v, row));
                }
            }
            if let Some(local) = self.local {
                add(format!("Group Memory({gid}:{name})\\Numa % Local"), &|_| local);
            }
        }
        all
    }

    /// The mean of a counter of a VM over all rows but the first, as a share of a pCPU. `skipped` rows do not count.
    pub fn mean(&self, counter: usize, vm: usize, skipped: &[usize]) -> f64 {
        let rows: Vec<usize> = (1..ROWS).filter(|row| !skipped.contains(row)).collect();
        rows.iter().map(|row| self.sum(counter, vm, *row) as f64).sum::<f64>() / rows.len() as f64 / 1e4
    }
}

/// How a file is written.
pub struct Form {
    pub name: &'static str,
    pub first: &'static str,
    pub separator: char,
    /// Quotes around every cell, or only where a cell needs them.
    pub quoted: bool,
    /// `12.30` with this in place of the point.
    pub decimal: char,
    /// Without zeros at the end, as a spreadsheet writes.
    pub trimmed: bool,
    pub time: fn(hour: u64, minute: u64, second: u64) -> String,
    pub line_end: &'static str,
    pub before: &'static str,
    /// Text in front of each path's backslashes and between its parts: doubled backslashes.
    pub backslashes: usize,
    pub encoded: fn(&str) -> Vec<u8>,
    /// The times have no seconds.
    pub coarse: bool,
}

pub fn plain_time(h: u64, m: u64, s: u64) -> String {
    format!("11/24/2026 {h:02}:{m:02}:{s:02}")
}

pub fn utf8(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

pub const PLAIN: Form = Form {
    name: "as esxtop writes",
    first: "(PDH-CSV 4.0) (UTC)(0)",
    separator: ',',
    quoted: true,
    decimal: '.',
    trimmed: false,
    time: plain_time,
    line_end: "\n",
    before: "",
    backslashes: 1,
    encoded: utf8,
    coarse: false,
};

impl Form {
    fn cell(&self, text: &str) -> String {
        let needs = text.contains(self.separator) || text.contains('"');
        if self.quoted || needs { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
    }

    pub fn number(&self, hundredths: i64) -> String {
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        let text =
            if self.trimmed { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
        text.replace('.', &self.decimal.to_string())
    }

    /// The rows as cells: the header, and one for each moment.
    pub fn cells(&self, content: &Content) -> Vec<Vec<String>> {
        let slash = "\\".repeat(self.backslashes);
        let columns = content.columns();
        let path = |c: &Column| format!("\\\\{}\\{}", content.host, c.path).replace('\\', &slash);
        let head = std::iter::once(self.first.to_owned()).chain(columns.iter().map(path)).collect();
        let row = |i: usize| {
            let s = 8 * 3600 + i as u64 * EVERY_S;
            let time = (self.time)(s / 3600, s / 60 % 60, s % 60);
            std::iter::once(time).chain(columns.iter().map(|c| self.number(c.values[i]))).collect()
        };
        std::iter::once(head).chain((0..ROWS).map(row)).collect()
    }

    pub fn text(&self, cells: &[Vec<String>]) -> String {
        let separator = self.separator.to_string();
        let line = |cells: &Vec<String>| {
            cells.iter().map(|c| self.cell(c)).collect::<Vec<_>>().join(&separator) + self.line_end
        };
        self.before.to_owned() + &cells.iter().map(line).collect::<String>()
    }

    pub fn file(&self, content: &Content) -> Vec<u8> {
        (self.encoded)(&self.text(&self.cells(content)))
    }
}
