//! Saves the columns that a person chose: the key `columns` of `[top]` in the user's vsteer.toml.
//!
//! The file is text that the person wrote, so only this one line changes. The result is read before it is written: a file that
//! would then be faulty stays as it is.

use crate::text::COLUMNS;
use std::path::PathBuf;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::config::{NO_FILE, Places, SYSTEM, of_text};

/// Writes the choice. The file that now has it.
///
/// # Errors
/// When there is no such file and no place for it, or it cannot be edited or written.
pub fn save(columns: &[usize]) -> Result<PathBuf, Fault> {
    let places = Places::of(crate::settings::chosen(), &crate::settings::variable);
    let file = match places {
        Places::One(file) => Some(file),
        Places::Usual(all) => all.into_iter().rfind(|file| file.as_os_str() != SYSTEM),
    };
    let file = file.ok_or_else(|| {
        Fault::new(
            FaultKind::NothingThere,
            "cannot save the columns: there is no configuration file to write",
        )
        .because(format!("--config {NO_FILE}, or the home folder is not known"))
    })?;
    let former = match std::fs::read_to_string(&file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(|e| Fault::io(format!("cannot read {}", file.display()), &e))?,
    };
    let names: Vec<&str> = columns.iter().map(|i| COLUMNS[*i]).collect();
    let text = edited(&former, &names).map_err(|fault| Fault {
        what: format!("cannot save the columns to {}: {}", file.display(), fault.what),
        ..fault
    })?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|e| Fault::io(format!("cannot make {}", folder.display()), &e))?;
    }
    vsteer_record::files::replace(&file, text.as_bytes())?;
    Ok(file)
}

/// The text with these columns; an empty list removes the key.
fn edited(text: &str, names: &[&str]) -> Result<String, Fault> {
    let line = format!("columns = {names:?}");
    let wanted = (!names.is_empty()).then_some(line);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let top = lines.iter().position(|l| l.trim() == "[top]");
    match top {
        None if wanted.is_none() => {}
        None => {
            if lines.last().is_some_and(|l| !l.trim().is_empty()) {
                lines.push(String::new());
            }
            lines.extend(["[top]".to_owned(), wanted.unwrap_or_default()]);
        }
        Some(top) => {
            let rest = lines[top + 1..].iter().position(|l| l.trim_start().starts_with('['));
            let end = rest.map_or(lines.len(), |n| top + 1 + n);
            let is_key = |l: &String| {
                l.trim_start().strip_prefix("columns").is_some_and(|l| l.trim_start().starts_with('='))
            };
            let at = lines[top + 1..end].iter().position(is_key).map(|n| top + 1 + n);
            match (at, wanted) {
                (Some(at), Some(wanted)) => lines[at] = wanted,
                (Some(at), None) => drop(lines.remove(at)),
                (None, Some(wanted)) => lines.insert(top + 1, wanted),
                (None, None) => {}
            }
        }
    }
    let text = lines.join("\n") + "\n";
    let loaded = of_text(&text);
    let config = loaded.strict().map_err(|fault| {
        Fault::new(FaultKind::BadInput, "the file would be faulty afterwards")
            .because(fault)
            .help(format!("write this line below [top]: columns = {names:?}"))
    })?;
    let read = config.options_of("top").into_iter().find(|(id, _)| *id == "columns").map(|(_, all)| all);
    if read.unwrap_or_default() != names {
        return Err(Fault::new(FaultKind::BadInput, "the key columns cannot be replaced")
            .because("it is written in more than one line, or twice")
            .help(format!("write this line below [top]: columns = {names:?}")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_the_file_changes_and_nothing_else() {
        let names = ["%RDY", "%RUN"];
        let line = "columns = [\"%RDY\", \"%RUN\"]\n";
        assert_eq!(edited("", &names).unwrap(), format!("[top]\n{line}"));
        let before = "# mine\n[top] \ninterval = \"1s\"\n\n[plan]\nwork_loss = \"5%\"\n";
        let text = edited(before, &names).unwrap();
        assert_eq!(text, format!("# mine\n[top] \n{line}interval = \"1s\"\n\n[plan]\nwork_loss = \"5%\"\n"));
        assert_eq!(edited(&text, &["%USED"]).unwrap(), text.replace(line, "columns = [\"%USED\"]\n"));
        assert_eq!(edited(&text, &[]).unwrap(), before);
        assert_eq!(edited("[plan]\nwork_loss = \"5%\"\n", &[]).unwrap(), "[plan]\nwork_loss = \"5%\"\n");
    }

    #[test]
    fn a_file_that_would_be_faulty_stays_as_it_is() {
        let fault = edited("[top]\ncolumns = [\n  \"%RDY\",\n]\n", &["%RUN"]).unwrap_err();
        assert!(fault.help.unwrap().contains("columns = [\"%RUN\"]"));
        assert!(edited("[tops]\n", &["%RUN"]).is_err());
    }
}
