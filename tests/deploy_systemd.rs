//! The units for systemd, judged by systemd's own reader. Nothing is started: the files are read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// The highest exposure that a unit may have; 10 is no sandbox at all.
const BOUND: f64 = 2.0;

/// Writes the units as those of `orders`, with the binary that was built, and judges one of them.
fn analyze(home: &Path, unit: &str, arguments: &[&str]) -> (bool, String) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    for template in ["tenure", "tenure-exec"] {
        let text = fs::read_to_string(source.join(format!("{template}@.service"))).unwrap();
        assert!(text.contains("/usr/local/bin/tenure"), "{template} starts Tenure");
        let text = text.replace("/usr/local/bin/tenure", env!("CARGO_BIN_EXE_tenure"));
        fs::write(home.join(format!("{template}@orders.service")), text).unwrap();
    }
    fs::write(home.join("orders.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .arg(home.join(unit))
        .output()
        .expect("systemd-analyze runs: tests/run --tools installs Debian's systemd");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    for unit in ["tenure@orders.service", "tenure-exec@orders.service"] {
        let home = tempfile::tempdir().unwrap();
        let (well, text) = analyze(home.path(), unit, &["verify", "--man=no"]);
        assert!(well && text.is_empty(), "{unit}: {text}");
    }
}

#[test]
fn the_units_are_as_tight_as_the_readme_says() {
    for unit in ["tenure@orders.service", "tenure-exec@orders.service"] {
        let home = tempfile::tempdir().unwrap();
        let (_, text) = analyze(home.path(), unit, &["security", "--offline=true", "--no-pager"]);
        let line = text.lines().find(|it| it.contains("Overall exposure level")).expect("a score");
        let score = line.rsplit_once(": ").unwrap().1.split(' ').next().unwrap();
        assert!(score.parse::<f64>().unwrap() <= BOUND, "{line}");
    }
}
