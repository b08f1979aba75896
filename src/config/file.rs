//! The settings file: TOML or YAML, flat, with the names of the flags as keys.
//!
//! Values of unknown keys and lines of an unparsable file are never shown, since they may contain
//! secrets.

use std::io::Read;
use std::path::Path;

use config::{FileFormat, Source as _, ValueKind};

use super::faults::{Fault, Problem, Source};
use super::setting::Raw;
use super::table::Setting;

/// The most bytes of a settings file.
const LARGEST: u64 = 1 << 20;

/// Reads the file that the setting `config` names; returns its values and its faults.
pub(super) fn read(config: &Raw) -> (Vec<(&'static str, Raw)>, Vec<Fault>) {
    let name = config.values.first().map_or("", String::as_str);
    let fault = |problem| Fault::new("config", Some(name), config.source.clone(), problem);
    let path = Path::new(name);
    let text = match text(path) {
        Ok(text) => text,
        Err(problem) => return (Vec::new(), vec![fault(problem)]),
    };
    let format = match format(path) {
        Ok(format) => format,
        Err(problem) => return (Vec::new(), vec![fault(problem)]),
    };
    keys(path, &text, format)
}

fn text(path: &Path) -> Result<String, Problem> {
    let cannot = |error: std::io::Error| {
        Problem::new(
            format!("cannot be read: {error}"),
            "name a file that exists and that Tenure can read",
        )
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > LARGEST {
        return Err(Problem::new("is larger than 1 MiB", "name a settings file"));
    }
    Ok(text)
}

fn format(path: &Path) -> Result<FileFormat, Problem> {
    match path.extension().and_then(|it| it.to_str()) {
        Some("toml") => Ok(FileFormat::Toml),
        Some("yaml" | "yml") => Ok(FileFormat::Yaml),
        _ => {
            Err(Problem::new("has an unknown extension", "use the extension .toml, .yaml or .yml"))
        }
    }
}

pub(super) fn keys(
    path: &Path,
    text: &str,
    format: FileFormat,
) -> (Vec<(&'static str, Raw)>, Vec<Fault>) {
    let source = Source::File(path.to_owned());
    if format == FileFormat::Yaml && is_deep(text) {
        let problem = Problem::new(
            "has a line that opens more levels than a settings file has",
            "write each setting on a line of its own, and its values as a list at most",
        );
        return (Vec::new(), vec![Fault::new("config", path.to_str(), source, problem)]);
    }
    let table = match config::File::from_str(text, format).collect() {
        Ok(table) => table,
        Err(error) => {
            let problem = Problem::new(
                format!("cannot be parsed: {}", without_excerpt(&error.to_string())),
                "correct the file; each line is one setting, such as election = \"orders\" in TOML \
                 or election: orders in YAML",
            );
            return (Vec::new(), vec![Fault::new("config", path.to_str(), source, problem)]);
        }
    };
    let mut raw = Vec::new();
    let mut faults = Vec::new();
    let mut table: Vec<_> = table.into_iter().collect();
    table.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (key, value) in table {
        let Some(setting) = Setting::named(&key).filter(|it| it.is_key()) else {
            faults.push(Fault::new(&key, None, source.clone(), unknown(&key, &value.kind)));
            continue;
        };
        match values(setting, value.kind) {
            Ok(values) => raw.push((setting.name, Raw { values, source: source.clone() })),
            Err(problem) => faults.push(Fault::new(&key, None, source.clone(), problem)),
        }
    }
    (raw, faults)
}

/// Strips a parser's message of excerpts from the file. TOML's message has the position in its
/// first line, the fault in its last, and an excerpt between; YAML's ends with the position. Any
/// other message is about a value of the wrong type, and shows it.
fn without_excerpt(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|it| !it.is_empty());
    let first = lines.next().unwrap_or_default();
    let is_place =
        |it: &str| it.split(' ').all(|word| matches!(word, "line" | "column") || is_number(word));
    if first.starts_with("TOML parse error at line ") {
        format!("{first}: {}", lines.next_back().unwrap_or_default())
    } else if message.rsplit_once(" at byte ").is_some_and(|(_, place)| is_place(place)) {
        // The text before these words is the duplicated key, which may be a whole table.
        first.rfind("duplicated key").map_or(first, |at| &first[at..]).to_owned()
    } else {
        "it is not a table of keys and values".to_owned()
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|it| it.is_ascii_digit())
}

/// Returns whether one line of YAML opens more levels than any settings file has. The parser would
/// recurse into them until the stack overflows. Levels by indentation would need a file too large
/// for that.
fn is_deep(text: &str) -> bool {
    const LEVELS: usize = 16;
    text.lines().filter(|line| !line.trim_start().starts_with('#')).any(|line| {
        let opens = line.split_whitespace().filter(|word| matches!(*word, "-" | "?" | ":"));
        opens.count() > LEVELS
    })
}

fn values(setting: &Setting, kind: ValueKind) -> Result<Vec<String>, Problem> {
    match kind {
        ValueKind::Array(items) if setting.is_list => {
            items.into_iter().map(|it| scalar(it.kind)).collect()
        }
        ValueKind::Array(_) => {
            Err(Problem::new("is a list, and the setting takes one value", "write a single value"))
        }
        other => Ok(vec![scalar(other)?]),
    }
}

fn scalar(kind: ValueKind) -> Result<String, Problem> {
    match kind {
        ValueKind::Nil => {
            Err(Problem::new("has no value", "write a value, or leave the key out for the default"))
        }
        ValueKind::Table(_) => {
            Err(Problem::new("is a table", "write one value; the keys of the file are flat"))
        }
        ValueKind::Array(_) => Err(Problem::new("is a list in a list", "write a flat list")),
        ValueKind::Boolean(it) => Ok(it.to_string()),
        ValueKind::I64(it) => Ok(it.to_string()),
        ValueKind::I128(it) => Ok(it.to_string()),
        ValueKind::U64(it) => Ok(it.to_string()),
        ValueKind::U128(it) => Ok(it.to_string()),
        ValueKind::Float(it) => Ok(it.to_string()),
        ValueKind::String(it) => Ok(it),
    }
}

fn unknown(key: &str, kind: &ValueKind) -> Problem {
    let problem = "is not a setting";
    let plain = key.to_ascii_lowercase().replace(['_', '.', ' '], "-");
    if ["secret", "key", "token", "connection-string", "password"]
        .iter()
        .any(|it| plain.ends_with(it))
    {
        if plain.starts_with("kube") {
            return Problem::new(
                problem,
                "credentials are never settings: remove it, and set kube-token-file to a file \
                 with the token",
            );
        }
        return Problem::new(
            problem,
            "credentials are never settings: remove it from the file and pass it in the \
             environment, such as AZURE_STORAGE_KEY_FILE",
        );
    }
    let remedy = match (Setting::nearest(&plain, Setting::is_key), kind) {
        (Some(name), _) => format!("did you mean {name}?"),
        (None, ValueKind::Table(_)) => {
            "the keys of the file are flat, named like the flags: azure-endpoint, for instance"
                .to_owned()
        }
        (None, _) => "remove it; `tenure run --help` lists all settings".to_owned(),
    };
    Problem::new(problem, remedy)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn faults(text: &str, format: FileFormat) -> String {
        let (_, faults) = keys(Path::new("f"), text, format);
        if faults.is_empty() { String::new() } else { super::super::Faults(faults).to_string() }
    }

    #[test]
    fn an_unknown_key_comes_with_the_nearest_setting_and_without_its_value() {
        for (line, name) in [
            ("lease_duration = \"hidden\"", "lease-duration?"),
            ("LEASE-DURATION = \"hidden\"", "lease-duration?"),
            ("elections = \"hidden\"", "election?"),
            ("listn = [\"hidden\"]", "listen?"),
            ("flux-capacitor = \"hidden\"", "--help"),
            ("azure-storage-key = \"hidden\"", "never settings"),
            ("kube-token = \"hidden\"", "kube-token-file"),
            ("config = \"hidden\"", "is not a setting"),
            ("[azure]\nendpoint = \"hidden\"", "flat"),
        ] {
            let text = faults(line, FileFormat::Toml);
            assert!(text.contains(name) && !text.contains("hidden"), "{line}: {text}");
        }
    }

    #[test]
    fn values_of_the_wrong_shape_are_named() {
        for (line, words) in [
            ("election:", "has no value"),
            ("election: [a, b]", "is a list"),
            ("election: {a: b}", "is a table"),
            ("listen: [[a]]", "list in a list"),
        ] {
            let text = faults(line, FileFormat::Yaml);
            assert!(text.contains(words), "{line}: {text}");
        }
    }

    #[test]
    fn a_broken_file_is_a_fault_that_says_where_and_quotes_nothing() {
        for (text, format) in [
            ("election = \"a\"\nx = hidden", FileFormat::Toml),
            ("election: a\nhidden: [", FileFormat::Yaml),
        ] {
            let text = faults(text, format);
            assert!(text.contains("line 2") || text.contains("line 3"), "{text}");
            assert!(text.contains("cannot be parsed") && !text.contains("hidden"), "{text}");
        }
    }

    #[test]
    fn a_file_without_keys_is_not_shown() {
        for text in [
            "hidden",
            "listen = \"hidden\"",
            "\"hidden\"",
            "47110815",
            "[hidden]",
            "[hidden]: a",
            "{a: hidden}: a",
            "a: !!float hidden",
            "hidden: a\n---\nhidden: b",
            "? [hidden]\n: a\n? [hidden]\n: b",
            "\"hidden at byte 1 line 1 column 1\"",
        ] {
            let text = faults(text, FileFormat::Yaml);
            assert!(!text.contains("hidden") && !text.contains("4711"), "{text}");
        }
        assert!(faults("hidden", FileFormat::Yaml).contains("not a table of keys"));
    }

    #[test]
    fn a_file_of_endless_levels_is_a_fault() {
        for (level, format) in [
            ("- ", FileFormat::Yaml),
            ("? ", FileFormat::Yaml),
            ("- ? ", FileFormat::Yaml),
            ("[", FileFormat::Yaml),
            ("a = [", FileFormat::Toml),
        ] {
            let text = format!("{}x", level.repeat(100_000));
            assert!(faults(&text, format).contains("config"), "{level}");
        }
        assert_eq!(
            faults("# - - - - - - - - - - - - - - - - - -\nlisten: off", FileFormat::Yaml),
            ""
        );
    }

    #[test]
    fn off_in_yaml_is_a_word_and_not_a_boolean() {
        let (raw, faults) = keys(Path::new("f"), "listen: off", FileFormat::Yaml);
        assert!(faults.is_empty());
        assert_eq!(raw[0].1.values, ["off"]);
    }

    proptest! {
        #[test]
        fn arbitrary_keys_never_panic_and_only_known_ones_pass(key in ".{0,30}", toml: bool) {
            let quoted = serde_json::to_string(&key).unwrap();
            let (text, format) = if toml {
                (format!("{quoted} = 1"), FileFormat::Toml)
            } else {
                (format!("{quoted}: 1"), FileFormat::Yaml)
            };
            let (raw, faults) = keys(Path::new("f"), &text, format);
            let known = Setting::named(&key).is_some_and(Setting::is_key);
            prop_assert_eq!(raw.len(), usize::from(known));
            prop_assert_eq!(faults.len(), usize::from(!known));
        }

        #[test]
        fn arbitrary_files_never_panic(text in "(?s).{0,80}", toml: bool) {
            let format = if toml { FileFormat::Toml } else { FileFormat::Yaml };
            let _ = keys(Path::new("f"), &text, format);
        }
    }
}
