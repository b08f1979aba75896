//! The server's side of a sign-in by SCRAM-SHA-256, as RFC 5802 and RFC 7677 describe it.

use std::num::NonZeroU32;

use azure_core::base64;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use ring::{digest, hmac, pbkdf2};

use super::wire::{failure, is};

/// The fewest that are allowed; new users of MongoDB have 15000, which take a debug build too long.
const ROUNDS: NonZeroU32 = NonZeroU32::new(4_096).expect("it is not zero");

const SALT: &[u8] = b"sixteen bytes of";

/// A sign-in of a connection.
#[derive(Default)]
pub struct SignIn {
    /// What both sides have said so far.
    said: Option<(String, String)>,
    /// Whether it succeeded.
    pub is_done: bool,
}

fn payload(command: &Document) -> Option<String> {
    match command.get("payload")? {
        Bson::Binary(it) => String::from_utf8(it.bytes.clone()).ok(),
        _ => None,
    }
}

fn step(text: &str, done: bool) -> Document {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() };
    doc! {"conversationId": 1, "done": done, "payload": payload, "ok": 1.0}
}

fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

impl SignIn {
    /// Answers the first command of a sign-in.
    pub fn start(&mut self, command: &Document, user: &str) -> Document {
        if !is(command, "mechanism", "SCRAM-SHA-256") {
            return failure(334, "MechanismUnavailable");
        }
        let first = payload(command).unwrap_or_default();
        let Some(bare) = first.strip_prefix("n,,") else {
            return failure(18, "AuthenticationFailed");
        };
        let Some(nonce) = bare.strip_prefix(&format!("n={user},r=")) else {
            return failure(18, "AuthenticationFailed");
        };
        let salt = base64::encode(SALT);
        let challenge = format!("r={nonce}ofTheServer,s={salt},i={ROUNDS}");
        self.said = Some((bare.to_owned(), challenge.clone()));
        step(&challenge, false)
    }

    /// Answers the next one.
    pub fn go_on(&mut self, command: &Document, password: &str) -> Document {
        let Some((bare, challenge)) = self.said.take() else {
            return failure(17, "ProtocolError");
        };
        let said = payload(command).unwrap_or_default();
        let Some((unproven, proof)) = said.split_once(",p=") else {
            return failure(18, "AuthenticationFailed");
        };
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, SALT, password.as_bytes(), &mut salted);
        let signed = format!("{bare},{challenge},{unproven}");
        let key = sign(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, &key);
        let signature = sign(stored.as_ref(), signed.as_bytes());
        let expected: Vec<u8> = key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if proof != base64::encode(expected) {
            return failure(18, "AuthenticationFailed");
        }
        self.is_done = true;
        let server = sign(&sign(&salted, b"Server Key"), signed.as_bytes());
        step(&format!("v={}", base64::encode(server)), true)
    }
}
