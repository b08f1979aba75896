//! Parses the connection string of a storage account, as the Azure portal shows it. Each part is
//! used, or known and without meaning for blobs, or refused.

use std::collections::BTreeMap;

use url::Url;

use super::super::endpoint as server;
use super::super::faults::Problem;
use super::super::store_url::{DEVELOPMENT_ACCOUNT, is_account};
use super::super::table::nearest;
use super::secret::{self, AzureSecret, unquoted, unresolved};
use super::{DEVELOPMENT_KEY, PUBLIC_DOMAIN, default_endpoint, endpoint};

const ACCOUNT: &str = "AccountName";
const KEY: &str = "AccountKey";
const SAS: &str = "SharedAccessSignature";
const BLOB: &str = "BlobEndpoint";
const SUFFIX: &str = "EndpointSuffix";
const PROTOCOL: &str = "DefaultEndpointsProtocol";
const DEVELOPMENT: &str = "UseDevelopmentStorage";
const PROXY: &str = "DevelopmentStorageProxyUri";

/// The parts that are used.
const USED: [&str; 8] = [ACCOUNT, KEY, SAS, BLOB, SUFFIX, PROTOCOL, DEVELOPMENT, PROXY];

/// The parts for other services, and for reading a secondary region.
const UNUSED: [&str; 11] = [
    "QueueEndpoint",
    "TableEndpoint",
    "FileEndpoint",
    "DfsEndpoint",
    "WebEndpoint",
    "BlobSecondaryEndpoint",
    "QueueSecondaryEndpoint",
    "TableSecondaryEndpoint",
    "FileSecondaryEndpoint",
    "DfsSecondaryEndpoint",
    "WebSecondaryEndpoint",
];

/// Parts that only connection strings of other services have.
const FOREIGN: [(&str, &str); 9] = [
    ("AccountEndpoint", "Cosmos DB"),
    ("InstrumentationKey", "Application Insights"),
    ("HostName", "IoT Hub"),
    ("SharedAccessKeyName", "Service Bus or Event Hubs"),
    ("EntityPath", "Event Hubs"),
    ("Endpoint", "another service"),
    ("Server", "a database"),
    ("Data Source", "a database"),
    ("Database", "a database"),
];

const COPY: &str = "copy the whole connection string, as the portal shows it under Access keys or \
                    Shared access signature";

/// The contents of a connection string.
#[derive(Debug)]
pub(super) struct ConnectionString {
    /// The account.
    pub(super) account: String,
    /// The endpoint of its blobs.
    pub(super) endpoint: Url,
    /// The key or the shared access signature.
    pub(super) secret: AzureSecret,
}

/// Returns whether a text has a part that only connection strings of storage accounts have.
pub(super) fn has_parts(text: &str) -> bool {
    names(text).any(|name| USED.iter().any(|it| it.eq_ignore_ascii_case(name)))
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter_map(|it| it.split_once('=')).map(|(name, _)| name.trim())
}

/// Parses a connection string; returns all its faults at once, as the ends of sentences about it.
pub(super) fn parse(text: &str) -> Result<ConnectionString, Vec<Problem>> {
    if let Some(service) = foreign(text) {
        let problem = format!("is a connection string of {service}, not of a storage account");
        return Err(vec![Problem::new(problem, COPY)]);
    }
    let mut reader = Reader::of(text);
    if reader.is_development() {
        return reader.development();
    }
    let name = reader.taken(ACCOUNT, account_name);
    let endpoint = reader.endpoint(name.as_deref());
    let named = endpoint.as_ref().and_then(|it| endpoint::account(it).ok());
    if let (Some(name), Some(named)) = (&name, &named)
        && name != named
    {
        reader.fault(
            format!("has the {ACCOUNT} {name}, but a {BLOB} of the account {named}"),
            "keep the one that is meant",
        );
    }
    let account = name.or(named);
    let is_named = [ACCOUNT, BLOB].iter().any(|it| reader.parts.contains_key(it));
    if !is_named && !reader.is_partial {
        let problem =
            match names(text).find(|it| UNUSED.iter().any(|of| of.eq_ignore_ascii_case(it))) {
                Some(other) => format!("has {other}, but neither {ACCOUNT} nor {BLOB}"),
                None => format!("has neither {ACCOUNT} nor {BLOB}"),
            };
        reader.fault(problem, COPY);
    }
    let secret = reader.secret(account.as_deref().unwrap_or_default());
    match (account, endpoint, secret) {
        (Some(account), Some(endpoint), Some(secret)) if reader.faults.is_empty() => {
            Ok(ConnectionString { account, endpoint, secret })
        }
        _ => Err(reader.faults),
    }
}

