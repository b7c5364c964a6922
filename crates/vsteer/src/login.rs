//! How does one log in to a vSphere? By a URI and what the command line says beside it, and a password from where none can read it.
//!
//! The password's file, if one is named; else the kernel's keyring; else the terminal, without echo. Never an argument or a variable
//! of the environment, which other processes can read.
//!
//! Left out: desktops' keyrings (decision 0031).

use crate::cli::Login;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use std::io::{IsTerminal, Write};
use vsteer_core::{Fault, FaultKind};
use vsteer_host::vsphere::{Access, Trust, keyring};

/// Whom a URI and the command line mean; `None` for another scheme than vSphere's.
///
/// # Errors
/// `Usage` for what is none.
pub fn access(connect: Option<&str>, login: &Login) -> Result<Option<Access>, Fault> {
    let Some(access) = connect.and_then(Access::of) else { return Ok(None) };
    let mut access = access?;
    match (&login.thumbprint, &login.ca) {
        (Some(text), _) => access.trust = Trust::thumbprint(text)?,
        (None, Some(file)) => access.trust = Trust::Authorities(file.clone()),
        (None, None) => {}
    }
    if let Some(file) = &login.password_file {
        access.password_file = Some(file.clone());
    }
    Ok(Some(access))
}

/// The password.
///
/// # Errors
/// As reading its file; `Usage` where there is neither file, key nor terminal; `Interrupted` at Ctrl-C.
pub fn password(access: &Access) -> Result<String, Fault> {
    if let Some(file) = &access.password_file {
        let read = match file.to_str() {
            Some("-") => std::io::read_to_string(std::io::stdin()),
            _ => std::fs::read_to_string(file),
        };
        let text = read.map_err(|e| Fault::io(format!("reading the password in {}", file.display()), &e))?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    if let Some(found) = keyring::password(&access.place)? {
        return Ok(found);
    }
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        return asked(&format!("password of {}: ", access.place));
    }
    Err(Fault::new(
        FaultKind::Usage,
        format!("{} wants a password, and there is no terminal to ask on", access.place),
    )
    .because("a password on the command line is seen by everybody who lists processes")
    .way_out(format!(
        "--password-file FILE, --password-file - for standard input, or: keyctl padd user {} @u",
        keyring::key_of(&access.place)
    )))
}

/// Puts the terminal back, whatever happens.
struct Raw;

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = terminal::disable_raw_mode();
    }
}

fn asked(prompt: &str) -> Result<String, Fault> {
    let failed = |e: std::io::Error| Fault::io("asking for the password", &e);
    let mut err = std::io::stderr();
    write!(err, "{prompt}").and_then(|()| err.flush()).map_err(failed)?;
    terminal::enable_raw_mode().map_err(failed)?;
    let raw = Raw;
    let mut password = String::new();
    let result = loop {
        let key = match event::read().map_err(failed)? {
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            Event::Paste(text) => {
                password.push_str(&text);
                continue;
            }
            _ => continue,
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => break Ok(password),
            KeyCode::Char('c' | 'd') if control => {
                break Err(Fault::new(FaultKind::Interrupted, "interrupted while asking for the password"));
            }
            KeyCode::Char('u') if control => password.clear(),
            KeyCode::Backspace => drop(password.pop()),
            KeyCode::Char(c) if !control => password.push(c),
            _ => {}
        }
    };
    drop(raw);
    let _ = writeln!(err);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_before_what_the_uri_says() {
        let uri = format!("vsphere://root@esx1?thumbprint={}&password-file=/a", "ab".repeat(32));
        let of = |login: &Login| access(Some(&uri), login).unwrap().unwrap();
        assert_eq!(of(&Login::default()).trust, Trust::Thumbprint([0xab; 32]));
        let login = Login { ca: Some("/ca.pem".into()), password_file: Some("/b".into()), thumbprint: None };
        let said = of(&login);
        assert_eq!(
            (said.trust, said.password_file),
            (Trust::Authorities("/ca.pem".into()), Some("/b".into()))
        );
        assert!(access(Some("qemu:///system"), &login).unwrap().is_none());
        assert!(access(None, &login).unwrap().is_none());
    }
}
