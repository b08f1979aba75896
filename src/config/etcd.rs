//! Settings of `etcd:`: the members, the keys and the user. Files of secrets are not read here; the
//! backend does that, again and again while it runs.

use std::time::Duration;

use url::Url;

use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::Address;
use super::table::ETCD_CREDENTIALS;

/// Settings of `etcd:`.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// The URLs of members of one cluster, at least one: https, or all plain http.
    pub members: Vec<Url>,
    /// The prefix of the keys, without a slash at either end.
    pub prefix: String,
    /// Name of the election, which the keys contain.
    pub election: String,
    /// The user; `None` for a cluster without authentication.
    pub user: Option<EtcdUser>,
    /// The files of TLS; `None` for plain http.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

/// A user of etcd.
#[derive(Clone, Debug)]
pub struct EtcdUser {
    /// Its name.
    pub name: SecretSource,
    /// Its password.
    pub password: SecretSource,
}

impl Reader<'_> {
    /// Returns the settings of a store in etcd.
    pub(super) fn etcd(
        &mut self,
        addresses: &[Address],
        prefix: String,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<EtcdSettings> {
        const NEITHER: &str = "neither for a cluster without authentication";
        let (environment, faults) = (self.environment, &mut self.layers.faults);
        let user = secret::user(ETCD_CREDENTIALS, NEITHER, environment, faults);
        let tls = tls?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let urls = addresses.iter().map(|it| Url::parse(&format!("{scheme}://{it}/")));
        Some(EtcdSettings {
            members: urls.collect::<Result<_, _>>().ok()?,
            prefix,
            election: election?.to_owned(),
            user: user?.map(|(name, password)| EtcdUser { name, password }),
            tls,
            request_timeout: request_timeout?,
        })
    }
}

#[cfg(all(test, feature = "etcd"))]
mod tests;
