//! Tests of the sign-in and of answers, on servers that follow a script.

use std::io::Cursor;
use std::time::Duration;

use tokio::io::DuplexStream;

use super::*;
use crate::config::{PostgresTable, SecretSource};

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

fn report(tag: u8, code: &str) -> Vec<u8> {
    report_by(tag, code, "exec_stmt_raise")
}

fn report_by(tag: u8, code: &str, routine: &str) -> Vec<u8> {
    message(tag, format!("SX\0C{code}\0Mwords\0R{routine}\0\0").as_bytes())
}

/// A request for a sign-in of this kind.
fn sign_in(kind: i32, more: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes()[..], more].concat())
}

fn parameter(name: &str, value: &str) -> Vec<u8> {
    message(b'S', format!("{name}\0{value}\0").as_bytes())
}

fn process(number: i32) -> Vec<u8> {
    message(b'K', &[number.to_be_bytes(), [1; 4]].concat())
}

fn notification(process: i32, channel: &str, payload: &str) -> Vec<u8> {
    let text = format!("{channel}\0{payload}\0");
    message(b'A', &[&process.to_be_bytes()[..], text.as_bytes()].concat())
}

fn row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = i16::try_from(values.len()).unwrap().to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(-1, |it| i32::try_from(it.len()).unwrap());
        body.extend(length.to_be_bytes());
        body.extend(value.unwrap_or_default().as_bytes());
    }
    message(b'D', &body)
}

