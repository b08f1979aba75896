//! Tests of store URLs, and what the tests of each kind of URL share.

use proptest::prelude::*;

use super::*;

/// Asserts that each text is parsed, and is formatted as the other one.
pub(super) fn assert_formatted<const N: usize>(texts: [(&str, &str); N]) {
    for (text, formatted) in texts {
        let url = parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"));
        assert_eq!(url.to_string(), formatted);
        assert_eq!(parse(formatted), Ok(url), "{formatted}");
    }
}

/// Asserts that each text is parsed, and is formatted alike.
pub(super) fn assert_formatted_alike<const N: usize>(texts: [&str; N]) {
    assert_formatted(texts.map(|text| (text, text)));
}

/// Asserts that each text has a problem and a remedy with these words, and that neither shows a secret.
pub(super) fn assert_faults<const N: usize>(faults: [(&str, &str, &str); N]) {
    for (text, problem, remedy) in faults {
        let found = parse(text).unwrap_err();
        assert!(found.problem.contains(problem), "{text}: {found:?}");
        assert!(found.remedy.contains(remedy), "{text}: {found:?}");
        assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
    }
}

/// Returns some addresses with ports and with commas between them.
pub(super) fn addresses() -> impl Strategy<Value = String> {
    let host = "[a-z][a-z0-9]{0,9}(\\.[a-z][a-z0-9]{0,5}){0,2}:[1-9][0-9]{0,3}";
    prop::collection::hash_set(host, 1..5)
        .prop_map(|all| all.into_iter().collect::<Vec<_>>().join(","))
}

#[test]
fn each_documented_form_is_parsed() {
    assert_eq!(parse("memory:"), Ok(StoreUrl::Memory));
    assert_eq!(parse("file:///dir"), Ok(StoreUrl::File("/dir".into())));
    assert_eq!(parse("file:///a%20b/c"), Ok(StoreUrl::File("/a b/c".into())));
    let expected = StoreUrl::Azure { account: "acct".to_owned(), container: "leases-1".to_owned() };
    assert_eq!(parse("azure://acct/leases-1"), Ok(expected.clone()));
    assert_eq!(parse("azure://acct/leases-1/"), Ok(expected));
    for (text, namespace) in
        [("kubernetes:a.b", None), ("kubernetes:prod/a.b", Some("prod".to_owned()))]
    {
        let expected = StoreUrl::Kubernetes { namespace, name: "a.b".to_owned() };
        assert_eq!(parse(text), Ok(expected));
    }
}

#[test]
fn each_fault_has_a_remedy() {
    assert_faults([
        ("", "not a URL", "file:///"),
        ("/var/lib/x", "not a URL", "write file:///var/lib/x"),
        ("file:", "absolute", "three slashes"),
        ("file:dir", "absolute", "three slashes"),
        ("file://dir/x", "absolute", "three slashes"),
        ("file:///a?b", "query", "%3F"),
        ("file:///a%00b", "no directory", "three slashes"),
        ("memory:x", "after memory:", "alone"),
        ("azure:acct/box", "no account", "azure://ACCOUNT/CONTAINER"),
        ("azure://acct", "no account", "azure://ACCOUNT/CONTAINER"),
        ("azure://acct/box/blob", "more than", "--azure-blob-prefix"),
        ("azure://acct/box?sig=x", "has more than", "AZURE_STORAGE_SAS_TOKEN_FILE"),
        ("azure://Acct/box", "\"Acct\"", "lower-case"),
        ("azure://acct/a--b", "\"a--b\"", "single dashes"),
        ("azure://acct.blob.core.windows.net/box", "by its host", "azure://acct/box"),
        ("https://acct.blob.core.windows.net/box", "unknown kind", "azure://acct/box"),
        ("kubernetes:", "empty name", "kubernetes:NAME"),
        ("kubernetes:a/", "empty name", "kubernetes:NAME"),
        ("kubernetes:/a", "empty namespace", "kubernetes:NAME"),
        ("kubernetes:a/b/c", "more than", "kubernetes:NAMESPACE/NAME"),
        ("kubernetes://a/b", "names a host", "write kubernetes:a/b,"),
        ("kubernetes:a/b?token=x", "has more than", "--kube-token-file"),
        ("kubernetes:Prod/b", "namespace \"Prod\"", "such as prod"),
        ("kubernetes:a.b/c", "namespace \"a.b\"", "such as a-b"),
        ("kubernetes:a/Orders EU", "Lease \"Orders EU\"", "such as orders-eu"),
        ("kubernets:a/b", "unknown kind", "did you mean kubernetes:a/b?"),
        ("azur://acct/box", "unknown kind", "did you mean azure://acct/box?"),
        ("azur://a/b?sig=hidden", "unknown kind", "did you mean azure:?"),
        ("k8s:orders", "unknown kind", "did you mean kubernetes:orders?"),
        ("kube:prod/orders", "unknown kind", "did you mean kubernetes:prod/orders?"),
        ("carrier-pigeon:", "unknown kind", "write file:///"),
    ]);
}

