//! Reads unparsed values one by one and records faults, for the modules that know the settings.

use super::environment::Environment;
use super::faults::{Fault, Problem, Source, Warning, without_secrets};
use super::layers::{Flags, Layers, gather};
use super::setting::Raw;
use super::table::{Setting, Verb};

/// Reads values one by one and records faults. `None` from any of its methods means that a fault
/// has been recorded.
pub(super) struct Reader<'a> {
    pub(super) layers: Layers,
    pub(super) environment: &'a Environment,
    pub(super) verb: Verb,
    /// Whether a sidecar is about to start.
    pub(super) starting: bool,
    /// Warnings that depend on which settings were given, and not on the result.
    pub(super) warnings: Vec<Warning>,
}

impl<'a> Reader<'a> {
    pub(super) fn of(
        flags: &Flags,
        environment: &'a Environment,
        verb: Verb,
        starting: bool,
    ) -> Self {
        Self {
            layers: gather(flags, environment),
            environment,
            verb,
            starting,
            warnings: Vec::new(),
        }
    }
}

impl Reader<'_> {
    /// Returns the value of a setting after precedence, else its default.
    pub(super) fn raw(&self, name: &str) -> Option<Raw> {
        self.layers.raw.get(name).cloned().or_else(|| {
            let default = Setting::named(name)?.default_for(self.verb)?;
            Some(Raw { values: vec![default.to_owned()], source: Source::Default })
        })
    }

    pub(super) fn source(&self, name: &str) -> Source {
        self.raw(name).map_or(Source::Default, |it| it.source)
    }

    pub(super) fn fault(
        &mut self,
        name: &str,
        value: Option<&str>,
        source: Source,
        problem: Problem,
    ) {
        self.layers.faults.push(Fault::new(name, value, source, problem));
    }

    pub(super) fn many<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&[String]) -> Result<T, Problem>,
    ) -> Option<T> {
        let raw = self.raw(name).unwrap_or(Raw { values: Vec::new(), source: Source::Default });
        read(&raw.values)
            .map_err(|it| self.fault(name, Some(&raw.values.join(",")), raw.source, it))
            .ok()
    }

    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, Problem>,
    ) -> Option<Option<T>> {
        let Some(raw) = self.raw(name) else {
            return Some(None);
        };
        let value = raw.values.first().map_or("", String::as_str);
        match read(value) {
            Ok(it) => Some(Some(it)),
            Err(problem) => {
                // A misplaced secret must not reach a log through a message.
                let shown = match value.contains([':', '=']) {
                    true => without_secrets(value),
                    false => value.to_owned(),
                };
                self.fault(name, Some(&shown), raw.source, problem);
                None
            }
        }
    }

    /// Parses a setting that was given or has a default.
    pub(super) fn one<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        self.optional(name, read)?
    }

    /// Formats the sources of settings, to end a sentence about all of them.
    pub(super) fn sources(&self, names: &[&str]) -> String {
        let all: Vec<_> =
            names.iter().map(|name| format!("{name}: {}", self.source(name))).collect();
        format!(" [{}]", all.join(", "))
    }

    /// Records a fault of a setting of one value.
    pub(super) fn fault_of(&mut self, name: &'static str, problem: Problem) {
        let raw = self.raw(name);
        let value = raw.as_ref().and_then(|it| it.values.first()).map(String::as_str);
        self.fault(name, value, self.source(name), problem);
    }
}
