//! Explains texts that are no store URL, but name a store to other clients, such as a URL of another
//! scheme, a list of `http://…` addresses or a connection string: the message has the URL to write instead.
//!
//! What follows `?` and what stands before `@` may be a secret, and is in no message.

use super::address::Form;
use super::{KINDS, Problem, StoreUrl, consul, etcd, mongodb, postgres, redis, zookeeper};

/// The kinds of store on servers that a URL names, with the form of it.
const ON_SERVERS: [(&str, &Form); 6] = [
    ("consul", &consul::FORM),
    ("etcd", &etcd::FORM),
    ("mongodb", &mongodb::FORM),
    ("postgres", &postgres::FORM),
    ("redis", &redis::FORM),
    ("zookeeper", &zookeeper::FORM),
];

/// The other kinds.
const OTHERS: [&str; 6] = ["azure", "file", "gs", "kubernetes", "memory", "s3"];

/// What other clients call a kind of store in a scheme, before a `+` if there is one.
const ALIASES: &[(&str, &str)] = &[
    ("abfs", "azure"),
    ("abfss", "azure"),
    ("az", "azure"),
    ("azblob", "azure"),
    ("azure-blob", "azure"),
    ("azureblob", "azure"),
    ("wasb", "azure"),
    ("wasbs", "azure"),
    ("consuls", "consul"),
    ("etcd2", "etcd"),
    ("etcd3", "etcd"),
    ("etcdv3", "etcd"),
    ("etcds", "etcd"),
    ("gcs", "gs"),
    ("google", "gs"),
    ("k8s", "kubernetes"),
    ("kube", "kubernetes"),
    ("lease", "kubernetes"),
    ("mongo", "mongodb"),
    ("pg", "postgres"),
    ("pgsql", "postgres"),
    ("psql", "postgres"),
    ("postgis", "postgres"),
    ("postgresql", "postgres"),
    ("redis-cluster", "redis"),
    ("redis-sentinel", "redis"),
    ("rediscluster", "redis"),
    ("rediss", "redis"),
    ("redis-socket", "redis"),
    ("sentinel", "redis"),
    ("valkey", "redis"),
    ("valkeys", "redis"),
    ("aws", "s3"),
    ("minio", "s3"),
    ("s3a", "s3"),
    ("s3n", "s3"),
    ("zk", "zookeeper"),
    ("zks", "zookeeper"),
    ("zoo", "zookeeper"),
];

/// Ports by which a kind is told where a text names none.
const PORTS: [(u16, &str); 10] = [
    (2181, "zookeeper"),
    (2182, "zookeeper"),
    (2281, "zookeeper"),
    (2379, "etcd"),
    (5432, "postgres"),
    (6379, "redis"),
    (6380, "redis"),
    (8500, "consul"),
    (8501, "consul"),
    (27_017, "mongodb"),
];

/// The port on which Redis's Sentinel answers.
const SENTINEL: &str = "26379";

const TLS: &str = "TLS is on beyond loopback, and with --store-ca-file there too";
const SRV: &str = "name the servers that `dig SRV _mongodb._tcp.NAME` lists";
const NO_SENTINEL: &str = "name the servers themselves and their ports: Sentinel is not asked";

/// A URL to write, and what to add to it.
struct Meant {
    kind: &'static str,
    url: String,
    /// What else is to be done.
    notes: Vec<String>,
    /// What is wrong, where a parser takes it for something else.
    problem: Option<&'static str>,
}

impl Meant {
    fn of(kind: &'static str, url: String) -> Self {
        Self { kind, url, notes: Vec::new(), problem: None }
    }
}

