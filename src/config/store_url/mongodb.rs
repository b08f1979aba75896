//! Parses the URL of a store in MongoDB: `mongodb://HOST[:PORT][,HOST[:PORT]…]/DATABASE`.

use super::super::faults::Problem;
use super::StoreUrl;
use super::address::{self, Form};

pub(super) const FORM: Form = Form {
    write: "write mongodb://HOST:PORT/DATABASE, with commas between the members of one replica set",
    part: "database",
    may_omit_part: false,
    credentials: "the user in the environment, by MONGODB_USERNAME and MONGODB_PASSWORD_FILE, its database by \
                  --mongodb-auth-source, and the files of TLS by --store-ca-file, --store-cert and --store-key",
    usual_port: 27_017,
    may_omit_port: true,
    port_of_server: "the server",
};

/// Databases of the server's own. What is in `local` is not replicated.
const RESERVED: [&str; 3] = ["admin", "config", "local"];

/// Parses what follows `mongodb:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    let (addresses, database) = address::with_part(rest, &FORM)?;
    match database {
        "" => Err(Problem::new("names no database", FORM.write)),
        _ if RESERVED.contains(&database) => Err(Problem::new(
            format!("names the database {database}, which is the server's own"),
            "name another database: it may be one of Tenure's own",
        )),
        _ if !is_database(database) => Err(Problem::new(
            "names a database that is not of 1 to 63 of A-Z a-z 0-9 _ -",
            "name another database: it may be one of Tenure's own",
        )),
        _ => Ok(StoreUrl::Mongo { addresses, database: database.to_owned() }),
    }
}

/// Returns whether a text can name a database.
pub(in crate::config) fn is_database(text: &str) -> bool {
    let is_usual = |it: u8| it.is_ascii_alphanumeric() || b"_-".contains(&it);
    (1..=63).contains(&text.len()) && text.bytes().all(is_usual)
}

#[cfg(all(test, feature = "mongodb"))]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{addresses, assert_faults, assert_formatted, assert_formatted_alike};

    #[test]
    fn each_form_is_parsed_and_formatted_with_its_ports() {
        assert_formatted([
            ("mongodb://127.0.0.1:27018/app", "mongodb://127.0.0.1:27018/app"),
            ("mongodb://DB-1/app", "mongodb://db-1:27017/app"),
            ("mongodb://a,b:1,[::1]/My_app-1", "mongodb://a:27017,b:1,[::1]:27017/My_app-1"),
        ]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        assert_faults([
            ("mongodb:", "no addresses or no database", "mongodb://HOST:PORT/DATABASE"),
            ("mongodb:h/x", "no addresses or no database", "mongodb://HOST:PORT/DATABASE"),
            ("mongodb://h", "no addresses or no database", "mongodb://HOST:PORT/DATABASE"),
            ("mongodb://h/", "names no database", "mongodb://HOST:PORT/DATABASE"),
            ("mongodb://h/local", "local, which is the server's own", "another database"),
            ("mongodb://h/admin", "admin, which is the server's own", "another database"),
            ("mongodb://h/a.b", "a database that is not", "another database"),
            ("mongodb://h/a/b", "a database that is not", "another database"),
            ("mongodb:///x", "an empty address", "mongodb://HOST:PORT/DATABASE"),
            ("mongodb://h:0/x", "not from 1 to 65535", "27017"),
            ("mongodb://h,h:27017/x", "the address h:27017 twice", "remove one"),
            ("mongodb://u:hidden@h/x", "has more than", "MONGODB_PASSWORD_FILE"),
            ("mongodb://h/x?replicaSet=rs0", "has more than", "--store-ca-file"),
            ("mongodb+srv://h/x", "a name for the servers", "mongodb://HOST,HOST2/x"),
            ("mongo://h/x", "unknown kind", "did you mean mongodb:"),
        ]);
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            addresses in addresses(),
            database in "[A-Z0-9_-]{1,63}",
        ) {
            let text = format!("mongodb://{addresses}/{database}");
            assert_formatted_alike([&text]);
        }
    }
}
