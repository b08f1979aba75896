//! TLS on rustls with ring, for listeners and clients. Certificates, keys and authorities come from
//! PEM files that are read again when they change, since platforms rotate them.
//!
//! Files that cannot be read, or do not fit together, never replace what was read before.

mod client;
mod material;
mod pem;
mod server;
#[cfg(test)]
pub(crate) mod testing;
mod validity;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::ClientTls;
#[cfg(feature = "mongodb")]
pub(crate) use client::system_authorities;
pub(crate) use client::{system_client, trusting};
pub(crate) use pem::authorities;
pub use pem::{KeyPair, Part, TlsFault};
pub use server::{ServerFiles, ServerTls};
pub use validity::Validity;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
