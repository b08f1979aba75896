//! Terminal output of the subcommands: standard output, standard error and colours. Logs are
//! separate; see [`crate::logs`].

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use crate::config::Environment;
use crate::lease::text::is_printable;

/// Writes to standard output. Returns `code`, or 1 if the text could not be written.
pub(super) fn print(text: &str, code: ExitCode) -> ExitCode {
    write(text).map_or_else(|error| unwritten(&error, code), |()| code)
}

/// Writes to standard output.
pub(super) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Reports that standard output could not be written, and returns 1. A pipe whose reader has
/// closed it, as `head` does when it has enough, is no error: then it returns `code`.
pub(super) fn unwritten(error: &io::Error, code: ExitCode) -> ExitCode {
    if error.kind() == ErrorKind::BrokenPipe {
        return code;
    }
    complain(&format!("cannot write to standard output: {error}"));
    ExitCode::FAILURE
}

/// Writes a message to standard error.
pub(super) fn complain(text: &str) {
    // If this fails too, only the exit code is left to report the error.
    let _ = writeln!(std::io::stderr().lock(), "tenure: {text}");
}

/// Asks a question on the terminal; returns false for anything but "y" or "yes".
pub(super) async fn agrees(question: String) -> bool {
    let ask = move || {
        let _ = std::io::stderr().lock().write_all(question.as_bytes());
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).is_ok();
        read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    };
    tokio::task::spawn_blocking(ask).await.unwrap_or(false)
}

/// The format of what a subcommand prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    Table,
    Json,
}

/// The colours, by their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// Normal.
    Green,
    /// Worth attention.
    Yellow,
    /// Wrong.
    Red,
    /// Labels.
    Dim,
}

impl Colour {
    /// Returns the colour of a state.
    pub(super) fn of_state(active: bool, state: &str) -> Self {
        match (active, state) {
            (true, "leader") => Self::Green,
            (true, _) => Self::Yellow,
            (_, "jeopardy" | "starting" | "activating" | "draining" | "unhealthy") => Self::Yellow,
            _ => Self::Dim,
        }
    }
}

/// How text may be formatted on an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// Whether to use colours.
    pub(super) colour: bool,
    /// Whether to use characters beyond ASCII.
    pub(super) signs: bool,
}

impl Style {
    /// Determines the style of standard output: colour on a terminal only and not with `NO_COLOR`;
    /// characters beyond ASCII if the locale is UTF-8.
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

    /// Wraps text in the escape sequences of a colour, if colours are enabled.
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

/// Aligns rows in columns, two spaces apart, without trailing spaces.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let last = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|it| width_of(&shown(it))).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..last).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let missing = width - width_of(&shown(cell));
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', missing + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns how many columns of a terminal a text takes: East Asian characters and pictographs take two,
/// combining marks none.
fn width_of(text: &str) -> usize {
    let width = |it: char| match u32::from(it) {
        0x300..=0x36f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    };
    text.chars().map(width).sum()
}

/// Strips the escape sequences of colours.
fn shown(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        shown.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    shown
}

/// Escapes in a JSON document what could steer a terminal; it means the same to a JSON reader.
pub(super) fn harmless_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for it in text.chars() {
        if is_printable(it) || it.is_ascii_whitespace() {
            safe.push(it);
            continue;
        }
        for unit in it.encode_utf16(&mut [0; 2]) {
            safe.push_str(&format!("\\u{unit:04x}"));
        }
    }
    safe
}

/// Replaces what is not printable, so that text from elsewhere cannot steer a terminal.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(|it| if is_printable(it) { it } else { ' ' }).collect()
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
    fn a_foreign_document_keeps_its_meaning_and_cannot_control_the_terminal() {
        let raw = "{\"a\": \"x\u{9b}31m\u{202e}\u{e0001}é\"}\n";
        let shown = harmless_json(raw);
        assert_eq!(shown, "{\"a\": \"x\\u009b31m\\u202e\\udb40\\udc01é\"}\n");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(raw));
    }

    #[test]
    fn foreign_text_cannot_control_the_terminal() {
        assert_eq!(harmless("a\x1b[31mb\nc\u{9b}31m\u{202e}d"), "a [31mb c 31m d");
    }

    #[test]
    fn columns_are_aligned_by_visible_width() {
        let style = Style { colour: true, signs: false };
        let green = style.paint(Colour::Green, "ab");
        let rows = [
            vec![green.clone(), "c".to_owned()],
            vec!["d".to_owned()],
            vec!["efg".to_owned(), "h".to_owned()],
        ];
        assert_eq!(columns(&rows), format!("{green}   c\nd\nefg  h\n"));
        let rows = ["東京", "Cafe\u{301}", "abcde"];
        let rows = rows.map(|it| vec![it.to_owned(), "x".to_owned()]);
        assert_eq!(columns(&rows), "東京   x\nCafe\u{301}   x\nabcde  x\n");
    }
}
