//! How does a user type a password? On the terminal, without echo.
//!
//! The backend decides whether it needs one, and looks in other places first. A password is never an argument or an
//! environment variable, because other processes can read those.

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use vsteer_core::{Fault, FaultKind};

/// Asks for a password; `None` without a terminal.
///
/// # Errors
/// When the terminal cannot be used; `Interrupted` at Ctrl-C.
pub fn prompt(text: &str) -> Result<Option<String>, Fault> {
    // Several hosts may ask at once: one after the other.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if terminal { asked(text).map(Some) } else { Ok(None) }
}

/// Puts the terminal back, whatever happens.
struct Raw;

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = terminal::disable_raw_mode();
    }
}

fn asked(prompt: &str) -> Result<String, Fault> {
    let failed = |e: std::io::Error| Fault::io("cannot ask for the password", &e);
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
                break Err(Fault::new(FaultKind::Interrupted, "interrupted at the password prompt"));
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
