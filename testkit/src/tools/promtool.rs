//! promtool, which validates rules, rule tests and metrics.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs promtool on files.
pub fn promtool(arguments: &[&str], files: &[PathBuf]) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).args(files);
    super::collect_rarely(&mut command);
    command.output().unwrap_or_else(|error| {
        panic!("promtool: {error}; install the Debian package prometheus, or run tests/run --tools")
    })
}

/// Asserts that promtool found no error.
pub fn succeeds(output: &Output) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

/// Returns which files of a `test rules` failed: the output names each file, followed by SUCCESS if
/// it passed.
pub fn failed(output: &Output, files: &[PathBuf]) -> Vec<bool> {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let parts: Vec<_> = stdout.split("Unit Testing:").skip(1).collect();
    assert_eq!(parts.len(), files.len(), "{stdout}");
    let failed = parts.iter().zip(files).map(|(part, file)| {
        assert!(part.trim_start().starts_with(&*file.to_string_lossy()), "{part}");
        !part.contains("SUCCESS")
    });
    failed.collect()
}
