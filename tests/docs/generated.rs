//! The files that `tests/generate` writes.

use testkit::generated;

#[test]
fn no_generated_file_is_stale() {
    let stale = generated::files().into_iter().filter(|it| it.is_stale()).map(|it| it.path);
    let stale: Vec<_> = stale.collect();
    assert!(stale.is_empty(), "run tests/generate: {stale:?} are stale");
}