fn done() -> Vec<u8> {
    message(b'C', b"UPDATE 1\0")
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn asked(answer: &[Vec<u8>]) -> (Result<Rows, RegisterError>, Connection) {
    let stream = tokio::io::join(Cursor::new(answer.concat()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream));
    let outcome = connection.ask("SELECT 1").now_or_never().expect("all of it is there");
    (outcome, connection)
}

/// Returns a connection to a server that has said this already, and the server's end.
fn connected(said: &[Vec<u8>]) -> (Connection, DuplexStream) {
    let (here, mut there) = tokio::io::duplex(64 * 1024);
    say(&mut there, said);
    (Connection::over(Box::new(here)), there)
}

fn say(server: &mut DuplexStream, said: &[Vec<u8>]) {
    server.write_all(&said.concat()).now_or_never().expect("it fits").unwrap();
}

/// Returns what a server has received.
fn received(server: &mut DuplexStream) -> Vec<u8> {
    let mut received = Vec::with_capacity(64 * 1024);
    while let Some(Ok(1..)) = server.read_buf(&mut received).now_or_never() {}
    received
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

fn settings() -> PostgresSettings {
    PostgresSettings {
        servers: Vec::new(),
        database: "app".to_owned(),
        table: PostgresTable { schema: None, name: "tenure".to_owned() },
        election: "orders".to_owned(),
        user: SecretSource::Value("u".to_owned()),
        password: None,
        tls: None,
        request_timeout: Duration::from_secs(5),
    }
}

fn login() -> Login {
    Login { user: "u".to_owned(), password: Some("secret".to_owned()) }
}

/// Signs in at a server that says this; returns the outcome, the connection and what was sent.
fn signed_in(
    said: &[Vec<u8>],
    login: &Login,
    is_private: bool,
) -> (Result<(), RegisterError>, Connection, Vec<u8>) {
    let (mut connection, mut there) = connected(said);
    let outcome = connection.sign_in(&settings(), login, is_private).now_or_never();
    (outcome.expect("all of it is there"), connection, received(&mut there))
}

#[test]
fn an_answer_counts_only_when_the_server_is_ready_for_the_next_request() {
    let (outcome, connection) = asked(&[done(), ready()]);
    assert!(outcome.is_ok() && connection.is_in_step());
    // A statement is complete before its commit, which a deferred constraint lets fail.
    let (outcome, connection) = asked(&[row(&[Some("1")]), done(), report(b'E', "XX000"), ready()]);
    assert!(matches!(outcome, Err(RegisterError::Unavailable(_))), "{outcome:?}");
    assert!(connection.is_in_step());
    let (outcome, connection) = asked(&[done()]);
    assert!(
        matches!(outcome, Err(RegisterError::Network(NetworkError::Disconnected(_)))),
        "{outcome:?}"
    );
    assert!(!connection.is_in_step());
    // What a server that is shut down says before it closes the connection.
    let (outcome, connection) = asked(&[report(b'E', "57P01")]);
    assert!(matches!(outcome, Err(RegisterError::Unavailable(_))), "{outcome:?}");
    assert!(!connection.is_in_step());
    // The rest of this answer would be taken for that of the next request.
    let (outcome, connection) = asked(&[message(b'G', b"\0\0\0"), done(), ready()]);
    assert!(matches!(outcome, Err(RegisterError::Invalid(_))), "{outcome:?}");
    assert!(!connection.is_in_step());
}

#[test]
fn of_all_warnings_that_of_a_commit_without_its_standbys_alone_makes_an_outcome_unknown() {
    for (routine, code, is_known) in [
        ("SyncRepWaitForLSN", "01000", false),
        ("SyncRepWaitForLSN", "57P01", false),
        ("GetNewTransactionId", "01000", true),
        ("exec_stmt_raise", "01000", true),
        ("", "XX000", true),
    ] {
        let (outcome, connection) = asked(&[report_by(b'N', code, routine), done(), ready()]);
        assert!(connection.is_in_step());
        match outcome {
            Ok(_) => assert!(is_known, "{routine}"),
            Err(error) => {
                let words = error.to_string();
                assert!(
                    !is_known && words.contains("may be lost in a failover"),
                    "{routine}: {words}"
                );
            }
        }
    }
}

#[test]
fn a_request_is_one_simple_query_and_its_answer_the_rows_of_the_last_statement() {
    let (first, second) = ([Some("1"), None, Some("")], [Some("ä")]);
    let said = [row(&second), done(), done(), row(&first), row(&second), done(), ready()];
    let (mut connection, mut there) = connected(&said);
    let answer = connection.ask("SELECT 1").now_or_never().unwrap().unwrap();
    let of = |row: &[Option<&str>]| row.iter().map(|it| it.map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(answer, [of(&first), of(&second)]);
    let (answer, _) = asked(&[row(&first), done(), done(), ready()]);
    assert_eq!(answer, Ok(Rows::new()), "the last one returned none");
    assert_eq!(received(&mut there), message(b'Q', b"SELECT 1\0"));
    let outcome = connection.ask("SELECT '\0'").now_or_never().unwrap();
    let Err(RegisterError::Invalid(words)) = outcome else { panic!("{outcome:?}") };
    assert!(words.contains("has a NUL character") && received(&mut there).is_empty(), "{words}");
}

#[test]
fn a_parameter_that_changes_during_an_answer_is_skipped() {
    let said = [parameter("TimeZone", "UTC"), done(), ready()];
    let (mut connection, _there) = connected(&said);
    connection.greeting.process = 7;
    let outcome = connection.ask("SELECT 1").now_or_never().unwrap();
    assert_eq!(outcome, Ok(Rows::new()));
}

#[test]
fn a_notification_of_another_instance_for_this_election_is_waited_for() {
    let (mut connection, mut there) = connected(&[]);
    let others = [
        notification(9, "tenure", "orders own"),
        notification(9, "tenure", "invoices other"),
        notification(9, "tenure", ""),
        notification(9, "elsewhere", "orders other"),
        parameter("TimeZone", "UTC"),
        report(b'N', "01000"),
    ];
    say(&mut there, &others);
    assert!(connection.notification("orders", "own").now_or_never().is_none());
    for payload in ["orders other", "orders "] {
        say(&mut there, &[notification(9, "tenure", payload)]);
        assert_eq!(connection.notification("orders", "own").now_or_never(), Some(Ok(())));
    }
    say(&mut there, &[report(b'E', "57P01")]);
    let told = connection.notification("orders", "own").now_or_never();
    assert!(matches!(told, Some(Err(RegisterError::Invalid(_)))), "{told:?}");
}

#[test]
fn a_notification_during_an_answer_is_no_part_of_it() {
    let said = [row(&[None]), notification(9, "tenure", "orders -"), done(), ready()];
    let (outcome, _) = asked(&said);
    assert_eq!(outcome, Ok(vec![vec![None]]));
}

#[test]
fn a_connection_on_which_anything_arrived_unasked_is_not_used_again() {
    for (said, expected) in
        [(vec![], true), (vec![ready()], false), (vec![report(b'E', "57P01")], false)]
    {
        let (mut connection, there) = connected(&said);
        assert_eq!(connection.is_alive(), expected, "{said:?}");
        drop(there);
        assert!(!connection.is_alive(), "the server has closed it");
    }
}

#[test]
fn a_sign_in_names_the_user_the_database_and_the_election() {
    let said = [sign_in(0, b""), parameter("server_version", "18.1"), process(7), ready()];
    let (outcome, connection, sent) = signed_in(&said, &login(), false);
    outcome.unwrap();
    assert_eq!((&*connection.greeting.version, connection.greeting.process), ("18.1", 7));
    assert_eq!(sent[4..8], [0, 3, 0, 0], "the version of the protocol");
    for pair in ["user\0u\0", "database\0app\0", "application_name\0tenure orders\0"] {
        assert!(contains(&sent, pair), "{pair:?}");
    }
    assert!(!contains(&sent, "secret"), "nobody asked for it");
    let notice = [report(b'N', "00000"), sign_in(0, b""), ready()];
    assert_eq!(signed_in(&notice, &login(), false).0, Ok(()));
}

#[test]
fn a_password_is_sent_in_plain_text_only_where_nobody_can_read_it() {
    let said = [sign_in(3, b""), sign_in(0, b""), ready()];
    let (outcome, _, sent) = signed_in(&said, &login(), true);
    outcome.unwrap();
    assert!(sent.ends_with(&message(b'p', b"secret\0")));
    let (outcome, _, sent) = signed_in(&said, &login(), false);
    let Err(RegisterError::Credential(words)) = outcome else { panic!("{outcome:?}") };
    assert!(words.contains("which is not sent without TLS"), "{words}");
    assert!(!contains(&sent, "secret"));
    let (outcome, _, sent) =
        signed_in(&[sign_in(5, b"salt"), sign_in(0, b""), ready()], &login(), false);
    outcome.unwrap();
    let hash = md5_hash(b"u", b"secret", *b"salt");
    assert!(sent.ends_with(&message(b'p', format!("{hash}\0").as_bytes())));
}

#[test]
fn a_sign_in_that_cannot_be_done_is_explained() {
    let nobody = || Login { password: None, ..login() };
    for (said, login, words) in [
        (sign_in(3, b""), nobody(), "asks for a password: set PGPASSWORD"),
        (sign_in(5, b"salt"), nobody(), "asks for a password: set PGPASSWORD"),
        (sign_in(10, b"SCRAM-SHA-256\0\0"), nobody(), "asks for a password: set PGPASSWORD"),
        (sign_in(10, b"SCRAM-SHA-1\0\0"), login(), "a sign-in that Tenure does not have"),
        (sign_in(2, b""), login(), "a sign-in that Tenure does not have"),
        (sign_in(7, b""), login(), "a sign-in that Tenure does not have"),
        (sign_in(8, b"token"), login(), "did not answer as PostgreSQL does"),
        (sign_in(9, b""), login(), "a sign-in that Tenure does not have"),
        (sign_in(11, b"r=x"), login(), "did not answer as PostgreSQL does"),
        (sign_in(12, b"v=x"), login(), "did not answer as PostgreSQL does"),
        (report(b'E', "28P01"), login(), "the sign-in failed: check PGUSER"),
        (done(), login(), "did not answer as PostgreSQL does"),
    ] {
        let (outcome, _, sent) = signed_in(&[said], &login, true);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("secret"), "{words}: {error}");
        assert!(!contains(&sent, "secret"));
    }
}

/// The steps are those of RFC 5802; the server has a challenge of its own, and no proof.
#[test]
fn a_server_that_does_not_know_the_password_is_refused() {
    let (mut connection, mut there) = connected(&[]);
    let (settings, login) = (settings(), login());
    let mut signing_in = Box::pin(connection.sign_in(&settings, &login, false));
    assert!(signing_in.as_mut().now_or_never().is_none());
    received(&mut there);
    say(&mut there, &[sign_in(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")]);
    assert!(signing_in.as_mut().now_or_never().is_none());
    let first = String::from_utf8(received(&mut there)).unwrap();
    assert!(first.contains("SCRAM-SHA-256\0"), "{first:?}");
    let nonce = first.rsplit_once("r=").expect("a nonce").1;
    let challenge = format!("r={nonce}more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
    say(&mut there, &[sign_in(11, challenge.as_bytes())]);
    assert!(signing_in.as_mut().now_or_never().is_none());
    let proof = String::from_utf8(received(&mut there)).unwrap();
    assert!(proof.contains(&format!("r={nonce}more,p=")), "{proof:?}");
    let last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    say(&mut there, &[sign_in(12, last), sign_in(0, b""), ready()]);
    let outcome = signing_in.now_or_never().expect("all of it is there");
    let Err(RegisterError::Credential(words)) = outcome else { panic!("{outcome:?}") };
    assert!(words.contains("is not the server it claims to be"), "{words}");
}

#[test]
fn a_pooler_and_a_standby_are_noticed_and_nobody_listens_through_a_pooler() {
    for (answer, is_direct, is_standby) in [
        ([Some("7"), Some("f")], true, false),
        ([Some("7"), Some("t")], true, true),
        ([Some("8"), Some("f")], false, false),
        ([Some("8"), Some("t")], false, true),
    ] {
        let said = [row(&answer), done(), ready(), done(), ready()];
        let (mut connection, mut there) = connected(&said);
        connection.greeting.process = 7;
        connection.look_around().now_or_never().unwrap().unwrap();
        let Greeting { is_direct: direct, is_standby: standby, .. } = connection.greeting;
        assert_eq!((direct, standby), (is_direct, is_standby), "{answer:?}");
        let listens = connection.listen().now_or_never().unwrap();
        assert_eq!(listens.is_ok(), is_direct, "{answer:?}");
        let asked = received(&mut there).ends_with(&message(b'Q', b"LISTEN tenure\0"));
        assert_eq!(asked, is_direct, "{answer:?}");
    }
    let (mut connection, _there) = connected(&[row(&[Some("7")]), done(), ready()]);
    let outcome = connection.look_around().now_or_never().unwrap();
    assert!(matches!(outcome, Err(RegisterError::Invalid(_))), "{outcome:?}");
}

#[test]
fn tls_is_asked_for_before_anything_else() {
    for (answer, expected) in [
        (&b"S"[..], None),
        (b"N", Some("has no TLS: set ssl = on there")),
        (b"E", Some("did not answer as PostgreSQL does")),
    ] {
        let (mut here, mut there) = tokio::io::duplex(64);
        say(&mut there, &[answer.to_vec()]);
        let outcome = asks_for_tls(&mut here, "h:1").now_or_never().unwrap();
        assert_eq!(received(&mut there), [0, 0, 0, 8, 4, 210, 22, 47], "SSLRequest");
        match expected {
            None => assert_eq!(outcome, Ok(())),
            Some(words) => assert!(outcome.unwrap_err().to_string().contains(words)),
        }
    }
}

#[test]
fn a_password_may_be_read_on_this_machine_and_by_a_server_with_tls_only() {
    let tls = Arc::new(crate::tls::system_client(false).unwrap());
    let at = |host: &str| Address { host: url::Host::parse(host).unwrap(), port: 5432 };
    for (host, tls, expected) in [
        ("127.0.0.1", None, true),
        ("db.example.com", None, false),
        ("db.example.com", Some(&tls), true),
        ("127.0.0.1", Some(&tls), true),
    ] {
        assert_eq!(is_private(&at(host), tls), expected, "{host}");
    }
}
