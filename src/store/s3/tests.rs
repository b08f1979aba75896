//! Tests of the requests and of the sign-ins against a server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response as Sent};
use tokio::task::JoinSet;

use super::identity::Identity;
use super::*;
use crate::config::{SecretSource, StoreTls};
use crate::store::Verdict;

/// What a server answers next.
enum Reply {
    /// Status, `ETag` and body.
    Answer(u16, &'static str, String),
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

/// A server that answers what the test has put into it, in this order.
struct Server {
    url: Url,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/leases", listener.local_addr().unwrap());
        let script = Arc::<Mutex<Script>>::default();
        let shared = Arc::clone(&script);
        let app =
            Router::new().fallback(move |request: Request| answer(Arc::clone(&shared), request));
        let serving = async move { axum::serve(listener, app).await.unwrap() };
        let mut task = JoinSet::new();
        task.spawn(serving);
        Self { url: Url::parse(&url).unwrap(), script, _task: task }
    }

    fn says<T: Into<String>>(&self, replies: impl IntoIterator<Item = (u16, &'static str, T)>) {
        let replies =
            replies.into_iter().map(|(status, tag, body)| Reply::Answer(status, tag, body.into()));
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the requests since the last time.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }

    fn settings(&self) -> S3Settings {
        let value = |it: &str| SecretSource::Value(it.to_owned());
        S3Settings {
            bucket: "leases".to_owned(),
            prefix: Some("team".to_owned()),
            election: "orders".to_owned(),
            url: self.url.clone(),
            region: "eu-west-1".to_owned(),
            credential: AwsCredential::Keys {
                id: value("AKID"),
                secret: value("hidden"),
                token: None,
            },
            tls: None,
            request_timeout: Duration::from_secs(30),
        }
    }

    fn bucket(&self) -> Bucket {
        Bucket::open(&self.settings(), Duration::from_secs(30)).unwrap()
    }
}

async fn answer(script: Arc<Mutex<Script>>, request: Request) -> Sent {
    let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let reply = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        script.asked.push(Asked { line, headers, body });
        script.replies.pop_front()
    };
    match reply.unwrap_or_else(|| Reply::Answer(500, "", "the script is over".to_owned())) {
        Reply::Answer(status, tag, body) => {
            let code = StatusCode::from_u16(status).unwrap();
            let tag = Some(tag).filter(|it| *it != "-").map(|it| [("etag", it)]);
            let date = [("date", "Tue, 14 Nov 2023 22:13:20 GMT")];
            match tag {
                Some(tag) => (code, date, tag, body).into_response(),
                None => (code, date, body).into_response(),
            }
        }
        Reply::Hang => std::future::pending().await,
    }
}

fn error(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>m</Message></Error>")
}

#[tokio::test]
async fn an_object_is_written_on_a_condition_that_is_signed() {
    let server = Server::start().await;
    let bucket = server.bucket();
    let body = Body::default();
    let put = |slot, condition| bucket.put(slot, condition, &body);
    server.says([(200, "\"1\"", ""), (200, "\"2\"", "")]);
    let created = put(Slot::Lease, If::Absent).await.unwrap().unwrap();
    assert_eq!((&*created.tag, created.date.is_some()), ("\"1\"", true));
    assert_eq!(put(Slot::Trial, If::Tagged("\"1\"")).await.unwrap().unwrap().tag, "\"2\"");
    let asked = server.asked();
    for (asked, line, condition, value) in [
        (&asked[0], "PUT /leases/team/orders", "if-none-match", "*"),
        (&asked[1], "PUT /leases/team/orders_trial", "if-match", "\"1\""),
    ] {
        assert_eq!((&*asked.line, asked.header(condition)), (line, Some(value)));
        assert_eq!(asked.body.as_bytes(), body.encode());
        let signed = asked.header("authorization").unwrap();
        assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{signed}");
        assert!(signed.contains(condition) && signed.contains("/eu-west-1/s3/"), "{signed}");
    }
    let no_key = || error("NoSuchKey");
    server.says([(412, "", error("PreconditionFailed")), (412, "", error("PreconditionFailed"))]);
    // The read that shows whether the condition holds.
    server.says([(200, "\"2\"", "{}".to_owned())]);
    server.says([(404, "", no_key()), (404, "", no_key())]);
    assert_eq!(put(Slot::Lease, If::Absent).await, Ok(None));
    assert_eq!(put(Slot::Lease, If::Tagged("\"1\"")).await, Ok(None));
    assert_eq!(put(Slot::Lease, If::Tagged("\"1\"")).await, Ok(None), "it was deleted");
    let missing = put(Slot::Lease, If::Absent).await;
    assert!(matches!(missing, Err(RegisterError::Missing(_))), "{missing:?}");
}

#[tokio::test]
async fn an_object_is_read_with_its_tag() {
    let server = Server::start().await;
    let bucket = server.bucket();
    server.says([(200, "\"1\"", "{}".to_owned()), (404, "", error("NoSuchKey"))]);
    let read = bucket.get(Slot::Lease).await.unwrap().unwrap();
    assert_eq!((&*read.tag, read.body.is_err()), ("\"1\"", true));
    assert_eq!(read.date.map(|it| it.unix_timestamp()), Some(1_700_000_000));
    assert_eq!(bucket.get(Slot::Lease).await, Ok(None));
    assert_eq!(server.asked()[0].line, "GET /leases/team/orders");
    for tag in ["-", ""] {
        server.says([(200, tag, "{}")]);
        let error = bucket.get(Slot::Lease).await.unwrap_err();
        assert!(error.to_string().contains("answered without an ETag"), "{error}");
    }
    assert_eq!(bucket.place(Slot::Lease), "the object s3://leases/team/orders");
    let answered = format!("{} answered over plain HTTP, region eu-west-1", bucket.server);
    assert_eq!(bucket.answered(), answered);
    assert_eq!(bucket.credential().as_deref(), Some("the key AKID of AWS_ACCESS_KEY_ID"));
}

#[tokio::test]
async fn elections_in_the_same_place_are_listed_without_their_trials() {
    let server = Server::start().await;
    let keys = ["team/orders", "team/orders_trial", "team/b", "other"];
    let keys = keys.map(|it| format!("<Contents><Key>{it}</Key></Contents>")).concat();
    server.says([(200, "", format!("<List>{keys}</List>")), (403, "", error("AccessDenied"))]);
    let bucket = server.bucket();
    assert_eq!(bucket.others().await, Some(vec!["b".to_owned(), "orders".to_owned()]));
    assert_eq!(bucket.others().await, None);
    let line = "GET /leases?delimiter=%2F&list-type=2&max-keys=80&prefix=team%2F";
    assert_eq!(server.asked()[0].line, line);
}

#[tokio::test]
async fn a_request_is_bounded() {
    let server = Server::start().await;
    let bucket = Bucket::open(&server.settings(), Duration::from_millis(50)).unwrap();
    server.script.lock().unwrap().replies.push_back(Reply::Hang);
    let error = bucket.get(Slot::Lease).await.unwrap_err();
    assert!(error.to_string().ends_with("did not answer within 50ms"), "{error}");
}

#[tokio::test]
async fn keys_that_cannot_be_had_are_explained_once() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let mut settings = server.settings();
    let files = ["credentials", "config"].map(|it| directory.path().join(it));
    settings.credential = AwsCredential::Profile { name: "ops".to_owned(), files };
    let bucket = Bucket::open(&settings, Duration::from_secs(30)).unwrap();
    let Err(RegisterError::Local(failure)) = bucket.get(Slot::Lease).await else {
        panic!("there are no keys");
    };
    let why = failure.message;
    assert_eq!(why.matches("the profile ops has no").count(), 1, "{why}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn keys_of_the_settings_are_there_at_once() {
    let server = Server::start().await;
    let value = |it: &str| SecretSource::Value(it.to_owned());
    for token in [None, Some("session")] {
        let mut settings = server.settings();
        let token = token.map(value);
        let (id, secret) = (value("AKID"), value("hidden"));
        settings.credential = AwsCredential::Keys { id, secret, token: token.clone() };
        let keys = credential::open(&settings).unwrap().known().expect("they are known");
        assert_eq!((keys.id.as_str(), keys.token.is_some()), ("AKID", token.is_some()));
    }
}

fn given() -> String {
    r#"{"AccessKeyId": "A", "SecretAccessKey": "hidden", "Token": "t",
        "Expiration": "2026-11-26T12:00:00Z"}"#
        .to_owned()
}

