//! Whether processes run that the test did not start itself.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::time::Duration;

/// Whether a process runs; one that waits for its burial does not.
pub fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Waits until a process does not run any more.
pub async fn until_gone(id: &str) {
    let gone = async {
        while is_running(id) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), gone).await;
    waited.unwrap_or_else(|_| panic!("{id} runs yet"));
}
