//! The listener's thread, and the path of each request through faults, authorization and objects.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::*;
use crate::faults::tls_front::{Authority, Shown};
use futures::StreamExt;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A certificate with the authority that signed it.
pub struct Tls {
    /// The authority's certificate.
    pub authority: String,
    shown: Shown,
}

impl Tls {
    /// Creates an authority that signs a certificate for a name or an address.
    pub fn new(name: &str) -> Self {
        let authority = Authority::new("kubernetes");
        let shown = authority.sign(name, 2099);
        Self { authority: authority.certificate, shown }
    }

    fn acceptor(self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let settings = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.shown.0], self.shown.1)
            .expect("a certificate with its key");
        TlsAcceptor::from(Arc::new(settings))
    }
}

enum Order {
    Stop,
    Resume,
}

type Orders = tokio::sync::mpsc::UnboundedSender<(Order, mpsc::Sender<()>)>;

/// The listener's thread; stops when this is dropped.
pub struct Serving {
    pub address: SocketAddr,
    orders: Orders,
}

impl Serving {
    pub fn start(shared: &Arc<Shared>, tls: Option<Tls>) -> Self {
        let shared = Arc::clone(shared);
        let tls = tls.map(Tls::acceptor);
        let (orders, given) = tokio::sync::mpsc::unbounded_channel();
        let (bound, address) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                let address = listener.local_addr().expect("an address");
                bound.send(address).expect("the server is awaited");
                run(address, listener, tls, shared, given).await;
            });
        });
        Self { address: address.recv().expect("it starts"), orders }
    }

    pub fn stop(&self) {
        self.order(Order::Stop);
    }

    pub fn resume(&self) {
        self.order(Order::Resume);
    }

    fn order(&self, order: Order) {
        let (done, is_done) = mpsc::channel();
        self.orders.send((order, done)).expect("the thread lives");
        is_done.recv().expect("it is done");
    }
}

async fn run(
    address: SocketAddr,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    mut orders: tokio::sync::mpsc::UnboundedReceiver<(Order, mpsc::Sender<()>)>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &listener {
                Some(it) => it.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            order = orders.recv() => {
                let Some((order, done)) = order else { return };
                match order {
                    Order::Stop => {
                        listener = None;
                        connections.shutdown().await;
                    }
                    Order::Resume if listener.is_none() => listener = Some(again(address).await),
                    Order::Resume => (),
                }
                let _ = done.send(());
            }
            Ok((stream, _)) = accepted => {
                connections.spawn(converse(stream, tls.clone(), Arc::clone(&shared)));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => (),
        }
    }
}

/// Binds the port again, which may briefly be the local port of a client's connection.
async fn again(address: SocketAddr) -> TcpListener {
    for _ in 0..500 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{address} is not free again");
}

async fn converse(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
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
}

/// A parsed request.
struct Received {
    method: String,
    path: String,
    target: Option<Target>,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: Value,
}

impl Received {
    fn op(&self) -> String {
        self.target.as_ref().map_or_else(|| self.method.clone(), Target::op)
    }
}

async fn read(request: Request<Incoming>) -> Received {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let query: HashMap<String, String> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let text =
        |it: &hyper::header::HeaderValue| String::from_utf8_lossy(it.as_bytes()).into_owned();
    let headers = parts.headers.iter().map(|(name, it)| (name.to_string(), text(it))).collect();
    let (method, path) = (parts.method.to_string(), parts.uri.path().to_owned());
    let target = Target::of(&method, &path, query.clone());
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Received { method, path, target, query, headers, body }
}

fn next_fault(state: &mut State, op: &str) -> Option<Fault> {
    let mut once = state.faults.iter_mut().filter(|(wanted, _)| fits(wanted, op));
    once.find_map(|(_, it)| it.pop_front()).or_else(|| {
        let standing = state.standing.iter().find(|(wanted, _)| fits(wanted, op));
        standing.map(|(_, it)| it.clone())
    })
}