/// Adds the URL that was meant, if that can be told, to the problem of a text that `parse` does not accept.
pub(super) fn explained(
    given: &str,
    found: Problem,
    parse: &dyn Fn(&str) -> Result<StoreUrl, Problem>,
) -> Problem {
    let text = given.trim().trim_matches(['"', '\'']);
    if is_absent(&found) {
        return found;
    }
    if let Some(kind) = socket(text) {
        let form = ON_SERVERS.iter().find(|it| it.0 == kind).map_or(&etcd::FORM, |it| it.1);
        let host = format!("{kind}://127.0.0.1:{}", form.usual_port);
        return Problem::new(
            "names a socket, or no host, and Tenure reaches the servers of a store by TCP alone",
            format!("write a host and a port, such as {host}, and let the server listen there"),
        );
    }
    let Some(Meant { kind, url, notes, problem }) = meant(text) else { return found };
    let shown = match parse(&url) {
        Ok(_) => Some(url),
        Err(problem) if is_absent(&problem) => return problem,
        Err(_) => completed(kind, &url, parse),
    };
    let is_known = ![super::UNKNOWN, super::NO_URL].contains(&found.problem.as_str());
    let Some(shown) = shown.filter(|it| it != given && !found.remedy.contains(it)) else {
        return match is_known {
            true => found,
            false => Problem::new(super::UNKNOWN, format!("did you mean {kind}:? Write {KINDS}")),
        };
    };
    let meant = format!("did you mean {shown}?");
    let mut notes = notes;
    if is_known {
        let is_of_tls = |it: &String| it != TLS || text.contains("ssl") || text.contains("tls");
        notes.retain(is_of_tls);
    } else if text.contains(['@', '?', ';', '=']) {
        // The parser of this kind says where what no URL has belongs.
        notes.extend(parse(&format!("{kind}://h/x?")).err().map(|it| it.remedy));
    }
    let notes = match notes.join("; ") {
        notes if notes.is_empty() => notes,
        notes => format!(" Then {notes}"),
    };
    match problem {
        Some(problem) => Problem::new(problem, meant + &notes),
        None if is_known => {
            Problem::new(found.problem, format!("{}; {meant}{notes}", found.remedy))
        }
        None => Problem::new(super::UNKNOWN, meant + &notes),
    }
}

/// Returns whether a build lacks the store.
fn is_absent(problem: &Problem) -> bool {
    problem.problem.contains("which this build of Tenure")
}

/// Returns a URL with a word for the part that is missing at its end.
fn completed(
    kind: &str,
    url: &str,
    parse: &dyn Fn(&str) -> Result<StoreUrl, Problem>,
) -> Option<String> {
    let url = url.trim_end_matches('/');
    let part = match kind {
        "azure" => "CONTAINER".to_owned(),
        _ => ON_SERVERS.iter().find(|it| it.0 == kind)?.1.part.to_ascii_uppercase(),
    };
    parse(&format!("{url}/leases")).ok().map(|_| format!("{url}/{part}"))
}

/// Returns the kind of store that a text names by a socket of its host.
fn socket(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once(':')?;
    let base = scheme.split('+').next().unwrap_or_default();
    let kind = exactly(base).or((base == "unix").then_some("etcd"))?;
    let is_scheme = base == "unix"
        || scheme.ends_with("+unix")
        || scheme.ends_with("socket")
        || rest.trim_start_matches('/').starts_with("unix:");
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = path.trim_start_matches('/');
    let is_path = authority.rsplit('@').next()?.starts_with("%2f");
    let is_host = query.split('&').any(|it| it.starts_with("host=/") || it.starts_with("host=%2f"));
    // Without a host, PostgreSQL's and Redis's clients take a socket.
    let is_empty = ["postgres", "redis"].contains(&kind)
        && path.strip_prefix("///").is_some_and(|it| !it.is_empty());
    (is_scheme || is_path || is_host || is_empty).then_some(kind)
}

/// Returns the kind of this name, or of this name to other clients.
fn exactly(name: &str) -> Option<&'static str> {
    let known = ON_SERVERS.iter().map(|it| it.0).chain(OTHERS);
    let alias = ALIASES.iter().find(|it| it.0 == name).map(|it| it.1);
    known.into_iter().find(|it| *it == name).or(alias)
}

/// Returns the kind that a scheme names, also if it is misspelt.
fn kind_of(scheme: &str) -> Option<&'static str> {
    let base = scheme.split('+').next().unwrap_or_default();
    exactly(scheme).or_else(|| exactly(base)).or_else(|| {
        let known = ON_SERVERS.iter().map(|it| it.0).chain(OTHERS);
        known.filter(|it| it.len() > 2).find(|it| strsim::damerau_levenshtein(base, it) <= 2)
    })
}

