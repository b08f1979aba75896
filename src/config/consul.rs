//! Settings of `consul:`: the servers, the key and the token. The file of the token is not read here; the
//! backend does that, again and again while it runs.

use std::time::Duration;

use url::Url;

use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::Address;
use super::table::CONSUL_CREDENTIALS;

/// Settings of `consul:`.
#[derive(Clone, Debug)]
pub struct ConsulSettings {
    /// The URLs of servers or agents of one cluster, at least one: https, or all plain http.
    pub servers: Vec<Url>,
    /// The prefix of the keys, without a slash at either end.
    pub prefix: String,
    /// Name of the election, which the key contains.
    pub election: String,
    /// The token; `None` for a cluster without access control.
    pub token: Option<SecretSource>,
    /// The files of TLS; `None` for plain http.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

impl Reader<'_> {
    /// Returns the settings of a store in Consul.
    pub(super) fn consul(
        &mut self,
        addresses: &[Address],
        prefix: String,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<ConsulSettings> {
        let faults = &mut self.layers.faults;
        let before = faults.len();
        let token = secret::given(CONSUL_CREDENTIALS[0], self.environment, faults);
        if faults.len() > before {
            return None;
        }
        let tls = tls?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let urls = addresses.iter().map(|it| Url::parse(&format!("{scheme}://{it}/")));
        Some(ConsulSettings {
            servers: urls.collect::<Result<_, _>>().ok()?,
            prefix,
            election: election?.to_owned(),
            token,
            tls,
            request_timeout: request_timeout?,
        })
    }
}

#[cfg(all(test, feature = "consul"))]
mod tests;
