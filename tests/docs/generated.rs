//! The files that `tests/generate` writes.

use testkit::generated;

#[test]
fn no_generated_file_is_stale() {
    let stale: Vec<_> = generated::stale().into_iter().map(|(path, _)| path).collect();
    assert!(stale.is_empty(), "run tests/generate: {stale:?} are stale");
}
