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

#[test]
fn a_connection_on_which_anything_arrived_unasked_is_not_used_again() {
    let (here, mut there) = tokio::io::duplex(4 * 1024);
    let mut one = Connection::over(Box::new(here), "h:1".to_owned());
    assert!(one.is_alive());
    there.write_all(&answer(1, &done())).now_or_never().unwrap().unwrap();
    assert!(!one.is_alive());
    let (here, _) = tokio::io::duplex(4 * 1024);
    assert!(!Connection::over(Box::new(here), "h:1".to_owned()).is_alive(), "it was closed");
}

/// Returns the message with which a server ends a sign-in (RFC 5802).
fn signature(password: &str, user: &str, nonce: &str, challenge: &str) -> String {
    let salt = azure_core::base64::decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let mut salted = [0; 32];
    let rounds = std::num::NonZeroU32::new(4_096).unwrap();
    let algorithm = ring::pbkdf2::PBKDF2_HMAC_SHA256;
    ring::pbkdf2::derive(algorithm, rounds, &salt, password.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &[u8]| {
        ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key), text)
    };
    let key = sign(&salted, b"Server Key");
    let all = format!("n={user},r={nonce},{challenge},c=biws,r={nonce}more");
    let signature = sign(key.as_ref(), all.as_bytes());
    format!("v={}", azure_core::base64::encode(signature))
}

#[test]
fn a_sign_in_ends_with_an_empty_message_where_the_server_expects_one() {
    let login = Login::Password { user: "u".to_owned(), password: "p".to_owned() };
    for is_done in [true, false] {
        let (here, mut there) = tokio::io::duplex(4 * 1024);
        let mut one = Connection::over(Box::new(here), "h:1".to_owned());
        let mut payloads = Vec::new();
        {
            let mut signing_in = Box::pin(one.sign_in(&login, "admin"));
            let mut nonce = String::new();
            let mut challenge = String::new();
            for number in 1..=if is_done { 2 } else { 3 } {
                let pending = signing_in.as_mut().now_or_never();
                assert!(pending.is_none(), "{pending:?}");
                let mut received = Vec::with_capacity(4 * 1024);
                let read = there.read_buf(&mut received).now_or_never();
                assert!(matches!(read, Some(Ok(1..))), "{read:?}");
                let asked = wire::parse(&mut received).unwrap().unwrap().body;
                let payload = wire::sasl_payload(&asked).unwrap().to_owned();
                let said = match number {
                    1 => {
                        payload.split_once("r=").unwrap().1.clone_into(&mut nonce);
                        challenge = format!("r={nonce}more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
                        challenge.clone()
                    }
                    2 => signature("p", "u", &nonce, &challenge),
                    _ => String::new(),
                };
                payloads.push(payload);
                let body = Document::of([
                    ("ok", 1.into()),
                    ("payload", said.into_bytes().into()),
                    ("done", (is_done && number == 2).into()),
                ]);
                let answer = answer(number, &body);
                there.write_all(&answer).now_or_never().expect("it fits").unwrap();
            }
            assert_eq!(signing_in.now_or_never(), Some(Ok(())));
        }
        assert!(payloads[1].contains(",p="), "{payloads:?}");
        assert_eq!(payloads.get(2).map(String::as_str), (!is_done).then_some(""));
    }
}
