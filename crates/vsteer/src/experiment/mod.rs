//! The results of an experiment as text, Markdown and HTML: one document, drawn three ways.

pub mod document;
mod forest;
mod page;
pub mod study;
pub mod text;

/// What is told.
pub struct Document {
    /// In one line.
    pub title: String,
    /// What it is of: names and texts.
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

#[derive(Default)]
pub struct Section {
    /// Where links lead.
    pub id: String,
    pub heading: String,
    /// Sentences before its tables.
    pub lead: Vec<String>,
    /// A chart, on the page alone.
    pub figure: Option<String>,
    pub tables: Vec<Table>,
    /// Sentences after them.
    pub notes: Vec<String>,
}

#[derive(Default)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Headings; numbers stand right.
    pub head: Vec<(&'static str, bool)>,
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Default, Clone)]
pub struct Cell {
    pub text: String,
    /// How it is drawn on the page: `better`, `worse`, `same`.
    pub class: &'static str,
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, class: "" }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

/// A number with as many decimals as its size leaves room for: four digits that matter.
pub fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 1000.0 => format!("{v:.0}"),
        a if a >= 100.0 => format!("{v:.1}"),
        a if a >= 10.0 => format!("{v:.2}"),
        a if a >= 1.0 || a == 0.0 => format!("{v:.3}"),
        _ => format!("{v:.4}"),
    }
}

pub fn probability(p: Option<f64>) -> String {
    match p {
        None => "-".to_owned(),
        Some(p) if p < 0.0001 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
    }
}
