//! Tests of messages and answers by the pages of MongoDB.

use super::*;

fn settings() -> MongoSettings {
    MongoSettings {
        servers: Vec::new(),
        database: "app".to_owned(),
        collection: "tenure".to_owned(),
        election: "orders".to_owned(),
        user: None,
        auth_source: "app".to_owned(),
        accepts_compatible: false,
        tls: None,
        request_timeout: Duration::from_millis(1_500),
    }
}

fn commands() -> Commands {
    Commands::new(&settings(), Duration::from_millis(1_500))
}

/// Returns a message of a server.
fn sent(flags: u32, kind: u8, body: &Document, end: &[u8]) -> Vec<u8> {
    let mut bytes = message(7, body);
    bytes[8..12].copy_from_slice(&3_i32.to_le_bytes());
    bytes[16..20].copy_from_slice(&flags.to_le_bytes());
    bytes[20] = kind;
    bytes.extend(end);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[test]
fn a_message_has_the_documented_form() {
    let body = Document::of([("ping", 1.into())]);
    let expected =
        b"\x24\0\0\0\x07\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x0f\0\0\0\x10ping\0\x01\0\0\0\0";
    assert_eq!(message(7, &body), expected);
}

#[test]
fn only_whole_answers_of_the_known_form_are_read() {
    let body = Document::of([("ok", Value::Double(1.0))]);
    for whole in [sent(0, 0, &body, b""), sent(CHECKSUM, 0, &body, b"csum")] {
        assert_eq!(
            parse(&mut whole.clone()),
            Ok(Some(Received { answers: 3, body: body.clone() }))
        );
        for end in 0..whole.len() {
            assert_eq!(parse(&mut whole[..end].to_vec()), Ok(None), "{end}");
        }
        let mut two = [whole.clone(), whole.clone()].concat();
        assert_eq!(parse(&mut two), Ok(Some(Received { answers: 3, body: body.clone() })));
        assert_eq!(two, whole, "the next one stays");
    }
    let mut other = sent(0, 0, &body, b"");
    other[12] = 1;
    for wrong in [
        other,
        // More is to come, which nobody asked for.
        sent(2, 0, &body, b""),
        sent(4, 0, &body, b""),
        sent(0, 1, &body, b""),
        sent(0, 0, &body, b"more"),
        sent(CHECKSUM, 0, &body, b""),
        vec![0; 64],
        vec![0xff; 64],
        b"\x10\0\x10\0 too long for an answer".to_vec(),
        b"HTTP/1.1 400".to_vec(),
    ] {
        assert_eq!(parse(&mut wrong.clone()), Err(()), "{wrong:?}");
    }
}

#[test]
fn writes_ask_for_the_majority_and_no_server_retries_them() {
    let commands = commands();
    let all = [
        (commands.insert("orders", "v2", "{}"), "insert"),
        (commands.replace("orders", "v1", "v2", "{}"), "update"),
    ];
    for (command, name) in all {
        assert_eq!(command.text(name), Some("tenure"));
        assert_eq!(command.text("$db"), Some("app"));
        let concern = command.document("writeConcern").unwrap();
        assert_eq!((concern.text("w"), concern.is("j")), (Some("majority"), true));
        assert_eq!(concern.number("wtimeout"), Some(1_500));
        assert_eq!(command.number("maxTimeMS"), Some(1_500));
        assert!(command.is("ordered"));
        for retried in ["lsid", "txnNumber", "autocommit"] {
            assert_eq!(command.get(retried), None);
        }
    }
}

#[test]
fn a_replacement_has_the_version_in_its_condition_and_never_creates() {
    let command = commands().replace("orders", "v1", "v2", "{}");
    let update = command.documents("updates").next().unwrap();
    let condition = update.document("q").unwrap();
    assert_eq!((condition.text("_id"), condition.text("version")), (Some("orders"), Some("v1")));
    let replaced = update.document("u").unwrap();
    assert_eq!((replaced.text("version"), replaced.text("lease")), (Some("v2"), Some("{}")));
    assert!(!update.is("upsert") && !update.is("multi"));
}

#[test]
fn a_read_is_linearizable_and_bounded_where_there_is_a_replica_set() {
    for (is_replicated, level) in [(true, "linearizable"), (false, "local")] {
        let command = commands().find("orders", is_replicated);
        assert_eq!(command.document("readConcern").unwrap().text("level"), Some(level));
        assert_eq!(command.number("maxTimeMS"), Some(1_500));
    }
}

#[test]
fn servers_are_told_apart_by_what_they_say_of_themselves() {
    let member = Document::of([
        ("isWritablePrimary", true.into()),
        ("setName", "rs0".into()),
        ("hosts", Value::Array(vec!["a:27017".into(), "b:27017".into()])),
        ("arbiters", Value::Array(vec!["c:27017".into()])),
        ("primary", "a:27017".into()),
        ("localTime", Value::Date(1_700_000_000_123)),
    ]);
    let hello = Hello::of(&member);
    assert!(hello.is_primary && hello.is_replicated() && !hello.is_router);
    assert_eq!(hello.members, ["a:27017", "b:27017", "c:27017"]);
    assert_eq!(hello.date.unwrap().unix_timestamp(), 1_700_000_000);
    let router = Document::of([("isWritablePrimary", true.into()), ("msg", "isdbgrid".into())]);
    assert!(Hello::of(&router).is_replicated());
    let alone = Document::of([("ismaster", true.into())]);
    assert!(Hello::of(&alone).is_primary && !Hello::of(&alone).is_replicated());
    assert!(!Hello::of(&Document::of([("secondary", true.into())])).is_primary);
}

#[test]
fn only_mongodb_is_taken_for_it() {
    let of = |fields: &[&str]| {
        let all = fields.iter().fold(Document::default(), |it, name| it.with(name, "x"));
        Build::of(&all.with("version", "8.0.4"))
    };
    assert!(of(&["gitVersion", "allocator", "javascriptEngine"]).is_mongodb);
    // Percona's is built of its source.
    assert!(of(&["psmdbVersion", "allocator"]).is_mongodb);
    for other in [
        &["gitVersion", "ferretdbVersion", "allocator"][..],
        &["gitVersion", "ferretdb", "allocator"],
        // Amazon DocumentDB and others.
        &["versionArray", "bits"],
        &[],
    ] {
        assert!(!of(other).is_mongodb, "{other:?}");
    }
    assert_eq!(of(&[]).version, "8.0.4");
}

#[test]
fn an_error_of_any_part_of_an_answer_is_one() {
    let inner = Document::of([("code", 64.into()), ("errmsg", "waiting for replication".into())]);
    let exists =
        Document::of([("index", 0.into()), ("code", 11_000.into()), ("errmsg", "E".into())]);
    let good = Document::of([("n", 1.into()), ("ok", Value::Double(1.0))]);
    assert_eq!(error(&good), None);
    let unacknowledged = error(&good.clone().with("writeConcernError", inner.clone())).unwrap();
    assert!(unacknowledged.is_unacknowledged && unacknowledged.code == 64);
    let both =
        good.clone().with("writeErrors", vec![exists.clone()]).with("writeConcernError", inner);
    assert!(error(&both).unwrap().is_unacknowledged, "the other error may be rolled back");
    let written = error(&good.with("writeErrors", vec![exists])).unwrap();
    assert!(!written.is_unacknowledged && written.code == 11_000);
    assert!(error(&Document::default()).is_some(), "an answer says that it is one");
}

#[test]
fn events_show_the_document_as_they_left_it() {
    let state =
        Document::of([("_id", "orders".into()), ("version", "v".into()), ("lease", "{}".into())]);
    let batch = vec![
        Document::of([("operationType", "replace".into()), ("fullDocument", state.into())]),
        Document::of([("operationType", "delete".into())]),
    ];
    let of = |id: i64| {
        let cursor = Document::of([("nextBatch", batch.clone().into()), ("id", id.into())]);
        events(&Document::of([("cursor", cursor.into())])).unwrap()
    };
    let stored = Stored { version: "v".to_owned(), content: "{}".to_owned() };
    assert_eq!(of(9), Events { cursor: Some(9), states: vec![Some(stored), None] });
    assert_eq!(of(0).cursor, None, "an invalidated stream has ended");
    assert_eq!(events(&Document::default()), Err(()));
}

#[test]
fn the_date_is_that_of_the_last_operation() {
    let answer = Document::of([("operationTime", Value::Timestamp((1_700_000_000 << 32) | 5))]);
    assert_eq!(date(&answer).unwrap().unix_timestamp(), 1_700_000_000);
    assert_eq!(date(&Document::default()), None);
}

#[test]
fn a_length_that_no_message_has_shows_at_once() {
    let most = i32::try_from(LONGEST_MESSAGE).unwrap();
    // A header, the flags, and the kind of a section.
    for (length, is_possible) in [(20, false), (21, true), (most, true), (most + 1, false)] {
        let parsed = parse(&mut length.to_le_bytes().to_vec());
        assert_eq!(parsed, if is_possible { Ok(None) } else { Err(()) }, "{length}");
    }
}

/// The values are those of the pages of the commands and of the specification of the sign-in, see `wire`.
#[test]
fn a_connection_begins_with_the_documented_commands() {
    let int = Value::Int32;
    let bytes = |it: &str| Value::Bytes(it.as_bytes().to_vec());
    let begun = Document::of([("conversationId", int(9))]);
    let options = Document::of([("skipEmptyExchange", true.into())]);
    let next = |id: i32, payload: &str| {
        Document::of([
            ("saslContinue", int(1)),
            ("conversationId", int(id)),
            ("payload", bytes(payload)),
            ("$db", "app".into()),
        ])
    };
    let start = Document::of([
        ("saslStart", int(1)),
        ("mechanism", "SCRAM-SHA-256".into()),
        ("payload", bytes("n,,n=u")),
        ("options", options.into()),
        ("$db", "app".into()),
    ]);
    let certificate = Document::of([
        ("authenticate", int(1)),
        ("mechanism", "MONGODB-X509".into()),
        ("$db", "$external".into()),
    ]);
    let build = Document::of([("buildInfo", int(1)), ("$db", "admin".into())]);
    assert_eq!(build_info(), build);
    assert_eq!(sasl_start("app", "n,,n=u"), start);
    assert_eq!(sasl_continue("app", &begun, "c=biws"), next(9, "c=biws"));
    assert_eq!(sasl_continue("app", &Document::default(), ""), next(1, ""));
    assert_eq!(authenticate(), certificate);
    let hello = hello(HELLO, "orders");
    assert_eq!((hello.get("hello"), hello.text("$db")), (Some(&int(1)), Some("admin")));
    let client = hello.document("client").unwrap();
    assert_eq!(client.document("application").unwrap().text("name"), Some("tenure orders"));
}

#[test]
fn reads_have_the_documented_fields_and_a_single_batch() {
    let int = Value::Int32;
    let by_name = || Document::of([("_id", int(1))]).into();
    let found = Document::of([
        ("find", "tenure".into()),
        ("filter", Document::of([("_id", "orders".into())]).into()),
        ("limit", int(1)),
        ("singleBatch", true.into()),
        ("readConcern", Document::of([("level", "local".into())]).into()),
        ("maxTimeMS", Value::Int64(1_500)),
        ("$db", "app".into()),
    ]);
    let names = Document::of([
        ("find", "tenure".into()),
        ("projection", by_name()),
        ("sort", by_name()),
        ("limit", int(40)),
        ("batchSize", int(40)),
        ("singleBatch", true.into()),
        ("maxTimeMS", Value::Int64(1_500)),
        ("$db", "app".into()),
    ]);
    assert_eq!(commands().find("orders", false), found);
    assert_eq!(commands().names(40), names);
}

#[test]
fn a_command_is_never_without_a_bound() {
    for (bound, millis) in [(Duration::ZERO, 1), (Duration::from_micros(1_500), 1)] {
        let command = Commands::new(&settings(), bound).find("orders", true);
        assert_eq!(command.number("maxTimeMS"), Some(millis), "zero stands for none");
    }
}

#[test]
fn documents_are_found_listed_and_counted() {
    let state = |id: &str| {
        Document::of([("_id", id.into()), ("version", "v".into()), ("lease", "{}".into())])
    };
    let of = |all: Vec<Document>| {
        let cursor = Document::of([("firstBatch", all.into()), ("id", 0.into())]);
        Document::of([("cursor", cursor.into()), ("n", 2.into())])
    };
    let both = of(vec![state("a"), state("b")]);
    let stored = Stored { version: "v".to_owned(), content: "{}".to_owned() };
    assert_eq!(found(&both), Ok(Some(stored)));
    assert_eq!(found(&of(vec![])), Ok(None));
    assert_eq!(found(&Document::default()), Err(()));
    assert_eq!(listed(&both), ["a", "b"]);
    assert_eq!((counted(&both), counted(&Document::default())), (Some(2), None));
}
