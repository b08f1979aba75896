//! Tests of the requests and of the sign-ins against a server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use azure_core::base64;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::identity::Identity;
use super::*;
use crate::store::Verdict;

/// What a server answers next.
enum Reply {
    /// Status and body.
    Answer(u16, Value),
    /// Nothing, ever.
    Hang,
}

/// A request that a server received.
struct Asked {
    /// Method, path and query.
    line: String,
    headers: HeaderMap,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|it| it.to_str().unwrap())
    }
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<Asked>,
}

/// A server that answers what the test has put into it, in this order; each answer has generation 7.
struct Server {
    url: Url,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let script = Arc::<Mutex<Script>>::default();
        let shared = Arc::clone(&script);
        let app =
            Router::new().fallback(move |request: Request| answer(Arc::clone(&shared), request));
        let serving = async move { axum::serve(listener, app).await.unwrap() };
        let mut task = JoinSet::new();
        task.spawn(serving);
        Self { url: Url::parse(&url).unwrap(), script, _task: task }
    }

    fn says(&self, replies: impl IntoIterator<Item = (u16, Value)>) {
        let replies = replies.into_iter().map(|(status, body)| Reply::Answer(status, body));
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the requests since the last time.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }

    fn settings(&self, credential: GoogleCredential) -> GcsSettings {
        GcsSettings {
            bucket: "leases".to_owned(),
            prefix: Some("team".to_owned()),
            election: "orders".to_owned(),
            server: self.url.clone(),
            credential,
            tls: None,
            request_timeout: Duration::from_secs(30),
        }
    }

    fn bucket(&self, credential: GoogleCredential) -> Bucket {
        Bucket::open(&self.settings(credential), Duration::from_secs(30)).unwrap()
    }
}

async fn answer(script: Arc<Mutex<Script>>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let reply = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        script.asked.push(Asked { line, headers, body });
        script.replies.pop_front()
    };
    match reply.unwrap_or(Reply::Answer(500, Value::Null)) {
        Reply::Answer(status, body) => {
            let code = StatusCode::from_u16(status).unwrap();
            let headers = [(GENERATION, "7"), ("date", "Tue, 14 Nov 2023 22:13:20 GMT")];
            (code, headers, body.to_string()).into_response()
        }
        Reply::Hang => std::future::pending().await,
    }
}

fn token(text: &str) -> (u16, Value) {
    (200, json!({"access_token": text, "expires_in": 3600}))
}

#[tokio::test]
async fn an_object_is_written_on_the_condition_of_its_generation() {
    let server = Server::start().await;
    let bucket = server.bucket(GoogleCredential::None);
    let body = Body::default();
    let put = |slot, condition| bucket.put(slot, condition, &body);
    server.says([(200, json!({"generation": "7"})), (200, json!({"generation": "8"}))]);
    let created = put(Slot::Lease, If::Absent).await.unwrap().unwrap();
    assert_eq!((&*created.tag, created.date.is_some()), ("7", true));
    assert_eq!(put(Slot::Trial, If::Tagged("7")).await.unwrap().unwrap().tag, "8");
    let asked = server.asked();
    let line = "POST /upload/storage/v1/b/leases/o?ifGenerationMatch";
    let ends =
        ["=0&name=team%2Forders&uploadType=media", "=7&name=team%2Forders_trial&uploadType=media"];
    for (asked, end) in asked.iter().zip(ends) {
        assert_eq!(asked.line, format!("{line}{end}"));
        assert_eq!(asked.body.as_bytes(), body.encode());
        assert_eq!(asked.header("authorization"), None);
    }
    server.says([(412, Value::Null), (404, Value::Null), (200, json!({}))]);
    assert_eq!(put(Slot::Lease, If::Tagged("7")).await, Ok(None));
    let no_bucket = put(Slot::Lease, If::Tagged("7")).await.unwrap_err();
    assert!(no_bucket.to_string().contains("there is no bucket leases"), "{no_bucket}");
    let unlike = put(Slot::Lease, If::Tagged("7")).await.unwrap_err();
    assert!(unlike.to_string().contains("answered without a generation"), "{unlike}");
}

