//! Tests of the sign-in and of answers, on servers that follow a script.

use std::io::Cursor;

use tokio::io::AsyncWriteExt;

use super::super::bson::Value;
use super::*;

fn answer(number: i32, body: &Document) -> Vec<u8> {
    let mut message = wire::message(0, body);
    message[8..12].copy_from_slice(&number.to_le_bytes());
    message
}

fn connection(answers: &[Vec<u8>]) -> Connection {
    let stream = tokio::io::join(Cursor::new(answers.concat()), tokio::io::sink());
    Connection::over(Box::new(stream), "h:1".to_owned())
}

fn done() -> Document {
    Document::of([("n", 1.into()), ("ok", Value::Double(1.0))])
}

fn asked(connection: &mut Connection) -> Result<Document, RegisterError> {
    connection.ask(&wire::build_info()).now_or_never().expect("all of it is there")
}

#[test]
fn an_answer_counts_only_when_it_is_whole_and_answers_the_request() {
    let mut one = connection(&[answer(1, &done())]);
    assert_eq!(asked(&mut one), Ok(done()));
    assert!(one.is_in_step());
    let whole = answer(1, &done());
    for (answers, words) in [
        (vec![], "closed the connection"),
        (vec![whole[..whole.len() - 1].to_vec()], "closed the connection"),
        (vec![answer(2, &done())], "did not answer as MongoDB does"),
        (vec![whole.clone(), whole.clone()], "did not answer as MongoDB does"),
        (vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()], "did not answer as MongoDB does"),
    ] {
        let mut one = connection(&answers);
        let error = asked(&mut one).expect_err("it is no answer");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!one.is_in_step(), "the rest would be taken for another answer");
    }
}

#[test]
fn an_error_in_an_answer_leaves_the_connection_usable() {
    let refused = Document::of([("ok", 0.into()), ("code", 13.into()), ("errmsg", "no".into())]);
    let mut one = connection(&[answer(1, &refused)]);
    assert!(matches!(asked(&mut one), Err(RegisterError::Denied(_))));
    assert!(one.is_in_step());
}

#[test]
fn a_server_that_does_not_know_hello_is_asked_as_before() {
    let unknown = Document::of([("ok", 0.into()), ("code", 59.into())]);
    let known = Document::of([("ok", 1.into()), ("ismaster", true.into())]);
    let (here, mut there) = tokio::io::duplex(4 * 1024);
    let mut one = Connection::over(Box::new(here), "h:1".to_owned());
    let served = async {
        for (number, body) in [(1, &unknown), (2, &known)] {
            let mut request = [0; 4 * 1024];
            assert_ne!(there.read(&mut request).await.expect("a request"), 0);
            there.write_all(&answer(number, body)).await.expect("sent");
        }
    };
    let (greeted, ()) =
        futures::executor::block_on(async { futures::join!(one.greet("x"), served) });
    greeted.unwrap();
    assert!(one.hello.is_primary && !one.hello.is_replicated());
}

#[test]
fn a_server_that_does_not_know_the_password_is_refused() {
    let login = Login::Password { user: "u".to_owned(), password: "p".to_owned() };
    for (challenge, last, expected) in [
        ("s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=AAAA", "not the server it claims to be"),
        ("s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "v=AAAA", "did not answer as MongoDB does"),
    ] {
        let (here, mut there) = tokio::io::duplex(4 * 1024);
        let mut one = Connection::over(Box::new(here), "h:1".to_owned());
        let served = async {
            let mut request = [0; 4 * 1024];
            let length = there.read(&mut request).await.expect("a request");
            let mut received = request[..length].to_vec();
            let asked = wire::parse(&mut received).unwrap().unwrap().body;
            let first = wire::sasl_payload(&asked).unwrap().to_owned();
            let nonce = first.split_once("r=").unwrap().1;
            let challenge = format!("r={nonce}more,{challenge}");
            let of = |payload: &str| {
                let payload = payload.as_bytes().to_vec();
                Document::of([
                    ("ok", 1.into()),
                    ("payload", payload.into()),
                    ("done", false.into()),
                ])
            };
            there.write_all(&answer(1, &of(&challenge))).await.expect("sent");
            let next = there.read(&mut request).await;
            assert!(next.is_ok(), "the next message, or the end");
            let _ = there.write_all(&answer(2, &of(last))).await;
            drop(there);
        };
        let signed = async {
            let outcome = one.sign_in(&login, "admin").await;
            drop(one);
            outcome
        };
        let (outcome, ()) = futures::executor::block_on(async { futures::join!(signed, served) });
        let error = outcome.expect_err("it does not know it").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
