//! Runs kubectl: to list pods, and to run a command of Tenure in one.

use std::io::{self, ErrorKind, IsTerminal};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::Cluster;
use super::pods::Candidate;
use crate::cli::document::Heard;
use crate::cli::terminal::harmless;
use crate::clock;
use crate::config::duration;
use crate::process::captured;

/// The longest reason that a row shows, in characters.
const LONGEST: usize = 300;

/// The most bytes that a command in a pod may print.
const MOST_OUTPUT: usize = 1 << 20;

/// The most bytes of a list of pods: thousands of pods.
const MOST_PODS: usize = 64 << 20;

/// How long a list of pods may take: where a credential plugin may ask a person for a login, and else.
const LOGIN: Duration = Duration::from_secs(300);
const LIST: Duration = Duration::from_secs(60);

const MISSING: &str = "kubectl was not found in PATH\n  install it, or add its directory to PATH: \
                       kubectl tenure runs kubectl for all access to the cluster";

/// kubectl with the flags that select the cluster.
#[derive(Clone, Debug)]
pub(super) struct Kubectl {
    flags: Vec<String>,
    namespace: Option<String>,
    timeout: Duration,
}

/// The result of a command in a pod.
pub(super) struct Ran {
    pub(super) out: String,
    /// The exit code; `None` after a signal, or if it did not end in time.
    pub(super) code: Option<i32>,
    /// Standard error, if the command failed.
    pub(super) failure: Option<String>,
}

impl Ran {
    /// Returns the result of a command that was killed, for this reason.
    fn unknown(failure: String) -> Self {
        Self { out: String::new(), code: None, failure: Some(failure) }
    }
}

impl Kubectl {
    /// Returns kubectl for a cluster.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let flags = [("--context", &cluster.context), ("--kubeconfig", &cluster.kubeconfig)];
        let flags =
            flags.iter().filter_map(|(flag, value)| Some(format!("{flag}={}", value.as_ref()?)));
        Self {
            flags: flags.collect(),
            namespace: cluster.namespace.clone(),
            timeout: cluster.timeout,
        }
    }

    fn command(&self, namespace: Option<&str>) -> Command {
        let mut command = Command::new("kubectl");
        command.args(&self.flags).args(namespace.map(|it| format!("--namespace={it}")));
        command
    }

    /// Lists the pods with these labels, as JSON. Input and standard error are kubectl's own, since a
    /// credential plugin may ask for a login there.
    pub(super) async fn pods(&self, is_everywhere: bool, selector: &str) -> Result<String, String> {
        let namespace = self.namespace.as_deref().filter(|_| !is_everywhere);
        let mut command = self.command(namespace);
        command.args(["get", "pods", "--output=json", &format!("--selector={selector}")]);
        if is_everywhere {
            command.arg("--all-namespaces");
        }
        command.stdin(Stdio::inherit());
        let time = if io::stdin().is_terminal() { LOGIN } else { LIST }.max(self.timeout);
        let output = match tokio::time::timeout(time, captured::output(command, MOST_PODS)).await {
            Ok(ran) => ran.map_err(|error| not_run(&error))?,
            Err(_) => {
                let time = duration::format(time);
                return Err(format!(
                    "kubectl get pods did not end within {time}\n  does it wait for the API server, \
                     or for a login?"
                ));
            }
        };
        if !output.status.success() {
            let mut arguments = vec!["kubectl get pods".to_owned()];
            arguments.extend(namespace.map(|it| format!("--namespace={it}")));
            return Err(format!(
                "{} failed with {}; its message is above\n  check the context and the namespace, and \
                 that you have the permission `list` on `pods` there: kubectl auth can-i list pods",
                arguments.join(" "),
                output.status
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command of Tenure in a candidate's pod. An error says why
    /// kubectl could not be run.
    pub(super) async fn exec(&self, candidate: &Candidate, words: &[&str]) -> Result<Ran, String> {
        let mut command = self.command(Some(&candidate.namespace));
        command.args(["exec", &candidate.pod, "--container", &candidate.container, "--"]);
        command.arg(&candidate.program).args(words).stdin(Stdio::null());
        command.stderr(Stdio::piped());
        let ran = tokio::time::timeout(self.timeout, captured::output(command, MOST_OUTPUT)).await;
        let output = match ran {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if error.kind() != ErrorKind::FileTooLarge => {
                return Err(not_run(&error));
            }
            Ok(Err(error)) => return Ok(Ran::unknown(error.to_string())),
            Err(_) => {
                return Ok(Ran::unknown(format!(
                    "no answer within {}; allow more with --timeout",
                    duration::format(self.timeout)
                )));
            }
        };
        let err = String::from_utf8_lossy(&output.stderr);
        let failure = (!output.status.success()).then(|| failure(&err, &output.status.to_string()));
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Ran { out, code: output.status.code(), failure })
    }

    /// Asks a candidate for its status. An error says why there is none, on one line.
    pub(super) async fn status(&self, candidate: &Candidate) -> Result<Heard, String> {
        // Before kubectl starts: the answer is valid from the sending of the request on.
        let sent = clock::now();
        let ran = self.exec(candidate, &["status", "--json"]).await?;
        if let Some(failure) = ran.failure {
            return Err(one_line(&failure));
        }
        let document = serde_json::from_str(&ran.out).map_err(|_| {
            format!("{} status --json printed something other than a status", candidate.program)
        })?;
        Ok(Heard { document, raw: ran.out, sent })
    }
}

/// Says why kubectl did not run to its end, with a remedy.
fn not_run(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => MISSING.to_owned(),
        ErrorKind::FileTooLarge => format!(
            "kubectl get pods was stopped: {error}\n  select fewer pods with a NAME, --selector or \
             --namespace"
        ),
        _ => {
            format!("kubectl could not be run: {error}\n  check the kubectl that is first in PATH")
        }
    }
}

/// Returns standard error of a failed `kubectl exec`, without what kubectl and Tenure repeat.
fn failure(err: &str, status: &str) -> String {
    let lines = err.lines().map(str::trim_end);
    let lines = lines.filter(|it| !it.is_empty() && !it.starts_with("command terminated with"));
    let text: Vec<String> =
        lines.map(|it| harmless(it.strip_prefix("tenure: ").unwrap_or(it))).collect();
    if text.is_empty() { format!("kubectl exec failed with {status}") } else { text.join("\n") }
}

/// Joins the lines of a message, and shortens it.
fn one_line(text: &str) -> String {
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failed_exec_is_on_one_line() {
        let err = "tenure: nothing answers at http://127.0.0.1:4040: refused\n  is `tenure run` up \
                   there?\n\ncommand terminated with exit code 1\n";
        let text = failure(err, "exit status: 1");
        assert_eq!(
            one_line(&text),
            "nothing answers at http://127.0.0.1:4040: refused; is `tenure run` up there?"
        );
        assert_eq!(failure("", "exit status: 1"), "kubectl exec failed with exit status: 1");
        assert_eq!(failure("a\x1b[31mb", ""), "a [31mb");
        let long = one_line(&"ä".repeat(400));
        assert_eq!(long, format!("{}...", "ä".repeat(300)));
    }
}
