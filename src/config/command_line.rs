//! Splits command lines as a shell would, and finds their programs by `PATH`. Shell syntax beyond
//! quoting (variables, patterns, pipes, redirections) is rejected or passed on literally.

use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::faults::Problem;

/// The search path if `PATH` is not set, as in glibc.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command that can be run without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The file of the program, as found by `PATH`.
    pub program: PathBuf,
    /// The arguments.
    pub arguments: Vec<String>,
}

impl fmt::Display for CommandLine {
    /// Names the program without its arguments, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.arguments.is_empty() { "" } else { " …" };
        write!(f, "{}{more}", self.program.display())
    }
}

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is no such program; a shell returns 127.
    #[error("{0}")]
    NotFound(String),
    /// The file cannot be executed; a shell returns 126.
    #[error("{0}")]
    NotExecutable(String),
}

/// Parses a command line and finds its program; `path` is the variable `PATH`.
pub(super) fn parse(text: &str, path: Option<&str>) -> Result<CommandLine, Problem> {
    const WRITE: &str = "write a program and its arguments, such as /usr/local/bin/notify --quiet";
    if text.trim().is_empty() {
        return Err(Problem::new("is empty", WRITE));
    }
    if text.contains('\0') {
        return Err(Problem::new("contains a NUL", WRITE));
    }
    let Some(words) = shlex::split(text) else {
        return Err(Problem::new(
            "has an unclosed quote, or a \\ at its end",
            "close it; write a literal quote as \\' or \\\"",
        ));
    };
    if let Some(word) = shell_word(text) {
        return Err(Problem::new(
            format!("has {word}, which only a shell interprets, and no shell runs it"),
            "write sh -c '…'; or put single quotes around the word to pass it literally",
        ));
    }
    let mut words = words.into_iter();
    let Some(program) = words.next().filter(|it| !it.is_empty()) else {
        return Err(Problem::new("names no program", WRITE));
    };
    match find(&program, path) {
        Ok(found) => Ok(CommandLine { program: found, arguments: words.collect() }),
        Err(unusable) => Err(problem(&program, &unusable)),
    }
}

/// How a character of a command line is quoted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoted {
    Not,
    /// By double quotes, in which a shell would still expand variables.
    Double,
    /// By single quotes or a backslash; also the quotes themselves.
    Wholly,
}

/// Returns the characters of a command line with their byte offsets, or `None` if a quote is left
/// open.
pub(super) fn quoted(text: &str) -> Option<Vec<(usize, char, Quoted)>> {
    let mut all = Vec::new();
    let mut open = None;
    let mut escaped = false;
    for (at, it) in text.char_indices() {
        let quoted = match (it, open) {
            _ if escaped => {
                escaped = false;
                Quoted::Wholly
            }
            ('\\', None | Some('"')) => {
                escaped = true;
                Quoted::Wholly
            }
            ('\'' | '"', None) => {
                open = Some(it);
                Quoted::Wholly
            }
            (_, Some(quote)) if it == quote => {
                open = None;
                Quoted::Wholly
            }
            (_, Some('"')) => Quoted::Double,
            (_, Some(_)) => Quoted::Wholly,
            (_, None) => Quoted::Not,
        };
        all.push((at, it, quoted));
    }
    (open.is_none() && !escaped).then_some(all)
}

/// Returns the first word that only a shell would interpret: an operator or an expansion.
fn shell_word(text: &str) -> Option<String> {
    let characters = quoted(text)?;
    // Quoted characters are no part of an operator, but do not separate words.
    let bare: String = characters
        .iter()
        .map(|(_, it, quoted)| if *quoted == Quoted::Not { *it } else { 'x' })
        .collect();
    let operator = |word: &&str| {
        matches!(*word, "|" | "||" | "&" | "&&")
            || word.ends_with(';')
            || ["<", ">", "2>", "&>"].iter().any(|it| word.starts_with(it))
    };
    if let Some(word) = bare.split_whitespace().find(operator) {
        return Some(word.to_owned());
    }
    let variable = characters.windows(2).find(|pair| {
        let [(_, first, how), (_, second, _)] = pair else { return false };
        *how != Quoted::Wholly
            && (*first == '`'
                || *first == '$' && (second.is_ascii_alphabetic() || "_{(".contains(*second)))
    })?;
    let from = &text[variable[0].0..];
    let end = from.find(|it: char| it.is_whitespace() || it == '"').unwrap_or(from.len());
    Some(from[..end].to_owned())
}

