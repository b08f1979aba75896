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
use super::connection_string::{self, ConnectionString};
use super::{VERSION, shared_key};
use crate::clock;
use crate::config::{AzureSettings, is_loopback};

/// The clients for the blob of one election, with one proof.
pub(super) struct Access {
    /// The blob with the lease and the record.
    pub(super) lock: BlobClient,
    /// The container of the blob.
    pub(super) container: BlobContainerClient,
    /// The endpoint of the account.
    pub(super) endpoint: Url,
    /// The proof of identity.
    pub(super) proof: Proof,
    container_url: Url,
    options: ClientOptions,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("proof", &self.proof).finish_non_exhaustive()
    }
}

impl Access {
    /// Creates the clients for the account in the settings.
    pub(super) fn new(
        settings: &AzureSettings,
        transport: &Arc<dyn HttpClient>,
        proof: Proof,
    ) -> Result<Self, String> {
        Self::at(settings.endpoint.clone(), settings, transport, proof)
    }

    /// Creates the clients for the account in a connection string, which must be the account in the
    /// settings. Its endpoint is used unless the settings name one other than the default.
    pub(super) fn of(
        settings: &AzureSettings,
        transport: &Arc<dyn HttpClient>,
        text: &str,
    ) -> Result<Self, String> {
        let ConnectionString { account, endpoint, proof } =
            connection_string::parse(text).map_err(|faults| faults.join("; "))?;
        if let Some(account) = account.filter(|account| *account != settings.account) {
            let wanted = &settings.account;
            return Err(format!("it is for the account {account}, but --store names {wanted}"));
        }
        let usual = [
            format!("https://{}.blob.core.windows.net/", settings.account),
            format!("http://127.0.0.1:10000/{}", settings.account),
        ];
        let is_usual = usual.iter().any(|usual| settings.endpoint.as_str() == usual);
        let endpoint = endpoint.filter(|_| is_usual);
        if endpoint.as_ref().is_some_and(|url| url.scheme() == "http" && !is_loopback(url)) {
            return Err(
                "its endpoint uses plain http: set it with --azure-endpoint, and allow it with \
                 --azure-insecure-http"
                    .to_owned(),
            );
        }
        Self::at(endpoint.unwrap_or_else(|| settings.endpoint.clone()), settings, transport, proof)
    }

    fn at(
        endpoint: Url,
        settings: &AzureSettings,
        transport: &Arc<dyn HttpClient>,
        proof: Proof,
    ) -> Result<Self, String> {
        if matches!(proof, Proof::Token(_))
            && endpoint.scheme() != "https"
            && !is_loopback(&endpoint)
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
        let container_url = below(&endpoint, &settings.container);
        let container = BlobContainerClient::new(
            container_url.clone(),
            None,
            Some(BlobContainerClientOptions {
                client_options: options.clone(),
                version: VERSION.to_owned(),
            }),
        )
        .map_err(unfit)?;
        let lock = blob_client(&container_url, &settings.blob, &options).map_err(unfit)?;
        Ok(Self { lock, container, endpoint, proof, container_url, options })
    }

    /// Returns a client for another blob of the container.
    pub(super) fn blob(&self, name: &str) -> azure_core::Result<BlobClient> {
        blob_client(&self.container_url, name, &self.options)
    }
}

fn blob_client(
    container: &Url,
    name: &str,
    options: &ClientOptions,
) -> azure_core::Result<BlobClient> {
    let options =
        BlobClientOptions { client_options: options.clone(), version: VERSION.to_owned() };
    BlobClient::new(below(container, name), None, Some(options))
}

/// Appends a name to a URL, with one path segment for each part between slashes.
fn below(url: &Url, name: &str) -> Url {
    let mut url = url.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(name.split('/'));
    }
    url
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
    use super::*;

    #[test]
    fn a_signature_keeps_its_plus_signs_and_loses_its_question_mark() {
        let proof =
            Proof::sas("?sv=2023-11-03&se=2030-01-01T00%3A00%3A00Z&sig=a%2Bb%3D\n").unwrap();
        assert_eq!(proof.end(), Some("2030-01-01T00:00:00Z"));
        let Proof::Sas(pairs) = proof else { panic!() };
        assert_eq!(pairs[2], ("sig".to_owned(), "a+b=".to_owned()));
    }

    #[test]
    fn a_signature_without_its_version_or_itself_is_refused_by_name() {
        for (text, name) in [("sig=x", "sv"), ("sv=&sig=x", "sv"), ("sv=1", "sig"), ("", "sv")] {
            let fault = Proof::sas(text).unwrap_err();
            assert!(fault.contains(&format!("has no {name}= parameter")), "{text}: {fault}");
        }
    }

    #[test]
    fn an_invalid_key_or_signature_is_refused_and_redacted() {
        for fault in [Proof::key("a", "not*base64"), Proof::key("a", ""), Proof::sas("sv=1&sig=")] {
            let fault = fault.unwrap_err();
            assert!(!fault.contains("not*base64"), "{fault}");
        }
    }

    #[test]
    fn credentials_are_redacted_in_debug_output() {
        let shown = format!("{:?}", Authorize(Proof::key("a", "a2V5a2V5").unwrap()));
        assert_eq!(shown, "Authorize(Key(…))");
    }

    #[test]
    fn a_blob_name_with_slashes_is_a_path() {
        let url = Url::parse("http://127.0.0.1:1/devstoreaccount1").unwrap();
        let url = below(&below(&url, "locks"), "team/orders");
        assert_eq!(url.path(), "/devstoreaccount1/locks/team/orders");
    }
}