#[tokio::test]
async fn an_object_is_read_with_its_generation() {
    let server = Server::start().await;
    let bucket = server.bucket(GoogleCredential::None);
    server.says([(200, json!({})), (404, Value::Null)]);
    let read = bucket.get(Slot::Lease).await.unwrap().unwrap();
    assert_eq!((&*read.tag, read.body.is_err()), ("7", true));
    assert_eq!(read.date.map(|it| it.unix_timestamp()), Some(1_700_000_000));
    assert_eq!(bucket.get(Slot::Lease).await, Ok(None));
    let line = "GET /storage/v1/b/leases/o/team%2Forders?alt=media";
    assert_eq!(server.asked()[0].line, line);
    assert_eq!(bucket.answered(), format!("{} answered over plain HTTP", bucket.server));
    assert_eq!(bucket.credential().as_deref(), Some("requests without a credential"));
}

#[tokio::test]
async fn elections_in_the_same_place_are_listed_without_their_trials() {
    let server = Server::start().await;
    let bucket = server.bucket(GoogleCredential::None);
    let items = ["team/orders", "team/orders_trial", "team/b", "other"];
    let items = items.map(|it| json!({"name": it}));
    server.says([(200, json!({"items": items})), (403, Value::Null)]);
    assert_eq!(bucket.others().await, Some(vec!["b".to_owned(), "orders".to_owned()]));
    assert_eq!(bucket.others().await, None);
    let line = "GET /storage/v1/b/leases/o?delimiter=%2F&maxResults=80&prefix=team%2F";
    assert_eq!(server.asked()[0].line, line);
}

#[tokio::test]
async fn a_request_is_bounded() {
    let server = Server::start().await;
    let settings = server.settings(GoogleCredential::None);
    let bucket = Bucket::open(&settings, Duration::from_millis(50)).unwrap();
    server.script.lock().unwrap().replies.push_back(Reply::Hang);
    let error = bucket.get(Slot::Lease).await.unwrap_err();
    assert!(error.to_string().ends_with("did not answer within 50ms"), "{error}");
}

#[tokio::test]
async fn requests_have_the_token_of_the_machine_which_is_not_shown() {
    let server = Server::start().await;
    let metadata = Server::start().await;
    metadata.says([token("hidden")]);
    let endpoint = metadata.url.clone();
    let bucket = server.bucket(GoogleCredential::Machine { endpoint });
    assert_eq!(bucket.credential(), None, "nothing was awaited yet");
    server.says([(200, json!({}))]);
    assert!(bucket.get(Slot::Lease).await.unwrap().is_some());
    let asked = metadata.asked();
    let line = "GET /computeMetadata/v1/instance/service-accounts/default/token";
    assert_eq!((&*asked[0].line, asked[0].header("metadata-flavor")), (line, Some("Google")));
    assert_eq!(server.asked()[0].header("authorization"), Some("Bearer hidden"));
    let known = bucket.token.as_ref().unwrap().known().unwrap();
    assert!(known.is_sensitive());
    let credential = bucket.credential();
    assert_eq!(credential.as_deref(), Some("the service account of this machine or pod"));
}

#[tokio::test]
async fn a_token_that_cannot_be_had_is_explained_once() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credential");
    let bucket = server.bucket(GoogleCredential::File(file));
    let Err(RegisterError::Credential(why)) = bucket.get(Slot::Lease).await else {
        panic!("there is no token");
    };
    assert_eq!(why.matches("cannot read it").count(), 1, "{why}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_refused_sign_in_is_shown_up_to_300_characters() {
    let server = Server::start().await;
    let endpoint = server.url.clone();
    let machine = Identity::open(&GoogleCredential::Machine { endpoint }).unwrap().unwrap();
    let refused = |length: usize| (403, json!({"error": "x".repeat(length)}));
    server.says([refused(300), refused(301)]);
    let why = machine.fetch().await.unwrap_err();
    assert!(why.message.contains(&format!("answered 403 {};", "x".repeat(300))), "{why}");
    assert_eq!(machine.fetch().await.unwrap_err(), why);
}

