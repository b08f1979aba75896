//! The proof of identity for the store: a key, a signature or a token.

use std::sync::Arc;

use azure_core::credentials::Secret;

use crate::config::AzureSecret;

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

impl From<AzureSecret> for Proof {
    fn from(secret: AzureSecret) -> Self {
        match secret {
            AzureSecret::Key { account, key } => Self::Key { account, key },
            AzureSecret::Sas(pairs) => Self::Sas(pairs),
        }
    }
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

#[cfg(test)]
impl Proof {
    /// Returns a shared access signature with these parameters, as in a query.
    pub(super) fn sas(query: &str) -> Self {
        Self::Sas(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }
}
