//! Finds a password in a file of PostgreSQL's own clients, as `~/.pgpass`: lines of
//! `HOST:PORT:DATABASE:USER:PASSWORD`, where `*` is any, and a backslash stands before a colon or a
//! backslash (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).

use crate::config::Address;

/// Returns the password of the first line that fits.
pub(super) fn find(text: &str, server: &Address, database: &str, user: &str) -> Option<String> {
    let host = server.host.to_string();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = server.port.to_string();
    text.lines().filter(|it| !it.starts_with('#')).find_map(|line| {
        let mut rest = line;
        for wanted in [host, &port, database, user] {
            let (field, after) = first(rest)?;
            if field != wanted && field != "*" {
                return None;
            }
            rest = after;
        }
        Some(unescaped(rest))
    })
}

/// Returns what is before the first colon, unescaped, and what is after it.
fn first(line: &str) -> Option<(String, &str)> {
    let mut is_escaped = false;
    let end = line.find(|it| {
        let ends = it == ':' && !is_escaped;
        is_escaped = it == '\\' && !is_escaped;
        ends
    })?;
    Some((unescaped(&line[..end]), &line[end + 1..]))
}

fn unescaped(field: &str) -> String {
    let mut characters = field.chars();
    let mut plain = String::new();
    while let Some(it) = characters.next() {
        // A backslash at the end stands for itself.
        plain.push(if it == '\\' { characters.next().unwrap_or(it) } else { it });
    }
    plain
}

#[cfg(test)]
mod tests {
    use url::Host;

    use super::*;

    const FILE: &str = "# comment\n\
                        h:5432:app:me:one\n\
                        h:*:app:me:two\n\
                        *:5432:*:you:t\\:h\\\\ree:four\n\
                        ::1:5432:app:me:never\n\
                        \\:\\:1:5432:app:me:five\n\
                        short:5432";

    fn of(host: &str, port: u16, user: &str) -> Option<String> {
        let server = Address { host: Host::parse(host).unwrap(), port };
        find(FILE, &server, "app", user)
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        assert_eq!(of("h", 5432, "me").as_deref(), Some("one"));
        assert_eq!(of("h", 6432, "me").as_deref(), Some("two"));
        assert_eq!(of("any", 5432, "you").as_deref(), Some("t:h\\ree:four"));
        assert_eq!(of("[::1]", 5432, "me").as_deref(), Some("five"));
        for (host, port, user) in [("other", 5432, "me"), ("h", 6432, "you"), ("short", 5432, "me")]
        {
            assert_eq!(of(host, port, user), None, "{host} {port} {user}");
        }
    }
}
