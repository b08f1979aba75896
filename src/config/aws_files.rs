//! The files that AWS's clients share: `config`, and `credentials`, whose values go before. Keys are not read
//! here; the backend does that, again and again while it runs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::faults::{Fault, Problem, Source};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// The variables that name a profile, and the one that is used without them.
const PROFILE: [&str; 2] = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"];
const DEFAULT: &str = "default";

/// Names that an endpoint in a file or a variable does not count.
const IGNORES_ENDPOINTS: [&str; 2] =
    ["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "ignore_configured_endpoint_urls"];

/// What the files have of one profile.
pub(super) struct SharedFiles {
    /// The name of the profile.
    pub(super) profile: String,
    /// Whether a variable names it.
    pub(super) is_named: bool,
    /// The paths: that of credentials first.
    pub(super) paths: [PathBuf; 2],
    texts: [Option<String>; 2],
    /// Whether the endpoints of variables and files do not count.
    pub(super) ignores_endpoints: bool,
}

impl SharedFiles {
    /// Reads the files; `None` after a fault: one that is there and cannot be read, or that has no profile of
    /// the name, may have the address of another server.
    pub(super) fn read(environment: &Environment, faults: &mut Vec<Fault>) -> Option<Self> {
        let home = environment.get("HOME").map(|it| Path::new(it).join(".aws"));
        let file = |variable, name| {
            let given = environment.get(variable).map(PathBuf::from);
            given.or_else(|| home.as_ref().map(|it| it.join(name))).unwrap_or_default()
        };
        let paths =
            [file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")];
        let mut texts = [None, None];
        for (path, text) in paths.iter().zip(&mut texts) {
            match content(path) {
                Ok(found) => *text = found,
                Err(why) => {
                    let problem = Problem::new(
                        format!("cannot be read: {why}"),
                        "make it readable: it may name another server than AWS's",
                    );
                    let name = if path == &paths[0] { "credentials" } else { "config" };
                    faults.push(Fault::new(name, None, Source::File(path.clone()), problem));
                    return None;
                }
            }
        }
        let named = PROFILE.into_iter().find_map(|it| Some((it, environment.get(it)?)));
        let profile = named.map_or(DEFAULT, |it| it.1).to_owned();
        let mut files =
            Self { profile, is_named: named.is_some(), paths, texts, ignores_endpoints: false };
        if let Some((variable, name)) = named
            && !files.has_profile()
        {
            let [credentials, config] = files.paths.each_ref().map(|it| it.display());
            let problem = Problem::new(
                format!("names the profile {name}, and neither {credentials} nor {config} has it"),
                "correct it, or name the files by AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE",
            );
            let source = Source::Variable(variable.to_owned());
            faults.push(Fault::new(variable, Some(name), source, problem));
            return None;
        }
        let [variable, key] = IGNORES_ENDPOINTS;
        let ignores =
            environment.get(variable).map(str::to_owned).or_else(|| Some(files.value(key)?.0));
        files.ignores_endpoints = ignores.is_some_and(|it| it.eq_ignore_ascii_case("true"));
        Some(files)
    }

    /// Returns a value of the profile, and the file that has it.
    pub(super) fn value(&self, key: &str) -> Option<(String, &Path)> {
        let sections = sections(&self.profile);
        let found = self.texts.iter().zip(&sections).zip(&self.paths);
        found.into_iter().find_map(|((text, sections), path)| {
            Some((value(text.as_deref()?, sections, key)?, path.as_path()))
        })
    }

    /// Returns the address of a service (`s3`, `sts`), and the file that has it: of the section of services
    /// that the profile names, else of the profile for all services.
    pub(super) fn endpoint(&self, service: &str) -> Option<(String, &Path)> {
        if self.ignores_endpoints {
            return None;
        }
        let of_service = || {
            let section = format!("services {}", self.value("services")?.0);
            let key = format!("{service}.endpoint_url");
            let found = value(self.texts[1].as_deref()?, &[section], &key)?;
            Some((found, self.paths[1].as_path()))
        };
        of_service().or_else(|| self.value("endpoint_url"))
    }

    /// Returns whether there is a file of credentials.
    pub(super) fn has_credentials(&self) -> bool {
        self.texts[0].is_some()
    }

    fn has_profile(&self) -> bool {
        let mut files = self.texts.iter().zip(sections(&self.profile));
        files.any(|(text, names)| {
            let lines = text.iter().flat_map(|it| it.lines());
            lines.filter_map(section).any(|it| names.contains(&it))
        })
    }
}

/// Returns the content of a file; `None` if there is none.
fn content(path: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(path) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(error.kind().to_string()),
        Ok(found) if !found.is_file() => return Err("it is not a file".to_owned()),
        Ok(found) if found.len() > LARGEST => return Err("it is too large".to_owned()),
        Ok(_) => {}
    }
    let read = std::fs::read(path).map_err(|error| error.kind().to_string())?;
    Ok(Some(String::from_utf8_lossy(&read).into_owned()))
}

/// Returns the names of the sections that a profile has, in the file of credentials and in that of settings.
pub(crate) fn sections(profile: &str) -> [Vec<String>; 2] {
    let longer = format!("profile {profile}");
    let in_config =
        if profile == DEFAULT { vec![profile.to_owned(), longer] } else { vec![longer] };
    [vec![profile.to_owned()], in_config]
}

/// Returns the name of the section that begins in a line.
fn section(line: &str) -> Option<String> {
    let name = line.strip_prefix('[')?.split(']').next()?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the value of a key in the first of some sections that has it. A key of lines that are indented below
/// another is named `OUTER.KEY`.
pub(crate) fn value(text: &str, sections: &[String], key: &str) -> Option<String> {
    let (mut is_ours, mut outer) = (false, String::new());
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = section(line) {
            is_ours = sections.contains(&section);
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let mut name = name.trim().to_ascii_lowercase();
        if line.starts_with([' ', '\t']) {
            name = format!("{outer}.{name}");
        } else {
            outer.clone_from(&name);
        }
        if is_ours && name == key && !value.trim().is_empty() {
            return Some(value.trim().to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
        # of the team\n[default]\nregion = eu-west-1\nservices = near\n\
        [profile ops]\nregion=eu-north-1\nendpoint_url = https://all.example\ns3 =\n  addressing_style = path\n\
        [profile   off]\nendpoint_url = https://all.example\nignore_configured_endpoint_urls = true\n\
        [services near]\nsts =\n  endpoint_url = https://sts.example\n; a remark\ns3 =\n  # another\n\
        \tendpoint_url = https://s3.example\nregion = not of a profile\n";

    fn read(variables: &[(&str, &str)]) -> Result<SharedFiles, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("config"), CONFIG).unwrap();
        std::fs::write(path("credentials"), "[ops]\nregion = eu-south-1\n[keys]\n").unwrap();
        let (config, credentials) = (path("config"), path("credentials"));
        let files = [("AWS_CONFIG_FILE", &*config), ("AWS_SHARED_CREDENTIALS_FILE", &*credentials)];
        let mut faults = Vec::new();
        let environment = Environment::of(files.into_iter().chain(variables.iter().copied()));
        let read = SharedFiles::read(&environment, &mut faults);
        read.ok_or_else(|| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn region_and_address_are_those_that_other_clients_find() {
        let of = |variables: &[(&str, &str)]| {
            let files = read(variables).unwrap();
            let text = |it: Option<(String, &Path)>| it.map(|it| it.0).unwrap_or_default();
            [text(files.value("region")), text(files.endpoint("s3")), text(files.endpoint("sts"))]
        };
        let (all, none) = ("https://all.example", "");
        for (variables, expected) in [
            (&[][..], ["eu-west-1", "https://s3.example", "https://sts.example"]),
            (&[("AWS_PROFILE", "ops")], ["eu-south-1", all, all]),
            (&[("AWS_DEFAULT_PROFILE", "ops")], ["eu-south-1", all, all]),
            (&[("AWS_PROFILE", "off")], [none, none, none]),
            (&[("AWS_PROFILE", "keys")], [none, none, none]),
            (&[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRUE")], ["eu-west-1", none, none]),
        ] {
            assert_eq!(of(variables), expected, "{variables:?}");
        }
        let files = read(&[("AWS_PROFILE", "ops")]).unwrap();
        assert_eq!(files.value("s3.addressing_style").unwrap().0, "path");
    }

    #[test]
    fn a_profile_or_a_file_that_may_name_another_server_is_not_passed_over() {
        let fault = read(&[("AWS_PROFILE", "none")]).err().unwrap();
        assert!(fault.contains("names the profile none, and neither"), "{fault}");
        let fault = read(&[("AWS_CONFIG_FILE", "/")]).err().unwrap();
        assert!(fault.contains("cannot be read: it is not a file"), "{fault}");
        assert!(read(&[("AWS_CONFIG_FILE", "/none")]).is_ok(), "there need be none");
    }
}
