//! Command lines: split like a shell would, and the program that they name, found by `PATH`.
//!
//! What it does not do: it runs nothing, and takes nothing for a shell's: no variable, pattern, pipe
//! or redirection.

use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use super::faults::Problem;

/// Where programs are looked for when `PATH` is not set, as the system does it.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// What a shell would not hand to the program as a word.
const SHELL_WORDS: [&str; 10] = ["|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"];

/// A command, ready to be run without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program's file, as `PATH` led to it.
    pub program: PathBuf,
    /// What it is given.
    pub arguments: Vec<String>,
}

impl fmt::Display for CommandLine {
    /// Names the program, and no argument: one may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.arguments.is_empty() { "" } else { " …" };
        write!(f, "{}{more}", self.program.display())
    }
}

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is none; a shell says 127.
    #[error("{0}")]
    NotFound(String),
    /// There is a file, and it cannot be run; a shell says 126.
    #[error("{0}")]
    NotExecutable(String),
}

/// Reads a command line and finds its program; `path` is the variable `PATH`.
pub(super) fn parse(text: &str, path: Option<&str>) -> Result<CommandLine, Problem> {
    const WRITE: &str = "write a program and its arguments, such as /usr/local/bin/notify --quiet";
    if text.trim().is_empty() {
        return Err(Problem::new("is empty", WRITE));
    }
    if text.contains('\0') {
        return Err(Problem::new("has a NUL in it", WRITE));
    }
    let Some(words) = shlex::split(text) else {
        return Err(Problem::new(
            "has a quote that is opened and not closed, or a \\ at its end",
            "close it; a quote that is meant itself is written \\' or \\\"",
        ));
    };
    let shell = |word: &&String| {
        SHELL_WORDS.contains(&word.as_str()) && text.split_whitespace().any(|it| it == **word)
    };
    if let Some(word) = words.iter().find(shell) {
        return Err(Problem::new(
            format!("has {word:?}, and no shell runs it that would know what to do"),
            format!(
                "write it as sh -c '…'; or quote the word as '{word}' if the program is to get it"
            ),
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

fn problem(program: &str, unusable: &Unusable) -> Problem {
    let remedy = match unusable {
        Unusable::NotFound(_) if program.contains('=') => {
            format!("write env before it if {program} is to be a variable")
        }
        Unusable::NotFound(_) if program.starts_with('~') => {
            "write the path in full: no shell is there to know ~".to_owned()
        }
        Unusable::NotFound(_) => {
            "install the program, or name its path in full; it must be on this machine, in this \
             container"
                .to_owned()
        }
        Unusable::NotExecutable(_) => {
            "make it a program that we may run: chmod +x, and in a script a first line such as \
             #!/bin/sh that names an interpreter which is there"
                .to_owned()
        }
    };
    Problem::new(unusable.to_string(), remedy)
}

/// Finds a program as the system would: a name with a `/` is a path, any other is looked for in the
/// directories of `path`, the variable `PATH`. A script must name an interpreter that is there.
///
/// # Errors
/// Says that there is none, or that what there is cannot be run.
pub fn find(program: &str, path: Option<&str>) -> Result<PathBuf, Unusable> {
    if program.contains('/') {
        return usable(Path::new(program)).map(|()| PathBuf::from(program));
    }
    let mut refused = None;
    for directory in path.unwrap_or(USUAL_PATH).split(':') {
        let file = Path::new(if directory.is_empty() { "." } else { directory }).join(program);
        match usable(&file) {
            Ok(()) => return Ok(file),
            Err(Unusable::NotFound(_)) => {}
            Err(it) => refused = refused.or(Some(it)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        Unusable::NotFound(format!("names {program:?}, which PATH does not lead to"))
    }))
}

fn usable(file: &Path) -> Result<(), Unusable> {
    let shown = file.display();
    let refused = |what: String| Err(Unusable::NotExecutable(what));
    match std::fs::metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return refused(format!("names {shown}, which we may not reach"));
        }
        Err(_) => return Err(Unusable::NotFound(format!("names {shown}, which is not there"))),
        Ok(found) if !found.is_file() => {
            return refused(format!("names {shown}, which is no file"));
        }
        Ok(_) => {}
    }
    if rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
        return refused(format!("names {shown}, which we may not execute"));
    }
    script(file)
}

/// Judges what the file begins with; one that may be executed and not read is taken as it is.
fn script(file: &Path) -> Result<(), Unusable> {
    let mut start = Vec::new();
    let Ok(opened) = std::fs::File::open(file) else { return Ok(()) };
    if opened.take(256).read_to_end(&mut start).is_err() {
        return Ok(());
    }
    let shown = file.display();
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|it| *it == b'\n').next().unwrap_or_default();
        let word = line.split(u8::is_ascii_whitespace).find(|it| !it.is_empty());
        let interpreter = Path::new(std::ffi::OsStr::from_bytes(word.unwrap_or_default()));
        let runs = interpreter.is_file()
            && rustix::fs::accessat(CWD, interpreter, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        if !runs {
            return Err(Unusable::NotExecutable(format!(
                "names {shown}, a script for {:?}, which cannot be run",
                interpreter.display().to_string().trim_end_matches('\r')
            )));
        }
    } else if !start.contains(&0) && str::from_utf8(&start).is_ok() {
        return Err(Unusable::NotExecutable(format!(
            "names {shown}, a text without a first line such as #!/bin/sh, which only a shell would run"
        )));
    }
    Ok(())
}
