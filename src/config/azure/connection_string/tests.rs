//! Connection strings as people paste them: each is taken in its meaning, or refused with its part.

use proptest::prelude::*;

use super::*;

/// A key that no message may show.
const SECRET: &str = "aHVudGVyMmh1bnRlcjI=";

fn faults(text: &str) -> String {
    let faults = parse(text).expect_err(text);
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn strings_are_taken_in_their_meaning() {
    let public = "https://acct.blob.core.windows.net/";
    let azurite = "http://127.0.0.1:10000/devstoreaccount1";
    let sas = "SharedAccessSignature=sv=2023-11-03&sig=x";
    for (text, endpoint) in [
        (format!("AccountName=acct;AccountKey={SECRET}"), public),
        (format!("accountname=ACCT; accountkey = {SECRET} ;;"), public),
        (format!("AccountName=acct;\r\n AccountKey={SECRET};\r\n"), public),
        (format!("AccountName=\"acct\";AccountKey='{SECRET}'"), public),
        (
            format!(
                "DefaultEndpointsProtocol=HTTPS;AccountName=acct;AccountKey={SECRET};EndpointSuffix=core.windows.net"
            ),
            public,
        ),
        (format!("AccountName=acct;AccountKey={SECRET};EndpointSuffix=.core.windows.net/"), public),
        (
            format!("AccountName=acct;AccountKey={SECRET};EndpointSuffix=Blob.Core.windows.net"),
            public,
        ),
        (
            format!("AccountName=acct;AccountKey={SECRET};EndpointSuffix=core.chinacloudapi.cn"),
            "https://acct.blob.core.chinacloudapi.cn/",
        ),
        (
            format!("DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={SECRET}"),
            "http://acct.blob.core.windows.net/",
        ),
        (
            format!(
                "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={SECRET};BlobEndpoint={public}"
            ),
            public,
        ),
        (format!("AccountKey={SECRET};BlobEndpoint={public}"), public),
        (
            format!(
                "BlobEndpoint={public};QueueEndpoint=https://acct.queue.core.windows.net/;FileEndpoint=;{sas}"
            ),
            public,
        ),
        (
            format!(
                "BlobEndpoint={public};BlobSecondaryEndpoint=https://acct-secondary.blob.core.windows.net/;{sas}"
            ),
            public,
        ),
        (format!("AccountName=acct;{sas}"), public),
        (format!("AccountName=devstoreaccount1;AccountKey={DEVELOPMENT_KEY}"), azurite),
        (
            format!(
                "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={DEVELOPMENT_KEY};BlobEndpoint=http://azurite:10000/devstoreaccount1;"
            ),
            "http://azurite:10000/devstoreaccount1",
        ),
        ("UseDevelopmentStorage=true".to_owned(), azurite),
        ("usedevelopmentstorage=True;DefaultEndpointsProtocol=http;".to_owned(), azurite),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite".to_owned(),
            "http://azurite:10000/devstoreaccount1",
        ),
        (
            "DevelopmentStorageProxyUri=https://[::1]:9/;UseDevelopmentStorage=true".to_owned(),
            "https://[::1]:9/devstoreaccount1",
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://host.docker.internal"
                .to_owned(),
            "http://host.docker.internal:10000/devstoreaccount1",
        ),
    ] {
        let read = parse(&text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        assert_eq!(read.endpoint.as_str(), endpoint, "{text}");
        let account = if text.to_lowercase().contains("dev") { "devstoreaccount1" } else { "acct" };
        assert_eq!(read.account, account, "{text}");
        let proof = if text.contains("Signature") { "Sas(…)" } else { "Key(…)" };
        assert_eq!(format!("{:?}", read.secret), proof, "{text}");
    }
}

#[test]
fn other_strings_are_refused_and_the_message_names_the_part() {
    let all = format!("AccountName=acct;AccountKey={SECRET};");
    let sas = "SharedAccessSignature=sv=2023-11-03&sig=x";
    for (text, words) in [
        (String::new(), "has neither AccountName nor BlobEndpoint"),
        (String::new(), "has neither AccountKey nor SharedAccessSignature"),
        (format!("AccountKey={SECRET}"), "has neither AccountName nor BlobEndpoint"),
        (sas.to_owned(), "has neither AccountName nor BlobEndpoint"),
        (
            format!("QueueEndpoint=https://acct.queue.core.windows.net/;{sas}"),
            "has QueueEndpoint, but neither",
        ),
        ("AccountName=acct".to_owned(), "has neither AccountKey nor"),
        (format!("{all}{sas}"), "has both AccountKey and SharedAccessSignature"),
        (format!("{all}AccountName=acct"), "has AccountName twice"),
        (format!("{all}accountkey={SECRET}"), "has AccountKey twice"),
        (format!("{all}QueueEndpoint=a;QueueEndpoint=b"), "has QueueEndpoint twice"),
        (format!("{all}hunter2hunter2"), "has a part 3 that is not NAME=VALUE"),
        (
            format!("{all}EndpointSufix=core.windows.net"),
            "part EndpointSufix, which no storage account's connection string has; did you mean EndpointSuffix?",
        ),
        (format!("AcountName=acct;AccountKey={SECRET}"), "did you mean AccountName?"),
        (format!("AccountName=acct;AccountKye={SECRET}"), "did you mean AccountKey?"),
        (format!("AccountName=acct;StorageAccountKey={SECRET}"), "has a part StorageAccountKey"),
        (
            format!("{all}BlobEndpiont=https://acct.blob.core.windows.net"),
            "did you mean BlobEndpoint?",
        ),
        (format!("{all}Timeout=30"), "has a part Timeout"),
        (format!("{all}hunter2hunter2=="), "has a part 3, which"),
        (format!("\"AccountName=acct;AccountKey={SECRET}"), "did you mean AccountName?"),
        ("AccountName=;AccountKey=".to_owned(), "has an empty AccountName"),
        ("AccountName=;AccountKey=".to_owned(), "has an empty AccountKey"),
        (
            format!("AccountName=a;AccountKey={SECRET}"),
            "has an AccountName that is not a valid name",
        ),
        (
            format!("AccountName=acct.blob.core.windows.net;AccountKey={SECRET}"),
            "AccountName that is a host",
        ),
        (
            "AccountName=acct;AccountKey=hunter2*".to_owned(),
            "has an AccountKey that is not valid base64",
        ),
        (
            "AccountName=acct;AccountKey=${KEY}".to_owned(),
            "has an AccountKey that is the name of a variable",
        ),
        (
            "AccountName=acct;AccountKey=<your key>".to_owned(),
            "has an AccountKey that is a placeholder",
        ),
        (
            "AccountName=acct;AccountKey=@Microsoft.KeyVault(SecretUri=https://v/)".to_owned(),
            "has an AccountKey that is a Key Vault reference",
        ),
        (
            "AccountName=acct;AccountKey=\"hunter2".to_owned(),
            "has an AccountKey that begins with a quotation mark",
        ),
        (
            "AccountName=acct;SharedAccessSignature=sv=1".to_owned(),
            "has a SharedAccessSignature that has no sig=",
        ),
        (
            format!("{all}DefaultEndpointsProtocol=ftp"),
            "has a DefaultEndpointsProtocol that is neither",
        ),
        (
            format!("{all}EndpointSuffix=dfs.core.windows.net"),
            "EndpointSuffix that is that of Data Lake",
        ),
        (
            format!("{all}EndpointSuffix=queue.core.windows.net"),
            "EndpointSuffix that is that of queues",
        ),
        (
            format!("{all}EndpointSuffix=acct.blob.core.windows.net"),
            "EndpointSuffix that is a host with its account",
        ),
        (
            format!("{all}EndpointSuffix=https://core.windows.net"),
            "EndpointSuffix that is not a domain",
        ),
        (
            format!("{all}EndpointSuffix=core.windows.net/locks"),
            "EndpointSuffix that is not a domain",
        ),
        (format!("{all}EndpointSuffix=core@example.com"), "EndpointSuffix that is not a domain"),
        (format!("{all}EndpointSuffix=windows"), "EndpointSuffix that has no domain of a cloud"),
        (
            format!("{all}BlobEndpoint=http://127.0.0.1:10000"),
            "BlobEndpoint that names no account in its host or its path; write http://127.0.0.1:10000/ACCOUNT",
        ),
        (format!("{all}BlobEndpoint=acct.blob.core.windows.net"), "BlobEndpoint that is not a URL"),
        (
            format!("{all}BlobEndpoint=https://acct.blob.core.windows.net/locks"),
            "BlobEndpoint that has a path",
        ),
        (
            format!("{all}BlobEndpoint=https://acct.blob.core.windows.net/?sv=1"),
            "BlobEndpoint that has more than host and path",
        ),
        (
            format!("{all}BlobEndpoint=https://acct.dfs.core.windows.net/"),
            "BlobEndpoint that is the endpoint of Data Lake",
        ),
        (
            format!("{all}BlobEndpoint=https://acct.queue.core.windows.net/"),
            "BlobEndpoint that is the endpoint of queues",
        ),
        (
            format!("{all}BlobEndpoint=https://acct-secondary.blob.core.windows.net/"),
            "BlobEndpoint that is the secondary endpoint",
        ),
        (
            format!("{all}BlobEndpoint=https://other.blob.core.windows.net/"),
            "has the AccountName acct, but a BlobEndpoint of the account other",
        ),
        ("UseDevelopmentStorage=false".to_owned(), "UseDevelopmentStorage that is not true"),
        (
            format!("UseDevelopmentStorage=true;{all}"),
            "UseDevelopmentStorage=true together with AccountName",
        ),
        (
            "UseDevelopmentStorage=true;BlobEndpoint=http://127.0.0.1:1/acct".to_owned(),
            "together with BlobEndpoint",
        ),
        (
            "UseDevelopmentStorage=true;EndpointSuffix=core.windows.net".to_owned(),
            "together with EndpointSuffix",
        ),
        (
            "UseDevelopmentStorage=true;DefaultEndpointsProtocol=https".to_owned(),
            "together with DefaultEndpointsProtocol",
        ),
        (
            format!("{all}DevelopmentStorageProxyUri=http://azurite"),
            "DevelopmentStorageProxyUri without UseDevelopmentStorage",
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=azurite".to_owned(),
            "DevelopmentStorageProxyUri that is not a URL",
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite/locks".to_owned(),
            "DevelopmentStorageProxyUri that has a path",
        ),
        (
            "UseDevelopmentStorage=true;UseDevelopmentStorage=true".to_owned(),
            "has UseDevelopmentStorage twice",
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUrl=http://azurite".to_owned(),
            "did you mean DevelopmentStorageProxyUri?",
        ),
        (
            format!("AccountEndpoint=https://acct.documents.azure.com:443/;AccountKey={SECRET}"),
            "of Cosmos DB",
        ),
        (
            format!(
                "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey={SECRET}"
            ),
            "of another service",
        ),
        (
            "Server=tcp:db.database.windows.net;Database=x;Password=hunter2".to_owned(),
            "of a database",
        ),
    ] {
        let faults = faults(&text);
        assert!(faults.contains(words), "{text}\n{words}\n{faults}");
        assert!(!faults.contains("hunter2") && !faults.contains(SECRET), "{text}: {faults}");
    }
}

#[test]
fn all_faults_are_named_at_once() {
    let text = "nonsense;DefaultEndpointsProtocol=ftp;AccountKey=not*base64;AccountName=acct;\
                AccountName=other;EndpointSuffix=";
    let faults = faults(text);
    for part in ["part 1", "DefaultEndpointsProtocol", "AccountKey", "twice", "EndpointSuffix"] {
        assert!(faults.contains(part), "{part} in {faults}");
    }
    assert_eq!(faults.lines().count(), 5, "{faults}");
    assert!(!faults.contains("not*base64") && !faults.contains("nonsense"), "{faults}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn no_name_with_its_value_makes_it_panic(
        name in proptest::sample::select(&USED[..]),
        value in "\\PC{0,40}",
    ) {
        let _ = parse(&format!("AccountName=acct;AccountKey=a2V5;{name}={value}"));
        let _ = parse(&format!("UseDevelopmentStorage=true;{name}={value}"));
    }

    #[test]
    fn a_fault_never_shows_the_key(key in "[A-Za-z0-9*]{12,40}") {
        if let Err(faults) = parse(&format!("AccountName=acct;AccountKey={key};x")) {
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            prop_assert!(!faults.join(" ").contains(&key));
        }
    }

    #[test]
    fn the_order_of_the_parts_does_not_matter(
        parts in Just(vec!["AccountName=acct", "AccountKey=a2V5", "EndpointSuffix=stack.example.org"])
            .prop_shuffle(),
    ) {
        let read = parse(&parts.join(";")).unwrap();
        prop_assert_eq!(read.endpoint.as_str(), "https://acct.blob.stack.example.org/");
    }
}
