//! The admin listener of real sidecars, with authorized and unauthorized clients.

use testkit::processes::{cluster, process};

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster::{PATIENCE, STEADY, logs, settled};
use process::{Process, Ran, until};
use serde_json::{Value, json};
use tenure::clock;

const TOKEN: &str = "0123456789abcdef";
const PATHS: [&str; 6] =
    ["/v1/step-down", "/v1/transfer", "/v1/pause", "/v1/resume", "/v1/drained", "/v1/status"];

/// A directory with a lease, and sockets for its candidates.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("lease")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.sock"))
    }

    /// Returns the value of `--admin` for a candidate.
    fn admin(&self, name: &str) -> String {
        format!("unix:{}", self.socket(name).display())
    }

    fn start(&self, name: &str, more: &[&str]) -> Process {
        self.start_at(name, &self.admin(name), more)
    }

    fn start_at(&self, name: &str, admin: &str, more: &[&str]) -> Process {
        let store = format!("file://{}", self.path("lease").display());
        let text = |length: Duration| format!("{}ms", length.as_millis());
        let (lease, deadline) = (text(STEADY.lease_duration), text(STEADY.renew_deadline));
        let (retry, request) = (text(STEADY.retry_period), text(STEADY.request_timeout));
        let mut arguments = vec!["--store", &store, "--admin", admin, "--lease-duration", &lease];
        arguments.extend(["--renew-deadline", &deadline, "--retry-period", &retry]);
        arguments.extend(["--request-timeout", &request]);
        arguments.extend(more);
        Process::run(name, &arguments, &[])
    }

    /// Starts a candidate with an admin listener on loopback and a token; returns its port.
    fn start_on_loopback(&self, name: &str) -> (Process, u16) {
        self.write_token(TOKEN);
        let token = self.path("token").display().to_string();
        let it = self.start_at(name, "127.0.0.1:0", &["--admin-token-file", &token]);
        logs(&it, "admin listener");
        let log = it.log();
        let lines = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let address = lines.filter_map(|it| Some(it["admin"].as_str()?.to_owned())).next();
        let address = address.expect("it logs the address of its admin listener");
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        (it, port)
    }

    fn write_token(&self, token: &str) {
        std::fs::write(self.path("token"), token).unwrap();
        std::fs::set_permissions(self.path("token"), Permissions::from_mode(0o600)).unwrap();
    }

    /// Runs a verb on a candidate.
    fn tenure(&self, name: &str, arguments: &[&str]) -> Ran {
        Process::verb(arguments, &[("TENURE_ADMIN", &self.admin(name))]).end()
    }

    fn call(&self, name: &str, path: &str, body: &str) -> Answer {
        let request = request("POST", path, "localhost", &[], body);
        exchange(UnixStream::connect(self.socket(name)).unwrap(), &request)
    }
}

#[derive(Debug)]
struct Answer {
    code: u16,
    head: String,
    json: Value,
}

