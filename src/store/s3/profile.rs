//! The keys of a profile in the files that AWS's clients share: `credentials`, and `config`, where the
//! section of a profile is named `profile NAME`.

use super::credential::Keys;
use crate::config::{aws_sections, aws_value};

/// Returns the keys of a profile, or why there are none, with the remedy. The file of credentials goes
/// before that of settings.
pub(super) fn keys(
    name: &str,
    credentials: Option<&str>,
    config: Option<&str>,
) -> Result<Keys, String> {
    let [in_credentials, in_config] = aws_sections(name);
    let sections = [(credentials, in_credentials), (config, in_config)];
    let mut others = None;
    for (text, sections) in sections {
        let of = |key| aws_value(text?, &sections, key);
        if let (Some(id), Some(secret)) = (of("aws_access_key_id"), of("aws_secret_access_key")) {
            return Ok(Keys { id, secret, token: of("aws_session_token") });
        }
        let known =
            ["sso_session", "sso_start_url", "role_arn", "credential_process", "login_session"];
        others = others.or(known.into_iter().find(|it| of(it).is_some()));
    }
    Err(match others {
        Some(key) => format!(
            "the profile {name} gives keys by {key}, which Tenure does not use: set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, or run where the platform gives a role"
        ),
        None => format!(
            "the profile {name} has no aws_access_key_id and aws_secret_access_key: add them, or set \
             AWS_PROFILE to another one"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "\
        # of the team\n[default]\naws_access_key_id = A1\naws_secret_access_key=s/1=\n\n\
        [ops]\naws_access_key_id=A2\naws_secret_access_key=s2\naws_session_token = t2\n\
        [half]\naws_access_key_id=A3\n";
    const CONFIG: &str = "\
        [default]\nregion = eu-west-1\n[profile half]\naws_secret_access_key = s3\n\
        aws_access_key_id = A3\ns3 =\n  aws_access_key_id = nested\n[profile sso]\nsso_session = x\n[ops]\n\
        role_arn = not read, since it is no profile\n";

    fn found(name: &str) -> Result<(String, String, Option<String>), String> {
        keys(name, Some(CREDENTIALS), Some(CONFIG)).map(|it| (it.id, it.secret, it.token))
    }

    #[test]
    fn the_keys_of_a_profile_are_found_in_either_file() {
        let of = |id: &str, secret: &str, token: Option<&str>| {
            Ok((id.to_owned(), secret.to_owned(), token.map(str::to_owned)))
        };
        assert_eq!(found("default"), of("A1", "s/1=", None));
        assert_eq!(found("ops"), of("A2", "s2", Some("t2")));
        assert_eq!(found("half"), of("A3", "s3", None), "both from one file");
    }

    #[test]
    fn a_profile_without_keys_is_named_with_what_it_has_instead() {
        assert!(found("sso").unwrap_err().contains("by sso_session, which Tenure does not use"));
        assert!(found("none").unwrap_err().contains("the profile none has no aws_access_key_id"));
        assert!(keys("default", None, None).is_err());
    }

    #[test]
    fn a_section_counts_only_with_the_name_that_its_file_has_for_a_profile() {
        let file = |section: &str| {
            format!("{section}\naws_access_key_id = A\naws_secret_access_key = s\n")
        };
        for (name, section, is_found) in [
            ("default", "[default]", true),
            ("default", "[profile default]", true),
            ("default", "", false),
            ("ops", "[profile  ops]", true),
            ("ops", "[ops]", false),
            ("ops", "[default]", false),
        ] {
            let found = keys(name, None, Some(&file(section)));
            assert_eq!(found.is_ok(), is_found, "{name} {section}");
        }
    }
}
