//! Terminal output of the subcommands: standard output, standard error and colours. Logs are
//! separate; see [`crate::logs`].

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Effects, Style as Look};
use unicode_width::UnicodeWidthStr;

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

/// Why a command is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unconfirmed {
    /// The answer was not "y" or "yes".
    Declined,
    /// Nobody can answer: standard input or standard error is not a terminal.
    NobodyToAsk,
}

/// Returns whether a person can answer a question.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Warns on the terminal, and asks a question; only "y" and "yes" confirm.
pub(super) async fn confirm(warning: &str, question: &str) -> Result<(), Unconfirmed> {
    if !can_ask() {
        return Err(Unconfirmed::NobodyToAsk);
    }
    let text = format!("{warning}\n{question} [y/N] ");
    let ask = move || {
        let _ = io::stderr().lock().write_all(text.as_bytes());
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer).is_ok();
        read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    };
    let agreed = tokio::task::spawn_blocking(ask).await.unwrap_or(false);
    agreed.then_some(()).ok_or(Unconfirmed::Declined)
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
    /// Determines the style of standard output: colour as [`colour_when`] says; characters beyond ASCII
    /// on a terminal only, if the locale is UTF-8.
    pub(super) fn of_stdout(environment: &Environment) -> Self {
        let stdout = io::stdout();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|it| environment.get(it));
        let utf8 = locale.is_some_and(|it| {
            let it = it.to_ascii_lowercase();
            it.ends_with("utf-8") || it.ends_with("utf8")
        });
        Self {
            colour: AutoStream::choice(&stdout) != ColorChoice::Never,
            signs: stdout.is_terminal() && utf8,
        }
    }

    /// Wraps text in the escape sequences of a colour, if colours are enabled.
    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let look = match colour {
            Colour::Green => AnsiColor::Green.on_default(),
            Colour::Yellow => AnsiColor::Yellow.on_default(),
            Colour::Red => AnsiColor::Red.on_default(),
            Colour::Dim => Look::new().effects(Effects::DIMMED),
        };
        format!("{look}{text}{look:#}")
    }
}

/// When to use colours, in the output, help and logs of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColourWhen {
    /// On a terminal that has them, unless NO_COLOR is set; elsewhere if CLICOLOR_FORCE is.
    #[default]
    Auto,
    /// Always, such as for a pager.
    Always,
    /// Never.
    Never,
}

/// The flag on colours, for every command; `colour_when` obeys it.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct ColourArgs {
    /// When to use colours [default: auto: on a terminal, unless NO_COLOR is set; elsewhere if CLICOLOR_FORCE
    /// is]
    #[arg(long = "color", global = true, value_name = "WHEN")]
    pub colour: Option<ColourWhen>,
}

/// Obeys --color among these arguments, before they are parsed: help and errors of usage have colours.
pub(super) fn colour_when(arguments: impl Iterator<Item = String>) {
    // Behind it is the command of `exec`.
    let mut arguments = arguments.take_while(|it| it != "--");
    let mut when = ColourWhen::Auto;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--color") {
            Some("") => arguments.next(),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => continue,
        };
        let value = value.and_then(|it| ColourWhen::from_str(&it, false).ok());
        when = value.unwrap_or(when);
    }
    match when {
        ColourWhen::Auto => ColorChoice::Auto,
        ColourWhen::Always => ColorChoice::Always,
        ColourWhen::Never => ColorChoice::Never,
    }
    .write_global();
}

/// Aligns rows in columns, two spaces apart, without trailing spaces.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let last = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|it| width_of(it)).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..last).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let missing = width - width_of(cell);
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', missing + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns how many columns of a terminal a text takes, without the escape sequences of colours.
fn width_of(text: &str) -> usize {
    strip_str(text).to_string().width()
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
    fn paint_is_left_out_without_colours() {
        let plain = Style { colour: false, signs: false };
        assert_eq!(plain.paint(Colour::Red, "x"), "x");
        let coloured = Style { colour: true, ..plain };
        assert_eq!(coloured.paint(Colour::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(coloured.paint(Colour::Dim, "x"), "\x1b[2mx\x1b[0m");
    }

    #[test]
    fn the_flag_decides_on_colours_up_to_the_command_of_exec() {
        let when = |line: &str| {
            colour_when(line.split(' ').map(str::to_owned));
            ColorChoice::global()
        };
        for (line, choice) in [
            ("tenure status --color always", ColorChoice::Always),
            ("tenure --color=never status", ColorChoice::Never),
            ("tenure status --color always --color=never", ColorChoice::Never),
            ("tenure status --colors always", ColorChoice::Auto),
            ("tenure status --color often", ColorChoice::Auto),
            ("tenure status --color", ColorChoice::Auto),
            ("tenure exec -- ls --color always", ColorChoice::Auto),
        ] {
            assert_eq!(when(line), choice, "{line}");
        }
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
        // Two columns each: a check mark, a heart that is an emoji by its selector, a family; none: a
        // combining accent, a joiner.
        for (text, width) in [
            ("東京", 4),
            ("Cafe\u{301}", 4),
            ("abcde", 5),
            ("ok ✅", 5),
            ("⌚", 2),
            ("❤\u{fe0f}", 2),
            ("👨\u{200d}👩\u{200d}👧", 2),
            ("𛀀a", 3),
            ("한글", 4),
            ("a\u{200b}b", 2),
        ] {
            let rows = [text, "abcdefgh"].map(|it| vec![it.to_owned(), "x".to_owned()]);
            let pad = " ".repeat(8 - width);
            assert_eq!(columns(&rows), format!("{text}{pad}  x\nabcdefgh  x\n"));
        }
    }
}
