//! The probe `file:/path`: succeeds if the file exists and, with `max_age`, was modified recently
//! by the wall clock. The file is not opened.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;

use super::Outcome;
use crate::clock::Moment;
use crate::config::duration;

/// How far in the future a modification time may be: network file systems use other clocks.
const AHEAD: Duration = Duration::from_secs(1);

/// A probe of this kind.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) max_age: Option<Duration>,
    pub(super) now: fn() -> Moment,
    /// A check that has not finished: a hanging file system takes up one thread, not one for each
    /// run.
    pub(super) checking: Option<JoinHandle<Outcome>>,
}

impl File {
    /// Checks the file. Cancel safe: the next call continues the same check.
    pub(super) async fn probe(&mut self) -> Outcome {
        let (path, max_age, now) = (self.path.clone(), self.max_age, self.now);
        let checking = self
            .checking
            .get_or_insert_with(|| tokio::task::spawn_blocking(move || check(&path, max_age, now)));
        let found = checking.await;
        self.checking = None;
        found.unwrap_or_else(|error| Outcome::failure(error.to_string()))
    }
}

fn check(path: &Path, max_age: Option<Duration>, now: fn() -> Moment) -> Outcome {
    let written = match std::fs::metadata(path).and_then(|it| it.modified()) {
        Ok(written) => written,
        Err(error) => return Outcome::failure(reason(&error)),
    };
    max_age.map_or_else(
        || Outcome::success("exists".to_owned()),
        |max_age| judge(written, UNIX_EPOCH + now().wall, max_age),
    )
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        kind => kind.to_string(),
    }
}

/// Judges the age of a file. A modification time in the future fails like an old one, since it
/// would otherwise count as recent until that time.
fn judge(written: SystemTime, now: SystemTime, max_age: Duration) -> Outcome {
    let (age, ahead) = match now.duration_since(written) {
        Ok(age) => (age, false),
        Err(error) => (error.duration(), true),
    };
    let message = match (ahead, whole_seconds(age)) {
        (true, age) if age > AHEAD => {
            format!("modified {} in the future", duration::format(age))
        }
        (true, _) => "written now".to_owned(),
        (false, age) => format!("written {} ago", duration::format(age)),
    };
    if age <= max_age {
        Outcome::success(message)
    } else {
        Outcome::failure(format!("{message}, over max_age {}", duration::format(max_age)))
    }
}

/// Rounds up, so that an age over the limit is never shown as equal to it.
fn whole_seconds(age: Duration) -> Duration {
    Duration::from_secs(age.as_secs() + u64::from(age.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_judged_by_its_age_and_one_of_the_future_is_named() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let second = Duration::from_secs(1);
        let max = 30 * second;
        let judged = |written| {
            let it = judge(written, now, max);
            (it.succeeded, it.message)
        };
        assert_eq!(judged(now - max), (true, "written 30s ago".to_owned()));
        let over = now - max - Duration::from_millis(1);
        assert_eq!(judged(over), (false, "written 31s ago, over max_age 30s".to_owned()));
        assert_eq!(judged(now + second), (true, "written now".to_owned()));
        let message = "modified 5s in the future".to_owned();
        assert_eq!(judged(now + 5 * second), (true, message));
        let (succeeded, message) = judged(now + 3_600 * second);
        assert!(!succeeded && message.contains("1h in the future"), "{message}");
    }
}
