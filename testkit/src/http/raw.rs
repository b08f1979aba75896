//! A minimal client for blobs that signs with an account key by itself: it performs what a third
//! party would do behind the backend's back.

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use reqwest::header::HeaderMap;
use tenure::config::{AzureCredential, AzureSettings, SecretSource};
use url::Url;

/// The part of an answer that tests check.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// `x-ms-error-code`; empty if there is none.
    pub code: String,
    pub headers: HeaderMap,
}

impl Answer {
    /// Returns a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A client for one blob.
pub struct Raw {
    client: reqwest::Client,
    settings: AzureSettings,
}

impl Raw {
    /// Creates a client for the account, container and blob of the settings, with their key.
    pub fn new(settings: &AzureSettings) -> Self {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        // A new connection for each request, so that no request fails because an idle one was
        // closed.
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .pool_max_idle_per_host(0)
            .no_proxy()
            .build()
            .expect("a client");
        Self { client, settings: settings.clone() }
    }

    /// Sends a request for the blob.
    pub async fn blob(&self, method: &str, query: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(
            method,
            &format!("{}/{}", self.settings.container, self.settings.blob),
            query,
            headers,
        )
        .await
    }

    /// Sends a request for the container.
    pub async fn container(&self, method: &str) -> Answer {
        self.send(method, &self.settings.container, "restype=container", &[]).await
    }

    /// Creates the container and an empty blob.
    pub async fn make(&self) {
        self.container("PUT").await;
        let made = self.blob("PUT", "", &[("x-ms-blob-type", "BlockBlob")]).await;
        assert_eq!(made.status, 201, "{made:?}");
    }

    /// Sends a lease request for the blob.
    pub async fn lease(&self, action: &str, headers: &[(&str, &str)]) -> Answer {
        let mut all = vec![("x-ms-lease-action", action)];
        all.extend_from_slice(headers);
        self.blob("PUT", "comp=lease", &all).await
    }

    /// Returns the lease state of the blob.
    pub async fn lease_state(&self) -> String {
        self.blob("HEAD", "", &[]).await.header("x-ms-lease-state").to_owned()
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        let AzureCredential::Key(SecretSource::Value(key)) = &self.settings.credential else {
            panic!("the bare client signs with a key from the settings");
        };
        let mut url = Url::parse(&format!("{}/{path}", self.settings.endpoint)).expect("a URL");
        url.set_query(Some(query).filter(|it| !it.is_empty()));
        let date = azure_core::time::to_rfc7231(&tenure::clock::now().date());
        let mut all = vec![("x-ms-date", date.as_str()), ("x-ms-version", "2023-11-03")];
        all.extend_from_slice(headers);
        all.sort_unstable();
        let value = |name| all.iter().find(|(it, _)| *it == name).map_or("", |(_, value)| *value);
        let mut text = format!(
            "{method}\n\n\n\n\n\n\n\n{}\n{}\n\n\n",
            value("if-match"),
            value("if-none-match")
        );
        for (name, value) in all.iter().filter(|(name, _)| name.starts_with("x-ms-")) {
            text += &format!("{name}:{value}\n");
        }
        text += &format!("/{}{}", self.settings.account, url.path());
        for (name, value) in url.query_pairs() {
            text += &format!("\n{name}:{value}");
        }
        let signature = hmac_sha256(&text, &Secret::new(key.clone())).expect("a signature");
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.client.request(method, url);
        for (name, value) in &all {
            request = request.header(*name, *value);
        }
        let answer = request
            .header("authorization", format!("SharedKey {}:{signature}", self.settings.account))
            .header("content-length", "0")
            .send()
            .await
            .expect("an answer");
        let headers = answer.headers().clone();
        let code = headers.get("x-ms-error-code").and_then(|it| it.to_str().ok());
        let code = code.unwrap_or_default().to_owned();
        Answer { status: answer.status().as_u16(), code, headers }
    }
}
