//! Settings of `redis:`: the servers and the user. Files of secrets are not read here; the backend does
//! that, again and again while it runs.

use std::time::Duration;

use super::environment::Environment;
use super::faults::{Fault, Problem, Source, Warning};
use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::Address;
use super::table::REDIS_CREDENTIALS;

/// Settings of `redis:`.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// One server and its replicas, at least one. The primary is found among them.
    pub servers: Vec<Address>,
    /// The number of the database.
    pub database: u16,
    /// Name of the election, which the keys contain.
    pub election: String,
    /// The name of the user; `None` for the default user.
    pub user: Option<SecretSource>,
    /// Its password; `None` where the server asks for none.
    pub password: Option<SecretSource>,
    /// The files of TLS; `None` for no TLS.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

impl Reader<'_> {
    /// Returns the settings of a store in Redis, and warns of what it does not promise.
    pub(super) fn redis(
        &mut self,
        servers: Vec<Address>,
        database: u16,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<RedisSettings> {
        self.warnings.push(Warning {
            subject: "store",
            problem: "redis: is best effort: it is exclusive on one server that loses no write; after a \
                      failover, or a restart that lost writes, two instances may lead until the older one's next \
                      renewal is refused, and the same term may be given twice"
                .to_owned(),
            remedy: "check what `tenure doctor` says of the server, and use another store where that must not \
                     happen, see docs/choosing.md"
                .to_owned(),
        });
        let (user, password) = login(self.environment, &mut self.layers.faults)?;
        Some(RedisSettings {
            servers,
            database,
            election: election?.to_owned(),
            user,
            password,
            tls: tls?,
            request_timeout: request_timeout?,
        })
    }
}

/// Returns the user and its password that the variables name; `None` after a fault.
fn login(
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> Option<(Option<SecretSource>, Option<SecretSource>)> {
    let before = faults.len();
    let [user, password] = REDIS_CREDENTIALS.map(|it| secret::given(it, environment, faults));
    if faults.len() > before {
        return None;
    }
    if user.is_some() && password.is_none() {
        let name = REDIS_CREDENTIALS[1];
        let problem = Problem::new(
            "is not set, and the name of the user is",
            format!(
                "set {name} or {name}_FILE; for the default user without a password, unset REDIS_USERNAME"
            ),
        );
        faults.push(Fault::new(name, None, Source::Variable(name.to_owned()), problem));
        return None;
    }
    Some((user, password))
}

#[cfg(all(test, feature = "redis"))]
mod tests;
