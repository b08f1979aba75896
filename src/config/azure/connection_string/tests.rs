//! Connection strings as people paste them: each is taken in its meaning, or refused with its part.

use proptest::prelude::*;

use super::*;

/// A key that no message may show.
const SECRET: &str = "aHVudGVyMmh1bnRlcjI=";

const PUBLIC: &str = "https://acct.blob.core.windows.net/";
const AZURITE: &str = "http://127.0.0.1:10000/devstoreaccount1";

/// Fills in what many strings have.
fn filled(text: &str) -> String {
    let sas = "SharedAccessSignature=sv=2023-11-03&sig=x";
    let text = text.replace("{all}", "AccountName=acct;AccountKey={SECRET};");
    let text = text.replace("{SECRET}", SECRET).replace("{DEVELOPMENT_KEY}", DEVELOPMENT_KEY);
    text.replace("{public}", PUBLIC).replace("{sas}", sas)
}

fn faults(text: &str) -> String {
    let faults = parse(text).expect_err(text);
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Strings, and the endpoints that they mean.
const TAKEN: &[(&str, &str)] = &[
    ("AccountName=acct;AccountKey={SECRET}", PUBLIC),
    ("accountname=ACCT; accountkey = {SECRET} ;;", PUBLIC),
    ("AccountName=acct;\r\n AccountKey={SECRET};\r\n", PUBLIC),
    ("AccountName=\"acct\";AccountKey='{SECRET}'", PUBLIC),
    (
        "DefaultEndpointsProtocol=HTTPS;AccountName=acct;AccountKey={SECRET};EndpointSuffix=core.windows.net",
        PUBLIC,
    ),
    ("AccountName=acct;AccountKey={SECRET};EndpointSuffix=.core.windows.net/", PUBLIC),
    ("AccountName=acct;AccountKey={SECRET};EndpointSuffix=Blob.Core.windows.net", PUBLIC),
    (
        "AccountName=acct;AccountKey={SECRET};EndpointSuffix=core.chinacloudapi.cn",
        "https://acct.blob.core.chinacloudapi.cn/",
    ),
    (
        "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={SECRET}",
        "http://acct.blob.core.windows.net/",
    ),
    (
        "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey={SECRET};BlobEndpoint={public}",
        PUBLIC,
    ),
    ("AccountKey={SECRET};BlobEndpoint={public}", PUBLIC),
    (
        "BlobEndpoint={public};QueueEndpoint=https://acct.queue.core.windows.net/;FileEndpoint=;{sas}",
        PUBLIC,
    ),
    (
        "BlobEndpoint={public};BlobSecondaryEndpoint=https://acct-secondary.blob.core.windows.net/;{sas}",
        PUBLIC,
    ),
    ("AccountName=acct;{sas}", PUBLIC),
    ("AccountName=devstoreaccount1;AccountKey={DEVELOPMENT_KEY}", AZURITE),
    (
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={DEVELOPMENT_KEY};BlobEndpoint=http://azurite:10000/devstoreaccount1;",
        "http://azurite:10000/devstoreaccount1",
    ),
    ("UseDevelopmentStorage=true", AZURITE),
    ("usedevelopmentstorage=True;DefaultEndpointsProtocol=http;", AZURITE),
    (
        "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
        "http://azurite:10000/devstoreaccount1",
    ),
    (
        "DevelopmentStorageProxyUri=https://[::1]:9/;UseDevelopmentStorage=true",
        "https://[::1]:9/devstoreaccount1",
    ),
    (
        "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://host.docker.internal",
        "http://host.docker.internal:10000/devstoreaccount1",
    ),
];

#[test]
fn strings_are_taken_in_their_meaning() {
    for (text, endpoint) in TAKEN {
        let text = filled(text);
        let read = parse(&text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        assert_eq!(read.endpoint.as_str(), *endpoint, "{text}");
        let account = if text.to_lowercase().contains("dev") { "devstoreaccount1" } else { "acct" };
        assert_eq!(read.account, account, "{text}");
        let proof = if text.contains("Signature") { "Sas(…)" } else { "Key(…)" };
        assert_eq!(format!("{:?}", read.secret), proof, "{text}");
    }
}

/// Strings, and words of what is said of them.
const REFUSED: &[(&str, &str)] = &[
    ("", "has neither AccountName nor BlobEndpoint"),
    ("", "has neither AccountKey nor SharedAccessSignature"),
    ("AccountKey={SECRET}", "has neither AccountName nor BlobEndpoint"),
    ("{sas}", "has neither AccountName nor BlobEndpoint"),
    ("QueueEndpoint=https://acct.queue.core.windows.net/;{sas}", "has QueueEndpoint, but neither"),
    ("AccountName=acct", "has neither AccountKey nor"),
    ("{all}{sas}", "has both AccountKey and SharedAccessSignature"),
    ("{all}AccountName=acct", "has AccountName twice"),
    ("{all}accountkey={SECRET}", "has AccountKey twice"),
    ("{all}QueueEndpoint=a;QueueEndpoint=b", "has QueueEndpoint twice"),
    ("{all}hunter2hunter2", "has a part 3 that is not NAME=VALUE"),
    (
        "{all}EndpointSufix=core.windows.net",
        "part EndpointSufix, which no storage account's connection string has; did you mean EndpointSuffix?",
    ),
    ("AcountName=acct;AccountKey={SECRET}", "did you mean AccountName?"),
    ("AccountName=acct;AccountKye={SECRET}", "did you mean AccountKey?"),
    ("AccountName=acct;StorageAccountKey={SECRET}", "has a part StorageAccountKey"),
    ("{all}BlobEndpiont=https://acct.blob.core.windows.net", "did you mean BlobEndpoint?"),
    ("{all}Timeout=30", "has a part Timeout"),
    ("{all}hunter2hunter2==", "has a part 3, which"),
    ("\"AccountName=acct;AccountKey={SECRET}", "did you mean AccountName?"),
    ("AccountName=;AccountKey=", "has an empty AccountName"),
    ("AccountName=;AccountKey=", "has an empty AccountKey"),
    ("AccountName=a;AccountKey={SECRET}", "has an AccountName that is not a valid name"),
    ("AccountName=acct.blob.core.windows.net;AccountKey={SECRET}", "AccountName that is a host"),
    ("AccountName=acct;AccountKey=hunter2*", "has an AccountKey that is not valid base64"),
    ("AccountName=acct;AccountKey=${KEY}", "has an AccountKey that is the name of a variable"),
    ("AccountName=acct;AccountKey=<your key>", "has an AccountKey that is a placeholder"),
    (
        "AccountName=acct;AccountKey=@Microsoft.KeyVault(SecretUri=https://v/)",
        "has an AccountKey that is a Key Vault reference",
    ),
    (
        "AccountName=acct;AccountKey=\"hunter2",
        "has an AccountKey that begins with a quotation mark",
    ),
    ("AccountName=acct;SharedAccessSignature=sv=1", "has a SharedAccessSignature that has no sig="),
    ("{all}DefaultEndpointsProtocol=ftp", "has a DefaultEndpointsProtocol that is neither"),
    ("{all}EndpointSuffix=dfs.core.windows.net", "EndpointSuffix that is that of Data Lake"),
    ("{all}EndpointSuffix=queue.core.windows.net", "EndpointSuffix that is that of queues"),
    (
        "{all}EndpointSuffix=acct.blob.core.windows.net",
        "EndpointSuffix that is a host with its account",
    ),
    ("{all}EndpointSuffix=https://core.windows.net", "EndpointSuffix that is not a domain"),
    ("{all}EndpointSuffix=core.windows.net/locks", "EndpointSuffix that is not a domain"),
    ("{all}EndpointSuffix=core@example.com", "EndpointSuffix that is not a domain"),
    ("{all}EndpointSuffix=windows", "EndpointSuffix that has no domain of a cloud"),
    (
        "{all}BlobEndpoint=http://127.0.0.1:10000",
        "BlobEndpoint that names no account in its host or its path; write http://127.0.0.1:10000/ACCOUNT",
    ),
    ("{all}BlobEndpoint=acct.blob.core.windows.net", "BlobEndpoint that is not a URL"),
    ("{all}BlobEndpoint=https://acct.blob.core.windows.net/locks", "BlobEndpoint that has a path"),
    (
        "{all}BlobEndpoint=https://acct.blob.core.windows.net/?sv=1",
        "BlobEndpoint that has more than host and path",
    ),
    (
        "{all}BlobEndpoint=https://acct.dfs.core.windows.net/",
        "BlobEndpoint that is the endpoint of Data Lake",
    ),
    (
        "{all}BlobEndpoint=https://acct.queue.core.windows.net/",
        "BlobEndpoint that is the endpoint of queues",
    ),
    (
        "{all}BlobEndpoint=https://acct-secondary.blob.core.windows.net/",
        "BlobEndpoint that is the secondary endpoint",
    ),
    (
        "{all}BlobEndpoint=https://other.blob.core.windows.net/",
        "has the AccountName acct, but a BlobEndpoint of the account other",
    ),
    ("UseDevelopmentStorage=false", "UseDevelopmentStorage that is not true"),
    ("UseDevelopmentStorage=true;{all}", "UseDevelopmentStorage=true together with AccountName"),
    (
        "UseDevelopmentStorage=true;BlobEndpoint=http://127.0.0.1:1/acct",
        "together with BlobEndpoint",
    ),
    ("UseDevelopmentStorage=true;EndpointSuffix=core.windows.net", "together with EndpointSuffix"),
    (
        "UseDevelopmentStorage=true;DefaultEndpointsProtocol=https",
        "together with DefaultEndpointsProtocol",
    ),
    (
        "{all}DevelopmentStorageProxyUri=http://azurite",
        "DevelopmentStorageProxyUri without UseDevelopmentStorage",
    ),
    (
        "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=azurite",
        "DevelopmentStorageProxyUri that is not a URL",
    ),
    (
        "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite/locks",
        "DevelopmentStorageProxyUri that has a path",
    ),
    ("UseDevelopmentStorage=true;UseDevelopmentStorage=true", "has UseDevelopmentStorage twice"),
    (
        "UseDevelopmentStorage=true;DevelopmentStorageProxyUrl=http://azurite",
        "did you mean DevelopmentStorageProxyUri?",
    ),
    ("AccountEndpoint=https://acct.documents.azure.com:443/;AccountKey={SECRET}", "of Cosmos DB"),
    (
        "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey={SECRET}",
        "of another service",
    ),
    ("Server=tcp:db.database.windows.net;Database=x;Password=hunter2", "of a database"),
];

#[test]
fn other_strings_are_refused_and_the_message_names_the_part() {
    for (text, words) in REFUSED {
        let text = filled(text);
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