/// The requests are those of AIP-4117.
#[tokio::test]
async fn the_token_of_another_cloud_is_exchanged_and_an_identity_lent_for_it() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("credential");
    let at = |path: &str| server.url.join(path).unwrap().to_string();
    let file = json!({
        "type": "external_account",
        "audience": "pool",
        "subject_token_type": "jwt",
        "token_url": at("exchange"),
        "service_account_impersonation_url": at("lend"),
        "credential_source": {
            "url": at("subject"),
            "headers": {"metadata": "True"},
            "format": {"subject_token_field_name": "it"},
        },
    });
    std::fs::write(&path, file.to_string()).unwrap();
    let identity = Identity::open(&GoogleCredential::File(path)).unwrap().unwrap();
    let lent = json!({"accessToken": "lent", "expireTime": "2026-11-26T12:00:00Z"});
    server.says([(200, json!({"it": "subject"})), token("exchanged"), (200, lent)]);
    let (found, end) = identity.fetch().await.unwrap();
    assert_eq!((found.as_str(), end.hour()), ("lent", 12));
    let asked = server.asked();
    let lines = ["GET /subject", "POST /exchange", "POST /lend"];
    assert_eq!(asked.iter().map(|it| it.line.as_str()).collect::<Vec<_>>(), lines);
    assert_eq!(asked[0].header("metadata"), Some("True"));
    for part in ["audience=pool", "subject_token=subject", "subject_token_type=jwt"] {
        assert!(asked[1].body.split('&').any(|it| it == part), "{}", asked[1].body);
    }
    assert_eq!(asked[2].header("authorization"), Some("Bearer exchanged"));
}

/// The requests are those of google-auth-library for `gcloud auth application-default login
/// --impersonate-service-account` and for a login of a workforce pool.
#[tokio::test]
async fn a_login_of_a_workforce_pool_lends_the_identity_of_a_service_account() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("credential");
    let at = |path: &str| server.url.join(path).unwrap().to_string();
    let file = json!({
        "type": "impersonated_service_account",
        "service_account_impersonation_url": at("lend"),
        "delegates": ["one"],
        "source_credentials": {
            "type": "external_account_authorized_user", "client_id": "id",
            "client_secret": "secret", "refresh_token": "r", "token_url": at("refresh"),
        },
    });
    std::fs::write(&path, file.to_string()).unwrap();
    let identity = Identity::open(&GoogleCredential::File(path)).unwrap().unwrap();
    let lent = json!({"accessToken": "lent", "expireTime": "2026-11-26T12:00:00Z"});
    server.says([token("refreshed"), (200, lent)]);
    assert_eq!(identity.fetch().await.unwrap().0, "lent");
    let asked = server.asked();
    assert_eq!(&*asked[0].line, "POST /refresh");
    assert_eq!(asked[0].body, "grant_type=refresh_token&refresh_token=r");
    assert_eq!(asked[0].header("authorization"), Some("Basic aWQ6c2VjcmV0"));
    assert_eq!(asked[1].header("authorization"), Some("Bearer refreshed"));
    let wanted: Value = serde_json::from_str(&asked[1].body).unwrap();
    assert_eq!(wanted["delegates"], json!(["one"]));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination() {
    let server = Server::start().await;
    let bucket = server.bucket(GoogleCredential::None);
    drop(server);
    let found = bucket.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}

/// The request is that of RFC 7523, signed by RS256 of RFC 7518.
#[tokio::test]
async fn a_service_account_signs_what_it_asks_for() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("credential");
    let made = std::process::Command::new("openssl")
        .args(["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        .output()
        .expect("install the package openssl");
    let key = String::from_utf8(made.stdout).unwrap();
    let token_uri = server.url.join("token").unwrap();
    let file = json!({
        "type": "service_account", "client_email": "a@b", "private_key_id": "1",
        "private_key": key, "token_uri": token_uri,
    });
    std::fs::write(&path, file.to_string()).unwrap();
    let identity = Identity::open(&GoogleCredential::File(path)).unwrap().unwrap();
    server.says([token("given")]);
    assert_eq!(identity.fetch().await.unwrap().0, "given");
    let asked = &server.asked()[0];
    assert_eq!(asked.line, "POST /token");
    let (assertion, grant) = asked.body.split_once('&').unwrap();
    let assertion = assertion.strip_prefix("assertion=").unwrap();
    assert_eq!(grant, "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer");
    let (text, signature) = assertion.rsplit_once('.').unwrap();
    let decoded = |text: &str| {
        let padding = "=".repeat(text.len().wrapping_neg() % 4);
        base64::decode_url_safe(format!("{text}{padding}")).unwrap()
    };
    let der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public());
    public.verify(text.as_bytes(), &decoded(signature)).expect("signed by the key");
    let claims: Value = serde_json::from_slice(&decoded(text.split_once('.').unwrap().1)).unwrap();
    assert_eq!((&claims["iss"], &claims["aud"]), (&json!("a@b"), &json!(token_uri)));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3_600);
}
