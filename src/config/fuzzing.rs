//! What must hold of settings, whatever text they are: durations, store URLs, endpoints, files.
//!
//! What is not here: values of single settings, which have no form beyond a few words.

use std::path::Path;

use config::FileFormat;

use super::layers::Arity::Many;
use super::layers::file_settings;
use super::{azure, duration as durations, faults, file, store_url as urls};

/// Stands in inputs for what nobody may be shown.
const SECRET: &str = "hunter2";

/// Durations: what is read is no longer than the longest and is written so that it is read again.
pub fn duration(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match durations::parse(text) {
        Ok(read) => {
            assert!(read <= durations::LONGEST, "{read:?}");
            assert_eq!(durations::parse(&durations::format(read)), Ok(read));
            assert!(text.bytes().all(|it| it.is_ascii_alphanumeric()));
        }
        Err(fault) => assert!(!fault.is_empty()),
    }
}

/// Store URLs and endpoints: what is read is written so that it means the same, names no user and
/// no query, and neither a fault nor what may be shown of a URL holds its password.
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

/// Files of settings, the first byte for the format: what is taken is a setting with a value, and
/// no fault shows the value of a key that is none, nor a line of a file that cannot be read.
pub fn settings_file(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = str::from_utf8(rest) else { return };
    let format = if first % 2 == 0 { FileFormat::Toml } else { FileFormat::Yaml };
    let (taken, faults) = file::keys(Path::new("f"), text, format);
    for (name, raw) in taken {
        let setting = file_settings().find(|it| it.name == name);
        assert!(setting.is_some(), "{name}");
        assert!(raw.values.len() == 1 || setting.is_some_and(|it| it.arity == Many), "{raw:?}");
    }
    for fault in faults {
        assert!(!fault.problem.is_empty() && !fault.remedy.is_empty(), "{fault:?}");
        // A key is named, so that it can be found.
        if !fault.setting.contains(SECRET) {
            let shown = super::Faults(vec![fault]).to_string();
            assert!(!shown.contains(SECRET), "{shown}");
        }
    }
}
