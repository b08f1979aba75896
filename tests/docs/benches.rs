//! The commands of `benches/measure.py` that need little time: they succeed, and print all of their
//! rows. The measured values are not checked.

use std::process::Command;

/// Returns the rows of one command, with one handover.
fn measured(bench: &str) -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/measure.py");
    let output = Command::new("python3")
        .args(["-B", program, bench, "--trials", "1"])
        .env("BENCH_PROGRAM", env!("CARGO_BIN_EXE_tenure"))
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "measure.py {bench}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that the first row that begins with `what` has values of Tenure and of the peer.
fn assert_both_measured(rows: &str, what: &str) {
    let row = rows.lines().find_map(|it| it.strip_prefix(what));
    let row = row.unwrap_or_else(|| panic!("no row {what}:\n{rows}"));
    assert_eq!(row.matches(" ms").count(), 2, "{rows}");
}

#[test]
fn the_bench_of_peers_measures_handovers_with_peers_and_without() {
    let rows = measured("peers-file");
    for what in ["SIGTERM to the next of ten standbys", "transfer to the next of ten standbys"] {
        assert_both_measured(&rows, &format!("{what}, median of 1"));
    }
    assert_both_measured(&rows, "exec --once: SIGTERM to the next command, median of 1");
    assert_eq!(rows.matches("1 of 1").count(), 1, "{rows}");
}

#[test]
fn the_bench_of_locks_measures_etcd_too() {
    let rows = measured("lock");
    assert_both_measured(&rows, "exec --once: SIGTERM to the next command, median of 1");
    assert_both_measured(&rows, "exec --once -- true, the lock free, median of 20");
}
