//! Tests of what is made of settings and answers. The requests are tested on the stand-in.

use mongodb::bson::{Timestamp, doc};
use url::Host;

use super::*;
use crate::config::{Address, StoreTls};
use crate::lease::Nonce;
use crate::tls::KeyPair;

fn settings() -> MongoSettings {
    MongoSettings {
        servers: vec![Address { host: Host::parse("127.0.0.1").unwrap(), port: 1 }],
        database: "app".to_owned(),
        collection: "tenure".to_owned(),
        election: "orders".to_owned(),
        user: None,
        auth_source: "app".to_owned(),
        accepts_compatible: false,
        tls: None,
        request_timeout: Duration::from_secs(2),
    }
}

#[test]
fn a_write_counts_only_where_the_answer_says_so() {
    for (answer, expected) in [
        (doc! {"n": 1}, Some(true)),
        (doc! {"n": 0_i64}, Some(false)),
        (doc! {"value": null, "lastErrorObject": {"n": 0, "updatedExisting": false}}, Some(false)),
        (doc! {"value": {"_id": "orders"}}, Some(true)),
        (doc! {"value": 7}, None),
        (doc! {"n": 2}, None),
        (doc! {"n": -1}, None),
        (doc! {}, None),
    ] {
        assert_eq!(wire::is_written(&answer), expected, "{answer}");
    }
    let unacknowledged =
        doc! {"n": 1, "writeConcernError": {"code": 64}, "writeErrors": [{"code": 11_000}]};
    assert!(wire::error(&unacknowledged).unwrap().is_unacknowledged, "its outcome is unknown");
    assert_eq!(wire::error(&doc! {"writeErrors": [{"code": 11_000}]}).unwrap().code, 11_000);
}

#[test]
fn a_document_has_the_number_of_its_write_its_content_and_the_term() {
    let mut body = Body { write: Nonce(7), ..Body::default() };
    body.record.term = Some(42);
    let commands = Commands::new(&settings(), Duration::from_secs(2));
    let replace = commands.replace("orders", "6", &body);
    assert_eq!(replace.get_document("query").unwrap(), &doc! {"_id": "orders", "write": "6"});
    let update = replace.get_document("update").unwrap();
    assert_eq!(update.get_i64("term").unwrap(), 42, "for comparisons of others");
    assert_eq!(update.get_str("write").unwrap(), body.write.to_string());
    let stored = Stored::of(update);
    assert_eq!(Body::decode(stored.content.as_bytes()), Ok(body));
    let concern = replace.get_document("writeConcern").unwrap();
    assert_eq!(concern, &doc! {"w": "majority", "j": true, "wtimeout": 2_000_i64});
    for (is_replicated, level) in [(true, "linearizable"), (false, "local")] {
        let find = commands.find("orders", is_replicated);
        assert_eq!(find.get_document("readConcern").unwrap().get_str("level").unwrap(), level);
    }
}

#[test]
fn an_answer_has_the_date_of_the_server() {
    let time = Timestamp { time: 1_700_000_000, increment: 3 };
    let date = wire::date(&doc! {"operationTime": time}).unwrap();
    assert_eq!(date.unix_timestamp(), 1_700_000_000);
    assert_eq!(wire::date(&doc! {}), None);
}

#[tokio::test]
async fn a_certificate_signs_in_without_a_user() {
    let mut collection = Collection::open(&settings(), Duration::from_secs(2)).unwrap();
    let own = || Some(KeyPair { cert: "cert".into(), key: "key".into() });
    for (tls, credential) in [
        (None, "requests without a user"),
        (Some(StoreTls { ca_file: None, own: None }), "requests without a user"),
        (Some(StoreTls { ca_file: None, own: own() }), "the certificate of --store-cert"),
    ] {
        collection.settings.tls = tls;
        assert_eq!(collection.credential().as_deref(), Some(credential));
    }
}
