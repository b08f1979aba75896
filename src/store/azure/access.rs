//! Access to one blob: clients that authenticate each request. A new proof makes a new [`Access`]
//! over the same connections; tokens and files are read in `credential`.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::AUTHORIZATION;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{ClientOptions, Context, HttpClient, Request, RetryOptions, Transport};
use azure_core::time::to_rfc7231;
use azure_storage_blob::{
    BlobClient, BlobClientOptions, BlobContainerClient, BlobContainerClientOptions,
};
use url::Url;

use super::auth::Proof;
use super::{VERSION, shared_key};
use crate::clock;
use crate::config::{AzureSettings, is_loopback};

/// The clients for the blob of one election, with one proof.
pub(super) struct Access {
    /// The blob with the lease and the record.
    pub(super) lock: BlobClient,
    /// The container of the blob.
    pub(super) container: BlobContainerClient,
    /// The proof of identity.
    pub(super) proof: Proof,
    options: ClientOptions,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("proof", &self.proof).finish_non_exhaustive()
    }
}

impl Access {
    /// Creates the clients for the blob in the settings.
    pub(super) fn new(
        settings: &AzureSettings,
        transport: &Arc<dyn HttpClient>,
        proof: Proof,
    ) -> Result<Self, String> {
        let endpoint = &settings.endpoint;
        if matches!(proof, Proof::Token(_))
            && endpoint.scheme() != "https"
            && !is_loopback(endpoint)
        {
            return Err("tokens are never sent over plain http: set an https endpoint".to_owned());
        }
        let options = ClientOptions {
            per_try_policies: vec![Arc::new(Authorize(proof.clone()))],
            retry: RetryOptions::none(),
            transport: Some(Transport::new(Arc::clone(transport))),
            ..ClientOptions::default()
        };
        let unfit = |_| "the endpoint is invalid".to_owned();
        let container = BlobContainerClient::new(
            settings.container_url(),
            None,
            Some(BlobContainerClientOptions {
                client_options: options.clone(),
                version: VERSION.to_owned(),
            }),
        )
        .map_err(unfit)?;
        let lock = blob_client(settings.lock_url(), &options).map_err(unfit)?;
        Ok(Self { lock, container, proof, options })
    }

    /// Returns a client for another blob.
    pub(super) fn blob(&self, url: Url) -> azure_core::Result<BlobClient> {
        blob_client(url, &self.options)
    }
}

fn blob_client(url: Url, options: &ClientOptions) -> azure_core::Result<BlobClient> {
    let options =
        BlobClientOptions { client_options: options.clone(), version: VERSION.to_owned() };
    BlobClient::new(url, None, Some(options))
}

/// Adds the proof to each request.
#[derive(Debug)]
struct Authorize(Proof);

#[async_trait]
impl Policy for Authorize {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        request.insert_header("x-ms-date", to_rfc7231(&clock::now().date()));
        match &self.0 {
            Proof::Key { account, key } => shared_key::sign(request, account, key)?,
            Proof::Sas(pairs) => {
                request.url_mut().query_pairs_mut().extend_pairs(pairs.iter());
            }
            Proof::Token(token) => {
                request.insert_header(AUTHORIZATION, format!("Bearer {}", token.secret()));
            }
        }
        match next {
            [first, rest @ ..] => first.send(ctx, request, rest).await,
            [] => Err(Error::with_message(ErrorKind::Other, "the pipeline has no transport")),
        }
    }
}

#[cfg(test)]
mod tests {
    use azure_core::credentials::Secret;

    use super::*;

    #[test]
    fn credentials_are_redacted_in_debug_output() {
        let shown = format!(
            "{:?}",
            Authorize(Proof::Key { account: "a".to_owned(), key: Secret::new("a2V5a2V5") })
        );
        assert_eq!(shown, "Authorize(Key(…))");
    }
}
