//! Tests of what a hash means, of what a server says of itself, and of what requests send.

use time::macros::datetime;
use url::Host;

use super::connection::Info;
use super::*;
use crate::config::Address;
use crate::lease::{Nonce, Record};

fn database() -> Database {
    let settings = RedisSettings {
        servers: vec![Address { host: Host::Domain("h".to_owned()), port: 1 }],
        database: 3,
        election: "orders".to_owned(),
        user: None,
        password: None,
        tls: None,
        request_timeout: Duration::from_secs(30),
    };
    Database::open(&settings, settings.request_timeout).unwrap()
}

fn text(it: &str) -> Reply {
    Reply::Text(it.into())
}

fn found(exists: i64, fields: [&str; 3]) -> Reply {
    let some = |it: &str| if it.is_empty() { Reply::Nothing } else { text(it) };
    let [format, write, body] = fields.map(some);
    let date = [text("1700000000"), text("250000")];
    Reply::Array([vec![Reply::Number(exists), format, write, body], date.to_vec()].concat())
}

#[test]
fn a_hash_is_read_with_its_tag_and_the_date_of_the_server() {
    let database = database();
    let body = Body { write: Nonce(7), ..Body::default() };
    let content = String::from_utf8(body.encode()).unwrap();
    let date = Some(datetime!(2023-11-14 22:13:20.25 UTC));
    let read = database.tagged(&found(1, ["2", "x", &content]));
    assert_eq!(read, Ok(Some(Tagged { tag: "x".to_owned(), body: Ok(body), date })));
    assert_eq!(database.tagged(&found(0, [""; 3])), Ok(None));
    for (fields, words) in [
        (["1", "", ""], "has format 1 of an earlier version"),
        (["", "", ""], "is not Tenure's"),
        (["2", "x", ""], "is not Tenure's"),
        (["3", "x", &content], "is not Tenure's"),
        (["2", "x", "{"], ""),
    ] {
        let read = database.tagged(&found(1, fields)).unwrap().unwrap();
        assert!(read.body.as_ref().is_err_and(|it| it.contains(words)), "{read:?}");
    }
    for wrong in [Reply::Nothing, Reply::Array(vec![Reply::Number(1)])] {
        assert!(matches!(database.tagged(&wrong), Err(RegisterError::Invalid(_))), "{wrong:?}");
    }
}

#[test]
fn a_value_with_its_tag_and_its_term_is_written_by_one_script_and_news_are_told_without_it() {
    let scripts = Scripts::new("orders");
    let record = Record { term: Some(4), ..Record::default() };
    let body = Body { write: Nonce(7), record, ..Body::default() };
    for (condition, seen) in [(If::Absent, ""), (If::Tagged("x"), "x")] {
        for (is_news, channel) in [(true, "tenure:{orders}:changes"), (false, "")] {
            for allows_oom in [true, false] {
                let command = scripts.write(Slot::Lease, condition, &body, is_news, allows_oom);
                let [eval, script, rest @ ..] = command.as_slice() else { panic!("{command:?}") };
                let script = str::from_utf8(script).unwrap();
                assert_eq!(eval, b"EVAL");
                assert_eq!(script.starts_with("#!lua flags=allow-oom\n"), allows_oom, "{script}");
                let content = body.encode();
                let write = Nonce(7).to_string();
                let expected = ["1", "tenure:{orders}:record", seen, "2", &write]
                    .map(str::as_bytes)
                    .into_iter()
                    .chain([&content[..], b"4", channel.as_bytes(), scripts.own.as_bytes()]);
                assert!(rest.iter().map(Vec::as_slice).eq(expected), "{command:?}");
            }
        }
    }
}

#[test]
fn two_primaries_are_told_from_two_ways_to_one_and_from_nodes_of_a_cluster() {
    let of = |text: &str| Info::of(&Reply::Text(text.replace(' ', "\r\n").into_bytes()));
    let one = of("role:master run_id:1 redis_version:7.0.15");
    for (other, expected) in [
        ("role:master run_id:2", true),
        ("role:master run_id:1", false),
        ("role:slave run_id:2", false),
        ("role:master run_id:2 cluster_enabled:1", false),
        ("", false),
    ] {
        assert_eq!(one.is_another_primary(&of(other)), expected, "{other}");
    }
    assert!(one.has_flags() && one.is_known() && !of("").is_known());
    for old in ["redis_version:6.2.14", "redis_version:x", ""] {
        assert!(!of(old).has_flags(), "{old}");
    }
}
