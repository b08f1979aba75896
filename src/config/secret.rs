//! The sources of secrets. Credentials are variables, each of which may name a file instead; they are
//! never flags. No message contains a secret.

use std::fmt;
use std::path::PathBuf;

use super::environment::Environment;
use super::faults::{Fault, Problem, Source};

/// The source of a secret.
#[derive(Clone)]
pub enum SecretSource {
    /// The value itself.
    Value(String),
    /// A file that holds it, read again when it changes.
    File(PathBuf),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Returns the user name and the password that two variables hold, or `Some(None)` if neither is set; `None`
/// after a fault. `neither` says when neither is needed.
pub(super) fn user(
    names: [&'static str; 2],
    neither: &str,
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> Option<Option<(SecretSource, SecretSource)>> {
    let before = faults.len();
    let found = names.map(|it| given(it, environment, faults));
    if faults.len() > before {
        return None;
    }
    let missing = match found {
        [Some(name), Some(password)] => return Some(Some((name, password))),
        [None, None] => return Some(None),
        [Some(_), None] => names[1],
        [None, Some(_)] => names[0],
    };
    let problem = Problem::new(
        "is not set, and the other half of the user and password is",
        format!("set {missing} or {missing}_FILE, or {neither}"),
    );
    faults.push(Fault::new(missing, None, Source::Variable(missing.to_owned()), problem));
    None
}

/// Returns what a variable holds, or the file that the variable with `_FILE` at its end names; `None`
/// if neither is set. Both at once are a fault.
pub(super) fn given(
    name: &str,
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> Option<SecretSource> {
    let file = format!("{name}_FILE");
    match (environment.get(name), environment.get(&file)) {
        (Some(_), Some(_)) => {
            let problem = Problem::new(
                format!("is set twice, by {name} and by {file}"),
                "unset one of the two",
            );
            faults.push(Fault::new(name, None, Source::Variable(file), problem));
            None
        }
        (Some(value), None) => Some(SecretSource::Value(value.to_owned())),
        (None, Some(path)) => Some(SecretSource::File(path.into())),
        (None, None) => None,
    }
}
