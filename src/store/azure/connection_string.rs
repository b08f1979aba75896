//! Parses the connection string of a storage account, as the Azure portal shows it. A pure
//! function; no error message shows the key or the signature.

use azure_core::credentials::Secret;
use url::Url;

use super::auth::Proof;

/// The account that every installation of Azurite has, with its key, which is not a secret.
pub(super) const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The contents of a connection string.
#[derive(Debug)]
pub(super) struct ConnectionString {
    /// The account, if it is named.
    pub(super) account: Option<String>,
    /// The blob endpoint, if it is named or can be derived from other parts.
    pub(super) endpoint: Option<Url>,
    /// The key or the shared access signature.
    pub(super) proof: Proof,
}

/// Parses a connection string; returns all its errors at once.
pub(super) fn parse(text: &str) -> Result<ConnectionString, Vec<String>> {
    let (fields, mut faults) = Fields::read(text);
    if fields.development.is_some_and(|it| it.eq_ignore_ascii_case("true")) {
        return development(&fields, faults);
    }
    if let Some(value) = fields.development {
        faults.push(format!("UseDevelopmentStorage is {value:?}, but must be \"true\""));
    }
    let endpoint = endpoint(&fields, &mut faults);
    let proof = match (fields.key, fields.signature) {
        (Some(key), None) => match fields.account {
            Some(account) => collect(Proof::key(account, key), &mut faults),
            None => {
                faults.push("AccountName is missing; AccountKey requires it".to_owned());
                None
            }
        },
        (None, Some(signature)) => collect(Proof::sas(signature), &mut faults),
        (Some(_), Some(_)) => {
            faults.push("AccountKey and SharedAccessSignature exclude each other".to_owned());
            None
        }
        (None, None) => {
            faults.push("AccountKey or SharedAccessSignature is missing".to_owned());
            None
        }
    };
    if fields.account.is_none() && fields.blob.is_none() && fields.key.is_none() {
        faults.push("AccountName or BlobEndpoint is missing".to_owned());
    }
    match proof {
        Some(proof) if faults.is_empty() => {
            Ok(ConnectionString { account: fields.account.map(str::to_owned), endpoint, proof })
        }
        _ => Err(faults),
    }
}