fn meant(text: &str) -> Option<Meant> {
    if let Some(rest) = text.strip_prefix("jdbc:") {
        return meant(rest);
    }
    if let Some(rest) = text.strip_prefix("arn:aws:s3:::") {
        return Some(bucket("s3", rest));
    }
    if !text.contains("://")
        && let Some(found) = keywords(text)
    {
        return Some(found);
    }
    let (scheme, rest) = text.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let plain = bare(rest)?;
    match scheme.as_str() {
        "http" | "https" => return web(&scheme, plain),
        _ if plain.starts_with(|it: char| it.is_ascii_digit()) && !scheme.is_empty() => {
            let text = bare(text)?;
            let port = text.split([',', '/', ' ']).next()?.rsplit(':').next()?;
            let kind = if port == SENTINEL { "redis" } else { of_port(port)? };
            return on_servers(kind, "", text);
        }
        _ => {}
    }
    let kind = kind_of(&scheme)?;
    let plain = plain.trim_start_matches('/');
    match kind {
        "azure" => azure(rest.trim_start_matches('/')),
        "s3" | "gs" => Some(of_bucket(kind, &scheme, plain)),
        "kubernetes" => {
            let path = plain.trim_end_matches('/');
            Some(Meant::of(kind, format!("kubernetes:{path}")))
        }
        "file" | "memory" => Some(Meant::of(kind, format!("{kind}:{rest}"))),
        _ => on_servers(kind, &scheme, plain),
    }
}

/// Returns a text without what may be a secret in it; `None` if what that is cannot be told.
fn bare(text: &str) -> Option<&str> {
    let (head, tail) = text.find(['?', '#']).map_or((text, ""), |at| text.split_at(at));
    if tail.contains('@') {
        return None;
    }
    Some(head.rfind('@').map_or(head, |at| &head[at + 1..]))
}

fn of_port(port: &str) -> Option<&'static str> {
    let port: u16 = port.parse().ok()?;
    PORTS.iter().find(|it| it.0 == port).map(|it| it.1)
}

/// Returns the URL of a store on the servers in a list of addresses, each of which may have a scheme and a
/// path of its own.
fn on_servers(kind: &'static str, scheme: &str, list: &str) -> Option<Meant> {
    let form = ON_SERVERS.iter().find(|it| it.0 == kind)?.1;
    let mut notes = vec![TLS.to_owned()];
    if scheme.ends_with("+srv") {
        let database = list.split_once('/').map_or("", |it| it.1);
        notes = vec![SRV.to_owned()];
        let database = if database.is_empty() { "DATABASE" } else { database };
        let url = format!("{kind}://HOST,HOST2/{database}");
        let problem = Some("is a name for the servers of MongoDB, which is not looked up");
        return Some(Meant { notes, problem, ..Meant::of(kind, url) });
    }
    let (mut addresses, mut paths) = (Vec::new(), Vec::new());
    for piece in list.split([',', ';', ' ']).filter(|it| !it.contains('=')) {
        let (inner, address) = piece.split_once("://").unwrap_or(("", piece));
        let (address, path) = address.split_once('/').unwrap_or((address, ""));
        let path = path.trim_matches('/');
        if !path.is_empty() && !paths.contains(&path) {
            paths.push(path);
        }
        let has_port = address.rsplit(']').next()?.contains(':');
        let port = match inner {
            _ if has_port || address.is_empty() => None,
            "https" => Some(443),
            "http" => Some(80),
            _ => Some(form.usual_port).filter(|_| !form.may_omit_port),
        };
        addresses.extend((!address.is_empty()).then(|| match port {
            Some(port) => format!("{address}:{port}"),
            None => address.to_owned(),
        }));
    }
    if addresses.is_empty() {
        return None;
    }
    if scheme.contains("sentinel") || addresses.iter().any(|it| it.ends_with(SENTINEL)) {
        notes.push(NO_SENTINEL.to_owned());
    }
    let path = match paths.as_slice() {
        [path] => format!("/{path}"),
        _ => String::new(),
    };
    let problem = match list {
        _ if list.contains("://") => Some("names an address with a scheme of its own"),
        _ if list.find('/').is_some_and(|at| list[at..].contains(',')) => {
            Some("has a path between addresses: it stands once, behind the last one")
        }
        _ => None,
    };
    let url = format!("{kind}://{}{path}", addresses.join(","));
    Some(Meant { notes, problem, ..Meant::of(kind, url) })
}

