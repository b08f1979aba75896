//! Properties of the parsers of settings, for arbitrary text: durations, store URLs, endpoints,
//! files.

use std::path::Path;

use config::FileFormat;

use super::table::Setting;
use super::{azure, duration as durations, faults, file, store_url as urls};

/// Marks in inputs what must not appear in messages.
const SECRET: &str = "hunter2";

/// Durations: a parsed one is no longer than the longest, and survives formatting and parsing.
pub fn duration(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match durations::parse(text) {
        Ok(read) => {
            assert!(read <= durations::LONGEST, "{read:?}");
            assert_eq!(durations::parse(&durations::format(read)), Ok(read));
            assert!(text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'.'));
        }
        Err(fault) => assert!(!fault.is_empty() && fault.len() < 100, "{fault}"),
    }
}

/// Store URLs and endpoints: a parsed one survives formatting and parsing, and has no user and no
/// query; faults and redacted URLs do not contain the password.
pub fn store_url(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match urls::parse(text) {
        Ok(url) => assert_eq!(urls::parse(&url.to_string()), Ok(url)),
        Err(problem) => assert!(!problem.problem.is_empty() && !problem.remedy.is_empty()),
    }
    for insecure in [false, true] {
        let Ok(url) = azure::endpoint(text, insecure) else { continue };
        assert!(matches!(url.scheme(), "http" | "https") && url.has_host(), "{url}");
        assert!(url.username().is_empty() && url.password().is_none(), "{url}");
        assert!(url.query().is_none() && url.fragment().is_none(), "{url}");
        assert_eq!(azure::endpoint(url.as_str(), insecure).as_ref(), Ok(&url));
    }
    if !text.contains(SECRET) {
        let signed = format!("https://user:{SECRET}@host/{text}?sig={SECRET}");
        let shown = faults::without_secrets(&signed);
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

/// Settings files, with the first byte choosing the format: every value belongs to a setting, and
/// no fault shows the value of an unknown key or a line of an unparsable file.
pub fn settings_file(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(rest) else { return };
    let format = if first % 2 == 0 { FileFormat::Toml } else { FileFormat::Yaml };
    let (taken, faults) = file::keys(Path::new("f"), text, format);
    for (name, raw) in taken {
        let setting = Setting::named(name).filter(|it| it.is_key());
        assert!(setting.is_some(), "{name}");
        assert!(raw.values.len() == 1 || setting.is_some_and(|it| it.is_list), "{raw:?}");
    }
    for fault in faults {
        assert!(!fault.problem.is_empty() && !fault.remedy.is_empty(), "{fault:?}");
        // Faults do name the key.
        if !fault.setting.contains(SECRET) {
            let shown = super::Faults(vec![fault]).to_string();
            assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}
