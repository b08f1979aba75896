//! Parses the URL of a store in a bucket: `s3://BUCKET[/PREFIX]`.

use super::super::faults::Problem;
use super::super::values;
use super::StoreUrl;

const WRITE: &str = "write s3://BUCKET/PREFIX";

/// Parses what follows `s3:`.
pub(super) fn parse(rest: &str) -> Result<StoreUrl, Problem> {
    if rest.contains(['?', '#', '@']) {
        let remedy = format!(
            "{WRITE}; pass credentials in the environment, by AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY_FILE, and another server by --s3-endpoint"
        );
        return Err(Problem::new("has more than a bucket and a prefix", remedy));
    }
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(Problem::new("names no bucket", WRITE));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Problem::new("names no bucket", WRITE));
    }
    if !is_bucket(bucket) {
        return Err(Problem::new(
            "names a bucket that is not a valid name",
            "buckets are 3 to 63 of a-z 0-9 - . and begin and end with a letter or digit; another server is \
             named by --s3-endpoint",
        ));
    }
    let prefix =
        match prefix {
            "" => None,
            prefix => Some(values::blob_prefix(prefix).map_err(|it| {
                Problem::new(format!("has a prefix that {}", it.problem), it.remedy)
            })?),
        };
    Ok(StoreUrl::S3 { bucket: bucket.to_owned(), prefix })
}

/// By AWS's rules for the names of general purpose buckets.
fn is_bucket(name: &str) -> bool {
    let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it))
        && is_end(name.chars().next())
        && is_end(name.chars().last())
        && !name.contains("..")
}

#[cfg(all(test, feature = "s3"))]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;
    use super::*;

    fn url(text: &str) -> StoreUrl {
        parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"))
    }

    #[test]
    fn each_form_is_parsed_and_formatted_alike() {
        for (text, formatted) in [
            ("s3://leases", "s3://leases"),
            ("s3://leases/", "s3://leases"),
            ("s3://my.leases-1/team/prod/", "s3://my.leases-1/team/prod"),
        ] {
            assert_eq!(url(text).to_string(), formatted);
        }
    }

    #[test]
    fn each_fault_has_a_remedy() {
        for (text, problem, remedy) in [
            ("s3:", "names no bucket", "s3://BUCKET/PREFIX"),
            ("s3:leases", "names no bucket", "s3://BUCKET/PREFIX"),
            ("s3:///x", "names no bucket", "s3://BUCKET/PREFIX"),
            ("s3://Leases/x", "not a valid name", "3 to 63"),
            ("s3://ab/x", "not a valid name", "3 to 63"),
            ("s3://-ab/x", "not a valid name", "begin and end"),
            ("s3://a..b/x", "not a valid name", "3 to 63"),
            ("s3://127.0.0.1:9000/leases", "not a valid name", "--s3-endpoint"),
            ("s3://leases//x", "prefix that has a segment", "team/prod"),
            ("s3://leases/a b", "prefix that has characters", "team/prod"),
            ("s3://id:hidden@leases/x", "has more than", "AWS_SECRET_ACCESS_KEY_FILE"),
            ("s3://leases/x?region=x", "has more than", "--s3-endpoint"),
            ("aws://leases/x", "unknown kind", "write file:///"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.problem.contains(problem), "{text}: {found:?}");
            assert!(found.remedy.contains(remedy), "{text}: {found:?}");
            assert!(!format!("{found:?}").contains("hidden"), "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            bucket in "[a-z0-9]{2,9}([.-][a-z0-9]{1,9}){0,3}[a-z0-9]",
            prefix in prop::option::of("[a-z0-9]{1,9}(/[a-zA-Z0-9_-]{1,9}){0,3}"),
        ) {
            let url = StoreUrl::S3 { bucket, prefix };
            prop_assert_eq!(parse(&url.to_string()), Ok(url));
        }

        #[test]
        fn no_text_panics(text in "s3://.{0,60}") {
            let _ = parse(&text);
        }
    }
}
