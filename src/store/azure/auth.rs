//! The proof of identity for the store: a key, a signature or a token.

use std::sync::Arc;

use azure_core::credentials::Secret;

/// The proof of identity. `Debug` shows no part of it.
#[derive(Clone)]
pub(super) enum Proof {
    /// An account key, which signs each request.
    Key {
        /// The account.
        account: String,
        /// The key, in base64.
        key: Secret,
    },
    /// A shared access signature, as the parameters of a query.
    Sas(Arc<[(String, String)]>),
    /// A token of Entra.
    Token(Secret),
}

impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key { .. } => "Key(…)",
            Self::Sas(_) => "Sas(…)",
            Self::Token(_) => "Token(…)",
        })
    }
}

impl Proof {
    /// Parses an account key.
    pub(super) fn key(account: &str, text: &str) -> Result<Self, String> {
        let text = text.trim();
        match azure_core::base64::decode(text) {
            Ok(key) if !key.is_empty() => {
                Ok(Self::Key { account: account.to_owned(), key: Secret::new(text.to_owned()) })
            }
            _ => Err("AccountKey is not valid base64: copy the whole key".to_owned()),
        }
    }

    /// Parses a shared access signature, with or without its question mark.
    pub(super) fn sas(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_start_matches('?');
        let pairs: Vec<(String, String)> = url::form_urlencoded::parse(text.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        for wanted in ["sv", "sig"] {
            if !pairs.iter().any(|(name, value)| name == wanted && !value.is_empty()) {
                return Err(format!("the shared access signature has no {wanted}= parameter"));
            }
        }
        Ok(Self::Sas(pairs.into()))
    }

    /// Returns when a shared access signature expires, by its own parameter.
    pub(super) fn end(&self) -> Option<&str> {
        let Self::Sas(pairs) = self else { return None };
        pairs.iter().find(|(name, _)| name == "se").map(|(_, value)| value.as_str())
    }
}
