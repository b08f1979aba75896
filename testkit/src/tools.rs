//! Programs that the tests run: Chromium, containers, Prometheus.

pub mod chromium;
pub mod containers;
pub mod image;
pub mod prometheus;
pub mod promtool;
pub mod rule_breaks;
