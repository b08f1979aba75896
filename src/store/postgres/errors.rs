//! Errors of requests to PostgreSQL, by what the caller does next, with the remedy in the message. No
//! message shows a password.

use crate::lease::text::is_printable;
use crate::lease::{Cause, Failure, StoreError};
use crate::store::network::NetworkError;

/// Why a request had no answer that can be used. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PostgresError {
    /// The table, or its schema, does not exist.
    #[error("{0}")]
    NoTable(String),
    /// The table is not one of Tenure's.
    #[error("{0}")]
    OtherTable(String),
    /// A number is too large for its column.
    #[error("{0}")]
    TooLarge(String),
    /// The user does not exist, or its password or certificate is not accepted.
    #[error("{0}")]
    SignIn(String),
    /// The user may not.
    #[error("{0}")]
    Denied(String),
    /// The file of the password cannot be read, or has none for this server.
    #[error("{0}")]
    Files(String),
    /// The server is a standby, so another one is the primary.
    #[error("{0}")]
    Standby(String),
    /// The server takes no writes.
    #[error("{0}")]
    ReadOnly(String),
    /// Another client did the same at the same time. One immediate retry is worthwhile.
    #[error("{0}")]
    Raced(String),
    /// Another transaction held the row for too long.
    #[error("{0}")]
    Locked(String),
    /// The server has no connection left.
    #[error("{0}")]
    Throttled(String),
    /// The server failed, or is starting or stopping; what was asked for may still be done.
    #[error("{0}")]
    Unavailable(String),
    /// The server rejected the request as invalid, or its answer is unusable: a setting is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no answer.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

impl PostgresError {
    /// Returns whether another server may do better.
    pub(super) fn is_of_one_server(&self) -> bool {
        matches!(
            self,
            Self::Standby(_)
                | Self::ReadOnly(_)
                | Self::Throttled(_)
                | Self::Unavailable(_)
                | Self::Invalid(_)
                | Self::Network(_)
        )
    }
}

/// Converts an error, where nothing more is known: its outcome is never definite (R4).
impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        let message = error.to_string();
        let cause = match error {
            PostgresError::Network(error) => return error.into(),
            PostgresError::Standby(_) => {
                return Self::RetryNow(Failure::new(Cause::Network, message));
            }
            PostgresError::Raced(_) => return Self::RetryNow(Failure::new(Cause::Lease, message)),
            PostgresError::OtherTable(_) | PostgresError::TooLarge(_) => {
                return Self::Foreign(Failure::new(Cause::Record, message));
            }
            PostgresError::SignIn(_) | PostgresError::Denied(_) | PostgresError::Files(_) => {
                Cause::Auth
            }
            PostgresError::Throttled(_) => Cause::Throttled,
            PostgresError::Locked(_) => Cause::Timeout,
            PostgresError::Invalid(_) | PostgresError::NoTable(_) => Cause::Settings,
            PostgresError::ReadOnly(_) | PostgresError::Unavailable(_) => Cause::Unavailable,
        };
        Self::Unknown(Failure::new(cause, message))
    }
}

/// Classifies an error that the server reports, by its SQLSTATE.
///
/// The codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>. PgBouncer reports its own
/// errors with 08P01.
pub(super) fn reported(code: &str, words: &str, server: &str) -> PostgresError {
    let shown = |text: &str, most: usize| {
        text.chars().filter(|it| is_printable(*it)).take(most).collect::<String>()
    };
    let said = format!("{server}: {} ({})", shown(words, 300), shown(code, 5));
    match code {
        "42P01" | "3F000" => PostgresError::NoTable(said),
        "42703" | "42804" | "42883" | "42P10" | "42809" => PostgresError::OtherTable(format!(
            "the table is not one of Tenure's, or of another version: set another --postgres-table, or \
             drop it if nothing else uses it ({said})"
        )),
        "23505" | "42P07" => PostgresError::Raced(said),
        "22003" => PostgresError::TooLarge(said),
        "28P01" | "28000" => PostgresError::SignIn(format!(
            "the sign-in failed: check PGUSER and PGPASSWORD, and the server's pg_hba.conf ({said})"
        )),
        "42501" => PostgresError::Denied(format!(
            "access denied: the user needs SELECT, INSERT and UPDATE on the table, see \
             docs/stores/postgres.md ({said})"
        )),
        "25006" => PostgresError::ReadOnly(format!(
            "the server takes no writes: name the primary in --store too, or end its read-only mode ({said})"
        )),
        "53300" => PostgresError::Throttled(said),
        "53100" => PostgresError::Unavailable(format!("the disk of the server is full ({said})")),
        "3D000" => {
            PostgresError::Invalid(format!("there is no such database: check --store ({said})"))
        }
        "55P03" | "57014" => PostgresError::Locked(format!(
            "another transaction held the row of the election for too long ({said})"
        )),
        // Connection, rollback, resources, operator, system and internal.
        _ if ["08", "40", "53", "57", "58", "XX"].iter().any(|it| code.starts_with(it)) => {
            PostgresError::Unavailable(said)
        }
        _ => PostgresError::Invalid(format!("the server refused the request ({said})")),
    }
}

