//! The unparsed values of the settings by precedence: flag, variable, file.

use std::collections::BTreeMap;

use super::command_line::{Quoted, quoted};
use super::environment::Environment;
use super::faults::{Fault, Problem, Source};
use super::file;
use super::setting::Raw;
use super::table::{CONFIG, SETTINGS, Setting};

/// Variables with the prefix of settings that are read elsewhere, or that Tenure sets itself for
/// commands, hooks and readers of a status file.
const OTHER_VARIABLES: [&str; 21] = [
    "TENURE_URL",
    "TENURE_CA_FILE",
    "TENURE_CERT",
    "TENURE_KEY",
    "TENURE_INSIDE",
    "TENURE_TERM",
    "TENURE_EVENT",
    "TENURE_ROLE",
    "TENURE_STATE",
    "TENURE_BOOT_ID",
    "TENURE_VALID_FOR_MS",
    "TENURE_VALID_UNTIL",
    "TENURE_VALID_UNTIL_BOOTTIME_NS",
    "TENURE_DRAIN_REMAINING_MS",
    "TENURE_REASON",
    "TENURE_PREVIOUS_HOLDER",
    "TENURE_PREVIOUS_TERM",
    "TENURE_PROTECTED_FOR_MS",
    "TENURE_HOLDER",
    "TENURE_HOLDER_ADDRESS",
    "TENURE_HOLDER_TERM",
];

/// The flags that were given, by setting.
pub type Flags = BTreeMap<&'static str, Vec<String>>;

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
    for setting in SETTINGS {
        if let Some(raw) = given(setting, flags, environment, &mut layers.faults) {
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
    let known: Vec<_> = SETTINGS.iter().map(Setting::variable).collect();
    for name in environment.names().filter(|it| it.starts_with(PREFIX)) {
        unknown_variable(name, &known, environment, &mut layers);
    }
    layers
}

/// How the names of Tenure's variables begin.
const PREFIX: &str = "TENURE_";

/// Records a variable that no setting reads: a fault if it resembles one, else a note.
fn unknown_variable(name: &str, known: &[String], environment: &Environment, layers: &mut Layers) {
    let is_set = environment.get(name).is_some() || environment.is_not_utf8(name);
    if !is_set || OTHER_VARIABLES.contains(&name) {
        return;
    }
    let similar = known.iter().filter(|it| it.len().abs_diff(name.len()) <= 2);
    let distance = |it: &str| strsim::osa_distance(&name[PREFIX.len()..], &it[PREFIX.len()..]);
    match similar.map(|it| (distance(it), it)).min() {
        Some((0, _)) => {}
        Some((1 | 2, meant)) => {
            let problem = Problem::new("is not a setting", format!("did you mean {meant}?"));
            let source = Source::Variable(name.to_owned());
            layers.faults.push(Fault::new(name, None, source, problem));
        }
        _ => layers.notes.push(format!("the variable {name} is not a setting and is ignored")),
    }
}

/// Returns the value of a setting from its flag, else from its variable.
fn given(
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
    let values = if setting.is_list { items(value) } else { vec![value.to_owned()] };
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
    fn a_list_is_split_at_its_commas_except_those_that_a_command_quotes() {
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
