//! Which endpoints are those of an account's blobs, and what is said of all others.

use super::*;

#[test]
fn an_endpoint_names_its_account_in_its_host_or_in_its_path() {
    for (text, url) in [
        ("https://acct.blob.core.windows.net", "https://acct.blob.core.windows.net/"),
        ("https://ACCT.Blob.core.windows.net:443/", "https://acct.blob.core.windows.net/"),
        ("https://acct.blob.core.windows.net.", "https://acct.blob.core.windows.net/"),
        ("https://acct.blob.core.windows.net//", "https://acct.blob.core.windows.net/"),
        ("https://acct.blob.core.usgovcloudapi.net", "https://acct.blob.core.usgovcloudapi.net/"),
        ("https://acct.z12.blob.storage.azure.net", "https://acct.z12.blob.storage.azure.net/"),
        ("https://acct.blob.region.stack.example", "https://acct.blob.region.stack.example/"),
        (
            "https://acct-internetrouting.blob.core.windows.net",
            "https://acct-internetrouting.blob.core.windows.net/",
        ),
        ("http://acct.blob.localhost:10000", "http://acct.blob.localhost:10000/"),
        ("http://127.0.0.1:10000/acct", "http://127.0.0.1:10000/acct"),
        ("http://127.0.0.1:10000/acct/", "http://127.0.0.1:10000/acct"),
        ("http://127.1:10000/x/../acct//.", "http://127.0.0.1:10000/acct"),
        ("http://[::1]:10000/acct", "http://[::1]:10000/acct"),
        ("http://azurite:10000/acct", "http://azurite:10000/acct"),
        ("http://localhost/acct", "http://localhost/acct"),
        (
            "http://azurite.shop.svc.cluster.local:10000/acct",
            "http://azurite.shop.svc.cluster.local:10000/acct",
        ),
    ] {
        let read = read(text).unwrap();
        assert_eq!(read.as_str(), url, "{text}");
        assert_eq!(account(&read).as_deref(), Ok("acct"), "{text}");
    }
}

#[test]
fn nothing_else_is_an_endpoint() {
    const NO_ACCOUNT: &str = "names no account in its host or its path";
    for (text, words) in [
        ("", "is not a URL"),
        ("acct.blob.core.windows.net", "is not a URL"),
        ("ftp://127.0.0.1/acct", "neither https nor http"),
        ("file:///acct", "neither https nor http"),
        ("https://", "is not a URL"),
        ("https://user@acct.blob.core.windows.net", "more than host and path"),
        ("https://:word@acct.blob.core.windows.net", "more than host and path"),
        ("https://acct.blob.core.windows.net?sig=x", "more than host and path"),
        ("https://acct.blob.core.windows.net/?", "more than host and path"),
        ("https://acct.blob.core.windows.net/#x", "more than host and path"),
        ("https://ac\nct.blob.core.windows.net", "white space"),
        ("https://acct.blob.core.windows.net /", "white space"),
        ("https://acct.blob.core.windows.net/locks", "its host names the account"),
        ("https://acct.blob.core.windows.net/acct", "its host names the account"),
        ("https://acct.dfs.core.windows.net", "Data Lake Storage (dfs), not of blobs"),
        ("https://acct.queue.core.windows.net", "queues, not of blobs"),
        ("https://acct.table.core.windows.net", "tables, not of blobs"),
        ("https://acct.file.core.windows.net", "files, not of blobs"),
        ("https://acct.z13.web.core.windows.net", "static websites, not of blobs"),
        ("https://acct-secondary.blob.core.windows.net", "secondary"),
        ("http://127.0.0.1:10000/acct-secondary", "secondary"),
        ("https://acct.privatelink.blob.core.windows.net", "private endpoints"),
        ("https://acct.core.windows.net", "not the endpoint of an account's blobs"),
        ("https://blob.core.windows.net/acct", "not the endpoint of an account's blobs"),
        ("https://core.windows.net", "not the endpoint of an account's blobs"),
        ("https://acct.blob", "no domain of a cloud"),
        ("https://acct.blob.local", "no domain of a cloud"),
        ("https://acct.blob.blob.core.windows.net", "no domain of a cloud"),
        ("https://my-acct.blob.core.windows.net", "not a valid name"),
        ("https://ac.blob.core.windows.net", "not a valid name"),
        ("http://127.0.0.1:10000/Acct", "not a valid name"),
        ("http://127.0.0.1:10000/acct%2Flocks", "not a valid name"),
        ("http://127.0.0.1:10000", NO_ACCOUNT),
        ("http://azurite:10000/", NO_ACCOUNT),
        ("https://blobs.example.com", NO_ACCOUNT),
        ("http://127.0.0.1:10000/acct/locks", "more than an account"),
        ("http://127.0.0.1:10000//acct", "more than an account"),
    ] {
        let problem = read(text).expect_err(text);
        assert!(problem.problem.contains(words), "{text}: {problem}");
        assert!(problem.remedy.starts_with("write") || problem.remedy.starts_with("accounts"));
    }
    let remedy = read("http://127.0.0.1:10000").unwrap_err().remedy;
    assert_eq!(remedy, "write http://127.0.0.1:10000/ACCOUNT");
}
