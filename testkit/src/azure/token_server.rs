//! A token endpoint over HTTP or HTTPS that behaves as Entra and the identity endpoint of a machine
//! do. Its tokens have the claims that Azurite checks, and no valid signature.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::azure::azurite::Certificate;

/// How the endpoint answers.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// A token for blobs with this lifetime.
    Token { lifetime: Duration },
    /// The error with which Entra rejects an assertion.
    Refuse,
    /// No answer, ever.
    Hang,
}

/// The endpoint; stops when it is dropped.
pub struct TokenServer {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    reply: Mutex<Reply>,
    log: Mutex<Vec<String>>,
}

impl Drop for TokenServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TokenServer {
    /// Starts it on a free port, over HTTPS if there is a certificate.
    pub async fn start(certificate: Option<&Certificate>) -> Self {
        Self::start_at(0, certificate).await
    }

    /// Starts it on a given port.
    pub async fn start_at(port: u16, certificate: Option<&Certificate>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let port = listener.local_addr().expect("an address").port();
        let reply = Mutex::new(Reply::Token { lifetime: Duration::from_secs(3600) });
        let shared = Arc::new(Shared { reply, log: Mutex::default() });
        let scheme = if certificate.is_some() { "https" } else { "http" };
        let tls = certificate.map(acceptor);
        #[allow(clippy::disallowed_methods, reason = "owned by the server, which ends it")]
        let task = tokio::spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { url: format!("{scheme}://127.0.0.1:{port}"), shared, task }
    }

    /// Returns scheme, host and port.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Sets the answer from now on.
    pub fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().expect("a lock") = reply;
    }

    /// Returns the requests since the start or the last call: method, target, identity header and
    /// body.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.log.lock().expect("a lock"))
    }
}

fn acceptor(certificate: &Certificate) -> TlsAcceptor {
    let chain =
        vec![CertificateDer::from_pem_file(&certificate.certificate).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate with its key");
    TlsAcceptor::from(Arc::new(settings))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let service = service_fn(move |request| serve(request, Arc::clone(&shared)));
            let http = hyper::server::conn::http1::Builder::new();
            match tls {
                None => drop(http.serve_connection(TokioIo::new(stream), service).await),
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        drop(http.serve_connection(TokioIo::new(stream), service).await);
                    }
                }
            }
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    let header = parts.headers.get("x-identity-header").and_then(|it| it.to_str().ok());
    shared.log.lock().expect("a lock").push(format!(
        "{} {} {} {}",
        parts.method,
        parts.uri,
        header.unwrap_or_default(),
        String::from_utf8_lossy(&body)
    ));
    let reply = *shared.reply.lock().expect("a lock");
    let (status, answer) = match reply {
        Reply::Hang => std::future::pending().await,
        Reply::Refuse => (
            401,
            json!({
                "error": "invalid_client",
                "error_description": "AADSTS700024: Client assertion is not within its valid time \
                                      range.\r\nTrace ID: 1",
                "error_codes": [700_024],
            }),
        ),
        Reply::Token { lifetime } => {
            let end = (tenure::clock::now().date() + lifetime).unix_timestamp();
            (
                200,
                json!({
                    "access_token": token(),
                    "token_type": "Bearer",
                    "resource": "https://storage.azure.com",
                    "expires_in": lifetime.as_secs(),
                    "ext_expires_in": lifetime.as_secs(),
                    "expires_on": end.to_string(),
                }),
            )
        }
    };
    let body = Full::new(Bytes::from(answer.to_string()));
    let answer = Response::builder().status(status).header("content-type", "application/json");
    Ok(answer.body(body).expect("an answer"))
}

/// Returns a token with the claims that Azurite checks. It outlives the lifetime in the answer, so
/// that tests do not depend on Azurite's clock.
pub fn token() -> String {
    let now = tenure::clock::now().date().unix_timestamp();
    let part = |value: serde_json::Value| azure_core::base64::encode_url_safe(value.to_string());
    let head = part(json!({"typ": "JWT", "alg": "RS256", "kid": "1"}));
    let claims = part(json!({
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": now - 60,
        "nbf": now - 60,
        "exp": now + 3600,
        "jti": uuid::Uuid::new_v4().to_string(),
        "oid": "23657296-5cd5-45b0-a809-d972a7f4dfe1",
        "sub": "23657296-5cd5-45b0-a809-d972a7f4dfe1",
        "tid": "ab1f708d-50f6-404c-a006-d71b2ac7a606",
        "ver": "1.0",
    }));
    format!("{head}.{claims}.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg")
}