/// Returns the error for a server that only follows another.
pub(super) fn standby(server: &str) -> PostgresError {
    PostgresError::Standby(format!(
        "{server} is a standby: name the primary in --store too, or an address that leads to it"
    ))
}

/// Returns the error for what no server of PostgreSQL sends.
pub(super) fn not_postgres(server: &str) -> PostgresError {
    PostgresError::Invalid(format!(
        "{server} did not answer as PostgreSQL does: check the address in --store"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_meaning() {
        for (code, expected) in [
            ("42P01", "NoTable"),
            ("3F000", "NoTable"),
            ("42703", "OtherTable"),
            ("22003", "TooLarge"),
            ("23505", "Raced"),
            ("28P01", "SignIn"),
            ("28000", "SignIn"),
            ("42501", "Denied"),
            ("25006", "ReadOnly"),
            ("53300", "Throttled"),
            ("53100", "Unavailable"),
            ("3D000", "Invalid"),
            ("55P03", "Locked"),
            ("57014", "Locked"),
            ("57P01", "Unavailable"),
            ("57P03", "Unavailable"),
            ("08P01", "Unavailable"),
            ("40001", "Unavailable"),
            ("XX000", "Unavailable"),
            ("42601", "Invalid"),
            ("", "Invalid"),
        ] {
            let error = reported(code, "words\u{202e}\n", "h:1");
            let shown = format!("{error:?}");
            assert!(shown.starts_with(expected), "{code}: {shown}");
            assert!(shown.contains("h:1: words (") && !shown.contains('\u{202e}'), "{shown}");
            assert!(!matches!(StoreError::from(error), StoreError::Refused(_)), "{code}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_remedy() {
        for (code, words) in [
            ("42703", "set another --postgres-table"),
            ("28P01", "check PGUSER and PGPASSWORD"),
            ("42501", "the user needs SELECT, INSERT and UPDATE"),
            ("25006", "name the primary in --store too"),
            ("53100", "the disk of the server is full"),
            ("3D000", "there is no such database: check --store"),
            ("55P03", "another transaction held the row"),
        ] {
            let error = reported(code, "words", "h:1").to_string();
            assert!(error.contains(words), "{code}: {error}");
        }
    }

    #[test]
    fn another_server_helps_only_where_it_can() {
        let of = |it: fn(String) -> PostgresError| it("why".to_owned());
        for (error, expected) in [
            (of(PostgresError::Standby), true),
            (of(PostgresError::ReadOnly), true),
            (of(PostgresError::Throttled), true),
            (of(PostgresError::Unavailable), true),
            (of(PostgresError::Invalid), true),
            (NetworkError::Disconnected("why".to_owned()).into(), true),
            (of(PostgresError::NoTable), false),
            (of(PostgresError::OtherTable), false),
            (of(PostgresError::TooLarge), false),
            (of(PostgresError::SignIn), false),
            (of(PostgresError::Denied), false),
            (of(PostgresError::Files), false),
            (of(PostgresError::Raced), false),
            (of(PostgresError::Locked), false),
        ] {
            assert_eq!(error.is_of_one_server(), expected, "{error:?}");
        }
    }
}
