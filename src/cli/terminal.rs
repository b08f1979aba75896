//! What goes to people: standard output and its colours.
//!
//! What it does not do: logs; those are the daemon's and go elsewhere.

use std::io::{ErrorKind, IsTerminal, Write};

use crate::config::Environment;

/// Writes to standard output. Says whether anybody still reads there: a closed pipe is no error,
/// since whoever closed it has had enough.
#[must_use]
pub(super) fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != ErrorKind::BrokenPipe {
                complain(&format!("cannot write to standard output: {error}"));
            }
            false
        }
    }
}

/// Writes a message to standard error.
pub(super) fn complain(text: &str) {
    // Where not even that can be written, the exit code has to say it.
    let _ = writeln!(std::io::stderr().lock(), "tenure: {text}");
}

/// Asks on the terminal; anything but a yes is a no.
pub(super) async fn agrees(question: String) -> bool {
    let ask = move || {
        let _ = std::io::stderr().lock().write_all(question.as_bytes());
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).is_ok();
        read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    };
    tokio::task::spawn_blocking(ask).await.unwrap_or(false)
}

/// The colours that mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// As it should be.
    Green,
    /// Worth a look.
    Yellow,
    /// Wrong.
    Red,
    /// Labels.
    Dim,
}

impl Colour {
    /// The colour of a state.
    pub(super) fn of_state(active: bool, state: &str) -> Self {
        match (active, state) {
            (true, "leader") => Self::Green,
            (true, _) => Self::Yellow,
            (_, "jeopardy" | "starting" | "activating" | "draining" | "unhealthy") => Self::Yellow,
            _ => Self::Dim,
        }
    }
}

/// How text may look where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Whether colours are shown.
    pub(super) colour: bool,
    /// Whether signs beyond ASCII are shown.
    pub(super) signs: bool,
}

impl Style {
    /// Finds out for standard output: colour on a terminal alone, and not with `NO_COLOR`; signs
    /// where the locale has them.
    pub(super) fn of_stdout(environment: &Environment) -> Self {
        Self::of(environment, std::io::stdout().is_terminal())
    }

    fn of(environment: &Environment, terminal: bool) -> Self {
        let dumb = environment.get("TERM") == Some("dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|it| environment.get(it));
        let utf8 = locale.is_some_and(|it| {
            let it = it.to_ascii_lowercase();
            it.ends_with("utf-8") || it.ends_with("utf8")
        });
        Self {
            colour: terminal && !dumb && environment.get("NO_COLOR").is_none(),
            signs: terminal && utf8,
        }
    }

    /// Paints text.
    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Red => "31",
            Colour::Dim => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Sets rows in columns, two spaces apart; no column is padded that ends its line.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let last = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|it| shown(it).chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..last).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let missing = width - shown(cell).chars().count();
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', missing + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What is seen of painted text.
fn shown(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        shown.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    shown
}

/// Text from elsewhere, made fit for a terminal: no control characters.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_without_no_color() {
        let colour = |variables: &[(&str, &str)], terminal| {
            Style::of(&Environment::of(variables.iter().copied()), terminal).colour
        };
        assert!(colour(&[], true) && !colour(&[], false));
        assert!(!colour(&[("NO_COLOR", "1")], true) && colour(&[("NO_COLOR", "")], true));
        assert!(!colour(&[("TERM", "dumb")], true));
        let plain = Style { colour: false, signs: false };
        assert_eq!(plain.paint(Colour::Red, "x"), "x");
        assert_eq!(Style { colour: true, ..plain }.paint(Colour::Red, "x"), "\x1b[31mx\x1b[0m");
    }

    #[test]
    fn what_comes_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[31mb\nc"), "a [31mb c");
    }

    #[test]
    fn columns_are_aligned_by_what_is_seen_of_them() {
        let style = Style { colour: true, signs: false };
        let green = style.paint(Colour::Green, "ab");
        let rows = [
            vec![green.clone(), "c".to_owned()],
            vec!["d".to_owned()],
            vec!["efg".to_owned(), "h".to_owned()],
        ];
        assert_eq!(columns(&rows), format!("{green}   c\nd\nefg  h\n"));
    }
}
