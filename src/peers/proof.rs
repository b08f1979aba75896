//! The proof of a subscriber that it can read the record of the election: the leader hands over to no other.
//!
//! The nonce of the record is known only to those who can read the store. A candidate signs with it all that its
//! request says of itself, so that no proof stands for another candidate, priority or state, nor for another
//! leadership.

use axum::http::{HeaderMap, HeaderName};
use azure_core::base64;
use ring::hmac;

use super::subscription::SIGNED;
use crate::lease::Nonce;

/// The header with the proof.
pub(super) const PROOF: HeaderName = HeaderName::from_static("tenure-proof");

/// Returns the proof for a request with these headers to the leader whose record has this nonce.
#[must_use]
pub fn prove(nonce: Nonce, headers: &HeaderMap) -> String {
    base64::encode(hmac::sign(&key(nonce), &said(headers)))
}

/// Returns whether a request to the leader whose record has this nonce is proven.
pub(super) fn is_proven(nonce: Nonce, headers: &HeaderMap) -> bool {
    let proof = headers.get(PROOF).and_then(|it| base64::decode(it.as_bytes()).ok());
    proof.is_some_and(|it| hmac::verify(&key(nonce), &said(headers), &it).is_ok())
}

fn key(nonce: Nonce) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &nonce.0.to_be_bytes())
}

/// Returns what the headers say of the candidate. No value has a line break.
fn said(headers: &HeaderMap) -> Vec<u8> {
    let mut said = Vec::new();
    for name in SIGNED {
        if let Some(value) = headers.get(&name) {
            said.extend([name.as_str().as_bytes(), b"=", value.as_bytes(), b"\n"].concat());
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::super::subscription;
    use super::super::tests::report;
    use super::*;
    use crate::election::State;

    const NONCE: Nonce = Nonce(0xfeed);

    #[test]
    fn a_proof_is_for_one_leadership_and_for_all_that_the_request_says() {
        let whole = subscription::headers("orders", &report("b", State::Standby), NONCE);
        assert!(is_proven(NONCE, &whole));
        assert!(!is_proven(Nonce(0xbeef), &whole), "of another leadership");
        for name in SIGNED {
            let mut changed = whole.clone();
            changed.insert(name.clone(), HeaderValue::from_static("100"));
            assert!(!is_proven(NONCE, &changed), "another {name}");
            if changed.remove(&name).is_some() && whole.contains_key(&name) {
                assert!(!is_proven(NONCE, &changed), "no {name}");
            }
        }
        for proof in ["", "x", "AAAA", &"A".repeat(44)] {
            let mut changed = whole.clone();
            changed.insert(PROOF, HeaderValue::from_str(proof).unwrap());
            assert!(!is_proven(NONCE, &changed), "{proof}");
        }
        let mut none = whole;
        none.remove(PROOF);
        assert!(!is_proven(NONCE, &none));
    }
}
