//! The checks of `tenure doctor` for a server and its standbys, in the order in which an operator would
//! fix them. The row of the election is only read.

use super::Table;
use super::connection::{Connection, Rows};
use crate::config::PostgresSettings;
use crate::store::Finding;
use crate::store::network::in_time;
use crate::store::register::RegisterError;
use crate::store::register::doctor::{
    CREDENTIAL, Examination, PATIENCE, SERVER, SKEW, TIMINGS, Words, unusable,
};

/// The oldest version whose statements and settings are used here; older ones have no support of
/// PostgreSQL's project.
const OLDEST: u32 = 12;

const VERSION: &str = "version";
const PRIMARY: &str = "primary";
const TABLE: &str = "table";
const RIGHTS: &str = "permissions";
const ROW: &str = "row";
const DURABILITY: &str = "durability";
const NOTIFICATIONS: &str = "notifications";

const WORDS: Words = Words {
    subjects: &[
        SERVER,
        CREDENTIAL,
        VERSION,
        PRIMARY,
        RIGHTS,
        TABLE,
        ROW,
        DURABILITY,
        NOTIFICATIONS,
        SKEW,
        TIMINGS,
    ],
    holder: TABLE,
    value: ROW,
    settings: "--store",
    page: "docs/stores/postgres.md",
    right: "SELECT, INSERT and UPDATE on the table",
};

/// A server that signed the user in.
struct Server {
    /// Its number in the URL.
    at: usize,
    /// Host and port.
    name: String,
    connection: Connection,
    /// The number that a primary and its standbys share; `None` if the user may not ask for it.
    system: Option<String>,
}

/// Runs all checks, as far as it gets.
pub(super) async fn examine(table: &Table) -> Vec<Finding> {
    let patient = match Table::open(&table.settings, PATIENCE) {
        Ok(patient) => patient,
        Err(error) => return unusable(WORDS, &error),
    };
    let mut examination = Examination::new(&patient, WORDS);
    let servers = servers(&mut examination).await;
    if let Some(mut primary) = primary(&mut examination, servers) {
        patient.access.next.set(primary.at);
        let primary = &mut primary.connection;
        if rights(&mut examination, primary).await && examination.object().await {
            durability(&mut examination, primary).await;
            let detail = match primary.greeting.is_direct {
                true => "a standby is told of a release, and a leader of a break",
                false => {
                    "none: a pooler is in between, so that a standby sees a release at its next poll"
                }
            };
            examination.findings.passed(NOTIFICATIONS, detail);
            examination.timings(table.settings.request_timeout).await;
        }
    }
    examination.finish()
}