#[test]
fn a_store_that_a_build_lacks_is_never_another_one() {
    let examples = [
        ("consul", "consul://h:8500/x"),
        ("etcd", "etcd://h:2379/x"),
        ("gcs", "gs://bucket/x"),
        ("mongodb", "mongodb://h:27017/x"),
        ("postgres", "postgres://h:5432/x"),
        ("redis", "redis://h:6379/1"),
        ("s3", "s3://bucket/x"),
        ("zookeeper", "zookeeper://h:2181/x"),
    ];
    assert_eq!(OPTIONAL.map(|it| it.feature), examples.map(|(feature, _)| feature));
    for store in &OPTIONAL {
        assert_eq!(store.is_built, crate::store::KINDS.contains(&store.feature), "this build");
    }
    // Each set of features is a build.
    for build in 0..1_u32 << OPTIONAL.len() {
        let has = |at: usize| build & 1 << at != 0;
        let is_built = |store: &Optional| {
            OPTIONAL.iter().position(|it| it.feature == store.feature).is_some_and(has)
        };
        for (at, (feature, text)) in examples.into_iter().enumerate() {
            match parse_in(is_built, text) {
                Ok(url) => assert!(has(at) && url.to_string() == text, "{build:b}: {text}: {url}"),
                Err(fault) => {
                    let scheme = text.split(':').next().unwrap();
                    let problem = format!("names the store {scheme}:, which this build");
                    assert!(!has(at) && fault.problem.starts_with(&problem), "{build:b}: {text}");
                    assert!(fault.remedy.contains(&format!("feature {feature};")), "{fault:?}");
                }
            }
        }
        for text in ["azure://acct/box", "file:///x", "kubernetes:a/b", "memory:"] {
            assert_eq!(parse_in(is_built, text).map(|it| it.to_string()), Ok(text.to_owned()));
        }
    }
}

#[test]
fn a_directory_whose_url_names_another_is_rejected() {
    assert_eq!(parse("file:///a/../b"), Ok(StoreUrl::File("/b".into())));
    for text in ["file:///a%2F..%2Fb", "file:///a%2f.."] {
        assert!(parse(text).unwrap_err().problem.contains("no directory"), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(file|azure|kubernetes|consul|etcd|memory|x)?:?/{0,3}.{0,40}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_text_behind_a_scheme_panics(rest in ".{0,60}") {
        for scheme in
            ["consul", "etcd", "gs", "mongodb", "postgres", "redis", "s3", "zookeeper"]
        {
            let _ = parse(&format!("{scheme}://{rest}"));
        }
    }

    #[test]
    fn a_formatted_url_is_parsed_back(
        account in "[a-z0-9]{3,24}",
        container in "[a-z0-9]{2,20}(-[a-z0-9]{1,20}){0,2}[a-z0-9]",
        namespace in prop::option::of("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
        name in "[a-z0-9]{1,20}([.-][a-z0-9]{1,20}){0,5}",
        directory in "(/[a-zA-Z0-9 _?#%ä.-]{0,8}[a-z]){1,4}",
    ) {
        let azure = StoreUrl::Azure { account, container };
        let file = StoreUrl::File(directory.into());
        let kubernetes = StoreUrl::Kubernetes { namespace, name };
        for url in [azure, file, kubernetes] {
            prop_assert_eq!(parse(&url.to_string()), Ok(url));
        }
    }
}
