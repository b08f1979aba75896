//! Tests of the parsers of single values.

use proptest::prelude::*;

use super::*;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&it| it.to_owned()).collect()
}

#[test]
fn elections_are_names_of_1_to_63_characters() {
    for good in ["a", "orders", "a.b-c", "0", &"x".repeat(63)] {
        assert_eq!(election(good).as_deref(), Ok(good));
    }
    for (bad, remedy) in [
        ("", "orders"),
        ("Orders EU!", "orders-eu"),
        ("-a", "such as a"),
        ("a.", "such as a"),
        ("ä", "orders"),
        (&"x".repeat(64), &"x".repeat(63)),
    ] {
        let problem = election(bad).unwrap_err();
        assert!(problem.remedy.ends_with(remedy), "{bad}: {problem:?}");
    }
}

#[test]
fn identities_are_printable_ascii() {
    assert!(identity("orders-7d9f (blue)").is_ok() && identity(&"x".repeat(128)).is_ok());
    for bad in ["", "ä", "a\n", " a", "a ", &"x".repeat(129)] {
        assert!(identity(bad).is_err(), "{bad:?}");
    }
    assert!(advertise("10.0.0.1:80").is_ok() && advertise("a b").is_err());
}

#[test]
fn an_advertised_ipv6_address_has_brackets() {
    for good in ["[fd00::2]:80", "[fd00::2]", "http://[fd00::2]:80/x", "http://a/x:y:z", "a:b:c"] {
        assert_eq!(advertise(good).as_deref(), Ok(good));
    }
    for (bad, remedy) in [
        ("fd00::2", "write [fd00::2]"),
        ("fd00::2:8080", "write [fd00::2]:8080"),
        ("1:2:3:4:5:6:7:8:8080", "write [1:2:3:4:5:6:7:8]:8080"),
        ("http://fd00::2:80/x", "write http://[fd00::2]:80/x"),
        ("::1", "write [::1]"),
    ] {
        let problem = advertise(bad).unwrap_err();
        assert!(problem.problem.contains("without brackets"), "{bad}: {problem:?}");
        assert_eq!(problem.remedy, remedy, "{bad}");
    }
    // `[$(POD_IP)]:8080` in a manifest is right for pods of both families.
    for (bracketed, plain) in [
        ("[10.0.0.1]:80", "10.0.0.1:80"),
        ("[10.0.0.1]", "10.0.0.1"),
        ("http://[10.0.0.1]:80/x", "http://10.0.0.1:80/x"),
    ] {
        assert_eq!(advertise(bracketed).as_deref(), Ok(plain));
    }
}

#[test]
fn host_names_have_no_port() {
    let good = strings(&["web-1.internal", "10.0.0.1", "[fd00::1]"]);
    assert_eq!(host_names(&good), Ok(good.clone()));
    for bad in ["", "web-1:80", "a b", "http://a"] {
        assert!(host_names(&strings(&[bad])).is_err(), "{bad}");
    }
}

#[test]
fn listeners_are_addresses_sockets_or_off() {
    let all = listen(&strings(&["127.0.0.1:0", "[::1]:4040", "unix:/run/x"])).unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[2], Listen::Unix("/run/x".into()));
    assert_eq!(listen(&strings(&["off"])), Ok(vec![]));
    for good in
        [["127.0.0.1:0", "127.0.0.1:0"], ["127.0.0.1:1", "[::1]:1"], ["0.0.0.0:1", "[::1]:1"]]
    {
        assert!(listen(&strings(&good)).is_ok(), "{good:?}");
    }
    for (bad, remedy) in [
        (&["4040"][..], "127.0.0.1:4040"),
        (&[":4040"], "[::]:4040"),
        (&["localhost:1"], "127.0.0.1:1"),
        (&["127.0.0.1"], "with a port"),
        (&["127.0.0.1:99999"], "with a port"),
        (&["unix:x"], "unix:/run"),
        (&["off", "[::1]:1"], "off alone"),
        (&["[::1]:1", "[::1]:1"], "once"),
        (&["127.0.0.1:1", "0.0.0.0:1"], "once"),
        (&["[::]:1", "127.0.0.1:1"], "once"),
        (&["unix:/x", "unix:/x"], "once"),
        (&[""], "with a port"),
        (&[], "write off"),
    ] {
        let problem = listen(&strings(bad)).unwrap_err();
        assert!(problem.remedy.contains(remedy), "{bad:?}: {problem:?}");
    }
    assert!(listen(&[format!("unix:/{}", "x".repeat(107))]).is_err());
    assert!(listen(&[format!("unix:/{}", "x".repeat(106))]).is_ok());
}

#[test]
fn the_extension_of_a_status_file_chooses_its_format() {
    let all = status_files(&strings(&["/a.json", "b.env"])).unwrap();
    assert_eq!((all[0].format, all[1].format), (FileFormat::Json, FileFormat::Env));
    for bad in [&["/a"][..], &["/a.txt"], &[".json"], &[""], &["a.env", "a.env"]] {
        assert!(status_files(&strings(bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn a_misspelt_level_is_not_a_target() {
    for good in ["info", "DEBUG", "off", "warn,tenure=debug", "info,tenure::store=trace"] {
        let filter = log_level(good).unwrap();
        assert_eq!(filter, good);
        assert!(filter.parse::<tracing_subscriber::filter::Targets>().is_ok(), "{good}");
    }
    assert_eq!(log_level("info, tenure=debug").as_deref(), Ok("info,tenure=debug"));
    for bad in
        ["inof", "", "info,", "info,inof", "tenure=loud", " 㐀=info", "tenure[span]=info", "=info"]
    {
        assert!(log_level(bad).is_err(), "{bad}");
    }
}

#[test]
fn prefixes_are_plain_segments() {
    assert_eq!(blob_prefix("team/prod/").as_deref(), Ok("team/prod"));
    for bad in ["", "/", "a//b", "/a", "a/..", "a b", "a?b", "a\\b"] {
        assert!(blob_prefix(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn no_value_panics(text in ".{0,80}") {
        let list = [text.clone()];
        let _ = (election(&text), identity(&text), advertise(&text), blob_prefix(&text));
        let _ = (duration(&text), switch(&text), max_connections(&text));
        let _ = (listen(&list), status_files(&list), log_format(&text), log_level(&text));
    }

    #[test]
    fn the_election_that_a_remedy_names_is_valid(text in ".{0,80}") {
        if let Err(problem) = election(&text) {
            let (_, name) = problem.remedy.rsplit_once(' ').unwrap();
            prop_assert!(election(name).is_ok(), "{}", problem.remedy);
        }
    }
}