fn problem(program: &str, unusable: &Unusable) -> Problem {
    let remedy = match unusable {
        Unusable::NotFound(_) if program.contains('=') => {
            format!("write env before it if {program} is to be a variable")
        }
        Unusable::NotFound(_) if program.starts_with('~') => {
            "write the path in full: only a shell expands ~".to_owned()
        }
        Unusable::NotFound(_) => {
            "install the program, or name its path in full; it must exist on this machine, in \
             this container"
                .to_owned()
        }
        Unusable::NotExecutable(_) => {
            "make it executable: chmod +x, and for a script a first line such as #!/bin/sh with \
             an interpreter that exists"
                .to_owned()
        }
    };
    Problem::new(unusable.to_string(), remedy)
}

/// Finds a program as the system would: a name with a `/` is a path, any other is searched for in
/// the directories of `path`, the variable `PATH`. The interpreter of a script must exist.
///
/// # Errors
/// When no program is found, or when it cannot be executed.
pub fn find(program: &str, path: Option<&str>) -> Result<PathBuf, Unusable> {
    if program.contains('/') {
        return usable(Path::new(program)).map(|()| PathBuf::from(program));
    }
    let mut refused = None;
    for directory in path.unwrap_or(DEFAULT_PATH).split(':') {
        let file = Path::new(if directory.is_empty() { "." } else { directory }).join(program);
        match usable(&file) {
            Ok(()) => return Ok(file),
            Err(Unusable::NotFound(_)) => {}
            Err(it) => refused = refused.or(Some(it)),
        }
    }
    Err(refused.unwrap_or_else(|| Unusable::NotFound(format!("{program:?} was not found in PATH"))))
}

fn usable(file: &Path) -> Result<(), Unusable> {
    let shown = file.display();
    let refused = |what: String| Err(Unusable::NotExecutable(what));
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return refused(format!("{shown} cannot be accessed"));
        }
        Err(_) => return Err(Unusable::NotFound(format!("{shown} does not exist"))),
        Ok(found) if !found.is_file() => {
            return refused(format!("{shown} is not a file"));
        }
        Ok(_) => {}
    }
    if rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
        return refused(format!("{shown} is not executable"));
    }
    script(file)
}

