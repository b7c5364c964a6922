//! `KEY=VALUE` and `KEY=V1,V2,...`: changes of a scenario from the command line.

/// A change of a scenario from the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub key: String,
    pub text: String,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
                Ok(Setting { key: key.trim().to_owned(), text: value.trim().to_owned() })
            }
            _ => Err(format!("{text:?} is not KEY=VALUE, for example vm.web.weight=512")),
        }
    }
}

/// A key and the values to try.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    pub key: String,
    pub values: Vec<String>,
}

impl std::str::FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Sweep, String> {
        let Setting { key, text } = text.parse()?;
        let values: Vec<String> = apart(&text).iter().map(|v| v.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(format!("{text:?} has an empty value; the form is KEY=V1,V2,..."));
        }
        Ok(Sweep { key, values })
    }
}

/// Splits at the commas that are in no bracket and no quote.
fn apart(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut from, mut parts) = (0i32, false, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(&text[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}
