//! The checks of `tenure doctor` for a server and its standbys, in the order in which an operator would
//! fix them. The row of the election is only read.

use std::time::Duration;

use super::Postgres;
use super::access::Access;
use super::connection::{Connection, Rows};
use super::errors::PostgresError;
use super::row::Seen;
use super::statements::PROLOGUE;
use crate::clock;
use crate::store::Finding;
use crate::store::finding::{Findings, TIMED, of_timings};
use crate::store::network::in_time;
use crate::store::server_finding::ServerClock;

/// The longest time that one request may take; longer than any sensible request-timeout, to tell a slow
/// server from a dead one.
const PATIENCE: Duration = Duration::from_secs(10);

const CLOCK: ServerClock = ServerClock {
    of: "the server",
    unit: time::Duration::ZERO,
    skewed: 2,
    remedy: "synchronize both (NTP): the server's clock alone counts the lease, and must not jump; after a \
             failover that of another",
};

/// The oldest version whose statements and settings are used here; older ones have no support of
/// PostgreSQL's project.
const OLDEST: u32 = 12;

const SERVERS: &str = "servers";
const SIGN_IN: &str = "sign-in";
const VERSION: &str = "version";
const PRIMARY: &str = "primary";
const TABLE: &str = "table";
const RIGHTS: &str = "permissions";
const DURABILITY: &str = "durability";
const NOTIFICATIONS: &str = "notifications";
const SKEW: &str = "clock skew";
const TIMINGS: &str = "timings";

/// All subjects, in order.
const SUBJECTS: [&str; 10] =
    [SERVERS, SIGN_IN, VERSION, PRIMARY, TABLE, RIGHTS, DURABILITY, NOTIFICATIONS, SKEW, TIMINGS];

/// One run of the checks.
struct Examination<'a> {
    store: &'a Postgres,
    access: Access,
    findings: Findings,
}

/// A server that signed the user in.
struct Server {
    /// Host and port.
    name: String,
    connection: Connection,
    /// The number that a primary and its standbys share; `None` if the user may not ask for it.
    system: Option<String>,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(store: &Postgres) -> Vec<Finding> {
    let mut findings = Findings::new(&SUBJECTS);
    let access = match Access::open(&store.settings, PATIENCE) {
        Ok(access) => access,
        Err(error) => {
            let remedy = "check --store-ca-file and --store-cert";
            findings.failed(SERVERS, format!("{error:#}"), remedy);
            return findings.finish();
        }
    };
    let mut examination = Examination { store, access, findings };
    if let Some(mut primary) = examination.servers().await {
        examination.all(&mut primary.connection).await;
    }
    examination.findings.finish()
}

/// Returns the only row of statements, as far as there is one.
fn row(answer: Result<Vec<Rows>, PostgresError>) -> Result<Vec<Option<String>>, PostgresError> {
    Ok(answer?.into_iter().last().and_then(|rows| rows.into_iter().next()).unwrap_or_default())
}

/// Returns whether a column is true.
fn is_true(row: &[Option<String>], at: usize) -> bool {
    text(row, at) == "t"
}

fn text(row: &[Option<String>], at: usize) -> &str {
    row.get(at).and_then(Option::as_deref).unwrap_or_default()
}

async fn ask(connection: &mut Connection, sql: &str) -> Result<Vec<Rows>, PostgresError> {
    in_time(PATIENCE, "the server", connection.ask(sql)).await
}

impl Examination<'_> {
    /// Connects to each server; returns the primary.
    async fn servers(&mut self) -> Option<Server> {
        let (mut servers, mut broken, mut sign_in) = (Vec::new(), Vec::new(), None);
        for (at, address) in self.store.settings.servers.iter().enumerate() {
            let connected = tokio::time::timeout(PATIENCE, self.access.connect_to(at)).await;
            match connected {
                Ok(Ok(connection)) => {
                    let mut it = Server { name: address.to_string(), connection, system: None };
                    let asked = "SELECT system_identifier FROM pg_catalog.pg_control_system()";
                    let system = row(ask(&mut it.connection, asked).await);
                    it.system = system.ok().and_then(|it| it.into_iter().next().flatten());
                    servers.push(it);
                }
                Ok(Err(error @ (PostgresError::SignIn(_) | PostgresError::Files(_)))) => {
                    sign_in = Some(error);
                }
                Ok(Err(error)) => broken.push(error.to_string()),
                Err(_) => broken.push(format!("{address} did not answer within {PATIENCE:?}")),
            }
        }
        let names: Vec<&str> = servers.iter().map(|it| it.name.as_str()).collect();
        let scheme = if self.store.settings.tls.is_some() { "TLS" } else { "no TLS" };
        let answered = format!("answered, with {scheme}: {}", names.join(", "));
        let remedy = "check --store, firewalls, and whether PostgreSQL runs there";
        match (broken.is_empty(), servers.is_empty() && sign_in.is_none()) {
            (true, _) if servers.is_empty() => {
                self.findings.passed(SERVERS, format!("answered, with {scheme}"));
            }
            (true, _) => self.findings.passed(SERVERS, answered),
            (false, true) => self.findings.failed(SERVERS, broken.join("; "), remedy),
            (false, false) => {
                let detail = format!("{answered}; but {}", broken.join("; "));
                self.findings.warning(SERVERS, detail, remedy);
            }
        }
        if let Some(error) = sign_in {
            let remedy = "set PGUSER and PGPASSWORD as the server has them, or allow the user in pg_hba.conf";
            self.findings.failed(SIGN_IN, error.to_string(), remedy);
            return None;
        }
        self.primary(servers)
    }

