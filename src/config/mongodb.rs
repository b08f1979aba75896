//! Settings of `mongodb:`: the servers, the collection and the user. Files of secrets are not read here; the
//! backend does that, again and again while it runs.

use std::time::Duration;

use super::faults::{Problem, Warning};
use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::{Address, is_database};
use super::table::MONGODB_CREDENTIALS;
use super::values;

/// Settings of `mongodb:`.
#[derive(Clone, Debug)]
pub struct MongoSettings {
    /// One server, or members of one replica set, or routers of one sharded cluster; at least one. The
    /// primary is found among them.
    pub servers: Vec<Address>,
    /// The database.
    pub database: String,
    /// The collection of the leases.
    pub collection: String,
    /// Name of the election, the key of its document.
    pub election: String,
    /// The user; `None` where the certificate signs in, or nothing does.
    pub user: Option<MongoUser>,
    /// The database that the user belongs to.
    pub auth_source: String,
    /// Whether a server that is not MongoDB is accepted.
    pub accepts_compatible: bool,
    /// The files of TLS; `None` for no TLS.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

/// A user of MongoDB.
#[derive(Clone, Debug)]
pub struct MongoUser {
    /// Its name.
    pub name: SecretSource,
    /// Its password.
    pub password: SecretSource,
}

/// What is set for MongoDB, beside the URL; `None` for what is a fault.
pub(super) struct MongoGiven {
    collection: Option<String>,
    auth_source: Option<Option<String>>,
    accepts_compatible: Option<bool>,
}

/// Parses the name of the collection.
fn collection(text: &str) -> Result<String, Problem> {
    let is_usual = |it: u8| it.is_ascii_alphanumeric() || b"_.-".contains(&it);
    let is_first = |it: &u8| it.is_ascii_alphabetic() || *it == b'_';
    if !(1..=100).contains(&text.len())
        || !text.bytes().all(is_usual)
        || !text.as_bytes().first().is_some_and(is_first)
        || text.starts_with("system.")
    {
        return Err(Problem::new(
            "is not a collection of 1 to 100 of A-Z a-z 0-9 _ . - that begins with a letter or _, and not with \
             system.",
            "write tenure",
        ));
    }
    Ok(text.to_owned())
}

/// Parses the name of the database that a user belongs to.
fn auth_source(text: &str) -> Result<String, Problem> {
    if !is_database(text) {
        let problem = "is not a database of 1 to 63 of A-Z a-z 0-9 _ -";
        return Err(Problem::new(problem, "write the database that has the user, such as admin"));
    }
    Ok(text.to_owned())
}

impl Reader<'_> {
    /// Reads the settings beside the URL, so that every fault is reported.
    pub(super) fn mongodb_given(&mut self) -> MongoGiven {
        MongoGiven {
            collection: self.one("mongodb-collection", collection),
            auth_source: self.optional("mongodb-auth-source", auth_source),
            accepts_compatible: self.one("mongodb-compatible", values::switch),
        }
    }

    /// Returns the settings of a store in MongoDB.
    pub(super) fn mongodb(
        &mut self,
        servers: Vec<Address>,
        database: String,
        given: MongoGiven,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<MongoSettings> {
        const NEITHER: &str =
            "neither for a sign-in by --store-cert, or for a server without users";
        let (environment, faults) = (self.environment, &mut self.layers.faults);
        let user = secret::user(MONGODB_CREDENTIALS, NEITHER, environment, faults);
        let accepts_compatible = given.accepts_compatible?;
        if accepts_compatible {
            self.warnings.push(Warning {
                subject: "mongodb-compatible",
                problem: "a server that is not MongoDB is accepted: several instances may lead at the same time, \
                          unless it changes a document atomically and acknowledges no write that it may lose"
                    .to_owned(),
                remedy: "use MongoDB, and remove mongodb-compatible".to_owned(),
            });
        }
        Some(MongoSettings {
            servers,
            auth_source: given.auth_source?.unwrap_or_else(|| database.clone()),
            database,
            collection: given.collection?,
            election: election?.to_owned(),
            user: user?.map(|(name, password)| MongoUser { name, password }),
            accepts_compatible,
            tls: tls?,
            request_timeout: request_timeout?,
        })
    }
}

#[cfg(all(test, feature = "mongodb"))]
mod tests;
