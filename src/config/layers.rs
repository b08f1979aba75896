//! The settings by name, and their raw values from the layers: flag beats variable beats file
//! beats default.
//!
//! What it does not do: it reads no meaning into a value. It only says which one counts and where
//! it came from.

use std::collections::BTreeMap;

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
    /// Yes or no; the flag alone means yes.
    Switch,
}

/// One setting: the same word as flag, variable and key of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The word.
    pub name: &'static str,
    /// How many values it takes.
    pub arity: Arity,
    /// Its default, where that is one value for all.
    pub default: Option<&'static str>,
}

impl Setting {
    /// The name of its variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("TENURE_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

const fn one(name: &'static str, default: Option<&'static str>) -> Setting {
    Setting { name, arity: Arity::One, default }
}

const fn switch(name: &'static str) -> Setting {
    Setting { name, arity: Arity::Switch, default: Some("false") }
}

/// All settings of `tenure run`.
pub const SETTINGS: [Setting; 19] = [
    one("election", Some("default")),
    one("identity", None),
    one("advertise", None),
    switch("observe"),
    one("store", None),
    one("azure-endpoint", None),
    one("azure-blob-prefix", None),
    switch("azure-insecure-http"),
    one("lease-duration", Some("15s")),
    one("renew-deadline", Some("10s")),
    one("retry-period", Some("2s")),
    one("request-timeout", Some("2s")),
    one("activation-delay", Some("0s")),
    Setting { name: "listen", arity: Arity::Many, default: Some("127.0.0.1:4040") },
    one("max-connections", Some("512")),
    Setting { name: "status-file", arity: Arity::Many, default: None },
    one("log-format", None),
    one("log-level", Some("info")),
    // Last, because it only says where the file is: it is a key of no file.
    one(CONFIG, None),
];

/// The setting that names the file.
const CONFIG: &str = "config";

/// Variables that begin like settings and are read elsewhere.
const OTHER_VARIABLES: [&str; 1] = ["TENURE_URL"];

/// The settings that a file may hold.
pub(super) fn file_settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|it| it.name != CONFIG)
}

/// The flags as given, by setting; absent is not given.
pub type Flags = BTreeMap<&'static str, Vec<String>>;

/// A raw value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    /// One value, or for a list any number.
    pub(super) values: Vec<String>,
    /// Where they came from.
    pub(super) source: Source,
}

/// The raw values that count.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// By setting; what nobody said is absent.
    pub(super) raw: BTreeMap<&'static str, Raw>,
    /// What is wrong already: a file that cannot be read, keys that nobody knows.
    pub(super) faults: Vec<Fault>,
    /// What an operator may want to know at debug level.
    pub(super) notes: Vec<String>,
}

/// Lays flags over variables over the file.
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
        return Some(Raw { values: values.clone(), source: Source::Flag(setting.name.to_owned()) });
    }
    let variable = setting.variable();
    if environment.is_not_utf8(&variable) {
        let problem = Problem::new("is not UTF-8", "write it in UTF-8, or unset the variable");
        faults.push(Fault::new(setting.name, None, Source::Variable(variable), problem));
        return None;
    }
    let value = environment.get(&variable)?;
    let values = match setting.arity {
        Arity::Many => value.split(',').map(|it| it.trim().to_owned()).collect(),
        Arity::One | Arity::Switch => vec![value.to_owned()],
    };
    Some(Raw { values, source: Source::Variable(variable) })
}