fn request(method: &str, path: &str, host: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + &format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

trait Timed: Read + Write {
    fn bound(&self);
}

impl Timed for UnixStream {
    fn bound(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

impl Timed for TcpStream {
    fn bound(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

fn exchange(mut stream: impl Timed, request: &str) -> Answer {
    stream.bound();
    // If the answer arrives before the whole request was sent, the rest is rejected.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    let json = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"));
    Answer { code, head: head.to_ascii_lowercase(), json }
}

fn in_state(candidate: &Process, state: &str) {
    until(PATIENCE, &format!("{} is {state}", candidate.name), || {
        (candidate.state()? == state).then_some(())
    });
}

#[test]
fn each_command_is_refused_in_states_where_it_does_not_apply() {
    let place = Place::new();
    let _leader = place.start("a", &[]);
    in_state(&_leader, "leader");
    let standby = place.start("b", &[]);
    in_state(&standby, "standby");
    let transfer = r#"{"to":"a"}"#;
    for (path, body, words) in [
        ("/v1/step-down", "", "cannot step down: this instance is standby"),
        ("/v1/transfer", transfer, "cannot transfer: this instance is standby"),
        ("/v1/resume", "", "cannot resume: this instance is standby"),
        ("/v1/drained", "", "cannot end the drain: this instance is standby"),
    ] {
        let answer = place.call("b", path, body);
        assert_eq!((answer.code, &answer.json["state"]), (409, &json!("standby")), "{answer:?}");
        assert_eq!(answer.json["error"], words);
    }
    for (arguments, words) in [
        (&["step-down"][..], "a leads, in term "),
        (&["transfer", "--to", "c"], "a leads, in term "),
        (&["resume"], "there is nothing to resume"),
        (&["drained"], "no drain is in progress here"),
    ] {
        let ran = place.tenure("b", arguments);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(ran.err.contains("this instance is standby\n  "), "{}", ran.err);
        assert!(ran.err.contains(words), "{}", ran.err);
    }

    let answer = place.call("b", "/v1/pause", "");
    assert_eq!((answer.code, &answer.json["outcome"]), (200, &json!("done")), "{answer:?}");
    in_state(&standby, "paused");
    for (path, body) in [("/v1/step-down", ""), ("/v1/transfer", transfer), ("/v1/drained", "{}")] {
        let answer = place.call("b", path, body);
        assert_eq!((answer.code, &answer.json["state"]), (409, &json!("paused")), "{answer:?}");
    }
    assert_eq!(place.call("b", "/v1/resume", "{}").code, 200);
    in_state(&standby, "standby");
    let code = place.call("a", "/v1/drained", "").code;
    assert_eq!(code, 409, "a leader drains nothing");
}

#[test]
fn bad_bodies_are_named_by_field_and_change_nothing() {
    let place = Place::new();
    let leader = place.start("a", &[]);
    in_state(&leader, "leader");
    for (path, body, field) in [
        ("/v1/step-down", r#"{"hold_off":"10"}"#, json!("hold_off")),
        ("/v1/step-down", r#"{"hold_off":"2h"}"#, json!("hold_off")),
        ("/v1/step-down", r#"{"holdoff":"10s"}"#, json!("holdoff")),
        ("/v1/step-down", "hold_off=10s", Value::Null),
        ("/v1/transfer", "", json!("to")),
        ("/v1/transfer", r#"{"to":"a"}"#, json!("to")),
        ("/v1/pause", r#"{"for":"1h"}"#, json!("for")),
        ("/v1/drained", r#"{"term":"x"}"#, json!("term")),
    ] {
        let answer = place.call("a", path, body);
        assert_eq!(
            (answer.code, &answer.json["field"]),
            (400, &field),
            "{path} {body}: {answer:?}"
        );
        assert!(answer.head.contains("content-type: application/json"), "{answer:?}");
    }
    let long = format!(r#"{{"hold_off":"{}"}}"#, "1".repeat(4_096));
    assert_eq!(place.call("a", "/v1/step-down", &long).code, 413);
    let chunked = format!(
        "POST /v1/step-down HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n1388\r\n{}\r\n0\r\n\r\n",
        " ".repeat(5_000)
    );
    let stream = UnixStream::connect(place.socket("a")).unwrap();
    assert_eq!(exchange(stream, &chunked).code, 413);

    let answer = place.call("a", "/v1/pause?for=1h", "");
    assert_eq!(answer.code, 400, "{answer:?}");
    assert!(answer.json["error"].as_str().unwrap().contains("query parameters"), "{answer:?}");

    let answer = place.call("a", "/v1/nothing", "");
    assert_eq!((answer.code, &answer.json["paths"]), (404, &json!(PATHS)), "{answer:?}");
    for (method, path) in PATHS.iter().flat_map(|it| [("GET", it), ("PUT", it), ("DELETE", it)]) {
        let stream = UnixStream::connect(place.socket("a")).unwrap();
        let answer = exchange(stream, &request(method, path, "x", &[], ""));
        assert!(answer.code == 405 && answer.head.contains("allow: post"), "{method} {answer:?}");
    }
    let ran = place.tenure("a", &["transfer", "--to", "a"]);
    assert!(ran.code == 2 && ran.err.contains("this instance"), "{} {}", ran.code, ran.err);
    assert!(leader.is_leader(), "{:?}", leader.status());
    assert_eq!(leader.status().unwrap()["term"], leader.status().unwrap()["holder"]["term"]);
}

#[test]
fn a_body_that_does_not_arrive_times_out_without_delaying_other_calls() {
    let place = Place::new();
    let leader = place.start("a", &[]);
    in_state(&leader, "leader");
    let mut slow: Vec<UnixStream> =
        (0..4).map(|_| UnixStream::connect(place.socket("a")).unwrap()).collect();
    for stream in &mut slow {
        let head = "POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{";
        stream.write_all(head.as_bytes()).unwrap();
    }
    assert_eq!(place.call("a", "/v1/resume", "").code, 409);
    let answer = exchange(slow.remove(0), "");
    assert_eq!(answer.code, 408, "{answer:?}");
    in_state(&leader, "leader");
}

#[test]
fn a_socket_is_private_from_the_start_and_refuses_other_users() {
    assert!(
        rustix::process::geteuid().is_root(),
        "only root can call as another user: run this test as root"
    );
    let place = Place::new();
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    let leader = place.start("a", &[]);
    in_state(&leader, "leader");
    let mode = std::fs::metadata(place.socket("a")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The other user cannot access the build directory, so curl sends the request.
    let stranger = || {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-sS", "-X", "POST"])
            .args(["-w", " %{http_code}", "--unix-socket"])
            .arg(place.socket("a"))
            .arg("http://localhost/v1/pause")
            .output()
            .expect("setpriv of util-linux and curl are there");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let refused = stranger();
    assert!(refused.contains("curl: (7)"), "{refused}");
    // Even if the file mode permits everybody, other users are rejected.
    std::fs::set_permissions(place.socket("a"), Permissions::from_mode(0o666)).unwrap();
    let refused = stranger();
    assert!(refused.contains("the caller is uid 65534") && refused.ends_with("403"), "{refused}");
    logs(&leader, "uid 65534");
    in_state(&leader, "leader");
}

#[test]
fn loopback_requires_the_token_and_a_loopback_host_and_refuses_browsers() {
    let place = Place::new();
    let (leader, port) = place.start_on_loopback("a");
    in_state(&leader, "leader");
    let host = format!("127.0.0.1:{port}");
    let bearer = |token: &str| format!("Bearer {token}");
    let call = |host: &str, headers: &[(&str, &str)]| {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        exchange(stream, &request("POST", "/v1/resume", host, headers, ""))
    };
    let right = bearer(TOKEN);
    let authorized = ("Authorization", right.as_str());
    assert_eq!(call(&host, &[authorized]).code, 409, "admitted, and not paused");
    assert_eq!(call(&format!("localhost:{port}"), &[authorized]).code, 409);
    for headers in [&[][..], &[("Authorization", "Bearer 0123456789abcdeX")]] {
        let answer = call(&host, headers);
        assert_eq!(answer.code, 401, "{answer:?}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
    }
    for bad in ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80"] {
        assert_eq!(call(bad, &[authorized]).code, 403, "{bad}");
    }
    assert_eq!(call(&host, &[authorized, ("Origin", &format!("http://{host}"))]).code, 403);

    place.write_token("fedcba9876543210");
    assert_eq!(call(&host, &[authorized]).code, 401, "the old token is out of force");
    let new = bearer("fedcba9876543210");
    assert_eq!(call(&host, &[("Authorization", new.as_str())]).code, 409);
    std::fs::remove_file(place.path("token")).unwrap();
    assert_eq!(call(&host, &[("Authorization", new.as_str())]).code, 503);
    logs(&leader, "admin-token-file");

    place.write_token(TOKEN);
    let token = place.path("token").display().to_string();
    let variables = [("TENURE_ADMIN", host.as_str()), ("TENURE_ADMIN_TOKEN_FILE", &token)];
    let ran = Process::verb(&["pause", "--no-wait", "--json"], &variables).end();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap()["outcome"], "begun");
    in_state(&leader, "paused");
    assert!(!leader.log().contains(TOKEN), "the token is in the log");
}

#[test]
fn guesses_of_the_token_are_limited_and_their_log_lines_too() {
    let place = Place::new();
    let (leader, port) = place.start_on_loopback("a");
    in_state(&leader, "leader");
    let host = format!("127.0.0.1:{port}");
    let call_with = |headers: &[(&str, &str)]| {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        exchange(stream, &request("POST", "/v1/resume", &host, headers, ""))
    };
    let call = |token: &str| call_with(&[("Authorization", &format!("Bearer {token}"))]);
    // A page in a browser can call without a token, and must not keep the operator out.
    let mut calls = 50;
    assert!((0..calls).all(|_| call_with(&[]).code == 401));
    assert_eq!(call(TOKEN).code, 409);
    let limited = until(PATIENCE, "guesses are limited", || {
        calls += 1;
        let answer = call("fedcba9876543210");
        assert!([401, 429].contains(&answer.code), "{answer:?}");
        (answer.code == 429).then_some(answer)
    });
    assert!(limited.head.contains("retry-after: 1"), "{limited:?}");
    assert!(limited.json["error"].as_str().unwrap().contains("too many"), "{limited:?}");
    for _ in 0..300 {
        calls += 1;
        assert_ne!(call("fedcba9876543210").code, 409);
    }
    // The right token is admitted once the budget is renewed.
    until(PATIENCE, "the operator is admitted", || (call(TOKEN).code == 409).then_some(()));
    logs(&leader, "calls were refused without a log line of their own");
    let lines = leader.log().matches("refused:").count();
    assert!(lines < 60, "{lines} lines for {calls} calls");
    in_state(&leader, "leader");
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let place = Place::new();
    drop(UnixListener::bind(place.socket("a")).unwrap());
    // A process that another test is starting has it until it executes its program.
    until(PATIENCE, "the listener is closed", || UnixStream::connect(place.socket("a")).err());
    let mut first = place.start("a", &[]);
    in_state(&first, "leader");
    assert_eq!(place.call("a", "/v1/resume", "").code, 409);

    std::fs::write(place.path("file"), "precious").unwrap();
    let living = place.admin("a");
    let file = format!("unix:{}", place.path("file").display());
    let store = format!("file://{}", place.path("lease").display());
    for admin in [&living, &file] {
        let arguments = ["run", "--listen", "off", "--store", &store, "--admin", admin];
        let ran = Process::verb(&arguments, &[]).end();
        assert!(ran.code != 0 && ran.err.contains(admin.as_str()), "{} {}", ran.code, ran.err);
    }
    assert_eq!(std::fs::read_to_string(place.path("file")).unwrap(), "precious");
    assert_eq!(place.call("a", "/v1/resume", "").code, 409, "it still listens");
    first.signal(rustix::process::Signal::TERM);
    assert!(first.wait(PATIENCE).success());
    assert!(!place.socket("a").exists(), "its socket file is left behind");
    let ran = place.tenure("a", &["pause"]);
    assert!(ran.code == 1 && ran.err.contains("no such socket"), "{} {}", ran.code, ran.err);
}

#[test]
fn after_a_step_down_another_wins_and_the_hold_off_is_kept() {
    let place = Place::new();
    let pair = [place.start("a", &[]), place.start("b", &[])];
    let leader = settled(&pair);
    let other = 1 - leader;
    let name = ["a", "b"][leader];
    let ran = place.tenure(name, &["step-down", "--hold-off", "30s"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("passive at once") && ran.out.contains("30s"), "{}", ran.out);
    let term = pair[other].status().unwrap()["term"].as_u64().expect("it leads by now");
    let words = format!("\n{} leads in term {term} after ", ["a", "b"][other]);
    assert!(ran.out.contains(&words), "{}", ran.out);
    assert_eq!(place.tenure(["a", "b"][other], &["pause", "--no-wait"]).code, 0);
    // Both have released: until the hold-off ends, no candidate leads.
    in_state(&pair[other], "paused");
    let paused = clock::now();
    while paused.elapsed_min(clock::now()) < 4 * STEADY.retry_period {
        assert!(!pair[leader].is_leader(), "it bids in its hold-off");
        std::thread::sleep(Duration::from_millis(50));
    }
    let ran = place.tenure(["a", "b"][other], &["resume"]);
    assert!(
        ran.code == 0 && ran.out.contains("resumed: this instance leads in term"),
        "{}",
        ran.out
    );
    in_state(&pair[other], "leader");
    logs(&pair[leader], "step-down hold_off=30s");
}

#[test]
fn a_command_waits_until_it_is_done_and_says_what_came_of_it() {
    let place = Place::new();
    let pair = [place.start("a", &[]), place.start("b", &[])];
    let leader = settled(&pair);
    let (name, other) = (["a", "b"][leader], ["b", "a"][leader]);
    // Without peers it is not known who exists.
    let ran = place.tenure(name, &["transfer", "--to", "c", "--hold-off", "2s"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("without --peers the leader does not know"), "{}", ran.err);
    let next = settled(&pair);
    let words = match ["a", "b"][next] == name {
        true => "no other candidate took over: this instance leads again, in term".to_owned(),
        false => format!("c did not take over: {other} leads in term"),
    };
    assert!(ran.err.contains(&words), "{words} in {}", ran.err);
    let (name, other) = (["a", "b"][next], ["b", "a"][next]);
    let ran = place.tenure(name, &["transfer", "--to", other, "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&answer["outcome"], &answer["leader"]["identity"]),
        (&json!("done"), &json!(other))
    );
    assert!(answer["result"].as_str().unwrap().starts_with(&format!("{other} leads in term")));
    let ran = place.tenure(other, &["pause"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains(&format!("\npaused: {name} leads in term")), "{}", ran.out);
    assert!(ran.err.contains("without --peers it is not known"), "{}", ran.err);
    let ran = place.tenure(other, &["resume"]);
    assert!(ran.out.contains(&format!("resumed: {name} leads in term")), "{}", ran.out);
    let answer = place.call(name, "/v1/status", "");
    assert_eq!((answer.code, &answer.json["state"]), (200, &json!("leader")), "{answer:?}");
}

/// Starts two candidates with peers; returns the leader's name, then the other's.
fn peers(place: &Place) -> ([Process; 2], [&'static str; 2]) {
    let start = |name| {
        let address = format!("127.0.0.1:{}", testkit::ports::free_port());
        place.start(name, &["--peers", "--listen", &address, "--peer-address", &address])
    };
    let pair = [start("a"), start("b")];
    let names = if settled(&pair) == 0 { ["a", "b"] } else { ["b", "a"] };
    until(PATIENCE, "the leader knows the other", || knows(place, names, "standby"));
    (pair, names)
}

/// Returns whether the leader's peers have the other in this state.
fn knows(place: &Place, [leader, other]: [&str; 2], state: &str) -> Option<()> {
    let status = place.call(leader, "/v1/status", "").json;
    let mut candidates = status["candidates"].as_array()?.iter();
    let is =
        |it: &&Value| it["identity"] == other && it["state"] == state && it["connected"] == true;
    candidates.find(is).map(drop)
}

#[test]
fn a_successor_that_the_leaders_peers_lack_is_refused_unless_it_is_insisted_on() {
    let place = Place::new();
    let (_pair, [leader, other]) = peers(&place);
    let ran = place.tenure(leader, &["transfer", "--to", "c"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    for words in [
        "cannot transfer: no candidate c is connected to this leader",
        &format!("these can lead now: {other}; to insist on c, use --force"),
    ] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    assert_eq!(place.tenure(other, &["pause"]).code, 0);
    until(PATIENCE, "the leader knows of the pause", || knows(&place, [leader, other], "paused"));
    let ran = place.tenure(leader, &["transfer", "--to", other]);
    assert!(ran.code == 1 && ran.err.contains(&format!("{other} is paused")), "{}", ran.err);
    assert_eq!(place.call(leader, "/v1/status", "").json["state"], "leader", "nothing was done");
    let ran = place.tenure(leader, &["transfer", "--to", "c", "--force", "--hold-off", "1s"]);
    assert!(ran.code == 1 && ran.err.contains("no other candidate took over"), "{}", ran.err);
}

#[test]
fn the_pause_of_the_last_candidate_needs_a_confirmation() {
    let place = Place::new();
    let (_pair, [leader, other]) = peers(&place);
    assert_eq!(place.tenure(other, &["pause"]).code, 0);
    until(PATIENCE, "the leader knows of the pause", || knows(&place, [leader, other], "paused"));
    let ran = place.tenure(leader, &["pause"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    for words in ["is the last candidate of", "nobody will lead", "confirm with --yes"] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    assert_eq!(place.call(leader, "/v1/status", "").json["state"], "leader");
    let ran = place.tenure(leader, &["pause", "--yes"]);
    assert!(ran.code == 0 && ran.out.contains("paused: nobody leads"), "{}{}", ran.out, ran.err);
    assert_eq!(place.tenure(leader, &["resume"]).code, 0);
}

#[test]
fn a_drain_holds_the_lease_until_the_service_reports_drained() {
    let place = Place::new();
    let leader = place.start("a", &["--drain-timeout", "50s"]);
    in_state(&leader, "leader");
    let term = leader.status().unwrap()["term"].as_u64().unwrap();
    let standby = place.start("b", &[]);
    in_state(&standby, "standby");
    let answer = place.call("a", "/v1/step-down", "");
    assert_eq!((answer.code, &answer.json["state"]), (202, &json!("draining")), "{answer:?}");
    assert!(!leader.is_leader(), "passive is said before the answer");
    // The drain lasts longer than the lease, which is renewed.
    let began = clock::now();
    while began.elapsed_min(clock::now()) < STEADY.lease_duration + STEADY.retry_period {
        assert!(!standby.is_leader(), "the lease is not held in the drain");
        assert_eq!(leader.state().as_deref(), Some("draining"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let late = format!(r#"{{"term":{}}}"#, term - 1);
    let answer = place.call("a", "/v1/drained", &late);
    let words = format!("cannot end the drain: the draining term is {term}, not {}", term - 1);
    assert_eq!((answer.code, &answer.json["error"]), (409, &json!(words)), "{answer:?}");
    let ran = place.tenure("a", &["step-down"]);
    assert!(ran.code == 1 && ran.err.contains("stepped down already"), "{}", ran.err);
    assert_eq!(leader.state().as_deref(), Some("draining"));
    let ran = place.tenure("a", &["drained", "--term", &term.to_string()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    in_state(&standby, "leader");
    let took = began.elapsed_min(clock::now());
    assert!(took < Duration::from_secs(50), "the drain was waited for to its end: {took:?}");
}

#[test]
fn the_status_listener_accepts_no_command() {
    let place = Place::new();
    let leader = place.start("a", &[]);
    in_state(&leader, "leader");
    for path in PATHS {
        let mut stream = TcpStream::connect(leader.address).unwrap();
        stream.write_all(request("POST", path, "localhost", &[], "").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 404"), "{path}: {text}");
    }
    place.write_token(TOKEN);
    let token = place.path("token").display().to_string();
    let address = format!("http://{}", leader.address);
    for more in [&[][..], &["--admin-token-file", &token]] {
        let arguments = [&["pause", "--admin", &address], more].concat();
        let ran = Process::verb(&arguments, &[]).end();
        assert!(ran.code != 0 && ran.err.contains("is the status listener"), "{}", ran.err);
    }
    in_state(&leader, "leader");
}

#[test]
fn the_address_and_the_fields_are_validated_before_a_request_is_sent() {
    for (arguments, words) in [
        (&["pause"][..], "TENURE_ADMIN"),
        (&["pause", "--admin", "unix:relative"], "unix:/path"),
        (&["pause", "--admin", "127.0.0.1:1"], "--admin-token-file"),
        (&["pause", "--admin", "10.0.0.1:1"], "loopback"),
        (&["step-down", "--hold-off", "10"], "no unit"),
        (&["step-down", "--hold-off", "2h"], "pause"),
        (&["transfer"], "--to"),
        (&["drained", "--term", "x"], "--term"),
    ] {
        let ran = Process::verb(arguments, &[]).end();
        assert!(
            ran.code == 2 && ran.err.contains(words),
            "{arguments:?}: {} {}",
            ran.code,
            ran.err
        );
    }
    let place = Place::new();
    drop(UnixListener::bind(place.socket("gone")).unwrap());
    let ran = place.tenure("gone", &["resume"]);
    assert!(ran.code == 1 && ran.err.contains("has ended"), "{} {}", ran.code, ran.err);
    assert!(Path::new(&place.socket("gone")).exists());
}
