//! Parses the URL of a store in PostgreSQL: `postgres://HOST[:PORT][,HOST[:PORT]…]/DATABASE`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

pub(super) const FORM: Form = Form {
    write: "write postgres://HOST:PORT/DATABASE, with commas between the addresses of one server and its standbys",
    part: "database",
    may_omit_part: false,
    credentials: "the user in the environment, by PGUSER and PGPASSWORD_FILE, and the files of TLS by \
                  --store-ca-file, --store-cert and --store-key",
    usual_port: 5432,
    may_omit_port: true,
    port_of_server: "the server or its pooler",
};

/// The longest name of a database, in bytes.
const LONGEST: usize = 63;

/// Parses what follows `postgres:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let (addresses, database) = address::with_part(rest, &FORM)?;
    let is_usual = |it: u8| it.is_ascii_alphanumeric() || b"_.$-".contains(&it);
    match database {
        "" => Err(Problem::new("names no database", FORM.write)),
        _ if database.len() > LONGEST || !database.bytes().all(is_usual) => Err(Problem::new(
            "names a database that is not of 1 to 63 of A-Z a-z 0-9 _ . $ -",
            "name another database: it may be one of Tenure's own",
        )),
        _ => Ok(StoreUrl::Postgres { addresses, database: database.to_owned() }),
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{addresses, assert_faults, assert_formatted, assert_formatted_alike};

    #[test]
    fn each_form_is_parsed_and_formatted_with_its_ports() {
        assert_formatted([
            ("postgres://127.0.0.1:6432/app", "postgres://127.0.0.1:6432/app"),
            ("postgres://DB-1/app", "postgres://db-1:5432/app"),
            ("postgres://a,b:1,[::1]/My_app.$-", "postgres://a:5432,b:1,[::1]:5432/My_app.$-"),
        ]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        assert_faults([
            ("postgres:", "no addresses or no database", "postgres://HOST:PORT/DATABASE"),
            ("postgres:h/x", "no addresses or no database", "postgres://HOST:PORT/DATABASE"),
            ("postgres://h", "no addresses or no database", "postgres://HOST:PORT/DATABASE"),
            ("postgres://h/", "names no database", "postgres://HOST:PORT/DATABASE"),
            ("postgres://h/a/b", "a database that is not", "another database"),
            ("postgres://h/a b", "a database that is not", "another database"),
            ("postgres:///x", "names a socket, or no host", "postgres://127.0.0.1:5432"),
            ("postgres://h:0/x", "not from 1 to 65535", "5432"),
            ("postgres://h,h:5432/x", "the address h:5432 twice", "remove one"),
            ("postgres://u:hidden@h/x", "has more than", "PGPASSWORD_FILE"),
            ("postgres://h/x?sslmode=require", "has more than", "--store-ca-file"),
            ("postgresql://h/x", "unknown kind", "did you mean postgres:"),
            ("pg://h/x", "unknown kind", "did you mean postgres:"),
        ]);
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            addresses in addresses(),
            database in "[a-zA-Z0-9_$-]{1,63}",
        ) {
            let text = format!("postgres://{addresses}/{database}");
            assert_formatted_alike([&text]);
        }
    }
}