/// Returns Azurite at its default address.
fn development(
    fields: &Fields<'_>,
    mut faults: Vec<String>,
) -> Result<ConnectionString, Vec<String>> {
    if fields.account.is_some() || fields.key.is_some() || fields.signature.is_some() {
        faults.push(
            "UseDevelopmentStorage=true cannot be combined with an account and a key".to_owned(),
        );
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let endpoint = format!("http://127.0.0.1:10000/{DEVELOPMENT_ACCOUNT}");
    Ok(ConnectionString {
        account: Some(DEVELOPMENT_ACCOUNT.to_owned()),
        endpoint: Url::parse(&endpoint).ok(),
        proof: Proof::Key {
            account: DEVELOPMENT_ACCOUNT.to_owned(),
            key: Secret::new(DEVELOPMENT_KEY),
        },
    })
}

/// Returns the blob endpoint, if it or its parts are named.
fn endpoint(fields: &Fields<'_>, faults: &mut Vec<String>) -> Option<Url> {
    let protocol = fields.protocol.unwrap_or("https");
    if !matches!(protocol, "http" | "https") {
        faults.push(format!("DefaultEndpointsProtocol is {protocol:?}, but must be http or https"));
        return None;
    }
    let text = match (fields.blob, fields.account) {
        (Some(blob), _) => blob.trim_end_matches('/').to_owned(),
        (None, Some(account)) => {
            let suffix = fields.suffix.unwrap_or("core.windows.net");
            format!("{protocol}://{account}.blob.{suffix}")
        }
        (None, None) => return None,
    };
    // Whether plain http to another host is allowed is for the settings, which name the endpoint
    // too.
    let Some(url) = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
    else {
        faults.push("BlobEndpoint is not an http or https URL".to_owned());
        return None;
    };
    let bare = url.username().is_empty() && url.password().is_none();
    if !bare || url.query().is_some() || url.fragment().is_some() {
        faults.push("BlobEndpoint must contain only host and path".to_owned());
        return None;
    }
    Some(url)
}

fn collect<T>(result: Result<T, String>, faults: &mut Vec<String>) -> Option<T> {
    result.map_err(|fault| faults.push(fault)).ok()
}

#[derive(Default)]
struct Fields<'a> {
    account: Option<&'a str>,
    key: Option<&'a str>,
    signature: Option<&'a str>,
    blob: Option<&'a str>,
    suffix: Option<&'a str>,
    protocol: Option<&'a str>,
    development: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> (Self, Vec<String>) {
        let mut fields = Self::default();
        let mut faults = Vec::new();
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        for (number, part) in parts.enumerate() {
            let Some((name, value)) = part.split_once('=') else {
                // The part itself may be a key that lost its name.
                faults.push(format!("part {} is not NAME=VALUE", number + 1));
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let place = match name.to_ascii_lowercase().as_str() {
                "accountname" => &mut fields.account,
                "accountkey" => &mut fields.key,
                "sharedaccesssignature" => &mut fields.signature,
                "blobendpoint" => &mut fields.blob,
                "endpointsuffix" => &mut fields.suffix,
                "defaultendpointsprotocol" => &mut fields.protocol,
                "usedevelopmentstorage" => &mut fields.development,
                // Endpoints of queues, tables and files, and secondary endpoints: not used.
                _ => continue,
            };
            if value.is_empty() {
                faults.push(format!("{name} is empty"));
            } else if place.is_some() {
                faults.push(format!("{name} is given twice"));
            } else {
                *place = Some(value);
            }
        }
        (fields, faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn faults(text: &str) -> String {
        parse(text).unwrap_err().join("; ")
    }

    #[test]
    fn the_portal_s_connection_string_is_understood() {
        let it = parse(
            "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=a2V5PT09;\
             EndpointSuffix=core.chinacloudapi.cn",
        )
        .unwrap();
        assert_eq!(it.account.as_deref(), Some("acme"));
        assert_eq!(it.endpoint.unwrap().as_str(), "https://acme.blob.core.chinacloudapi.cn/");
        assert!(matches!(it.proof, Proof::Key { .. }));
    }

    #[test]
    fn a_signature_with_its_endpoint_is_understood() {
        let it = parse(
            "BlobEndpoint=http://127.0.0.1:1/devstoreaccount1;\
             SharedAccessSignature=sv=2023-11-03&sig=a%2Bb%3D;QueueEndpoint=https://q/",
        )
        .unwrap();
        assert_eq!(it.account, None);
        assert_eq!(it.endpoint.unwrap().as_str(), "http://127.0.0.1:1/devstoreaccount1");
        assert!(matches!(it.proof, Proof::Sas(_)));
    }

    #[test]
    fn development_storage_means_azurite() {
        let it = parse("UseDevelopmentStorage=true;").unwrap();
        assert_eq!(it.endpoint.unwrap().as_str(), "http://127.0.0.1:10000/devstoreaccount1");
        for other in ["AccountName=a", "AccountKey=a2V5", "SharedAccessSignature=sv=1&sig=x"] {
            let both = faults(&format!("UseDevelopmentStorage=true;{other}"));
            assert!(both.contains("cannot be combined"), "{both}");
        }
        let neither = faults("UseDevelopmentStorage=false;AccountName=a;AccountKey=a2V5");
        assert_eq!(neither, "UseDevelopmentStorage is \"false\", but must be \"true\"");
    }

    #[test]
    fn all_faults_are_named_at_once_and_no_secret_is() {
        let text = "nonsense;DefaultEndpointsProtocol=ftp;AccountKey=not*base64;AccountName=a;\
                    AccountName=b;EndpointSuffix=";
        let faults = faults(text);
        for part in ["part 1", "DefaultEndpointsProtocol", "AccountKey", "twice", "EndpointSuffix"]
        {
            assert!(faults.contains(part), "{part} in {faults}");
        }
        assert!(!faults.contains("not*base64") && !faults.contains("nonsense"), "{faults}");
    }

    #[test]
    fn an_endpoint_is_a_web_address_of_host_and_path_alone() {
        for (part, words) in [
            ("BlobEndpoint=ftp://127.0.0.1/", "not an http or https URL"),
            ("BlobEndpoint=file:///127.0.0.1", "not an http or https URL"),
            ("BlobEndpoint=https://user@a/", "only host and path"),
            ("BlobEndpoint=https://:word@a/", "only host and path"),
            ("BlobEndpoint=https://a/?sig=x", "only host and path"),
            ("BlobEndpoint=https://a/#x", "only host and path"),
            ("EndpointSuffix=core@example.com", "only host and path"),
        ] {
            let faults = faults(&format!("AccountName=acct;AccountKey=a2V5;{part}"));
            assert!(faults.contains(words), "{part}: {faults}");
        }
    }

    #[test]
    fn missing_parts_are_named() {
        assert!(faults("").contains("AccountKey or SharedAccessSignature is missing"));
        assert!(faults("AccountKey=a2V5").contains("AccountName is missing"));
        assert!(faults("SharedAccessSignature=sv=1&sig=x").contains("AccountName or BlobEndpoint"));
        assert!(
            faults("AccountName=a;AccountKey=a2V5;SharedAccessSignature=sv=1&sig=x")
                .contains("exclude each other")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn a_fault_never_shows_the_key(key in "[A-Za-z0-9*]{12,40}") {
            if let Err(faults) = parse(&format!("AccountName=a;AccountKey={key};x")) {
                prop_assert!(!faults.join(" ").contains(&key));
            }
        }

        #[test]
        fn the_order_of_the_parts_does_not_matter(
            parts in Just(vec!["AccountName=acme", "AccountKey=a2V5", "EndpointSuffix=x.org"])
                .prop_shuffle(),
        ) {
            let it = parse(&parts.join(";")).unwrap();
            let endpoint = it.endpoint.unwrap();
            prop_assert_eq!(endpoint.as_str(), "https://acme.blob.x.org/");
        }
    }
}
