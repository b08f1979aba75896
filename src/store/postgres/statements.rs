//! The statements: each returns text that is sent as one message, which the server executes as one
//! transaction.
//!
//! - The time is `clock_timestamp()`, since `now()` is that of the start of the transaction, which may
//!   have waited for the row since.
//! - A write and the reading of its outcome are in one transaction. Its lock on the row ends with it, and
//!   `statement_timeout` and `lock_timeout` bound it.
//! - Each writes through `WITH written AS (…)` and returns a row if it has written; then the state.
//! - A commit waits until it is durable, and where there are synchronous standbys, until they have it,
//!   whatever the user's settings are otherwise.

use std::time::Duration;

use postgres_protocol::escape::{escape_identifier, escape_literal};

use super::connection::CHANNEL;
use crate::config::PostgresSettings;
use crate::lease::{Bid, Successor};

/// The condition for a row that this version may write: its format is the default of the table.
const KNOWN: &str = "t.format = 1";

/// The condition for a claim that is neither over nor being broken.
const LIVE: &str = "NOT t.breaking AND t.ends > pg_catalog.clock_timestamp()";

/// The condition for a row without a claim, or with one that has ended.
const FREE: &str = "(t.claim IS NULL OR t.ends <= pg_catalog.clock_timestamp())";

/// What a claim is changed to when it ends before its time.
const ENDED: &str =
    "claim = NULL, claimant = NULL, ends = NULL, breaking = false, version = t.version + 1";

/// The statements for one election.
pub(super) struct Statements {
    /// The table, quoted.
    table: String,
    /// The name of the election, quoted.
    election: String,
    /// What each transaction begins with: the settings for it alone.
    prologue: String,
}

/// How many results, without rows, come before those of the statements of a transaction.
pub(super) const PROLOGUE: usize = 5;

impl Statements {
    pub(super) fn new(settings: &PostgresSettings) -> Self {
        let millis = settings.request_timeout.as_millis().max(1);
        let schema = settings.table.schema.iter();
        let names = schema.chain([&settings.table.name]).map(|it| escape_identifier(it));
        let prologue: [String; PROLOGUE] = [
            format!("statement_timeout = {millis}"),
            format!("lock_timeout = {millis}"),
            "synchronous_commit = on".to_owned(),
            "transaction_isolation = 'read committed'".to_owned(),
            "client_min_messages = warning".to_owned(),
        ];
        Self {
            table: names.collect::<Vec<_>>().join("."),
            election: literal(&settings.election),
            prologue: prologue.map(|it| format!("SET LOCAL {it};")).concat(),
        }
    }

    /// Reads the row; always returns one of 16 columns, of which all but the first two are null without
    /// a row.
    pub(super) fn read(&self) -> String {
        self.bounded(&self.state())
    }

    fn state(&self) -> String {
        let Self { table, election, .. } = self;
        format!(
            "SELECT pg_catalog.pg_is_in_recovery(),
                    (pg_catalog.date_part('epoch', clock.now) * 1000000)::bigint,
                    t.format, t.version,
                    CASE WHEN t.ends > clock.now
                         THEN pg_catalog.ceil(pg_catalog.date_part('epoch', t.ends - clock.now) * 1000)::bigint
                    END,
                    t.claim, t.claimant, t.breaking,
                    t.term, t.nonce, t.holder, t.instance, t.address, t.peer,
                    t.successor, t.successor_hold_off_ms
             FROM (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) clock
             LEFT JOIN {table} t ON t.election = {election};"
        )
    }

    /// Claims the lease for a bid that was made for this version, or again if the bid has it already.
    pub(super) fn acquire(&self, bid: &Bid, seen: i64) -> String {
        let Self { table, election, .. } = self;
        let claim = literal(&bid.nonce.to_string());
        let claimant = literal(&bid.candidate.identity);
        let ends = ends(bid.lease_duration);
        let again = format!("t.claim = {claim} AND {LIVE}");
        let set = format!(
            "SET claim = {claim}, claimant = {claimant}, ends = {ends}, breaking = false,
                 version = t.version + CASE WHEN {again} THEN 0 ELSE 1 END"
        );
        if seen == 0 {
            return self.write(&format!(
                "INSERT INTO {table} AS t (election, claim, claimant, ends)
                 VALUES ({election}, {claim}, {claimant}, {ends})
                 ON CONFLICT (election) DO UPDATE {set} WHERE {KNOWN} AND {again}"
            ));
        }
        self.write(&format!(
            "UPDATE {table} t {set}
             WHERE t.election = {election} AND {KNOWN}
               AND (t.version = {seen} AND {FREE} OR {again})"
        ))
    }

