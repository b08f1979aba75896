//! Errors of requests to PostgreSQL, by what the caller does next, with the remedy in the message. No
//! message shows a password.

use crate::lease::text::is_printable;
use crate::store::network::NetworkError;
use crate::store::register::RegisterError;

/// An error or a warning that the server reports.
pub(super) struct Report {
    code: String,
    /// The function of the server that reports it.
    pub(super) routine: String,
    /// What it says, with the server and the code, to be shown.
    pub(super) said: String,
}

impl Report {
    pub(super) fn new(code: String, words: &str, routine: String, server: &str) -> Self {
        let shown = |text: &str, most: usize| {
            text.chars().filter(|it| is_printable(*it)).take(most).collect::<String>()
        };
        let said = format!("{server}: {} ({})", shown(words, 300), shown(&code, 5));
        Self { code, routine, said }
    }

    /// Classifies an error, by its SQLSTATE; `is_plain` tells whether the connection is without TLS.
    ///
    /// The codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>. PgBouncer reports its own
    /// errors with 08P01.
    pub(super) fn error(self, is_plain: bool) -> RegisterError {
        let Self { code, said, .. } = self;
        match code.as_str() {
            "42P01" | "3F000" => RegisterError::Missing(said),
            "42703" | "42804" | "42883" | "42P10" | "42809" => RegisterError::Foreign(format!(
                "the table is not one of Tenure's, or of an earlier version: set another \
                 --postgres-table, or drop it if nothing else uses it ({said})"
            )),
            "23505" | "42P07" => RegisterError::Concurrent(said),
            // Before PostgreSQL 14 it is the other one.
            "28000" if is_plain && (said.contains("no encryption") || said.contains("SSL off")) => {
                RegisterError::Credential(format!(
                    "the server has no line in pg_hba.conf for this user, host and database without TLS: to \
                     use TLS, set PGSSLMODE=verify-full, and --store-ca-file for an authority of your own; \
                     beyond loopback unset --store-insecure ({said})"
                ))
            }
            "28P01" | "28000" => RegisterError::Credential(format!(
                "the sign-in failed: check PGUSER and PGPASSWORD, and the server's pg_hba.conf ({said})"
            )),
            "42501" => RegisterError::Denied(format!(
                "access denied: the user needs SELECT, INSERT and UPDATE on the table, see \
                 docs/stores/postgres.md ({said})"
            )),
            "25006" => RegisterError::Unavailable(format!(
                "the server takes no writes: name the primary in --store too, or end its read-only mode \
                 ({said})"
            )),
            "53300" => RegisterError::Throttled(said),
            "53100" => {
                RegisterError::Unavailable(format!("the disk of the server is full ({said})"))
            }
            "3D000" => {
                RegisterError::Invalid(format!("there is no such database: check --store ({said})"))
            }
            "55P03" | "57014" => RegisterError::Concurrent(format!(
                "another transaction held the row of the election for too long ({said})"
            )),
            // Connection, rollback, resources, operator, system and internal.
            _ if ["08", "40", "53", "57", "58", "XX"].iter().any(|it| code.starts_with(it)) => {
                RegisterError::Unavailable(said)
            }
            _ => RegisterError::Invalid(format!("the server refused the request ({said})")),
        }
    }
}

/// Returns the error for a server that only follows another.
pub(super) fn standby(server: &str) -> RegisterError {
    RegisterError::Network(NetworkError::Disconnected(format!(
        "{server} is a standby: name the primary in --store too, or an address that leads to it"
    )))
}

/// Returns the error for what no server of PostgreSQL sends.
pub(super) fn not_postgres(server: &str) -> RegisterError {
    RegisterError::Invalid(format!(
        "{server} did not answer as PostgreSQL does: check the address in --store"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::StoreError;

    fn reported(code: &str, words: &str, is_plain: bool) -> RegisterError {
        Report::new(code.to_owned(), words, String::new(), "h:1").error(is_plain)
    }

    #[test]
    fn each_code_has_its_meaning_with_the_remedy() {
        for (code, expected, words) in [
            ("42P01", "Missing", ""),
            ("3F000", "Missing", ""),
            ("42703", "Foreign", "set another --postgres-table"),
            ("23505", "Concurrent", ""),
            ("28P01", "Credential", "check PGUSER and PGPASSWORD"),
            ("28000", "Credential", "check PGUSER and PGPASSWORD"),
            ("42501", "Denied", "the user needs SELECT, INSERT and UPDATE"),
            ("25006", "Unavailable", "name the primary in --store too"),
            ("53300", "Throttled", ""),
            ("53100", "Unavailable", "the disk of the server is full"),
            ("3D000", "Invalid", "there is no such database: check --store"),
            ("55P03", "Concurrent", "another transaction held the row"),
            ("57014", "Concurrent", "another transaction held the row"),
            ("57P01", "Unavailable", ""),
            ("57P03", "Unavailable", ""),
            ("08P01", "Unavailable", ""),
            ("40001", "Unavailable", ""),
            ("XX000", "Unavailable", ""),
            ("42601", "Invalid", ""),
            ("", "Invalid", ""),
        ] {
            let error = reported(code, "words\u{202e}\n", false);
            let (shown, said) = (format!("{error:?}"), error.to_string());
            assert!(shown.starts_with(expected) && said.contains(words), "{code}: {shown}");
            assert!(said.contains("h:1: words (") && !said.contains('\u{202e}'), "{said}");
            assert!(!matches!(StoreError::from(error), StoreError::Refused(_)), "{code}");
        }
    }

    #[test]
    fn a_server_that_wants_tls_is_named_with_the_setting_that_turns_it_on() {
        let entry = "no pg_hba.conf entry for host \"h\", user \"u\", database \"d\"";
        for (end, is_plain, expected) in [
            (", no encryption", true, "PGSSLMODE=verify-full"),
            (", SSL off", true, "PGSSLMODE=verify-full"),
            (", SSL encryption", false, "check PGUSER"),
            (", no encryption", false, "check PGUSER"),
        ] {
            let error = reported("28000", &format!("{entry}{end}"), is_plain).to_string();
            assert!(error.contains(expected), "{end}: {error}");
        }
    }
}
