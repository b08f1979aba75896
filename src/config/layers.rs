//! The table of all settings, and their unparsed values by precedence: flag, variable, file,
//! default.

use std::collections::BTreeMap;

use super::command_line::{Quoted, quoted};
use super::environment::Environment;
use super::faults::{Fault, Problem, Source};
use super::file;

/// How many values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// One.
    One,
    /// Any number: the flag several times, commas in the variable, a list in the file.
    Many,
    /// A boolean; the flag without a value means true.
    Switch,
}

/// The command that settings are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `tenure run`.
    Run,
    /// `tenure exec`.
    Exec,
}

/// How `tenure exec` treats a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderExec {
    /// As `tenure run` does.
    Same,
    /// With another default.
    Default(&'static str),
    /// Only `exec` has the flag. `tenure run` ignores the variable and the key, since both commands
    /// may share them.
    Alone,
}

/// A setting: one name for flag, variable and key of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// How many values it takes.
    pub arity: Arity,
    /// The default, if it does not depend on the environment; see also [`Setting::default_for`].
    pub default: Option<&'static str>,
    /// How `tenure exec` treats it.
    pub under_exec: UnderExec,
}

impl Setting {
    /// Returns the default for a command, if it does not depend on the environment.
    #[must_use]
    pub fn default_for(&self, verb: Verb) -> Option<&'static str> {
        match (verb, self.under_exec) {
            (Verb::Exec, UnderExec::Default(it)) => Some(it),
            _ => self.default,
        }
    }

    /// Returns whether the command has it as a flag.
    #[must_use]
    pub fn is_flag_of(&self, verb: Verb) -> bool {
        verb == Verb::Exec || self.under_exec != UnderExec::Alone
    }

    /// Returns the name of its variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("TENURE_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

const fn one(name: &'static str, default: Option<&'static str>) -> Setting {
    Setting { name, arity: Arity::One, default, under_exec: UnderExec::Same }
}

const fn many(name: &'static str, default: Option<&'static str>) -> Setting {
    Setting { arity: Arity::Many, ..one(name, default) }
}

const fn switch(name: &'static str) -> Setting {
    Setting { arity: Arity::Switch, ..one(name, Some("false")) }
}

impl Setting {
    const fn under_exec(self, under_exec: UnderExec) -> Self {
        Self { under_exec, ..self }
    }
}

/// All settings of `tenure run` and `tenure exec`.
pub const SETTINGS: [Setting; 39] = [
    one("election", Some("default")),
    one("identity", None),
    one("advertise", None),
    switch("observe"),
    one("store", None),
    one("azure-endpoint", None),
    one("azure-blob-prefix", None),
    switch("azure-insecure-http"),
    one("kube-api", None),
    one("kube-token-file", None),
    one("kube-ca-file", None),
    one("kube-route", None),
    one("kube-label", Some("tenure.dev/role")),
    one("kube-service", None),
    one("lease-duration", Some("15s")),
    one("renew-deadline", Some("10s")),
    one("retry-period", Some("2s")),
    one("request-timeout", Some("2s")),
    one("activation-delay", Some("0s")),
    many("listen", Some("127.0.0.1:4040")).under_exec(UnderExec::Default("127.0.0.1:0")),
    one("max-connections", Some("512")),
    many("status-file", None),
    one("admin", None),
    one("admin-token-file", None),
    many("health", None),
    one("health-interval", Some("2s")),
    one("health-timeout", Some("1s")),
    one("health-failures", Some("3")),
    one("health-successes", Some("2")),
    one("drain-timeout", Some("0s")).under_exec(UnderExec::Default("10s")),
    one("stop-timeout", Some("3s")).under_exec(UnderExec::Alone),
    one("on-active", None),
    one("on-passive", None),
    one("on-drain", None),
    one("on-leader-change", None),
    one("hook-timeout", Some("10s")),
    one("log-format", None),
    one("log-level", Some("info")),
    // Last, because it names the file, and is not a key of the file.
    one(CONFIG, None),
];

/// The setting that names the file.
const CONFIG: &str = "config";

/// Variables with the prefix of settings that are read elsewhere.
const OTHER_VARIABLES: [&str; 3] = ["TENURE_URL", "TENURE_INSIDE", "TENURE_TERM"];