    /// Finds the primary among the servers.
    fn primary(&mut self, servers: Vec<Server>) -> Option<Server> {
        let (standbys, mut primaries): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(|it| it.connection.greeting.is_standby);
        let one = primaries.first().or(standbys.first())?;
        self.findings.passed(SIGN_IN, "as the user of PGUSER");
        self.version(&one.connection.greeting.version.clone());
        let names =
            |of: &[Server]| of.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
        let systems: Vec<_> = primaries.iter().map(|it| it.system.clone()).collect();
        if primaries.is_empty() {
            let detail = format!("{} are standbys, and none is the primary", names(&standbys));
            let remedy = "name the primary in --store too";
            self.findings.failed(PRIMARY, detail, remedy);
            return None;
        }
        // Several ways to one server have its number.
        if systems.iter().any(|it| it.is_none() || *it != systems[0]) && primaries.len() > 1 {
            let detail = format!("{} all take writes", names(&primaries));
            let remedy = "name one primary and its standbys: on several, several instances lead";
            self.findings.failed(PRIMARY, detail, remedy);
            return None;
        }
        let followed = match standbys.as_slice() {
            [] => String::new(),
            some => format!("; standbys: {}", names(some)),
        };
        self.findings.passed(PRIMARY, format!("{}{followed}", names(&primaries)));
        Some(primaries.swap_remove(0))
    }

    fn version(&mut self, version: &str) {
        let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
        let detail = format!("PostgreSQL {version}");
        match digits.parse::<u32>() {
            Ok(major) if major < OLDEST => {
                let remedy = "upgrade to a release that PostgreSQL's project supports";
                self.findings.warning(VERSION, detail, remedy);
            }
            _ => self.findings.passed(VERSION, detail),
        }
    }

    /// Runs the checks that need the primary.
    async fn all(&mut self, primary: &mut Connection) {
        if !self.table(primary).await {
            return;
        }
        self.rights(primary).await;
        self.durability(primary).await;
        if primary.greeting.is_direct {
            let detail = "a standby is told of a release, and a leader of a break";
            self.findings.passed(NOTIFICATIONS, detail);
        } else {
            let detail =
                "none: a pooler is in between, so that a standby sees a release at its next poll";
            self.findings.passed(NOTIFICATIONS, detail);
        }
        self.timings(primary).await;
    }

    /// Reads the row; returns whether there is a table of Tenure's.
    async fn table(&mut self, primary: &mut Connection) -> bool {
        let settings = &self.store.settings;
        let table = &settings.table;
        let sent = clock::now();
        let seen = match ask(primary, &self.store.statements.read()).await {
            Ok(answer) => {
                let none = Rows::new();
                Seen::of(answer.get(PROLOGUE).unwrap_or(&none), &self.store.place())
                    .map_err(|failure| failure.message.to_string())
            }
            Err(PostgresError::NoTable(_)) => {
                let detail =
                    format!("there is no table {table} in the database {}", settings.database);
                let remedy = "run `tenure doctor --create` as a user who may create it; or let the first \
                              candidate do that: GRANT CREATE ON SCHEMA …";
                self.findings.failed(TABLE, detail, remedy);
                return false;
            }
            Err(error @ PostgresError::Denied(_)) => {
                self.denied(&error.to_string());
                return false;
            }
            Err(error) => Err(error.to_string()),
        };
        match seen {
            Ok(seen) => {
                self.findings.skew(SKEW, &CLOCK, seen.date, (sent, clock::now()));
                self.state(&seen);
                true
            }
            Err(why) => {
                self.findings.failed(TABLE, why, "see above");
                false
            }
        }
    }

