//! Settings of `zookeeper:`: the servers, the nodes and the user. The file of the sign-in is not read here; the
//! backend does that, again and again while it runs.

use std::time::Duration;

use super::environment::Environment;
use super::faults::{Fault, Problem, Source};
use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::Address;
use super::table::ZOOKEEPER_CREDENTIALS;

/// Settings of `zookeeper:`.
#[derive(Clone, Debug)]
pub struct ZookeeperSettings {
    /// The servers of one ensemble, at least one.
    pub servers: Vec<Address>,
    /// The path that the nodes are below, without a slash at either end.
    pub path: String,
    /// Name of the election, which the paths of the nodes contain.
    pub election: String,
    /// The sign-in, `digest:USER:PASSWORD`; `None` for nobody in particular.
    pub auth: Option<SecretSource>,
    /// The files of TLS; `None` for no TLS.
    pub tls: Option<StoreTls>,
    /// How long a lease lasts: what was seen of the servers is forgotten if they refuse it for so long.
    pub lease_duration: Duration,
    /// The bound on one request.
    pub request_timeout: Duration,
}

impl Reader<'_> {
    /// Returns the settings of a store in ZooKeeper.
    pub(super) fn zookeeper(
        &mut self,
        servers: Vec<Address>,
        path: String,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        [lease_duration, request_timeout]: [Option<Duration>; 2],
    ) -> Option<ZookeeperSettings> {
        let auth = auth(self.environment, &mut self.layers.faults);
        Some(ZookeeperSettings {
            servers,
            path,
            election: election?.to_owned(),
            auth: auth?,
            tls: tls?,
            lease_duration: lease_duration?,
            request_timeout: request_timeout?,
        })
    }
}

/// Returns the sign-in that the variable has, if it is set; `None` after a fault.
fn auth(environment: &Environment, faults: &mut Vec<Fault>) -> Option<Option<SecretSource>> {
    let [name] = ZOOKEEPER_CREDENTIALS;
    let before = faults.len();
    let given = secret::given(name, environment, faults);
    if faults.len() > before {
        return None;
    }
    if let Some(SecretSource::Value(text)) = &given
        && digest_user(text).is_none()
    {
        let problem = Problem::new(
            "is not digest:USER:PASSWORD, the only scheme that Tenure has",
            format!("write {name}=digest:USER:PASSWORD, or set {name}_FILE to a file with that"),
        );
        faults.push(Fault::new(name, None, Source::Variable(name.to_owned()), problem));
        return None;
    }
    Some(given)
}

/// Returns `USER:PASSWORD` of a sign-in, if it is of the scheme that Tenure has.
pub(crate) fn digest_user(text: &str) -> Option<&str> {
    let both = text.strip_prefix("digest:")?;
    let (user, password) = both.split_once(':')?;
    (!user.is_empty() && !password.is_empty()).then_some(both)
}

#[cfg(all(test, feature = "zookeeper"))]
mod tests;