/// Returns the URL of a bucket, which a text may name behind the server.
fn of_bucket(kind: &'static str, scheme: &str, text: &str) -> Meant {
    let (inner, rest) = text.split_once("://").unwrap_or(("", text));
    let (first, below) = rest.split_once('/').unwrap_or((rest, ""));
    let is_server = !inner.is_empty() || first.contains(':') || scheme == "minio";
    if kind == "s3" && is_server && !first.contains("amazonaws.com") {
        let scheme = if inner == "http" { "http" } else { "https" };
        let mut meant = bucket(kind, if below.is_empty() { "BUCKET" } else { below });
        meant.notes.push(format!("set --s3-endpoint {scheme}://{first}"));
        return meant;
    }
    match inner {
        "http" | "https" => web(inner, &format!("//{rest}")).unwrap_or_else(|| bucket(kind, rest)),
        _ => bucket(kind, rest),
    }
}

fn bucket(kind: &'static str, path: &str) -> Meant {
    let path = path.trim_matches('/');
    Meant::of(kind, format!("{kind}://{path}"))
}

/// Returns what the URL of a container means, of the form `//ACCOUNT[.blob.DOMAIN]/CONTAINER` or, as
/// Hadoop's clients have it, `CONTAINER@ACCOUNT.dfs.DOMAIN`.
fn azure(text: &str) -> Option<Meant> {
    let text = text.split(['?', '#']).next()?;
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    let (container, host) = match host.split_once('@') {
        Some((container, host)) => (container, host),
        None => (path.split('/').next()?, host),
    };
    let mut labels = host.split('.');
    let account = labels.next()?.split(':').next()?;
    let mut notes = Vec::new();
    let domain = labels.collect::<Vec<_>>().join(".");
    if !domain.is_empty() && !domain.ends_with("core.windows.net") {
        let domain = domain.split_once('.').map_or("", |it| it.1);
        notes.push(format!("set --azure-endpoint https://{account}.blob.{domain}"));
    }
    Some(Meant { notes, ..Meant::of("azure", format!("azure://{account}/{container}")) })
}

/// Returns what the address of a web server means: a bucket, a container, or a server by its port.
fn web(scheme: &str, rest: &str) -> Option<Meant> {
    let rest = rest.trim_start_matches('/');
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if let Some(path) = path.strip_prefix("devstoreaccount1") {
        return azure(&format!("devstoreaccount1{path}"));
    }
    if [".blob.", ".dfs."].iter().any(|it| host.contains(it)) {
        return azure(rest);
    }
    if let Some(host) = host.strip_suffix(".googleapis.com") {
        return match host.strip_suffix(".storage") {
            Some(name) => Some(bucket("gs", &format!("{name}/{path}"))),
            None if host == "storage" => Some(bucket("gs", path)),
            None => None,
        };
    }
    if host == "storage.cloud.google.com" {
        return Some(bucket("gs", path));
    }
    if let Some(host) = host.trim_end_matches(".cn").strip_suffix(".amazonaws.com") {
        return match host.split_once(".s3") {
            Some((name, _)) => Some(bucket("s3", &format!("{name}/{path}"))),
            None if host.starts_with("s3") => Some(bucket("s3", path)),
            None => None,
        };
    }
    let port = host.split(',').next()?.rsplit(':').next()?;
    match port {
        "9000" => Some(of_bucket("s3", "s3", &format!("{scheme}://{rest}"))),
        _ => on_servers(of_port(port)?, "", &format!("{scheme}://{rest}")),
    }
}

/// Returns what a connection string without a URL means: of Azure, or of libpq.
fn keywords(text: &str) -> Option<Meant> {
    let of = |name: &str| {
        let fields = text.split([';', ' ']).filter_map(|it| it.split_once('='));
        fields.filter(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1).next()
    };
    if let Some(account) = of("AccountName") {
        let notes = vec!["set AZURE_STORAGE_CONNECTION_STRING to the connection string".to_owned()];
        return Some(Meant { notes, ..Meant::of("azure", format!("azure://{account}")) });
    }
    let host = of("host").or_else(|| of("server")).filter(|it| !it.starts_with('/'))?;
    let address = match of("port") {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let database = of("dbname").or_else(|| of("database")).unwrap_or_default();
    on_servers("postgres", "", &format!("{address}/{database}"))
}

#[cfg(all(
    test,
    feature = "consul",
    feature = "etcd",
    feature = "gcs",
    feature = "mongodb",
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "zookeeper"
))]
mod tests;
