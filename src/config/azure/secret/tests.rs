//! What is said of secrets that are not what their variable is for, and of those for another lock.

use super::*;

/// A key of the length that Azure gives, in base64.
fn long_key() -> String {
    base64::encode([7; KEY_LENGTH])
}

fn read(form: SecretForm, text: &str) -> Result<AzureSecret, String> {
    let endpoint = Url::parse("https://acct.blob.core.windows.net").unwrap();
    let place = Place { account: "acct", endpoint: &endpoint, is_given: false };
    place
        .read(form, text)
        .map(|it| it.secret)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn key_of(secret: AzureSecret) -> String {
    let AzureSecret::Key { account, key } = secret else { panic!("{secret:?}") };
    assert_eq!(account, "acct");
    key.secret().to_owned()
}

fn sas_of(secret: AzureSecret) -> Vec<(String, String)> {
    let AzureSecret::Sas(pairs) = secret else { panic!("{secret:?}") };
    pairs.to_vec()
}

#[test]
fn what_surrounds_a_secret_is_removed() {
    let key = long_key();
    let string = format!("AccountName=acct;AccountKey={key}");
    let sas = "sv=2023-11-03&sig=a%2Bb%3D";
    for (form, text) in
        [(SecretForm::Key, &*key), (SecretForm::ConnectionString, &*string), (SecretForm::Sas, sas)]
    {
        let variable = form.variable();
        for pasted in [
            text.to_owned(),
            format!("  {text}\r\n"),
            format!("\u{feff}{text}\n"),
            format!("\"{text}\""),
            format!("'{text}'\n"),
            format!("“{text}”"),
            format!("{variable}={text}"),
            format!("export {variable}=\"{text}\"\n"),
            format!("\"{variable}={text}\""),
        ] {
            let secret = read(form, &pasted).unwrap_or_else(|it| panic!("{pasted}: {it}"));
            match form {
                SecretForm::Sas => assert_eq!(sas_of(secret)[1].1, "a+b=", "{pasted}"),
                _ => assert_eq!(key_of(secret), key, "{pasted}"),
            }
        }
    }
}

#[test]
fn what_is_no_such_secret_is_named() {
    use SecretForm::{ConnectionString, Key, Sas};
    let key = long_key();
    let string = format!("AccountName=acct;AccountKey={key}");
    let encoded = base64::encode(&string);
    let vault = "@Microsoft.KeyVault(SecretUri=https://v.vault.azure.net/secrets/hunter2/)";
    for (forms, text, words) in [
        (&[ConnectionString, Key, Sas][..], "", "is empty"),
        (&[ConnectionString, Key, Sas], " \n", "is empty"),
        (&[ConnectionString, Key, Sas], "''", "is empty"),
        (&[ConnectionString, Key, Sas], "\"hunter2", "begins with a quotation mark"),
        (&[ConnectionString, Key, Sas], vault, "is a Key Vault reference that was not replaced"),
        (
            &[ConnectionString, Key, Sas],
            "@Microsoft.AppConfiguration(Endpoint=x)",
            "is a reference",
        ),
        (&[ConnectionString, Key, Sas], "secretref:storage", "is a reference to a secret"),
        (&[ConnectionString, Key, Sas], "$STORAGE_KEY", "is the name of a variable"),
        (&[ConnectionString, Key, Sas], "$(STORAGE_KEY)", "is the name of a variable"),
        (&[ConnectionString, Key, Sas], "%STORAGE_KEY%", "is the name of a variable"),
        (&[ConnectionString, Key, Sas], "{{ .Values.key }}", "is a placeholder"),
        (&[ConnectionString, Key, Sas], "<hunter2>", "is a placeholder"),
        (&[ConnectionString, Key, Sas], "{\"connectionString\": \"hunter2\"}", "is JSON"),
        (&[ConnectionString, Key, Sas], "sv=1&amp;sig=hunter2", "has &amp;"),
        (&[ConnectionString, Key, Sas], "a\u{fffd}\0b", "is not UTF-8"),
        (&[ConnectionString, Key, Sas], &encoded, "is encoded in base64"),
        (
            &[ConnectionString, Key, Sas],
            "https://acct.blob.core.windows.net/c?sv=1&sig=hunter2",
            "is a URL",
        ),
        (&[ConnectionString, Key], "?sv=1&sig=hunter2", "is a shared access signature, not"),
        (&[ConnectionString, Sas], &key, "is an account key, not"),
        (&[Key, Sas], &string, "is a connection string, not"),
        (&[Key, Sas], "UseDevelopmentStorage=true", "is a connection string, not"),
        (&[Sas], "SharedAccessSignature=sv=1&sig=hunter2", "is a connection string, not"),
        (&[Key], "hunter2*", "is not valid base64"),
        (&[Key], &base64::encode(&key), "is encoded in base64 twice"),
        (&[ConnectionString], "hunter2", "part 1 that is not NAME=VALUE"),
        (&[ConnectionString], "hunter2==", "has a part 1, which"),
    ] {
        for form in forms {
            let problem = read(*form, text).expect_err(text);
            assert!(problem.contains(words), "{text} as {form:?}: {problem}");
            assert!(!problem.contains("hunter2") && !problem.contains(&key), "{text}: {problem}");
        }
    }
    assert!(read(Key, &string).unwrap_err().contains("set AZURE_STORAGE_CONNECTION_STRING"));
    assert!(read(ConnectionString, &key).unwrap_err().contains("set AZURE_STORAGE_KEY"));
}

#[test]
fn a_key_may_be_wrapped() {
    let key = long_key();
    let (first, second) = key.split_at(76);
    assert_eq!(key_of(read(SecretForm::Key, &format!("{first}\r\n  {second}\n")).unwrap()), key);
}

#[test]
fn a_signature_is_the_same_encoded_and_decoded() {
    for text in [
        "sv=2023-11-03&se=2030-01-01T00%3A00%3A00Z&sig=a%2Bb%2Fc%3D",
        "?sv=2023-11-03&se=2030-01-01T00:00:00Z&sig=a+b/c=",
        "&sv=2023-11-03&se=2030-01-01T00:00:00Z&sig=a%2bb/c%3d\n",
    ] {
        let pairs = sas_of(read(SecretForm::Sas, text).unwrap());
        let values: Vec<_> = pairs.iter().map(|(_, value)| &**value).collect();
        assert_eq!(values, ["2023-11-03", "2030-01-01T00:00:00Z", "a+b/c="], "{text}");
    }
}

#[test]
fn a_signature_that_can_be_none_is_refused_by_what_it_lacks() {
    for (text, words) in [
        ("sig=hunter2", "has no sv="),
        ("sv=&sig=hunter2", "has no sv="),
        ("sv=1", "has no sig="),
        ("sv=1&sig=", "has no sig="),
        ("sv=1&sig=hunter2&sig=hunter2", "has sig= twice"),
        ("sv=1&sv=1&sig=hunter2", "has sv= twice"),
        ("sv=1&sig=hunter2 hunter2", "has white space inside"),
        ("sv=1&\nsig=hunter2", "has white space inside"),
        ("sv=1&sig=hunter2%253D", "is percent-encoded twice"),
        ("sv=1&sig=hunter2*", "not base64"),
        ("sv=1&ss=qt&srt=sco&sig=hunter2", "ss= lacks b"),
        ("sv=1&ss=b&srt=sc&sig=hunter2", "srt= lacks o"),
    ] {
        let problem = read(SecretForm::Sas, text).expect_err(text);
        assert!(problem.contains(words), "{text}: {problem}");
        assert!(!problem.contains("hunter2"), "{text}: {problem}");
    }
    assert!(read(SecretForm::Sas, "sv=1&ss=bfqt&srt=sco&sig=x").is_ok());
}

#[test]
fn a_connection_string_leads_to_the_lock_of_the_settings_or_nowhere() {
    let usual = "https://acct.blob.core.windows.net";
    let china = "https://acct.blob.core.chinacloudapi.cn";
    let local = "http://127.0.0.1:10000/acct";
    let other = "https://other.blob.core.windows.net";
    // The endpoint in use, whether it is --azure-endpoint, the string's, and what is said.
    for (endpoint, is_given, part, words) in [
        (usual, false, "AccountName=acct", None),
        (usual, false, "BlobEndpoint=https://ACCT.blob.core.windows.net:443/", None),
        (
            usual,
            false,
            "AccountName=other",
            Some("is for the account other, but --store names acct"),
        ),
        (usual, false, "BlobEndpoint=https://other.blob.core.windows.net", Some("account other")),
        (usual, false, "BlobEndpoint=http://127.0.0.1:10000/other", Some("account other")),
        (
            usual,
            false,
            "BlobEndpoint=http://127.0.0.1:10000/acct",
            Some("set --azure-endpoint http://127.0.0.1:10000/acct"),
        ),
        (
            usual,
            false,
            "BlobEndpoint=https://acct.blob.core.windows.net:8443",
            Some("lock of their own"),
        ),
        (
            usual,
            false,
            "BlobEndpoint=https://acct-internetrouting.blob.core.windows.net",
            Some("lock of their own"),
        ),
        (
            usual,
            false,
            "AccountName=acct;EndpointSuffix=core.chinacloudapi.cn",
            Some("set --azure-endpoint https://acct.blob.core.chinacloudapi.cn for every instance"),
        ),
        (usual, false, "AccountName=acct;DefaultEndpointsProtocol=http", Some("over plain http")),
        (usual, false, "BlobEndpoint=http://acct.blob.core.windows.net", Some("over plain http")),
        (china, true, "AccountName=acct;EndpointSuffix=core.chinacloudapi.cn", None),
        (china, true, "AccountName=acct", None),
        (local, true, "BlobEndpoint=https://acct.blob.core.windows.net", None),
        (
            local,
            true,
            "BlobEndpoint=http://127.0.0.1:10000/other",
            Some("account other, but --store names acct"),
        ),
        (other, true, "AccountName=other", None),
        (other, true, "AccountName=acct", Some("account acct, but --azure-endpoint names other")),
    ] {
        let endpoint = Url::parse(endpoint).unwrap();
        let place = Place { account: "acct", endpoint: &endpoint, is_given };
        for secret in ["AccountKey=a2V5", "SharedAccessSignature=sv=1&sig=x"] {
            let text = format!("{part};{secret}");
            let found =
                place.read(SecretForm::ConnectionString, &text).map_err(|it| it[0].to_string());
            match words {
                None => assert!(found.is_ok(), "{endpoint} {text}: {:?}", found.err()),
                Some(words) => {
                    let problem = found.err().unwrap_or_else(|| panic!("{endpoint} {text}"));
                    assert!(problem.contains(words), "{endpoint} {text}: {problem}");
                }
            }
        }
    }
}
