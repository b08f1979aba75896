//! The description of a setting: its name, its kind of values, its default and its meaning.

use super::faults::Source;

/// What a setting's values are like. What exactly is valid is decided where it is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean; the flag without a value means true.
    Switch,
    /// A duration such as `15s`.
    Duration,
    /// A whole number from 1.
    Count,
    /// A whole number from 0 to 100.
    Percent,
    /// The path of a file.
    Path,
    /// One of these words, with the name of the value.
    Choice(&'static str, &'static [&'static str]),
    /// Other text: the name of the value, and a regular expression that it matches, empty for any
    /// text.
    Text(&'static str, &'static str),
}

impl Kind {
    /// Returns the name of the value in the help.
    #[must_use]
    pub const fn value_name(self) -> &'static str {
        match self {
            Self::Switch => "BOOL",
            Self::Duration => "DURATION",
            Self::Count | Self::Percent => "NUMBER",
            Self::Path => "PATH",
            Self::Choice(name, _) | Self::Text(name, _) => name,
        }
    }
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
    /// The heading of its group in the help.
    pub heading: &'static str,
    /// What its values are like.
    pub kind: Kind,
    /// Whether it takes several values: the flag several times, commas in the variable, a list in
    /// the file.
    pub is_list: bool,
    /// The default, if it does not depend on the environment; see also [`Setting::default_for`].
    pub default: Option<&'static str>,
    /// In words, what applies without a value if there is no `default`; empty for nothing.
    pub otherwise: &'static str,
    /// How `tenure exec` treats it.
    pub under_exec: UnderExec,
    /// Whether it is a setting of the library too, which has an election and a store only.
    pub in_library: bool,
    /// What it means, without a final stop. Names of settings are in backticks.
    pub help: &'static str,
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

/// An unparsed value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    /// One value, or any number for a list.
    pub(super) values: Vec<String>,
    /// Where they came from.
    pub(super) source: Source,
}