#[tokio::test]
async fn a_machine_is_asked_for_a_session_its_role_and_the_keys_of_it() {
    let server = Server::start().await;
    let endpoint = server.url.clone();
    let machine = Identity::open(&AwsCredential::Machine { endpoint }).unwrap();
    for role in ["web", "aZ9+=,.@_-"] {
        server.says([(200, "", "session\n".to_owned()), (200, "", format!("{role}\nother"))]);
        server.says([(200, "", given())]);
        let (keys, end) = machine.fetch().await.unwrap();
        assert_eq!((keys.id.as_str(), end.hour()), ("A", 12));
        let asked = server.asked();
        let ttl = asked[0].header("x-aws-ec2-metadata-token-ttl-seconds");
        assert_eq!((&*asked[0].line, ttl), ("PUT /latest/api/token", Some("21600")));
        let roles = "GET /latest/meta-data/iam/security-credentials/";
        for (asked, line) in asked[1..].iter().zip([roles.to_owned(), format!("{roles}{role}")]) {
            assert_eq!(asked.line, line);
            assert_eq!(asked.header("x-aws-ec2-metadata-token"), Some("session"));
        }
    }
    for (session, role, words) in [
        ("two words", "web", "the answer is not text"),
        ("a\u{7}", "web", "the answer is not text"),
        ("session", "", "this machine has no role"),
        ("session", "a/../b", "this machine has no role"),
        ("session", "/", "this machine has no role"),
    ] {
        server.says([(200, "", session), (200, "", role)]);
        let why = machine.fetch().await.unwrap_err();
        assert!(why.message.contains(&format!("{words}; no other")), "{role}: {why}");
        server.script.lock().unwrap().replies.clear();
    }
}

