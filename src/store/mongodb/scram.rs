//! The sign-in by SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding. The password is prepared by
//! SASLprep, as MongoDB does: <https://github.com/mongodb/specifications/blob/master/source/auth/auth.md>.
//!
//! The server proves that it knows the password too; one that does not is refused.

use std::num::NonZeroU32;

use azure_core::base64;
use ring::{digest, hmac, pbkdf2};

/// The rounds of hashing that a server may ask for. Fewer are forbidden; more would take seconds, and the
/// default of MongoDB is 15000.
const ROUNDS: std::ops::RangeInclusive<u32> = 4_096..=1_000_000;

/// A sign-in that has begun.
pub(super) struct Scram {
    password: String,
    nonce: String,
    /// The first message without its header.
    bare: String,
}

/// The last message, and the answer that proves the server.
pub(super) struct Proof {
    pub(super) message: String,
    expected: String,
}

impl Scram {
    /// Begins a sign-in with a random nonce.
    pub(super) fn new(user: &str, password: &str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        // What cannot be prepared is used as it is, like by MongoDB's own clients before version 4.
        let password =
            stringprep::saslprep(password).map_or_else(|_| password.to_owned(), Into::into);
        Self { bare: format!("n={user},r={nonce}"), password, nonce }
    }

    /// Returns the first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Returns the answer to the server's challenge; `None` if that breaks the rules.
    pub(super) fn answer(&self, challenge: &str) -> Option<Proof> {
        let mut parts = challenge.split(',');
        let mut part = |name: &str| parts.next()?.strip_prefix(name);
        let (nonce, salt, rounds) = (part("r=")?, part("s=")?, part("i=")?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return None;
        }
        let rounds =
            rounds.parse().ok().filter(|it| ROUNDS.contains(it)).and_then(NonZeroU32::new)?;
        let salt = base64::decode(salt).ok()?;
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let password = self.password.as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password, &mut salted);
        let unproven = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{unproven}", self.bare);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let signature = sign(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server = sign(&sign(&salted, b"Server Key"), signed.as_bytes());
        Some(Proof {
            message: format!("{unproven},p={}", base64::encode(proof)),
            expected: format!("v={}", base64::encode(server)),
        })
    }
}

impl Proof {
    /// Returns whether the server knows the password.
    pub(super) fn is_of(&self, last: &str) -> bool {
        use subtle::ConstantTimeEq;
        self.expected.as_bytes().ct_eq(last.as_bytes()).into()
    }
}

fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn begun() -> Scram {
        Scram::new("user", "pencil", "rOprNGfwEbeRWgbNEkqO".to_owned())
    }

    #[test]
    fn the_example_of_rfc_7677_is_followed() {
        let scram = begun();
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let proof = scram.answer(CHALLENGE).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(proof.is_of("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!proof.is_of("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert!(!proof.is_of("e=invalid-proof"));
    }

    #[test]
    fn a_challenge_that_breaks_the_rules_is_refused() {
        for (from, to) in [
            ("rOprNGfwEbeRWgbNEkqO%", "another%"),
            ("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""),
            ("i=4096", "i=4095"),
            ("i=4096", "i=1000001"),
            ("i=4096", "i=-1"),
            ("s=W22", "s=*"),
            (",i=", ",m=x,i="),
            ("r=", "e=other-error,r="),
        ] {
            assert!(begun().answer(&CHALLENGE.replace(from, to)).is_none(), "{from} {to}");
        }
    }

    #[test]
    fn names_and_passwords_are_prepared() {
        let scram = Scram::new("a,b=c", "I\u{ad}X", "n".to_owned());
        assert_eq!(scram.first(), "n,,n=a=2Cb=3Dc,r=n");
        assert_eq!(scram.password, "IX", "as RFC 4013 has it");
    }
}