async fn serve(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Dropped> {
    let received = read(request).await;
    // A request is performed even if the client no longer waits for the answer.
    #[allow(clippy::disallowed_methods, reason = "it ends with the server's thread")]
    let task = tokio::spawn(handle(received, shared));
    task.await.unwrap_or(Err(Dropped))
}

async fn handle(received: Received, shared: Arc<Shared>) -> Result<Response<Body>, Dropped> {
    let fault = next_fault(&mut shared.lock(), &received.op());
    let refused = match &fault {
        Some(Fault::Answer(answer)) => Some(answer.clone()),
        Some(Fault::Html) => Some(page()),
        Some(Fault::Redirect(to)) => {
            let mut answer = Answer::text(302, "");
            answer.headers.push(("location", to.clone()));
            Some(answer)
        }
        Some(Fault::Hang | Fault::DropBefore) => {
            log(&shared, &received, "", 0);
            if matches!(fault, Some(Fault::Hang)) {
                std::future::pending::<Infallible>().await;
            }
            return Err(Dropped);
        }
        Some(Fault::Delay(by)) => {
            tokio::time::sleep(*by).await;
            None
        }
        _ => None,
    };
    let user = shared.lock().access.user(received.headers.get("authorization").map(String::as_str));
    let outcome = match (refused, &user) {
        (Some(refused), _) => Outcome::Whole(refused),
        (None, Err(refused)) => Outcome::Whole(refused.as_ref().clone()),
        (None, Ok(user)) => answer(&shared, &received, user),
    };
    let status = match &outcome {
        Outcome::Whole(answer) => answer.status,
        Outcome::Watch(_) => 200,
    };
    log(&shared, &received, user.as_deref().unwrap_or_default(), status);
    match fault {
        Some(Fault::HangAfter) => std::future::pending().await,
        Some(Fault::DropAfter) => return Err(Dropped),
        Some(Fault::Late(by)) => tokio::time::sleep(by).await,
        _ => (),
    }
    let date = date(&shared);
    Ok(match outcome {
        Outcome::Whole(answer) => answer.into_response(date),
        Outcome::Watch(watching) => {
            let head = Response::builder()
                .header("content-type", "application/json")
                .header("cache-control", "no-cache, private")
                .header("date", date);
            let body = StreamBody::new(watching.stream().boxed());
            head.body(Either::Right(body)).expect("an answer")
        }
    })
}

enum Outcome {
    Whole(Answer),
    Watch(Box<Watching>),
}

fn log(shared: &Shared, received: &Received, user: &str, status: u16) {
    shared.lock().log.push(Logged {
        op: received.op(),
        path: received.path.clone(),
        query: received.query.clone(),
        headers: received.headers.clone(),
        user: user.to_owned(),
        body: received.body.clone(),
        status,
    });
}

fn now(state: &State) -> OffsetDateTime {
    tenure::clock::now().date() + time::Duration::seconds(state.skew)
}

fn date(shared: &Shared) -> String {
    azure_core::time::to_rfc7231(&now(&shared.lock()))
}

fn page() -> Answer {
    let mut answer = Answer::text(200, "<html><body>Please sign in to the network</body></html>");
    answer.content_type = "text/html";
    answer
}

fn answer(shared: &Arc<Shared>, received: &Received, user: &str) -> Outcome {
    let Some(target) = &received.target else {
        return Outcome::Whole(Answer::text(404, "404 page not found\n"));
    };
    if let Err(refused) = shared.lock().access.judge(user, target) {
        return Outcome::Whole(*refused);
    }
    if target.verb == "watch" {
        return match Watching::begin(shared, target.clone()) {
            Ok(watching) => Outcome::Watch(Box::new(watching)),
            Err(refused) => Outcome::Whole(*refused),
        };
    }
    let answer = {
        let mut state = shared.lock();
        let revision = state.objects.revision;
        let answer = apply(&mut state, received, target, user).unwrap_or_else(|refused| refused);
        if state.objects.revision != revision {
            drop(state);
            shared.beat();
        }
        answer
    };
    Outcome::Whole(answer)
}

fn apply(
    state: &mut State,
    received: &Received,
    target: &Target,
    user: &str,
) -> Result<Answer, Answer> {
    let is_real = target.query.get("dryRun").is_none_or(|it| it != "All");
    let before = (!is_real).then(|| state.objects.clone());
    let answer = perform(state, target, &received.body, user);
    if let Some(before) = before {
        state.objects = before;
    }
    answer
}

fn perform(state: &mut State, target: &Target, body: &Value, user: &str) -> Result<Answer, Answer> {
    match target.verb {
        "create" if *target.kind == REVIEWS => Ok(state.access.review(user, body)),
        "get" => Ok(state.objects.get(target)),
        "create" => state.objects.create(target, body.clone()),
        "update" => {
            let may_create = state.access.judge_verb(user, target, "create").is_ok();
            state.objects.update(target, body.clone(), may_create)
        }
        "patch" => state.objects.patch(target, body),
        "list" => {
            let query = |name: &str| target.query.get(name).map_or("", String::as_str);
            let selector = Selector::parse(query("labelSelector"), query("fieldSelector"));
            let selector = selector.map_err(|it| Answer::bad_request(&it))?;
            Ok(state.objects.list(target, &selector))
        }
        _ => Err(Answer::failure(405, "MethodNotAllowed", "not served here", Value::Null)),
    }
}
