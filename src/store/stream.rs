//! What a connection to a store runs over.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection in plain text or by TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}
