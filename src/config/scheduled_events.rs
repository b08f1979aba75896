//! The source of announcements of maintenance. It need not be reachable.

use std::fmt;

use url::{Position, Url};

use super::endpoint;
use super::faults::Problem;

/// Azure's Instance Metadata Service, which only the machine itself reaches, at an address that is the
/// same on all.
const AZURE: &str = "http://169.254.169.254";

/// The source of announcements of maintenance of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduledEvents {
    /// Azure's Instance Metadata Service, at this endpoint.
    Azure(Url),
}

impl fmt::Display for ScheduledEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Azure(endpoint) = self;
        match &endpoint[..Position::BeforePath] {
            AZURE => f.write_str("azure"),
            other => write!(f, "azure:{other}"),
        }
    }
}

/// Parses the source; `off` is none.
pub(super) fn parse(text: &str) -> Result<Option<ScheduledEvents>, Problem> {
    const WRITE: &str =
        "write azure, azure:http://HOST:PORT for a relay of the metadata service, or off";
    let url = match (text, text.strip_prefix("azure:")) {
        ("off", _) => return Ok(None),
        ("azure", _) => AZURE,
        (_, Some(url)) => url,
        _ => return Err(Problem::new("is not a source of scheduled events", WRITE)),
    };
    let url = endpoint::read(url, WRITE, "the metadata service takes no credentials")?;
    if url.scheme() != "http" || url.path() != "/" {
        return Err(Problem::new("is not plain http to a host alone", WRITE));
    }
    Ok(Some(ScheduledEvents::Azure(url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_azure_at_its_address_or_at_that_of_a_relay() {
        let shown = |text| parse(text).unwrap().map(|it| it.to_string());
        assert_eq!(shown("off"), None);
        assert_eq!(shown("azure").as_deref(), Some("azure"));
        assert_eq!(
            parse("azure").unwrap(),
            Some(ScheduledEvents::Azure("http://169.254.169.254/".parse().unwrap()))
        );
        assert_eq!(
            shown("azure:http://10.0.0.1:8080/").as_deref(),
            Some("azure:http://10.0.0.1:8080")
        );
        for wrong in [
            "",
            "Azure",
            "on",
            "aws",
            "azure:",
            "azure:10.0.0.1",
            "azure:https://a",
            "azure:http://a/b",
        ] {
            let problem = parse(wrong).unwrap_err();
            assert!(problem.remedy.contains("azure:http://HOST:PORT"), "{wrong}: {problem:?}");
        }
    }
}
