//! Faults in the settings, each with its setting, value, source and remedy; warnings about valid
//! settings.
//!
//! Faults contain no secrets: a value that may contain one is omitted or redacted before the fault
//! is created.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A command-line flag, without its dashes.
    Flag(String),
    /// The program that the candidate is embedded in.
    Program,
    /// An environment variable.
    Variable(String),
    /// The file named by `--config`.
    File(PathBuf),
    /// The host name.
    HostName,
    /// The default.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Program => f.write_str("set by the program"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::HostName => f.write_str("host name"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// What is wrong with a value, before its setting and source are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, as the end of a sentence that begins with the value.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

impl std::error::Error for Problem {}

impl Problem {
    /// Creates a problem.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

/// One fault in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The setting's name.
    pub setting: String,
    /// Its value, unless it may contain a secret.
    pub value: Option<String>,
    /// Where the value came from.
    pub source: Source,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl Fault {
    /// Creates a fault of a setting, or of an argument of a command, from a problem.
    #[must_use]
    pub fn new(setting: &str, value: Option<&str>, source: Source, problem: Problem) -> Self {
        Self {
            setting: setting.to_owned(),
            value: value.map(str::to_owned),
            source,
            problem: problem.problem,
            remedy: problem.remedy,
        }
    }

    /// Returns the setting with its value and source, on one line.
    #[must_use]
    pub fn subject(&self) -> String {
        match &self.value {
            Some(value) => format!("{} = {} ({})", self.setting, quote(value), self.source),
            None => format!("{} ({})", self.setting, self.source),
        }
    }
}

impl fmt::Display for Fault {
    /// Formats the fault as three lines: subject, problem, remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, remedy, .. } = self;
        write!(f, "  {}\n    {problem}\n    remedy: {remedy}", self.subject())
    }
}

/// All faults in the settings; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("one setting is wrong, so nothing was started:")?,
            count => write!(f, "{count} settings are wrong, so nothing was started:")?,
        }
        self.0.iter().try_for_each(|fault| write!(f, "\n\n{fault}"))
    }
}

impl std::error::Error for Faults {}

/// A warning about valid settings that may not do what was intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Its subject, in a word.
    pub subject: &'static str,
    /// What happens with these settings.
    pub problem: String,
    /// What to do if that is not intended.
    pub remedy: String,
}

/// Quotes a value on one line, truncated to 120 characters.
fn quote(value: &str) -> String {
    const SHOWN: usize = 120;
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &value[..end]),
        None => format!("{value:?}"),
    }
}

/// What stands before a secret in a connection string, in lower case.
const BEFORE_SECRETS: [&str; 6] = ["key=", "password=", "pass=", "pwd=", "signature=", "token="];

/// Redacts user, password and query of a URL, which may be secrets, and those of a connection string.
#[must_use]
pub(super) fn without_secrets(url: &str) -> String {
    // Characters of ASCII alone change, so that no place moves.
    let lower = url.to_ascii_lowercase();
    let first = BEFORE_SECRETS.iter().filter_map(|it| lower.find(it).map(|at| at + it.len())).min();
    if let Some(at) = first.filter(|at| !url[..*at].contains(['?', '#', '@'])) {
        return format!("{}…", without_secrets_of_url(&url[..at]));
    }
    without_secrets_of_url(url)
}

fn without_secrets_of_url(url: &str) -> String {
    let (head, query) = match url.find(['?', '#']) {
        Some(at) => (&url[..at], "?…"),
        None => (url, ""),
    };
    let start = head.find("://").map_or(0, |at| at + 3);
    // A password may contain the character that begins a query.
    if url[head.len()..].contains('@') && !head.contains('@') && head[start..].contains(':') {
        return format!("{}…", &head[..start]);
    }
    let end = head[start..].find('/').map_or(head.len(), |at| start + at);
    // The last @ in the text, not in the authority: a password may contain a slash.
    let shown = match head.rfind('@') {
        Some(at) if at >= start => format!("{}…@{}", &head[..start], &head[at + 1..]),
        _ => format!("{}{}", &head[..end], &head[end..]),
    };
    format!("{shown}{query}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_fault_names_setting_value_source_problem_and_remedy() {
        let source = Source::Variable("TENURE_ELECTION".to_owned());
        let problem = Problem::new("has a space", "write a-b");
        let text = Faults(vec![Fault::new("election", Some("a b"), source, problem)]).to_string();
        for words in ["election = \"a b\"", "variable TENURE_ELECTION", "has a space", "write a-b"]
        {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn a_long_value_is_cut_and_stays_on_one_line() {
        let quoted = quote(&"ä\n".repeat(1_000));
        assert!(quoted.chars().count() < 300 && !quoted.contains('\n'), "{quoted}");
    }

    #[test]
    fn secrets_in_urls_are_not_shown() {
        for (url, shown) in [
            ("azure://a/b?sig=secret", "azure://a/b?…"),
            ("postgres://me:secret@host/db", "postgres://…@host/db"),
            ("postgres://me:sec/ret@host/db", "postgres://…@host/db"),
            ("file:///dir", "file:///dir"),
            ("me:secret@host", "…@host"),
            ("redis://me:sec?ret@host/0", "redis://…"),
            ("redis://me:sec#ret@host/0", "redis://…"),
            ("host=a port=1 password=secret dbname=x", "host=a port=1 password=…"),
            ("AccountName=a;AccountKey=secret", "AccountName=a;AccountKey=…"),
            ("h:6379,password=secret", "h:6379,password=…"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = (without_secrets(&text), quote(&text));
        }
    }
}
