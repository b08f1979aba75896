//! Parses the URLs of stores in a bucket: `s3://BUCKET[/PREFIX]` and `gs://BUCKET[/PREFIX]`.

use super::super::faults::Problem;

/// The form of one kind of bucket.
pub(super) struct Form {
    /// The remedy that shows the whole URL.
    pub(super) write: &'static str,
    /// Where credentials belong, and what else a URL does not name.
    pub(super) elsewhere: &'static str,
    /// Whether names have underscores.
    pub(super) has_underscores: bool,
}

pub(super) const S3: Form = Form {
    write: "write s3://BUCKET/PREFIX",
    elsewhere: "pass credentials in the environment, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY_FILE, and \
                another server by --s3-endpoint",
    has_underscores: false,
};

pub(super) const GCS: Form = Form {
    write: "write gs://BUCKET/PREFIX",
    elsewhere: "name the file of a credential in the environment, by GOOGLE_APPLICATION_CREDENTIALS",
    has_underscores: true,
};

/// Parses what follows `s3:` or `gs:`; returns the bucket and the prefix.
pub(super) fn parse(rest: &str, form: &Form) -> Result<(String, Option<String>), Problem> {
    if rest.contains(['?', '#', '@']) {
        let remedy = format!("{}; {}", form.write, form.elsewhere);
        return Err(Problem::new("has more than a bucket and a prefix", remedy));
    }
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(Problem::new("names no bucket", form.write));
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Problem::new("names no bucket", form.write));
    }
    if !is_bucket(bucket, form) {
        let more = if form.has_underscores { " _" } else { "" };
        let remedy = format!(
            "buckets are 3 to 63 of a-z 0-9 - .{more} and begin and end with a letter or digit; {}",
            form.elsewhere
        );
        return Err(Problem::new("names a bucket that is not a valid name", remedy));
    }
    let prefix = match prefix {
        "" => None,
        prefix => Some(super::prefix(prefix, "prefix")?),
    };
    Ok((bucket.to_owned(), prefix))
}

/// By AWS's rules for the names of general purpose buckets, and Google's.
fn is_bucket(name: &str, form: &Form) -> bool {
    let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    (3..=63).contains(&name.len())
        && name.bytes().all(|it| {
            it.is_ascii_lowercase()
                || it.is_ascii_digit()
                || b"-.".contains(&it)
                || form.has_underscores && it == b'_'
        })
        && is_end(name.chars().next())
        && is_end(name.chars().last())
        && !name.contains("..")
}

#[cfg(all(test, feature = "s3", feature = "gcs"))]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{assert_faults, assert_formatted};
    use super::super::{StoreUrl, parse};

    #[test]
    fn each_form_is_parsed_and_formatted_alike() {
        assert_formatted([
            ("s3://leases", "s3://leases"),
            ("s3://leases/", "s3://leases"),
            ("s3://my.leases-1/team/prod/", "s3://my.leases-1/team/prod"),
            ("gs://my_leases", "gs://my_leases"),
            ("gs://my.leases-1/team/prod/", "gs://my.leases-1/team/prod"),
        ]);
    }

    #[test]
    fn each_fault_has_a_remedy() {
        assert_faults([
            ("s3:", "names no bucket", "s3://BUCKET/PREFIX"),
            ("s3:leases", "names no bucket", "s3://BUCKET/PREFIX"),
            ("gs:///x", "names no bucket", "gs://BUCKET/PREFIX"),
            ("s3://Leases/x", "not a valid name", "3 to 63"),
            ("s3://my_leases", "not a valid name", "3 to 63"),
            ("s3://ab/x", "not a valid name", "3 to 63"),
            ("gs://-ab/x", "not a valid name", "begin and end"),
            ("s3://a..b/x", "not a valid name", "3 to 63"),
            ("s3://127.0.0.1:9000/leases", "not a valid name", "--s3-endpoint"),
            ("s3://leases//x", "prefix that has a segment", "team/prod"),
            ("gs://leases/a b", "prefix that has characters", "team/prod"),
            ("s3://id:hidden@leases/x", "has more than", "AWS_SECRET_ACCESS_KEY_FILE"),
            ("gs://leases/x?key=hidden", "has more than", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("gcs://leases/x", "unknown kind", "did you mean gs:"),
            ("aws://leases/x", "unknown kind", "did you mean s3://leases/x?"),
        ]);
    }

    proptest! {
        #[test]
        fn a_formatted_url_is_parsed_back(
            bucket in "[a-z0-9]{2,9}([.-][a-z0-9]{1,9}){0,3}[a-z0-9]",
            prefix in prop::option::of("[a-z0-9]{1,9}(/[a-zA-Z0-9_-]{1,9}){0,3}"),
        ) {
            let (other, before) = (bucket.clone(), prefix.clone());
            for url in [StoreUrl::S3 { bucket, prefix }, StoreUrl::Gcs { bucket: other, prefix: before }] {
                prop_assert_eq!(parse(&url.to_string()), Ok(url));
            }
        }
    }
}
