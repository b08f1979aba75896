//! Settings of the hooks, which run on changes of the status.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::command_line::{self, CommandLine};
use super::faults::Problem;
use super::health;
use super::withheld::Withheld;

/// The time from SIGTERM to SIGKILL for a hook that exceeded its timeout.
pub const HOOK_GRACE: Duration = Duration::from_secs(1);

/// The hooks, one for each kind of change.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// Runs when this instance begins to report active.
    pub on_active: Option<Hook>,
    /// Runs when this instance begins to report passive.
    pub on_passive: Option<Hook>,
    /// Runs when a drain begins; the drain ends early when this hook has ended.
    pub on_drain: Option<Hook>,
    /// Runs when another holder or term is seen.
    pub on_leader_change: Option<Hook>,
    /// The bound on one run, after which a command is ended with its process group.
    pub timeout: Duration,
    /// The variables that commands do not inherit.
    pub withheld: Withheld,
}

impl Hooks {
    /// Returns the configured hooks, with the names of their settings.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        [
            ("on-active", &self.on_active),
            ("on-passive", &self.on_passive),
            ("on-drain", &self.on_drain),
            ("on-leader-change", &self.on_leader_change),
        ]
        .into_iter()
        .filter_map(|(name, hook)| Some((name, hook.as_ref()?)))
    }
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A command to run.
    Command(CommandLine),
    /// An HTTP URL that receives the status document by POST.
    Webhook(Url),
}

impl fmt::Display for Hook {
    /// Names the hook, of a URL only its origin, since the rest often contains a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => command.fmt(f),
            Self::Webhook(url) => write!(f, "{}/…", url.origin().ascii_serialization()),
        }
    }
}

/// Parses a hook; `path` is the variable `PATH`.
pub(super) fn hook(text: &str, path: Option<&str>) -> Result<Hook, Problem> {
    let first = text.split_whitespace().next().unwrap_or_default();
    match first.split_once("://") {
        Some(("http" | "https", _)) => health::web(text).map(Hook::Webhook),
        Some((scheme, _)) if scheme.bytes().all(|it| it.is_ascii_alphanumeric()) => {
            Err(Problem::new(
                format!("begins with {scheme}://, and a webhook is http:// or https://"),
                "write an http:// or https:// URL, or a command line",
            ))
        }
        _ => command_line::parse(text, path).map(Hook::Command),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hook_is_a_command_or_a_web_address() {
        assert!(matches!(hook("sh -c http://x", None), Ok(Hook::Command(_))));
        assert!(matches!(hook("https://hooks.test/hidden", None), Ok(Hook::Webhook(_))));
        for (text, shown) in [
            ("https://hooks.test/hidden?hidden", "https://hooks.test/…"),
            ("http://127.0.0.1:80/x", "http://127.0.0.1/…"),
            ("http://[::1]:81/x", "http://[::1]:81/…"),
            ("/bin/sh -c hidden", "/bin/sh …"),
        ] {
            assert_eq!(hook(text, None).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn a_hook_that_is_neither_has_a_remedy() {
        for (text, problem, remedy) in [
            ("", "is empty", "write a program"),
            ("ftp://x/y", "begins with ftp://", "https://"),
            ("http://", "is not a URL", "http://127.0.0.1"),
            ("http://me:hidden@x/", "user or password", "remove it"),
            ("http://a/ b", "a space", "http://127.0.0.1"),
            ("/nonexistent/x", "does not exist", "install"),
        ] {
            let found = hook(text, None).unwrap_err();
            assert!(found.problem.contains(problem), "{text}: {found:?}");
            assert!(found.remedy.contains(remedy), "{text}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(http|https|x)?:?/{0,3}.{0,40}") {
            let _ = hook(&text, Some("/nonexistent"));
        }
    }
}