#[tokio::test]
async fn the_endpoint_of_a_task_is_asked_with_its_token() {
    let server = Server::start().await;
    let token = Some(SecretSource::Value("hidden".to_owned()));
    let url = server.url.clone();
    let task = Identity::open(&AwsCredential::Container { url, token }).unwrap();
    server.says([(200, "", given())]);
    assert_eq!(task.fetch().await.unwrap().0.id, "A");
    let asked = server.asked();
    assert_eq!(
        (&*asked[0].line, asked[0].header("authorization")),
        ("GET /leases", Some("hidden"))
    );
    let refused = |length: usize| {
        let message = "x".repeat(length);
        format!("<Error><Code>C</Code><Message>{message}</Message></Error>")
    };
    server.says([(403, "", refused(297)), (403, "", refused(298)), (404, "", String::new())]);
    let why = task.fetch().await.unwrap_err();
    assert!(why.message.contains(&format!("answered 403 C: {};", "x".repeat(297))), "{why}");
    assert_eq!(task.fetch().await.unwrap_err(), why, "300 characters are shown");
    let why = task.fetch().await.unwrap_err();
    assert!(why.message.contains("the endpoint answered 404; check that the task"), "{why}");
    assert!(!why.message.contains("hidden"));
}

#[tokio::test]
async fn a_role_is_taken_with_the_token_of_the_file() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("token");
    let pod = Identity::open(&AwsCredential::WebIdentity {
        token_file: token_file.clone(),
        role: "arn:r".to_owned(),
        session: "tenure".to_owned(),
        endpoint: server.url.clone(),
    })
    .unwrap();
    let why = pod.fetch().await.unwrap_err();
    assert!(why.message.contains("failed to read the token file"), "{why}");
    std::fs::write(token_file, "jwt\n").unwrap();
    let keys = "<A><AccessKeyId>A</AccessKeyId><SecretAccessKey>hidden</SecretAccessKey>\
        <SessionToken>t</SessionToken><Expiration>2026-11-26T12:00:00Z</Expiration></A>";
    server.says([(200, "", keys)]);
    assert_eq!(pod.fetch().await.unwrap().0.token.as_deref(), Some("t"));
    let form = "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Ar&RoleSessionName=tenure&\
        Version=2011-06-15&WebIdentityToken=jwt";
    assert_eq!(server.asked()[0].body, form);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination() {
    let server = Server::start().await;
    let bucket = server.bucket();
    drop(server);
    let found = bucket.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}

#[tokio::test]
async fn of_a_server_that_is_not_there_the_settings_that_name_it_are_shown() {
    let server = Server::start().await;
    let mut settings = server.settings();
    settings.url.set_host(Some("nowhere.invalid")).unwrap();
    for (tls, words) in [
        (None, "check --s3-endpoint"),
        (Some(StoreTls { ca_file: None, own: None }), "check --s3-endpoint and --s3-region"),
    ] {
        settings.tls = tls;
        let bucket = Bucket::open(&settings, Duration::from_secs(30)).unwrap();
        let error = bucket.get(Slot::Lease).await.unwrap_err().to_string();
        assert!(error.ends_with(words), "{error}");
    }
}

#[tokio::test]
async fn the_certificates_of_the_system_are_read_for_an_endpoint_of_https_alone() {
    for scheme in ["http", "https"] {
        let endpoint = Url::parse(&format!("{scheme}://127.0.0.1/")).unwrap();
        let machine = Identity::open(&AwsCredential::Machine { endpoint }).unwrap();
        assert_eq!(machine.client.tls.is_some(), scheme == "https");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sign_in_may_take_20_seconds_and_5_on_this_machine() {
    let server = Server::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let endpoint = server.url.clone();
    for (credential, words) in [
        (AwsCredential::Machine { endpoint: endpoint.clone() }, "no answer within 5 s"),
        (
            AwsCredential::WebIdentity {
                token_file: file.path().to_owned(),
                role: "arn:r".to_owned(),
                session: "tenure".to_owned(),
                endpoint,
            },
            "no answer within 20 s",
        ),
    ] {
        server.script.lock().unwrap().replies.push_back(Reply::Hang);
        let why = Identity::open(&credential).unwrap().fetch().await.unwrap_err();
        assert!(why.message.contains(words), "{why}");
    }
}