/// Returns which other service a string is for.
fn foreign(text: &str) -> Option<&'static str> {
    // Cosmos DB has an AccountKey too.
    let ours = USED.iter().filter(|it| **it != KEY);
    let is_ours = |name: &str| ours.clone().any(|it| it.eq_ignore_ascii_case(name));
    if names(text).any(is_ours) {
        return None;
    }
    names(text).find_map(|name| {
        FOREIGN.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, service)| *service)
    })
}

/// The parts of a string, and the faults found so far.
struct Reader<'a> {
    parts: BTreeMap<&'static str, &'a str>,
    faults: Vec<Problem>,
    /// Whether there was a part that could not be read, so that none is said to be missing.
    is_partial: bool,
}

impl<'a> Reader<'a> {
    fn of(text: &'a str) -> Self {
        let mut reader = Self { parts: BTreeMap::new(), faults: Vec::new(), is_partial: false };
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        for (number, part) in (1..).zip(parts) {
            match part.split_once('=') {
                Some((name, value)) => reader.part(number, name.trim(), value.trim()),
                // The part itself may be a key that lost its name.
                None => reader.fault(format!("has a part {number} that is not NAME=VALUE"), COPY),
            }
        }
        reader.is_partial = !reader.faults.is_empty();
        reader
    }

    fn part(&mut self, number: usize, name: &str, value: &'a str) {
        let Some(known) = USED.into_iter().chain(UNUSED).find(|it| it.eq_ignore_ascii_case(name))
        else {
            return self.faults.push(unknown(number, name));
        };
        let is_used = USED.contains(&known);
        match unquoted(value) {
            Ok("") if is_used => self.fault(format!("has an empty {known}"), COPY),
            Ok(value) => match unresolved(value).filter(|_| is_used) {
                Some(problem) => self.faults.push(of_part(known, problem)),
                None if self.parts.insert(known, value).is_some() => {
                    self.fault(format!("has {known} twice"), "keep the one that is meant");
                }
                None => {}
            },
            Err(problem) => self.faults.push(of_part(known, problem)),
        }
    }

    fn fault(&mut self, problem: impl Into<String>, remedy: &str) {
        self.faults.push(Problem::new(problem, remedy));
    }

    /// Takes the value of a part, if there is one that can be read.
    fn taken<T>(&mut self, part: &str, read: impl FnOnce(&str) -> Result<T, Problem>) -> Option<T> {
        let read = read(self.parts.get(part)?);
        read.map_err(|problem| self.faults.push(of_part(part, problem))).ok()
    }

    fn is_development(&mut self) -> bool {
        let value = self.parts.get(DEVELOPMENT);
        let is_development = value.is_some_and(|it| it.eq_ignore_ascii_case("true"));
        if value.is_some() && !is_development {
            self.fault(
                format!("has a {DEVELOPMENT} that is not true"),
                "remove that part, or everything else for Azurite",
            );
        }
        if !is_development && self.parts.contains_key(PROXY) {
            self.fault(
                format!("has {PROXY} without {DEVELOPMENT}=true"),
                "add that for Azurite, or remove the part",
            );
        }
        is_development
    }

    /// Returns Azurite at its default port, on this host or where the proxy's URI says.
    fn development(mut self) -> Result<ConnectionString, Vec<Problem>> {
        let is_http = |it: &&str| it.eq_ignore_ascii_case("http");
        for part in [ACCOUNT, KEY, SAS, BLOB, SUFFIX, PROTOCOL] {
            let given = self.parts.get(part);
            if given.is_some() && !(part == PROTOCOL && given.is_some_and(is_http)) {
                self.fault(
                    format!("has {DEVELOPMENT}=true together with {part}"),
                    "remove the one that is not meant",
                );
            }
        }
        let elsewhere = self.taken(PROXY, proxied);
        let key = secret::key(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY).ok();
        match (elsewhere.or_else(|| default_endpoint(DEVELOPMENT_ACCOUNT)), key) {
            (Some(endpoint), Some(secret)) if self.faults.is_empty() => {
                Ok(ConnectionString { account: DEVELOPMENT_ACCOUNT.to_owned(), endpoint, secret })
            }
            _ => Err(self.faults),
        }
    }

