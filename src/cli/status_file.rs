//! Reads status files in both formats, which are distinguished by their first character. It never
//! blocks on a pipe, and evaluates nothing as a shell would.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;

use super::document::Role;

/// The most bytes of a status file.
const LONGEST: u64 = 1 << 16;

/// The content of a status file, as far as `tenure check` needs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct StatusFile {
    pub(super) role: Role,
    pub(super) state: String,
    #[serde(default)]
    pub(super) term: Option<u64>,
    pub(super) boot_id: String,
    pub(super) valid_until_boottime_ns: u64,
}

/// Reads a status file.
pub(super) fn read(path: &Path) -> Result<StatusFile, String> {
    let cannot = |error: std::io::Error| format!("could not be read: {error}");
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > LONGEST {
        return Err("is too long for a status file".to_owned());
    }
    parse(&text)
}

pub(super) fn parse(text: &str) -> Result<StatusFile, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| format!("is not a status file: {error}"));
    }
    let value = |name: &str| {
        text.lines().find_map(|line| unquoted(line.strip_prefix(name)?.strip_prefix('=')?))
    };
    let wanted = |name: &str| value(name).ok_or(format!("is not a status file: {name} is missing"));
    let number = |name: &str| {
        wanted(name)?.parse().map_err(|_| format!("is not a status file: {name} is not a number"))
    };
    let role = match wanted("TENURE_ROLE")?.as_str() {
        "active" => Role::Active,
        "passive" => Role::Passive,
        _ => return Err("is not a status file: TENURE_ROLE is not a role".to_owned()),
    };
    Ok(StatusFile {
        role,
        state: wanted("TENURE_STATE")?,
        term: value("TENURE_TERM").and_then(|it| it.parse().ok()),
        boot_id: wanted("TENURE_BOOT_ID")?,
        valid_until_boottime_ns: number("TENURE_VALID_UNTIL_BOOTTIME_NS")?,
    })
}

/// Removes a shell's single quotes; returns `None` if they are not balanced.
fn unquoted(text: &str) -> Option<String> {
    match text.trim_end().strip_prefix('\'') {
        Some(rest) => rest.strip_suffix('\'').map(|it| it.replace(r"'\''", "'")),
        None => Some(text.trim_end().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENV: &str = "TENURE_ROLE='active'\nTENURE_STATE='leader'\nTENURE_TERM='42'\n\
                       TENURE_VALID_UNTIL_BOOTTIME_NS='7'\nTENURE_BOOT_ID='b'\n";

    #[test]
    fn both_formats_have_the_same_content() {
        let json = r#"{"role":"active","state":"leader","term":42,"valid_until":"2026-01-01",
            "valid_until_boottime_ns":7,"boot_id":"b"}"#;
        assert_eq!(parse(json), parse(ENV));
        let file = parse(ENV).unwrap();
        assert_eq!(
            (file.role, file.term, file.valid_until_boottime_ns),
            (Role::Active, Some(42), 7)
        );
    }

    #[test]
    fn a_missing_or_corrupt_file_is_not_a_status_file() {
        for line in ENV.lines().filter(|it| !it.starts_with("TENURE_TERM")) {
            let without: String =
                ENV.lines().filter(|it| *it != line).collect::<Vec<_>>().join("\n");
            assert!(parse(&without).is_err(), "{without}");
        }
        for text in ["", "{", "{}", "hello", "TENURE_ROLE='activ"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let torn = ENV.replace("'7'", "'x'");
        assert!(parse(&torn).is_err());
    }

    #[test]
    fn directories_and_pipes_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).unwrap_err().contains("not a regular file"));
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(read(&pipe).unwrap_err().contains("not a regular file"));
        assert!(read(&directory.path().join("none")).unwrap_err().contains("could not be read"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\{|TENURE_ROLE=)?(?s).{0,80}") {
            let _ = parse(&text);
        }
    }
}