    /// Counts the time of a claim anew.
    pub(super) fn renew(&self, bid: &Bid) -> String {
        let (claim, ends) = (literal(&bid.nonce.to_string()), ends(bid.lease_duration));
        // Nobody is told of it.
        self.transaction(&format!(
            "WITH written AS (
                 UPDATE {table} t SET ends = {ends}
                 WHERE t.election = {election} AND {KNOWN} AND t.claim = {claim} AND {LIVE}
                 RETURNING 1)
             SELECT 1 FROM written;",
            table = self.table,
            election = self.election,
        ))
    }

    /// Writes the record of a bid under its claim, with a term above the last one and at least `floor`,
    /// unless it is there already.
    pub(super) fn write_term(&self, bid: &Bid, floor: i64) -> String {
        let nonce = literal(&bid.nonce.to_string());
        let candidate = &bid.candidate;
        let optional = |it: &Option<String>| {
            it.as_deref().filter(|it| !it.is_empty()).map_or("NULL".to_owned(), literal)
        };
        self.update(
            &format!(
                "term = GREATEST(COALESCE(t.term, 0) + 1, {floor}), nonce = {nonce},
                 holder = {holder}, instance = {instance}, address = {address}, peer = {peer},
                 successor = NULL, successor_hold_off_ms = NULL, version = t.version + 1",
                holder = literal(&candidate.identity),
                instance = literal(&candidate.instance),
                address = optional(&candidate.address),
                peer = optional(&candidate.peer),
            ),
            &format!("t.claim = {nonce} AND {LIVE} AND t.nonce IS DISTINCT FROM {nonce}"),
        )
    }

    /// Names a successor in the record of a bid under its claim, unless it is there already.
    pub(super) fn set_successor(&self, bid: &Bid, successor: &Successor) -> String {
        let nonce = literal(&bid.nonce.to_string());
        let (identity, hold_off) = (literal(&successor.identity), successor.hold_off_millis());
        self.update(
            &format!(
                "successor = {identity}, successor_hold_off_ms = {hold_off}, version = t.version + 1"
            ),
            &format!(
                "t.claim = {nonce} AND {LIVE} AND t.nonce = {nonce}
                 AND (t.successor, t.successor_hold_off_ms) IS DISTINCT FROM ({identity}, {hold_off})"
            ),
        )
    }

    /// Ends the claim of a bid.
    pub(super) fn release(&self, bid: &Bid) -> String {
        let claim = literal(&bid.nonce.to_string());
        let live = "t.ends > pg_catalog.clock_timestamp()";
        self.update(ENDED, &format!("t.claim = {claim} AND {live}"))
    }

    /// Lets the claim of this version run out, or ends it.
    pub(super) fn break_lease(&self, version: i64, at_once: bool) -> String {
        let change = match at_once {
            true => ENDED,
            // Nothing that a bid could be for.
            false => "breaking = true",
        };
        self.update(change, &format!("t.version = {version} AND t.claim IS NOT NULL"))
    }

    /// Writes a first term, if there is none.
    pub(super) fn first_term(&self, floor: i64) -> String {
        let Self { table, election, .. } = self;
        self.write(&format!(
            "INSERT INTO {table} AS t (election, term) VALUES ({election}, {floor})
             ON CONFLICT (election) DO UPDATE SET term = {floor}, version = t.version + 1
             WHERE {KNOWN} AND t.term IS NULL"
        ))
    }

    /// Creates the table, if it does not exist.
    pub(super) fn create_table(&self) -> String {
        self.bounded(&definition(&self.table))
    }

    /// Returns the names of some elections of the table.
    pub(super) fn elections(&self, most: usize) -> String {
        self.bounded(&format!(
            "SELECT election FROM {} ORDER BY election LIMIT {most};",
            self.table
        ))
    }

    /// Any other statements, in a transaction with the bounds of all.
    pub(super) fn bounded(&self, statements: &str) -> String {
        format!("{} {statements}", self.prologue)
    }

    /// The table, quoted for a statement.
    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Changes the row where a condition holds, and tells others.
    fn update(&self, change: &str, condition: &str) -> String {
        let Self { table, election, .. } = self;
        self.write(&format!(
            "UPDATE {table} t SET {change}
             WHERE t.election = {election} AND {KNOWN} AND {condition}"
        ))
    }

    /// A transaction with a statement that writes the row and tells others.
    fn write(&self, statement: &str) -> String {
        self.transaction(&format!(
            "WITH written AS ({statement} RETURNING t.election, t.claim)
             SELECT pg_catalog.pg_notify('{CHANNEL}', election || ' ' || COALESCE(claim, '-')) FROM written;"
        ))
    }

    fn transaction(&self, statement: &str) -> String {
        self.bounded(&format!("{statement} {}", self.state()))
    }
}

/// The definition of the table.
fn definition(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (
    election text PRIMARY KEY,
    format smallint NOT NULL DEFAULT 1,
    version bigint NOT NULL DEFAULT 1,
    claim text,
    claimant text,
    ends timestamptz CHECK (isfinite(ends)),
    breaking boolean NOT NULL DEFAULT false,
    term bigint CHECK (term > 0),
    nonce text,
    holder text,
    instance text,
    address text,
    peer text,
    successor text,
    successor_hold_off_ms bigint,
    CHECK ((claim IS NULL) = (ends IS NULL))
);"
    )
}

/// The end of a lease that is counted from now on.
fn ends(duration: Duration) -> String {
    let micros = duration.as_micros();
    format!("pg_catalog.clock_timestamp() + interval '{micros} microseconds'")
}

/// Quotes a text. A NUL, which no text in PostgreSQL has, is left out.
fn literal(text: &str) -> String {
    escape_literal(&text.replace('\0', ""))
}
