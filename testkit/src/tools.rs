//! Programs that the tests run: Chromium, containers, Prometheus.

pub mod chromium;
pub mod containers;
pub mod image;
pub mod prometheus;
pub mod promtool;
pub mod rule_breaks;

use std::process::Command;

/// Makes a program in Go collect its garbage rarely: for programs that run for a moment, collecting takes a
/// quarter of the processor time.
pub fn collect_rarely(command: &mut Command) {
    command.env("GOGC", "400");
}
