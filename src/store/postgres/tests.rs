//! Tests of what requests send and their answers mean, against a server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use time::macros::datetime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Host;

use super::connection::Rows;
use super::*;
use crate::config::{Address, PostgresPassword, PostgresTable, SecretSource};
use crate::lease::{Nonce, Record};

/// Microseconds of unix time, and the same as a date.
const DATE: (&str, OffsetDateTime) = ("1700000000250000", datetime!(2023-11-14 22:13:20.25 UTC));

fn rows(row: &[Option<&str>]) -> Rows {
    vec![row.iter().map(|it| it.map(str::to_owned)).collect()]
}

/// What is read of a row with this tag and value.
fn found(tag: &str, content: &str) -> Reply {
    Reply::Answer(rows(&[Some("f"), Some(DATE.0), Some(tag), Some(content)]))
}

/// The answer to a write that was done.
fn written() -> Reply {
    Reply::Answer(rows(&[Some(DATE.0), None]))
}

fn body(write: u128, term: Option<u64>) -> Body {
    Body { write: Nonce(write), record: Record { term, ..Record::default() }, ..Body::default() }
}

/// What a server answers next.
enum Reply {
    /// The rows of the last statement.
    Answer(Rows),
    /// An error with this code.
    Error(&'static str),
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<String>,
}

/// A server that answers what the test has put into it, in this order. It asks for the password.
struct Server {
    table: Table,
    script: Arc<StdMutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

fn settings(server: Address) -> PostgresSettings {
    let value = |it: &str| SecretSource::Value(it.to_owned());
    PostgresSettings {
        servers: vec![server],
        database: "app".to_owned(),
        table: PostgresTable { schema: None, name: "tenure".to_owned() },
        election: "orders".to_owned(),
        user: value("u"),
        password: Some(PostgresPassword::Secret(value("secret"))),
        tls: None,
        request_timeout: Duration::from_secs(30),
    }
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::<StdMutex<Script>>::default();
        let shared = Arc::clone(&script);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let script = Arc::clone(&shared);
                connections.spawn(async move { drop(serve(stream, script).await) });
            }
        });
        let host = Host::parse(&address.ip().to_string()).unwrap();
        let settings = settings(Address { host, port: address.port() });
        let table = Table::open(&settings, settings.request_timeout).unwrap();
        Self { table, script, _task: task }
    }

    fn says(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the statements since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

fn answer(rows: &Rows) -> Vec<u8> {
    let mut all = message(b'C', b"SET\0");
    for row in rows {
        let mut body = i16::try_from(row.len()).unwrap().to_be_bytes().to_vec();
        for value in row {
            let length = value.as_ref().map_or(-1, |it| i32::try_from(it.len()).unwrap());
            body.extend(length.to_be_bytes());
            body.extend(value.as_deref().unwrap_or_default().as_bytes());
        }
        all.extend(message(b'D', &body));
    }
    all.extend(message(b'C', b"SELECT 1\0"));
    all
}

async fn serve(mut stream: TcpStream, script: Arc<StdMutex<Script>>) -> std::io::Result<()> {
    let ready = message(b'Z', b"I");
    let length = usize::try_from(stream.read_u32().await?).unwrap();
    stream.read_exact(&mut vec![0; length - 4]).await?;
    stream.write_all(&message(b'R', &3_i32.to_be_bytes())).await?;
    loop {
        let tag = stream.read_u8().await?;
        let length = usize::try_from(stream.read_u32().await?).unwrap();
        let mut body = vec![0; length - 4];
        stream.read_exact(&mut body).await?;
        let text = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
        let mut reply = match (tag, text.as_str()) {
            (b'p', "secret") => {
                let process = message(b'K', &[0, 0, 0, 7, 0, 0, 0, 1]);
                [message(b'R', &[0; 4]), process].concat()
            }
            (b'Q', text) if text.contains("pg_backend_pid") => {
                answer(&rows(&[Some("7"), Some("f")]))
            }
            (b'Q', text) if text.starts_with("LISTEN") => answer(&Rows::new()),
            _ => {
                let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
                script.asked.push(text);
                match script.replies.pop_front() {
                    Some(Reply::Answer(rows)) => answer(&rows),
                    other => {
                        let Some(Reply::Error(code)) = other else { return Ok(()) };
                        message(b'E', format!("C{code}\0Mwords\0\0").as_bytes())
                    }
                }
            }
        };
        reply.extend(&ready);
        stream.write_all(&reply).await?;
    }
}

#[tokio::test]
async fn a_row_is_read_with_its_tag_and_the_date_of_the_server() {
    let server = Server::start().await;
    let content = String::from_utf8(body(7, Some(4)).encode()).unwrap();
    let nothing = rows(&[Some("f"), Some(DATE.0), None, None]);
    let standby = rows(&[Some("t"), Some(DATE.0), Some("x"), Some(&content)]);
    server.says([found("x", &content), Reply::Answer(nothing), Reply::Error("42P01")]);
    let read = server.table.get(Slot::Lease).await.unwrap().unwrap();
    let expected = Tagged { tag: "x".to_owned(), body: Ok(body(7, Some(4))), date: Some(DATE.1) };
    assert_eq!(read, expected);
    for why in ["no row", "no table"] {
        assert_eq!(server.table.get(Slot::Lease).await, Ok(None), "{why}");
    }
    server.says([Reply::Answer(standby), Reply::Answer(Rows::new()), Reply::Error("42703")]);
    for (error, words) in [
        ("Network", "is a standby"),
        ("Invalid", "did not answer as PostgreSQL does"),
        ("Foreign", "or of an earlier version"),
    ] {
        let found = server.table.get(Slot::Lease).await.unwrap_err();
        let shown = format!("{found:?}");
        assert!(shown.starts_with(error) && shown.contains(words), "{shown}");
    }
}

#[tokio::test]
async fn a_value_with_its_tag_and_its_term_is_written_by_one_request() {
    let server = Server::start().await;
    let table = &server.table;
    for (condition, start, term) in [
        (If::Absent, "INSERT INTO \"tenure\" (election, write, body, term)", ", "),
        (If::Tagged("it's"), "UPDATE \"tenure\" t SET write = ", ", term = "),
    ] {
        server.says([written(), Reply::Answer(Rows::new()), written()]);
        let done = Written { tag: Nonce(7).to_string(), date: Some(DATE.1) };
        let put = table.put(Slot::Lease, condition, &body(7, Some(4))).await;
        assert_eq!(put, Ok(Some(done.clone())));
        assert_eq!(table.put(Slot::Lease, condition, &body(7, None)).await, Ok(None));
        assert_eq!(table.put_renewal(condition, &body(7, Some(4))).await, Ok(Some(done)));
        let asked = server.asked();
        assert_eq!(asked.len(), 3, "one request each");
        for (statement, value, is_news) in
            [(&asked[0], "4", true), (&asked[1], "NULL", true), (&asked[2], "4", false)]
        {
            assert!(statement.contains(start), "{statement}");
            assert!(statement.contains(&format!("{term}{value}")), "{statement}");
            let notify = format!("pg_notify('tenure', 'orders {}')", table.statements.own);
            assert_eq!(statement.contains(&notify), is_news, "nothing of the value: {statement}");
            assert_eq!(statement.matches("pg_notify").count(), usize::from(is_news), "{statement}");
            let is_compared = statement.contains("t.write = 'it''s'");
            assert_eq!(is_compared, condition != If::Absent, "{statement}");
        }
    }
    let largest = body(7, Some(1 << 63));
    let outcome = table.put(Slot::Lease, If::Absent, &largest).await;
    assert!(matches!(outcome, Err(RegisterError::Foreign(_))), "{outcome:?}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_table_is_created_for_the_first_value_alone() {
    let server = Server::start().await;
    server.says([Reply::Error("42P01"), Reply::Answer(Rows::new()), written()]);
    let put = server.table.put(Slot::Lease, If::Absent, &body(7, None)).await;
    assert!(put.is_ok_and(|it| it.is_some()));
    let asked = server.asked();
    assert!(asked.len() == 3 && asked[0] == asked[2], "{asked:?}");
    assert!(asked[1].contains("CREATE TABLE IF NOT EXISTS \"tenure\""), "{}", asked[1]);
    server.says([Reply::Error("42P01")]);
    let put = server.table.put(Slot::Lease, If::Tagged("x"), &body(7, None)).await;
    assert!(matches!(put, Err(RegisterError::Missing(_))), "{put:?}");
}

#[tokio::test]
async fn other_elections_are_listed_without_trials() {
    let server = Server::start().await;
    let listed = ["b", "orders_trial", "a"].map(|it| vec![Some(it.to_owned())]);
    server.says([Reply::Answer(listed.to_vec()), Reply::Error("42P01")]);
    assert_eq!(server.table.others().await, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(server.table.others().await, None);
}

#[tokio::test]
async fn a_notification_is_a_hint_and_so_is_a_new_connection_for_them() {
    let server = Server::start().await;
    assert_eq!(server.table.told().await, Told::Hint);
    assert!(server.asked().is_empty(), "it is on a connection of its own");
}

#[test]
fn each_request_is_bounded() {
    let server = Address { host: Host::Domain("h".to_owned()), port: 1 };
    let statements = Statements::new(&settings(server), Duration::ZERO);
    for bound in ["statement_timeout = 1;", "lock_timeout = 1;", "tcp_user_timeout = 1;"] {
        let of = format!("SET LOCAL {bound}");
        for statement in [statements.read("orders"), statements.create_table()] {
            assert!(statement.contains(&of), "zero stands for no bound: {statement}");
        }
    }
}
