//! Azure's Instance Metadata Service, as far as scheduled events need it, by Microsoft's page "Scheduled
//! Events for Linux VMs": the name of one machine, and the events of the group that it is in.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// How the service of one machine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// As documented.
    Documented,
    /// With this status and a JSON error.
    Failure(u16),
    /// Never.
    Hang,
}

/// The events of a group of machines.
#[derive(Default)]
struct Group {
    /// Grows whenever the events change.
    incarnation: u64,
    events: Vec<Value>,
    /// Whether events were ever asked for, which enables them.
    enabled: bool,
}

/// The state of one machine's service.
struct Machine {
    name: String,
    reply: Reply,
    /// How long the answer takes that enables events.
    first_delay: Duration,
    /// The requests: the request line, and the other lines of the head.
    received: Vec<(String, Vec<String>)>,
    over: bool,
}

/// The service of one machine; stops when it is dropped.
pub struct MetadataServer {
    address: SocketAddr,
    group: Arc<Mutex<Group>>,
    machine: Arc<Mutex<Machine>>,
}

impl MetadataServer {
    /// Starts the service of a machine in a group of its own.
    pub fn start(name: &str) -> Self {
        Self::of(name, Arc::default())
    }

    /// Starts the service of another machine of the same group.
    pub fn beside(&self, name: &str) -> Self {
        Self::of(name, Arc::clone(&self.group))
    }

    fn of(name: &str, group: Arc<Mutex<Group>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let machine = Arc::new(Mutex::new(Machine {
            name: name.to_owned(),
            reply: Reply::Documented,
            first_delay: Duration::ZERO,
            received: Vec::new(),
            over: false,
        }));
        let (serving, of_group) = (Arc::clone(&machine), Arc::clone(&group));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if lock(&serving).over {
                    return;
                }
                let (machine, group) = (Arc::clone(&serving), Arc::clone(&of_group));
                thread::spawn(move || stream.and_then(|it| serve(&it, &machine, &group)));
            }
        });
        Self { address, group, machine }
    }

    /// Returns the value of `scheduled-events` that names this service.
    pub fn setting(&self) -> String {
        format!("azure:http://{}", self.address)
    }

    /// Sets the answer from now on.
    pub fn reply(&self, reply: Reply) {
        lock(&self.machine).reply = reply;
    }

    /// Sets how long the answer takes that enables events; the page says up to two minutes.
    pub fn delay_first(&self, delay: Duration) {
        lock(&self.machine).first_delay = delay;
    }

    /// Schedules an event of this kind for these machines; returns its id.
    pub fn schedule(&self, kind: &str, machines: &[&str], not_before: OffsetDateTime) -> String {
        let id = uuid::Uuid::new_v4().to_string().to_uppercase();
        let not_before = not_before.format(&Rfc2822).expect("a date").replace("+0000", "GMT");
        self.change(|events| {
            events.push(json!({
                "EventId": id,
                "EventStatus": "Scheduled",
                "EventType": kind,
                "ResourceType": "VirtualMachine",
                "Resources": machines,
                "NotBefore": not_before,
                "Description": "Host server is undergoing maintenance.",
                "EventSource": "Platform",
                "DurationInSeconds": -1,
            }));
        });
        id
    }

    /// Starts an event: it has no date from then on.
    pub fn begin(&self, id: &str) {
        self.change(|events| {
            for event in events.iter_mut().filter(|it| it["EventId"] == id) {
                event["EventStatus"] = "Started".into();
                event["NotBefore"] = "".into();
            }
        });
    }

    /// Ends an event, or cancels it: it is not returned any more.
    pub fn finish(&self, id: &str) {
        self.change(|events| events.retain(|it| it["EventId"] != id));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut group = lock(&self.group);
        group.incarnation += 1;
        change(&mut group.events);
    }

    /// Returns the request lines so far.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.machine).received.iter().map(|(line, _)| line.clone()).collect()
    }

    /// Returns how often events were asked for.
    pub fn questions(&self) -> usize {
        self.requests().iter().filter(|it| it.contains("/scheduledevents")).count()
    }

    /// Returns the heads of the requests so far, without their first lines.
    pub fn heads(&self) -> Vec<Vec<String>> {
        lock(&self.machine).received.iter().map(|(_, head)| head.clone()).collect()
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        lock(&self.machine).over = true;
        // Wakes the thread of the listener, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    stream: &TcpStream,
    machine: &Mutex<Machine>,
    group: &Mutex<Group>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(line) = lines.next() else { return Ok(()) };
    let head: Vec<String> = lines.take_while(|it| !it.is_empty()).collect();
    let (reply, first_delay, name) = {
        let mut it = lock(machine);
        it.received.push((line.clone(), head.clone()));
        (it.reply, it.first_delay, it.name.clone())
    };
    let (code, body) = match reply {
        Reply::Hang => loop {
            if lock(machine).over {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        },
        Reply::Failure(code) => (code, json!({"error": "Internal server error"}).to_string()),
        Reply::Documented => documented(&line, &head, &name, first_delay, group),
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {code} -\r\nContent-Type: application/json; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the documented answer.
fn documented(
    line: &str,
    head: &[String],
    name: &str,
    first_delay: Duration,
    group: &Mutex<Group>,
) -> (u16, String) {
    let error = |words: &str| (400, json!({"error": words}).to_string());
    let has = |field: &str, value: Option<&str>| {
        head.iter().filter_map(|it| it.split_once(':')).any(|(found, text)| {
            let is_named = found.eq_ignore_ascii_case(field);
            is_named && value.is_none_or(|it| text.trim().eq_ignore_ascii_case(it))
        })
    };
    if !has("metadata", Some("true")) {
        return error("Bad request. Required metadata header not specified");
    }
    if has("x-forwarded-for", None) {
        return error("Bad request. Requests through a proxy are not supported");
    }
    let target = line.split(' ').nth(1).unwrap_or_default();
    match target {
        "/metadata/instance/compute/name?api-version=2021-02-01&format=text" => {
            (200, name.to_owned())
        }
        "/metadata/scheduledevents?api-version=2020-07-01" if line.starts_with("GET ") => {
            if !std::mem::replace(&mut lock(group).enabled, true) {
                thread::sleep(first_delay);
            }
            let group = lock(group);
            let document =
                json!({"DocumentIncarnation": group.incarnation, "Events": group.events});
            (200, document.to_string())
        }
        _ => error("Bad request"),
    }
}
