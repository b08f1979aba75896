//! Settings of `postgres:`: the servers, the table and the user. Files of secrets are not read here; the
//! backend does that, again and again while it runs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::environment::Environment;
use super::faults::{Fault, Problem, Source};
use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::Address;
use super::table::POSTGRES_CREDENTIALS;

/// The file of passwords of PostgreSQL's own clients.
const PASSWORD_FILE: &str = "PGPASSFILE";

/// The variable that says how TLS is used.
const TLS_MODE: &str = "PGSSLMODE";

/// Settings of `postgres:`.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// One server and its standbys, or their poolers, at least one. The primary is found among them.
    pub servers: Vec<Address>,
    /// The database.
    pub database: String,
    /// The table of the leases.
    pub table: PostgresTable,
    /// Name of the election, the key of its row.
    pub election: String,
    /// The name of the user.
    pub user: SecretSource,
    /// Its password; `None` where the server asks for none, or for a certificate.
    pub password: Option<PostgresPassword>,
    /// The files of TLS; `None` for no TLS.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

/// The source of a password.
#[derive(Clone, Debug)]
pub enum PostgresPassword {
    /// The password alone.
    Secret(SecretSource),
    /// A file with a password for each server, database and user, as `~/.pgpass`.
    PasswordFile(PathBuf),
}

/// The name of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresTable {
    /// The schema; `None` for the first one of the user's search path that has the table.
    pub schema: Option<String>,
    /// The name within the schema.
    pub name: String,
}

impl fmt::Display for PostgresTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Parses the name of the table.
pub(super) fn table(text: &str) -> Result<PostgresTable, Problem> {
    let is_name = |it: &str| {
        let is_usual = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        (1..=63).contains(&it.len())
            && it.bytes().all(is_usual)
            && !it.starts_with(|c: char| c.is_ascii_digit())
    };
    let (schema, name) = match text.split_once('.') {
        Some((schema, name)) => (Some(schema), name),
        None => (None, text),
    };
    if !is_name(name) || schema.is_some_and(|it| !is_name(it)) {
        return Err(Problem::new(
            "is not a table, or a schema and a table, of a-z 0-9 _, each of 1 to 63",
            "write tenure, or with a schema ops.tenure",
        ));
    }
    Ok(PostgresTable { schema: schema.map(str::to_owned), name: name.to_owned() })
}

impl Reader<'_> {
    /// Returns the settings of a store in PostgreSQL.
    pub(super) fn postgres(
        &mut self,
        servers: Vec<Address>,
        database: String,
        table: Option<PostgresTable>,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<PostgresSettings> {
        let login = login(self.environment, &mut self.layers.faults);
        let tls = tls.and_then(|tls| self.tls_of_postgres(tls));
        let (user, password) = login?;
        Some(PostgresSettings {
            servers,
            database,
            table: table?,
            election: election?.to_owned(),
            user,
            password,
            tls: tls?,
            request_timeout: request_timeout?,
        })
    }

    /// Returns how TLS is used, which the variables of PostgreSQL's own clients may ask for, but not
    /// weaken.
    fn tls_of_postgres(&mut self, tls: Option<StoreTls>) -> Option<Option<StoreTls>> {
        let mode = self.environment.get(TLS_MODE).map(str::to_owned);
        let is_insecure = self
            .raw("store-insecure")
            .is_some_and(|it| it.values.first().is_some_and(|it| it != "false"));
        let problem = match (mode.as_deref(), &tls) {
            (None, _) | (Some("verify-full"), Some(_)) | (Some("disable"), None) => {
                return Some(tls);
            }
            (Some("verify-full"), None) if !is_insecure => {
                return Some(Some(StoreTls { ca_file: None, own: None }));
            }
            (Some("verify-full"), None) => Problem::new(
                "asks for TLS, and store-insecure allows none",
                "remove one of the two",
            ),
            (Some("disable"), Some(_)) => Problem::new(
                "asks for no TLS, which is used beyond loopback and where files for it are set",
                "unset it, or if the network is trusted, set --store-insecure",
            ),
            (Some(mode), _) => Problem::new(
                match mode {
                    "allow" | "prefer" => "allows connections without TLS, and with TLS any server",
                    "require" => "accepts any server that has TLS, whatever its certificate is",
                    "verify-ca" => {
                        "accepts every server with a certificate of the authority, whichever host it is for"
                    }
                    _ => "is no mode of PostgreSQL",
                },
                "set it to verify-full, with --store-ca-file for an authority of your own, or unset it",
            ),
        };
        let source = Source::Variable(TLS_MODE.to_owned());
        self.fault(TLS_MODE, mode.as_deref(), source, problem);
        None
    }
}

/// Returns the user and its password that the variables name; `None` after a fault.
fn login(
    environment: &Environment,
    faults: &mut Vec<Fault>,
) -> Option<(SecretSource, Option<PostgresPassword>)> {
    let before = faults.len();
    let [user, password] = POSTGRES_CREDENTIALS.map(|it| secret::given(it, environment, faults));
    if faults.len() > before {
        return None;
    }
    let Some(user) = user else {
        let name = POSTGRES_CREDENTIALS[0];
        let problem = Problem::new(
            "is not set, so there is no user to sign in as",
            format!("set {name} or {name}_FILE, and with it PGPASSWORD or PGPASSWORD_FILE"),
        );
        faults.push(Fault::new(name, None, Source::Default, problem));
        return None;
    };
    let from_file = || environment.get(PASSWORD_FILE).map(PathBuf::from);
    let password = password.map(PostgresPassword::Secret);
    Some((user, password.or_else(|| from_file().map(PostgresPassword::PasswordFile))))
}

#[cfg(all(test, feature = "postgres"))]
mod tests;
