//! The stores that a build may lack, each with its cargo feature.

use super::{Problem, StoreUrl, bucket, consul, etcd, mongodb, postgres, redis, zookeeper};

/// A store that a build may lack.
pub(super) struct Optional {
    /// The scheme of its URL.
    pub(super) scheme: &'static str,
    /// Its cargo feature, which is also the name of its kind.
    pub(super) feature: &'static str,
    /// Whether this build has it.
    pub(super) is_built: bool,
    /// Which build has it.
    build: &'static str,
    /// Parses what follows the scheme and its colon.
    pub(super) parse: fn(&str) -> Result<StoreUrl, Problem>,
}

/// What has the stores of the default build.
const RELEASED: &str = "a released binary or image";

/// What has the others too.
const FULL: &str = "the image tenure-full, which has all stores";

/// The feature is written once: whether the build has it cannot be that of another.
macro_rules! optional {
    ($scheme:literal, $feature:literal, $build:expr, $parse:expr) => {
        Optional {
            scheme: $scheme,
            feature: $feature,
            is_built: cfg!(feature = $feature),
            build: $build,
            parse: $parse,
        }
    };
}

/// All of them.
pub(super) const OPTIONAL: [Optional; 8] = [
    optional!("consul", "consul", RELEASED, consul::parse),
    optional!("etcd", "etcd", RELEASED, etcd::parse),
    optional!("gs", "gcs", RELEASED, gcs),
    optional!("mongodb", "mongodb", FULL, mongodb::parse),
    optional!("postgres", "postgres", RELEASED, postgres::parse),
    optional!("redis", "redis", RELEASED, redis::parse),
    optional!("s3", "s3", RELEASED, s3),
    optional!("zookeeper", "zookeeper", RELEASED, zookeeper::parse),
];

impl Optional {
    /// Returns the fault of a build that does not have this store.
    pub(super) fn absent(&self) -> Problem {
        let Self { scheme, feature, build, .. } = self;
        Problem::new(
            format!("names the store {scheme}:, which this build of Tenure does not have"),
            format!(
                "use {build}, or build with the cargo feature {feature}; \
                 `tenure --version` lists the stores of a build"
            ),
        )
    }
}

fn s3(rest: &str) -> Result<StoreUrl, Problem> {
    bucket::parse(rest, &bucket::S3).map(|(bucket, prefix)| StoreUrl::S3 { bucket, prefix })
}

fn gcs(rest: &str) -> Result<StoreUrl, Problem> {
    bucket::parse(rest, &bucket::GCS).map(|(bucket, prefix)| StoreUrl::Gcs { bucket, prefix })
}
