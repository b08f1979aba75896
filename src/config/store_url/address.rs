//! Parses the URL of a store on servers: `//HOST[:PORT][,HOST[:PORT]…]/PART`.

use std::fmt;

use url::Host;

use super::super::faults::Problem;
use super::super::values;

/// The most addresses of one URL.
const MOST: usize = 16;

/// The address of a server: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The name or IP address.
    pub host: Host,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Returns whether it is of this host alone.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        values::is_loopback(&match &self.host {
            Host::Domain(name) => Host::Domain(name.as_str()),
            Host::Ipv4(address) => Host::Ipv4(*address),
            Host::Ipv6(address) => Host::Ipv6(*address),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The form of the URL of one kind of store on servers.
pub(super) struct Form {
    /// The remedy that shows the whole URL.
    pub(super) write: &'static str,
    /// What the part behind the addresses is.
    pub(super) part: &'static str,
    /// Whether a URL may leave out that part.
    pub(super) may_omit_part: bool,
    /// How credentials are passed, since the URL has none.
    pub(super) credentials: &'static str,
    /// The port of a server that was set up by default.
    pub(super) usual_port: u16,
    /// Whether an address may leave out the port for that.
    pub(super) may_omit_port: bool,
    /// The setting of the server that has the port.
    pub(super) port_of_server: &'static str,
}

/// Parses `//HOST[:PORT][,HOST[:PORT]…]/PREFIX`; the part is a prefix.
pub(super) fn with_prefix(rest: &str, form: &Form) -> Result<(Vec<Address>, String), Problem> {
    let (addresses, text) = with_part(rest, form)?;
    Ok((addresses, super::prefix(text, form.part)?))
}

/// Parses `//HOST[:PORT][,HOST[:PORT]…]/PART`; returns the addresses and the part.
pub(super) fn with_part<'a>(
    rest: &'a str,
    form: &Form,
) -> Result<(Vec<Address>, &'a str), Problem> {
    let Form { write, part, credentials, .. } = form;
    if rest.contains(['?', '#', '@']) {
        let problem = format!("has more than addresses and a {part}");
        return Err(Problem::new(problem, format!("{write}; pass {credentials}")));
    }
    let Some((addresses, text)) = split(rest, form) else {
        let or_part = if form.may_omit_part { String::new() } else { format!(" or no {part}") };
        return Err(Problem::new(format!("names no addresses{or_part}"), *write));
    };
    Ok((list(addresses, form)?, text))
}

fn split<'a>(rest: &'a str, form: &Form) -> Option<(&'a str, &'a str)> {
    let rest = rest.strip_prefix("//")?;
    rest.split_once('/').or(form.may_omit_part.then_some((rest, "")))
}

/// Parses addresses with commas between them, of which none is there twice.
fn list(text: &str, form: &Form) -> Result<Vec<Address>, Problem> {
    let all = text.split(',').map(|it| one(it, form)).collect::<Result<Vec<_>, _>>()?;
    if all.len() > MOST {
        let remedy = format!("name at most {MOST} servers");
        return Err(Problem::new(format!("names {} addresses", all.len()), remedy));
    }
    if let Some(at) = (1..all.len()).find(|at| all[..*at].contains(&all[*at])) {
        let problem = format!("names the address {} twice", all[at]);
        return Err(Problem::new(problem, "remove one of the two"));
    }
    Ok(all)
}

fn one(text: &str, form: &Form) -> Result<Address, Problem> {
    if text.is_empty() {
        return Err(Problem::new("names an empty address", form.write));
    }
    let colon = text.rfind(':').filter(|at| !text[*at..].contains(']'));
    let (host, port) = match colon {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let usual = form.usual_port;
    if port.is_none() && !form.may_omit_port {
        let shown: String = text.chars().filter(char::is_ascii_graphic).take(100).collect();
        let problem = format!("names the address {shown} without a port");
        return Err(Problem::new(problem, format!("write {shown}:{usual}")));
    }
    let is_number = |it: &&str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let port = match port {
        None => Some(usual),
        Some(text) => Some(text).filter(is_number).and_then(|it| it.parse().ok()),
    };
    match (Host::parse(host), port.filter(|it| *it != 0)) {
        (Ok(host), Some(port)) => Ok(Address { host, port }),
        (Err(_), _) => Err(Problem::new(
            "names an address whose host is neither a name nor an IP address",
            format!("{}; an IPv6 address stands in brackets", form.write),
        )),
        (_, None) => Err(Problem::new(
            "names an address whose port is not from 1 to 65535",
            format!("write the port of {}, {usual} by default", form.port_of_server),
        )),
    }
}
