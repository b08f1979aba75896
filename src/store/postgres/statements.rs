//! The statements: each returns text that is sent as one message, which the server executes as one
//! transaction.
//!
//! - Its lock on the row ends with it, and `statement_timeout` and `lock_timeout` bound it. A host that is
//!   gone without a word is waited for no longer than that, too.
//! - A commit waits until it is durable, and where there are synchronous standbys, until they have it,
//!   whatever the user's settings are otherwise.
//! - The value, what its next write compares, and the term for the user's own statements are written in one
//!   step.

use std::time::Duration;

use postgres_protocol::escape::{escape_identifier, escape_literal};
use uuid::Uuid;

use super::connection::CHANNEL;
use crate::config::PostgresSettings;
use crate::store::register::{Body, If, RegisterError};

/// The server's date, in microseconds of unix time.
const DATE: &str =
    "(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint";

/// How full the queue of notifications of all of a server may be for one more of Tenure. Once it is full, no
/// transaction that notifies can commit, and anybody can fill it: leaders are changed all the same.
const FULLEST_QUEUE: &str = "0.5";

/// The statements for one table.
pub(super) struct Statements {
    /// The table, quoted.
    table: String,
    /// What each transaction begins with: the settings for it alone.
    prologue: String,
    /// What the notifications of this instance have in them.
    pub(super) own: String,
}

impl Statements {
    pub(super) fn new(settings: &PostgresSettings, bound: Duration) -> Self {
        let millis = bound.as_millis().max(1);
        let schema = settings.table.schema.iter();
        let names = schema.chain([&settings.table.name]).map(|it| escape_identifier(it));
        let prologue = [
            format!("statement_timeout = {millis}"),
            format!("lock_timeout = {millis}"),
            format!("tcp_user_timeout = {millis}"),
            "synchronous_commit = on".to_owned(),
            "transaction_isolation = 'read committed'".to_owned(),
            "client_min_messages = warning".to_owned(),
        ];
        Self {
            table: names.collect::<Vec<_>>().join("."),
            prologue: prologue.map(|it| format!("SET LOCAL {it}; ")).concat(),
            own: Uuid::new_v4().simple().to_string(),
        }
    }

    /// Reads a row; always returns one, of whether the server is a standby, its date, and of the row what its
    /// next write compares and the value, or nulls.
    pub(super) fn read(&self, key: &str) -> String {
        let (table, key) = (&self.table, literal(key));
        self.bounded(&format!(
            "SELECT pg_catalog.pg_is_in_recovery(), {DATE}, t.write, t.body
             FROM (SELECT 1) one LEFT JOIN {table} t ON t.election = {key};"
        ))
    }

    /// Writes a row on a condition; returns a row with the date if it held. News are told to others.
    pub(super) fn write(
        &self,
        key: &str,
        condition: If<'_>,
        body: &Body,
        is_news: bool,
    ) -> Result<String, RegisterError> {
        let table = &self.table;
        let term = match body.record.term.map(i64::try_from).transpose() {
            Ok(term) => term.map_or("NULL".to_owned(), |it| it.to_string()),
            Err(_) => {
                let message = "the largest possible term is reached: the column term has none above \
                               2^63 - 1";
                return Err(RegisterError::Foreign(message.to_owned()));
            }
        };
        let [write, content] =
            [body.write.to_string(), String::from_utf8_lossy(&body.encode()).into_owned()]
                .map(|it| literal(&it));
        let election = literal(key);
        let statement = match condition {
            If::Absent => format!(
                "INSERT INTO {table} (election, write, body, term)
                 VALUES ({election}, {write}, {content}, {term})
                 ON CONFLICT (election) DO NOTHING RETURNING {DATE}"
            ),
            If::Tagged(tag) => format!(
                "UPDATE {table} t SET write = {write}, body = {content}, term = {term}
                 WHERE t.election = {election} AND t.write = {tag} RETURNING {DATE}",
                tag = literal(tag),
            ),
        };
        if !is_news {
            return Ok(self.bounded(&statement));
        }
        let payload = literal(&format!("{key} {}", self.own));
        Ok(self.bounded(&format!(
            "WITH written(date) AS ({statement})
             SELECT date, CASE WHEN pg_catalog.pg_notification_queue_usage() < {FULLEST_QUEUE}
                 THEN pg_catalog.pg_notify('{CHANNEL}', {payload}) END
             FROM written;"
        )))
    }

    /// Creates the table, if it does not exist.
    pub(super) fn create_table(&self) -> String {
        self.bounded(&format!(
            "CREATE TABLE IF NOT EXISTS {} (
                 election text PRIMARY KEY,
                 write text NOT NULL,
                 body text NOT NULL,
                 term bigint
             );",
            self.table
        ))
    }

    /// Returns the names of some elections of the table.
    pub(super) fn elections(&self, most: usize) -> String {
        let table = &self.table;
        self.bounded(&format!("SELECT election FROM {table} ORDER BY election LIMIT {most};"))
    }

    /// Any other statements, in a transaction with the bounds of all.
    pub(super) fn bounded(&self, statements: &str) -> String {
        format!("{}{statements}", self.prologue)
    }

    /// The table, quoted as a text for a statement.
    pub(super) fn table(&self) -> String {
        literal(&self.table)
    }
}

/// Quotes a text. A NUL, which no text in PostgreSQL has, is left out.
fn literal(text: &str) -> String {
    escape_literal(&text.replace('\0', ""))
}