    /// Returns the endpoint that is named, or that the account has in the cloud of the suffix.
    fn endpoint(&mut self, account: Option<&str>) -> Option<Url> {
        let scheme = match self.parts.contains_key(PROTOCOL) {
            true => self.taken(PROTOCOL, protocol),
            false => Some("https"),
        };
        if self.parts.contains_key(BLOB) {
            return self.taken(BLOB, endpoint::read);
        }
        let domain = match self.parts.contains_key(SUFFIX) {
            true => self.taken(SUFFIX, domain)?,
            // Azurite: no such account is in the cloud.
            false if account == Some(DEVELOPMENT_ACCOUNT) => {
                return default_endpoint(DEVELOPMENT_ACCOUNT);
            }
            false => PUBLIC_DOMAIN.to_owned(),
        };
        let url = endpoint::read(&format!("{}://{}.blob.{domain}", scheme?, account?));
        url.map_err(|problem| self.faults.push(of_part(SUFFIX, problem))).ok()
    }

    fn secret(&mut self, account: &str) -> Option<AzureSecret> {
        match (self.parts.contains_key(KEY), self.parts.contains_key(SAS)) {
            (true, false) => self.taken(KEY, |it| secret::key(account, it)),
            (false, true) => self.taken(SAS, secret::sas),
            (true, true) => {
                self.fault(format!("has both {KEY} and {SAS}"), "keep the one that is meant");
                None
            }
            (false, false) => {
                if !self.is_partial {
                    self.fault(format!("has neither {KEY} nor {SAS}"), COPY);
                }
                None
            }
        }
    }
}

/// Makes what is wrong with a value a fault of its part.
fn of_part(part: &str, problem: Problem) -> Problem {
    let article = if part.starts_with(['A', 'E']) { "an" } else { "a" };
    Problem::new(format!("has {article} {part} that {}", problem.problem), problem.remedy)
}

/// Returns the fault of a part that is none. Its name may be a secret that lost its own, so that it
/// is shown only if it is a word.
fn unknown(number: usize, name: &str) -> Problem {
    let lower = name.to_ascii_lowercase();
    let near = [&USED[..], &UNUSED[..]].into_iter().find_map(|names| {
        let known: Vec<_> = names.iter().map(|it| it.to_ascii_lowercase()).collect();
        let near = nearest(&lower, known.iter().map(String::as_str))?;
        names.iter().find(|it| it.eq_ignore_ascii_case(near))
    });
    let is_word = name.len() <= 32 && name.bytes().all(|it| it.is_ascii_alphabetic());
    let shown = if is_word { name.to_owned() } else { number.to_string() };
    Problem::new(
        format!("has a part {shown}, which no storage account's connection string has"),
        near.map_or_else(|| format!("remove it, or {COPY}"), |it| format!("did you mean {it}?")),
    )
}

fn account_name(text: &str) -> Result<String, Problem> {
    let lower = text.to_ascii_lowercase();
    if is_account(&lower) {
        return Ok(lower);
    }
    Err(match lower.contains(['.', '/']) {
        true => Problem::new("is a host", "write the account alone: acme, not acme.blob.DOMAIN"),
        false => Problem::new(
            "is not a valid name of an account",
            "accounts are 3 to 24 lower-case letters and digits",
        ),
    })
}

fn protocol(text: &str) -> Result<&'static str, Problem> {
    match text.to_ascii_lowercase().as_str() {
        "https" => Ok("https"),
        "http" => Ok("http"),
        _ => Err(Problem::new("is neither https nor http", "write https")),
    }
}

/// Returns the domain of a cloud from a suffix that may have more than that.
fn domain(text: &str) -> Result<String, Problem> {
    const WRITE: &str = "write the domain of the cloud alone, such as core.windows.net";
    let lower = text.trim_matches(['.', '/']).to_ascii_lowercase();
    let domain = lower.strip_prefix("blob.").unwrap_or(&lower);
    let is_name = |it: char| it.is_ascii_alphanumeric() || "-.:".contains(it);
    if !domain.chars().all(is_name) {
        return Err(Problem::new("is not a domain", WRITE));
    }
    let mut labels = domain.split('.');
    if let Some(words) = labels.next().and_then(endpoint::other_service) {
        return Err(Problem::new(format!("is that of {words}, not of blobs"), WRITE));
    }
    if labels.any(|it| it == "blob") {
        return Err(Problem::new("is a host with its account", WRITE));
    }
    Ok(domain.to_owned())
}

/// Returns the endpoint of Azurite behind the proxy's URI, which names no port and no path in the
/// strings of other programs.
fn proxied(text: &str) -> Result<Url, Problem> {
    const WRITE: &str = "write http://HOST, where Azurite listens on port 10000";
    let url = server::read(text, WRITE, WRITE)?;
    if !["/", "/devstoreaccount1"].contains(&url.path()) {
        return Err(Problem::new("has a path", WRITE));
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port().unwrap_or(10_000);
    endpoint::read(&format!("{}://{host}:{port}/{DEVELOPMENT_ACCOUNT}", url.scheme()))
}

#[cfg(test)]
mod tests;