/// Checks the first line of a script. A file that is executable but not readable is accepted.
fn script(file: &Path) -> Result<(), Unusable> {
    let mut start = Vec::new();
    let Ok(opened) = std::fs::File::open(file) else { return Ok(()) };
    if opened.take(256).read_to_end(&mut start).is_err() {
        return Ok(());
    }
    let shown = file.display();
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|it| *it == b'\n').next().unwrap_or_default();
        // As the kernel does: a carriage return is part of the interpreter's name.
        let word = line.split(|it| matches!(it, b' ' | b'\t')).find(|it| !it.is_empty());
        let interpreter = Path::new(std::ffi::OsStr::from_bytes(word.unwrap_or_default()));
        let runs = interpreter.is_file()
            && rustix::fs::accessat(CWD, interpreter, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        if !runs {
            return Err(Unusable::NotExecutable(format!(
                "{shown} is a script for {:?}, which cannot be run",
                interpreter.display().to_string()
            )));
        }
    } else if !start.contains(&0) && str::from_utf8(&start).is_ok() {
        return Err(Unusable::NotExecutable(format!(
            "{shown} is a text file without a first line such as #!/bin/sh"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn write(directory: &Path, name: &str, content: &[u8], mode: u32) -> String {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_command_line_is_split_as_a_shell_would() {
        for (text, words) in [
            ("/bin/sh", &[][..]),
            ("  /bin/sh -c  'a b' ", &["-c", "a b"]),
            (r#"/bin/sh "a 'b' \$C" d\ e"#, &["a 'b' $C", "d e"]),
            ("/bin/sh '' ';' '|' 'a | b' *", &["", ";", "|", "a | b", "*"]),
            (r"/bin/sh {} \; '$A `b`' $ 5$ a&b?c", &["{}", ";", "$A `b`", "$", "5$", "a&b?c"]),
        ] {
            let found = parse(text, None).unwrap();
            assert_eq!(found.program, Path::new("/bin/sh"), "{text}");
            assert_eq!(found.arguments, words, "{text}");
        }
    }

    #[test]
    fn a_command_line_that_cannot_be_run_has_a_remedy() {
        for (text, problem, remedy) in [
            ("", "is empty", "write a program"),
            ("  ", "is empty", "write a program"),
            ("# all", "names no program", "write a program"),
            ("''", "names no program", "write a program"),
            ("sh\0", "contains a NUL", "write a program"),
            ("sh -c 'a", "unclosed", "close it"),
            ("sh \\", "at its end", "close it"),
            ("sh a | sh b", "has |,", "sh -c '…'"),
            ("sh a && sh b", "has &&,", "sh -c '…'"),
            ("sh >/tmp/x 2>&1", "has >/tmp/x,", "sh -c '…'"),
            ("sh a; sh b", "has a;,", "sh -c '…'"),
            ("sh -c x $TENURE_TERM y", "has $TENURE_TERM,", "single quotes"),
            ("sh \"a ${B} c\"", "has ${B},", "single quotes"),
            ("sh `date`", "has `date`,", "single quotes"),
            ("there-is-no-such", "was not found in PATH", "install"),
            ("/nonexistent/x", "/nonexistent/x does not exist", "install"),
            ("~/x", "does not exist", "expands ~"),
            ("A=1 sh", "was not found in PATH", "write env before it"),
            ("/etc", "is not a file", "chmod +x"),
            ("/etc/passwd", "is not executable", "chmod +x"),
        ] {
            let found = parse(text, None).unwrap_err();
            assert!(found.problem.contains(problem), "{text}: {found:?}");
            assert!(found.remedy.contains(remedy), "{text}: {found:?}");
        }
    }

    #[test]
    fn the_program_is_the_first_in_path_that_can_be_run() {
        let place = tempfile::tempdir().unwrap();
        let [first, second] = ["1", "2"].map(|it| place.path().join(it));
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&second).unwrap();
        write(&first, "it", b"#!/bin/sh\n", 0o644);
        let path = format!("/nonexistent:{}:{}", first.display(), second.display());
        assert!(matches!(find("it", Some(&path)), Err(Unusable::NotExecutable(_))));
        assert!(matches!(find("other", Some(&path)), Err(Unusable::NotFound(_))));
        let there = write(&second, "it", b"#!/bin/sh\n", 0o755);
        assert_eq!(find("it", Some(&path)), Ok(PathBuf::from(there)));
        assert_eq!(find("sh", None), Ok(PathBuf::from("/bin/sh")));
    }

    #[test]
    fn a_script_needs_an_interpreter_that_exists() {
        let place = tempfile::tempdir().unwrap();
        let of = |content: &[u8]| find(&write(place.path(), "it", content, 0o755), None);
        for good in [
            &b"#!/bin/sh"[..],
            b"#! /bin/sh -e\nx",
            b"#!/usr/bin/env sh\n",
            b"\x7fELF\x02\x01\x01\0",
            b"\0",
            b"\xff",
        ] {
            assert!(of(good).is_ok(), "{good:?}");
        }
        for (bad, words) in [
            (&b"#!/nonexistent/python\n"[..], "\"/nonexistent/python\""),
            (b"#!/bin/sh\r\n", "\"/bin/sh\\r\", which cannot"),
            (b"#!\n", "cannot be run"),
            (b"#!/etc\n", "cannot be run"),
            (b"echo hello\n", "without a first line"),
            (b"", "without a first line"),
        ] {
            let found = of(bad).unwrap_err();
            let Unusable::NotExecutable(text) = &found else { panic!("{found:?}") };
            assert!(text.contains(words), "{bad:?}: {text}");
        }
    }

    #[test]
    fn a_command_is_shown_without_its_arguments() {
        assert_eq!(parse("/bin/sh", None).unwrap().to_string(), "/bin/sh");
        assert_eq!(parse("/bin/sh -c hidden", None).unwrap().to_string(), "/bin/sh …");
    }

    proptest! {
        #[test]
        fn quoted_words_are_parsed_back(words in proptest::collection::vec("[^\0]{0,12}", 0..5)) {
            let quoted: Vec<_> =
                words.iter().map(|it| format!("'{}'", it.replace('\'', r"'\''"))).collect();
            let found = parse(&format!("/bin/sh {}", quoted.join(" ")), None);
            prop_assert_eq!(found.map(|it| it.arguments), Ok(words));
        }

        #[test]
        fn no_text_panics(text in "(/bin/sh )?.{0,40}") {
            let _ = parse(&text, Some("/nonexistent"));
        }
    }
}