/// Returns the only row of statements, as far as there is one.
async fn row(connection: &mut Connection, sql: &str) -> Result<Vec<Option<String>>, RegisterError> {
    let rows: Rows = in_time(PATIENCE, "the server", connection.ask(sql)).await?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

/// Returns whether a column is true.
fn is_true(row: &[Option<String>], at: usize) -> bool {
    text(row, at) == "t"
}

fn text(row: &[Option<String>], at: usize) -> &str {
    row.get(at).and_then(Option::as_deref).unwrap_or_default()
}

fn names(of: &[Server]) -> String {
    of.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Connects to each server, and returns those that signed the user in.
async fn servers(examination: &mut Examination<'_, Table>) -> Vec<Server> {
    let table = examination.register;
    let (mut servers, mut outcomes) = (Vec::new(), Vec::new());
    for (at, address) in table.settings.servers.iter().enumerate() {
        let name = address.to_string();
        outcomes.push(match table.access.connect_to(at).await {
            Ok(mut connection) => {
                let sql = "SELECT system_identifier FROM pg_catalog.pg_control_system()";
                let system = row(&mut connection, sql).await;
                let system = system.ok().and_then(|it| it.into_iter().next().flatten());
                servers.push(Server { at, name: name.clone(), connection, system });
                Ok(name)
            }
            Err(error) => Err(error),
        });
    }
    let how = if table.settings.tls.is_some() { "with TLS" } else { "with no TLS" };
    let is_answered = examination.findings.servers(SERVER, how, "PostgreSQL", &outcomes);
    let refusal = outcomes.into_iter().filter_map(Result::err).find(RegisterError::is_answer);
    match refusal {
        // That is common to all of them.
        Some(error @ RegisterError::Credential(_)) => examination.fault(&error),
        Some(error) if !is_answered => examination.fault(&error),
        _ => return servers,
    }
    Vec::new()
}

/// Finds the primary among the servers.
fn primary(examination: &mut Examination<'_, Table>, servers: Vec<Server>) -> Option<Server> {
    let (standbys, mut primaries): (Vec<_>, Vec<_>) =
        servers.into_iter().partition(|it| it.connection.greeting.is_standby);
    let one = primaries.first().or(standbys.first())?;
    let findings = &mut examination.findings;
    let version = &one.connection.greeting.version;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    let detail = format!("PostgreSQL {version}");
    match digits.parse::<u32>() {
        Ok(major) if major < OLDEST => {
            let remedy = "upgrade to a release that PostgreSQL's project supports";
            findings.warning(VERSION, detail, remedy);
        }
        _ => findings.passed(VERSION, detail),
    }
    if primaries.is_empty() {
        let detail = format!("{} are standbys, and none is the primary", names(&standbys));
        findings.failed(PRIMARY, detail, "name the primary in --store too");
        return None;
    }
    // Several ways to one server have its number.
    let system = &primaries[0].system;
    if primaries.len() > 1 && primaries.iter().any(|it| it.system.is_none() || it.system != *system)
    {
        let detail = format!("{} all take writes", names(&primaries));
        let remedy = "name one primary and its standbys: on several, several instances lead";
        findings.failed(PRIMARY, detail, remedy);
        return None;
    }
    let followed = match standbys.as_slice() {
        [] => String::new(),
        some => format!("; standbys: {}", names(some)),
    };
    findings.passed(PRIMARY, format!("{}{followed}", names(&primaries)));
    Some(primaries.swap_remove(0))
}

/// Reports whether there is a table that the user may read and write; returns it.
async fn rights(examination: &mut Examination<'_, Table>, primary: &mut Connection) -> bool {
    let table = examination.register.statements.table();
    let PostgresSettings { table: name, database, .. } = &examination.register.settings;
    let has = |right| {
        format!("pg_catalog.has_table_privilege(pg_catalog.to_regclass({table}), '{right}')")
    };
    let all = ["SELECT", "INSERT", "UPDATE"];
    let sql =
        format!("SELECT pg_catalog.to_regclass({table}) IS NOT NULL, {}", all.map(has).join(", "));
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON {name} TO …; and USAGE on its schema");
    let findings = &mut examination.findings;
    match row(primary, &sql).await {
        Ok(found) if !is_true(&found, 0) => {
            let detail = format!("there is no table {name} in the database {database}");
            let remedy = "run `tenure doctor --create` as a user who may create it; or let the first candidate do \
                          that: GRANT CREATE ON SCHEMA …";
            findings.failed(TABLE, detail, remedy);
        }
        Ok(found) => {
            let missing: Vec<_> =
                (0..all.len()).filter(|at| !is_true(&found, at + 1)).map(|at| all[at]).collect();
            if missing.is_empty() {
                findings.passed(RIGHTS, "reads and writes the table");
                return true;
            }
            findings.failed(RIGHTS, format!("the user lacks {}", missing.join(", ")), &grant);
        }
        Err(error) => findings.failed(RIGHTS, error.to_string(), &grant),
    }
    false
}

/// Tells what becomes of the lease in a crash and in a failover.
async fn durability(examination: &mut Examination<'_, Table>, primary: &mut Connection) {
    let table = examination.register.statements.table();
    let sql = format!(
        "SELECT pg_catalog.current_setting('fsync') = 'on',
                pg_catalog.current_setting('full_page_writes') = 'on',
                pg_catalog.current_setting('synchronous_standby_names'),
                (SELECT count(*) FROM pg_catalog.pg_stat_replication),
                (SELECT relpersistence FROM pg_catalog.pg_class WHERE oid = {table}::regclass)"
    );
    let found = row(primary, &sql).await;
    let findings = &mut examination.findings;
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            return findings.warning(DURABILITY, error.to_string(), "run `tenure doctor` again");
        }
    };
    let (synchronous, standbys) = (text(&found, 2), text(&found, 3));
    if text(&found, 4) != "p" {
        let detail = "the table is unlogged: a crash of the server empties it";
        let name = &examination.register.settings.table;
        findings.failed(DURABILITY, detail, &format!("ALTER TABLE {name} SET LOGGED"));
    } else if !is_true(&found, 0) || !is_true(&found, 1) {
        let detail = "fsync or full_page_writes is off: a crash of the host may lose the lease";
        findings.warning(DURABILITY, detail, "set both to on");
    } else if !synchronous.is_empty() {
        let detail =
            format!("exclusive across a failover to a synchronous standby ({synchronous})");
        findings.passed(DURABILITY, detail);
    } else if standbys == "0" {
        findings.passed(DURABILITY, "exclusive on this server; it has no standby");
    } else {
        let detail = format!(
            "exclusive on this server; its {standbys} standbys are asynchronous: after a failover two \
             instances may lead until the old leader's deadline"
        );
        let remedy = "set synchronous_standby_names, or fail over only after lease-duration without a primary";
        findings.warning(DURABILITY, detail, remedy);
    }
}
