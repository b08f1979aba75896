//! Judges the endpoint of a storage account, wherever it comes from: the setting, a connection
//! string or a secret file.
//!
//! An endpoint names its account, as `ACCOUNT.blob.DOMAIN` or in the path of a server such as
//! Azurite, and has nothing else that could lead to another blob.

use url::{Host, Url};

use super::super::endpoint;
use super::super::faults::Problem;
use super::super::store_url::is_account;

const WRITE: &str =
    "write https://ACCOUNT.blob.DOMAIN, or http://127.0.0.1:10000/ACCOUNT for Azurite";
const SECRETS: &str = "a signature belongs in AZURE_STORAGE_SAS_TOKEN, or in the part \
                       SharedAccessSignature of a connection string";

/// The services of an account, with their names in hosts and in messages.
const SERVICES: [(&str, &str); 6] = [
    ("blob", "blobs"),
    ("dfs", "Data Lake Storage (dfs)"),
    ("file", "files"),
    ("queue", "queues"),
    ("table", "tables"),
    ("web", "static websites"),
];

/// The domains of Microsoft's clouds, below which each host is of one service.
const CLOUDS: [&str; 5] = [
    "core.windows.net",
    "core.chinacloudapi.cn",
    "core.usgovcloudapi.net",
    "core.cloudapi.de",
    "storage.azure.net",
];

/// What hosts of one account may have behind its name; they lead to the same blobs.
const ROUTES: [&str; 3] = ["-microsoftrouting", "-internetrouting", "-ipv6"];

/// Parses an endpoint; returns it without a slash at its end.
pub(super) fn read(text: &str) -> Result<Url, Problem> {
    // Parsing would drop line breaks and tabs without a word.
    if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
        return Err(Problem::new("has white space inside", WRITE));
    }
    let mut url = endpoint::read(text, WRITE, SECRETS)?;
    let absolute = url.host_str().and_then(|it| it.strip_suffix('.')).map(str::to_owned);
    if let Some(host) = absolute {
        url.set_host(Some(&host)).map_err(|_| Problem::new("names no host", WRITE))?;
    }
    account(&url)?;
    Ok(url)
}

/// Returns the account that an endpoint names.
pub(super) fn account(url: &Url) -> Result<String, Problem> {
    match url.host() {
        Some(Host::Domain(host)) => match Named::of(host) {
            Some(named) => named.account(url, host),
            None if is_of_cloud(host) => {
                let problem = "is a host of Azure, but not the endpoint of an account's blobs";
                Err(Problem::new(problem, "write https://ACCOUNT.blob.DOMAIN"))
            }
            None => of_path(url),
        },
        _ => of_path(url),
    }
}

/// Returns how messages call a service that is not blobs.
pub(super) fn other_service(name: &str) -> Option<&'static str> {
    SERVICES.iter().find(|(it, _)| *it == name && name != "blob").map(|(_, words)| *words)
}

fn is_of_cloud(host: &str) -> bool {
    CLOUDS
        .iter()
        .any(|it| host.strip_suffix(it).is_some_and(|it| it.is_empty() || it.ends_with('.')))
}

/// The parts of the host `ACCOUNT.SERVICE.DOMAIN`, or `ACCOUNT.zNN.SERVICE.DOMAIN`.
struct Named<'a> {
    account: &'a str,
    service: &'a str,
    domain: &'a str,
}

impl<'a> Named<'a> {
    fn of(host: &'a str) -> Option<Self> {
        let (account, rest) = host.split_once('.')?;
        let is_zone = |it: &str| {
            it.strip_prefix('z')
                .is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
        };
        let rest = match rest.split_once('.') {
            Some((zone, below)) if is_zone(zone) => below,
            _ => rest,
        };
        let (service, domain) = rest.split_once('.').unwrap_or((rest, ""));
        let is_known = service == "privatelink" || SERVICES.iter().any(|(it, _)| *it == service);
        is_known.then_some(Self { account, service, domain })
    }

    fn account(&self, url: &Url, host: &str) -> Result<String, Problem> {
        let Self { account, service, domain } = self;
        if *service == "privatelink" {
            return Err(Problem::new(
                "is a name in the DNS zone of private endpoints",
                format!("write https://{account}.{domain}: DNS leads it to the private endpoint"),
            ));
        }
        if let Some(words) = other_service(service) {
            return Err(Problem::new(
                format!("is the endpoint of {words}, not of blobs"),
                format!("write https://{account}.blob.{domain}"),
            ));
        }
        let first = domain.split(['.', ':']).next().unwrap_or_default();
        if !(domain.contains('.') || *domain == "localhost")
            || SERVICES.iter().any(|(it, _)| *it == first)
        {
            return Err(Problem::new("has no domain of a cloud after ACCOUNT.blob", WRITE));
        }
        let account =
            checked(ROUTES.iter().find_map(|it| account.strip_suffix(it)).unwrap_or(account))?;
        if url.path() != "/" {
            return Err(Problem::new(
                "has a path, but its host names the account",
                format!("write {}://{host}: --store names the container", url.scheme()),
            ));
        }
        Ok(account)
    }
}

/// Returns the account that the path of a server names.
fn of_path(url: &Url) -> Result<String, Problem> {
    match url.path().trim_start_matches('/') {
        "" => Err(Problem::new(
            "names no account in its host or its path",
            format!("write {}/ACCOUNT", url.as_str().trim_end_matches('/')),
        )),
        path if path.contains('/') || url.path().starts_with("//") => Err(Problem::new(
            "has more than an account in its path",
            "write http://HOST:PORT/ACCOUNT: --store names the container",
        )),
        account => checked(account),
    }
}

fn checked(account: &str) -> Result<String, Problem> {
    if account.contains("-secondary") {
        return Err(Problem::new(
            "is the secondary endpoint of an account, which only reads",
            "write the primary endpoint, without -secondary",
        ));
    }
    if !is_account(account) {
        return Err(Problem::new(
            "names an account that is not a valid name",
            "accounts are 3 to 24 lower-case letters and digits",
        ));
    }
    Ok(account.to_owned())
}

#[cfg(test)]
mod tests;