/// Returns the settings that a file may contain.
pub(super) fn file_settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|it| it.name != CONFIG)
}

/// The flags that were given, by setting.
pub type Flags = BTreeMap<&'static str, Vec<String>>;

/// An unparsed value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    /// One value, or any number for a list.
    pub(super) values: Vec<String>,
    /// Where they came from.
    pub(super) source: Source,
}

/// The unparsed values after precedence.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// By setting; those without any value are absent.
    pub(super) raw: BTreeMap<&'static str, Raw>,
    /// Faults found so far: an unreadable file, unknown keys.
    pub(super) faults: Vec<Fault>,
    /// Notes for the log at debug level.
    pub(super) notes: Vec<String>,
}

/// Merges the layers: flags override variables, and these the file.
#[must_use]
pub(super) fn gather(flags: &Flags, environment: &Environment) -> Layers {
    let mut layers = Layers::default();
    for setting in &SETTINGS {
        if let Some(raw) = said(setting, flags, environment, &mut layers.faults) {
            layers.raw.insert(setting.name, raw);
        }
    }
    if let Some(config) = layers.raw.remove(CONFIG) {
        let (raw, mut faults) = file::read(&config);
        for (name, value) in raw {
            layers.raw.entry(name).or_insert(value);
        }
        layers.faults.append(&mut faults);
    }
    let known = |name: &str| SETTINGS.iter().any(|it| it.variable() == name);
    for name in environment.names().filter(|it| it.starts_with("TENURE_")) {
        if !known(name) && !OTHER_VARIABLES.contains(&name) {
            layers.notes.push(format!("the variable {name} is no setting and is not read"));
        }
    }
    layers
}

fn said(
    setting: &Setting,
    flags: &Flags,
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> Option<Raw> {
    if let Some(values) = flags.get(setting.name).filter(|it| !it.is_empty()) {
        let source = match environment.by_program {
            true => Source::Program,
            false => Source::Flag(setting.name.to_owned()),
        };
        return Some(Raw { values: values.clone(), source });
    }
    let variable = setting.variable();
    if environment.is_not_utf8(&variable) {
        let problem = Problem::new("is not UTF-8", "write it in UTF-8, or unset the variable");
        faults.push(Fault::new(setting.name, None, Source::Variable(variable), problem));
        return None;
    }
    let value = environment.get(&variable)?;
    let values = match setting.arity {
        Arity::Many => items(value),
        Arity::One | Arity::Switch => vec![value.to_owned()],
    };
    Some(Raw { values, source: Source::Variable(variable) })
}

/// Splits a list at its commas. In an item that begins with `exec:`, a command line, quoted commas
/// do not separate; an unbalanced quote is ignored.
fn items(list: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut rest = list;
    loop {
        let is_command = rest.trim_start().starts_with("exec:");
        let end = if is_command { unquoted_comma(rest) } else { rest.find(',') };
        let Some(end) = end else {
            items.push(rest.trim().to_owned());
            return items;
        };
        items.push(rest[..end].trim().to_owned());
        rest = &rest[end + 1..];
    }
}

/// Returns the offset of the first comma outside of shell quotes.
fn unquoted_comma(text: &str) -> Option<usize> {
    match quoted(text) {
        Some(all) => {
            all.iter().find(|(_, it, quoted)| *it == ',' && *quoted == Quoted::Not).map(|it| it.0)
        }
        None => text.find(','),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_taken_apart_at_its_commas_but_for_those_that_a_command_quotes() {
        for (list, expected) in [
            ("a,b", &["a", "b"][..]),
            (" a , b ", &["a", "b"]),
            ("a,", &["a", ""]),
            ("/it's.json,/that's.json", &["/it's.json", "/that's.json"]),
            ("exec:a 'b,c',d", &["exec:a 'b,c'", "d"]),
            ("d, exec:a \"b\\\",c\" e,f", &["d", "exec:a \"b\\\",c\" e", "f"]),
            ("exec:a b\\,c", &["exec:a b\\,c"]),
            ("exec:a 'b,c", &["exec:a 'b", "c"]),
            ("exec:a '\\',b", &["exec:a '\\'", "b"]),
        ] {
            assert_eq!(items(list), expected, "{list}");
        }
    }
}
