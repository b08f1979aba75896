//! Fuzz targets: for each kind of untrusted bytes a function that reads them and asserts the
//! invariants of the result. The functions stand next to their parsers. The fuzzer is in `fuzz/`,
//! with its corpus; the tests below replay that corpus without the fuzzer. Not compiled into a
//! normal build.

pub use crate::admin::fuzzing::admin_body;
pub use crate::cli::fuzzing::{client, status_document};
pub use crate::config::fuzzing::{duration, settings_file, store_url};
pub use crate::http::listener::fuzzing::requests;
pub use crate::peers::fuzzing::peer_stream;
pub use crate::store::azure::fuzzing::{azure_answer, azure_record, credential};
#[cfg(feature = "consul")]
pub use crate::store::consul::fuzzing::consul_answer;
#[cfg(feature = "etcd")]
pub use crate::store::etcd::fuzzing::etcd_answer;
pub use crate::store::file::fuzzing::file_record;
#[cfg(feature = "gcs")]
pub use crate::store::gcs::fuzzing::gcs_answer;
pub use crate::store::kubernetes::fuzzing::lease;
#[cfg(feature = "mongodb")]
pub use crate::store::mongodb::fuzzing::mongodb_answer;
#[cfg(feature = "postgres")]
pub use crate::store::postgres::fuzzing::postgres_answer;
#[cfg(feature = "redis")]
pub use crate::store::redis::fuzzing::redis_answer;
#[cfg(any(feature = "gcs", feature = "mongodb", feature = "s3"))]
pub use crate::store::register::fuzzing::register_value;
#[cfg(feature = "s3")]
pub use crate::store::s3::fuzzing::s3_answer;
#[cfg(feature = "zookeeper")]
pub use crate::store::zookeeper::fuzzing::zookeeper_answer;

/// A name, and the function that reads the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    ("admin_body", admin_body),
    ("azure_answer", azure_answer),
    ("azure_record", azure_record),
    ("client", client),
    #[cfg(feature = "consul")]
    ("consul_answer", consul_answer),
    ("credential", credential),
    ("duration", duration),
    #[cfg(feature = "etcd")]
    ("etcd_answer", etcd_answer),
    ("file_record", file_record),
    #[cfg(feature = "gcs")]
    ("gcs_answer", gcs_answer),
    ("lease", lease),
    #[cfg(feature = "mongodb")]
    ("mongodb_answer", mongodb_answer),
    ("peer_stream", peer_stream),
    #[cfg(feature = "postgres")]
    ("postgres_answer", postgres_answer),
    #[cfg(feature = "redis")]
    ("redis_answer", redis_answer),
    #[cfg(any(feature = "gcs", feature = "mongodb", feature = "s3"))]
    ("register_value", register_value),
    ("requests", requests),
    #[cfg(feature = "s3")]
    ("s3_answer", s3_answer),
    ("settings_file", settings_file),
    ("status_document", status_document),
    ("store_url", store_url),
    #[cfg(feature = "zookeeper")]
    ("zookeeper_answer", zookeeper_answer),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::TARGETS;

    fn fuzz() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn every_input_that_the_fuzzer_kept_is_read_as_it_should_be() {
        for (name, read) in TARGETS {
            let directory = fuzz().join("corpus").join(name);
            let inputs = names(&directory);
            assert!(inputs.len() >= 10, "{name} has {} inputs", inputs.len());
            for input in inputs {
                let bytes = fs::read(directory.join(&input)).unwrap();
                eprintln!("{name}/{input}");
                read(&bytes);
            }
        }
    }

    #[test]
    fn every_target_has_a_program_and_a_corpus_and_nothing_else_has() {
        let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).into()).collect();
        let programs = targets.iter().map(|name| format!("{name}.rs")).collect::<BTreeSet<_>>();
        assert_eq!(names(&fuzz().join("fuzz_targets")), programs);
        assert_eq!(names(&fuzz().join("corpus")), targets);
        let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
        for name in targets {
            let program = fuzz().join("fuzz_targets").join(format!("{name}.rs"));
            let call = format!("tenure::fuzzing::{name}(data)");
            assert!(fs::read_to_string(program).unwrap().contains(&call), "{name}");
            assert!(manifest.contains(&format!("\nname = \"{name}\"\n")), "{name}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_bytes_are_read_as_they_should_be(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            for (_, read) in TARGETS {
                read(&bytes);
            }
        }
    }
}