    /// Reports what the row holds.
    fn state(&mut self, seen: &Seen) {
        let place = self.store.place();
        let holder = seen.held.as_ref().map(|it| format!("held by {:?}", it.identity));
        self.findings.term(TABLE, &place, seen.record.term, holder.as_deref());
    }

    fn denied(&mut self, why: &str) {
        let table = &self.store.settings.table;
        let remedy =
            format!("GRANT SELECT, INSERT, UPDATE ON {table} TO …; and USAGE on its schema");
        self.findings.failed(RIGHTS, why.to_owned(), &remedy);
    }

    async fn rights(&mut self, primary: &mut Connection) {
        let table = postgres_protocol::escape::escape_literal(self.store.statements.table());
        let of = |right| format!("pg_catalog.has_table_privilege({table}, '{right}')");
        let sql = format!("SELECT {}, {}, {}", of("SELECT"), of("INSERT"), of("UPDATE"));
        match row(ask(primary, &sql).await) {
            Ok(found) => {
                let all = ["SELECT", "INSERT", "UPDATE"];
                let missing: Vec<_> =
                    (0..all.len()).filter(|at| !is_true(&found, *at)).map(|at| all[at]).collect();
                if missing.is_empty() {
                    self.findings.passed(RIGHTS, "reads and writes the table");
                } else {
                    self.denied(&format!("the user lacks {}", missing.join(", ")));
                }
            }
            Err(error) => self.denied(&error.to_string()),
        }
    }

    /// Tells what becomes of the lease in a crash and in a failover.
    async fn durability(&mut self, primary: &mut Connection) {
        let table = postgres_protocol::escape::escape_literal(self.store.statements.table());
        let sql = format!(
            "SELECT pg_catalog.current_setting('fsync') = 'on',
                    pg_catalog.current_setting('full_page_writes') = 'on',
                    pg_catalog.current_setting('synchronous_standby_names'),
                    (SELECT count(*) FROM pg_catalog.pg_stat_replication),
                    (SELECT relpersistence FROM pg_catalog.pg_class WHERE oid = {table}::regclass)"
        );
        let found = match row(ask(primary, &sql).await) {
            Ok(found) => found,
            Err(error) => {
                let remedy = "run `tenure doctor` again";
                return self.findings.warning(DURABILITY, error.to_string(), remedy);
            }
        };
        let (synchronous, standbys) = (text(&found, 2), text(&found, 3));
        if text(&found, 4) != "p" {
            let detail = "the table is unlogged: a crash of the server empties it";
            let remedy = format!("ALTER TABLE {} SET LOGGED", self.store.settings.table);
            self.findings.failed(DURABILITY, detail, &remedy);
        } else if !is_true(&found, 0) || !is_true(&found, 1) {
            let detail = "fsync or full_page_writes is off: a crash of the host may lose the lease";
            self.findings.warning(DURABILITY, detail, "set both to on");
        } else if !synchronous.is_empty() {
            let detail = format!(
                "exclusive across a failover to a synchronous standby ({synchronous}), if the clocks of both \
                 differ by less than lease-duration − renew-deadline"
            );
            self.findings.passed(DURABILITY, detail);
        } else if standbys == "0" {
            let detail = "exclusive on this server; it has no standby";
            self.findings.passed(DURABILITY, detail);
        } else {
            let detail = format!(
                "exclusive on this server; its {standbys} standbys are asynchronous: after a failover two \
                 instances may lead until the old leader's deadline"
            );
            let remedy = "set synchronous_standby_names, or fail over only after lease-duration without a \
                          primary";
            self.findings.warning(DURABILITY, detail, remedy);
        }
    }

    /// Times some requests over an open connection.
    async fn timings(&mut self, primary: &mut Connection) {
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMED {
            let sent = clock::now();
            // One that fails takes its time too.
            let _ = ask(primary, &self.store.statements.read()).await;
            slowest = slowest.max(sent.elapsed_max(clock::now()));
        }
        let bound = self.store.settings.request_timeout;
        let check = "check the load of the server";
        self.findings.timings(TIMINGS, of_timings(slowest, 1, bound, check));
    }
}
