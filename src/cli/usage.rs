//! Parses the command line. An invalid argument is reported in the form of the faults of settings
//! where clap only says which one is invalid, and other errors get the suggestion of what was
//! meant.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error, Parser};

use super::{Cli, ColourArgs, Command, kubectl, terminal};
use crate::config::{Fault, Problem, Setting, Source, Verb, nearest};

/// Words of other tools, and the argument that does the same here.
const SYNONYMS: [(&[&str], &str); 8] = [
    (&["describe", "get", "info", "leader", "list", "ls", "members", "show"], "status"),
    (&["agent", "daemon", "serve", "server", "sidecar", "start"], "run"),
    (&["lock", "with-lock"], "exec"),
    (&["delete", "release", "remove", "unlock"], "break"),
    (&["failover", "handover", "resign", "switchover"], "step-down"),
    (&["diagnose", "test", "validate"], "doctor"),
    (&["help"], "--help"),
    (&["version"], "--version"),
];

/// Parses the arguments of this process.
///
/// # Errors
/// Prints help, version or an error of usage, and returns the exit code.
pub fn parse() -> Result<Cli, ExitCode> {
    terminal::colour_when(std::env::args_os().map(|it| it.to_string_lossy().into_owned()));
    let is_plugin = kubectl::is_invoked();
    let parsed = if is_plugin {
        kubectl::Plugin::try_parse().map(|it| Cli {
            command: Command::Kubectl(Box::new(it)),
            colour: ColourArgs::default(),
        })
    } else {
        Cli::try_parse()
    };
    parsed.map_err(|mut error| {
        if let Some(fault) = fault(&error) {
            return refuse(&fault);
        }
        if error.use_stderr() {
            if !is_plugin {
                suggest(&mut error, std::env::args().nth(1).as_deref());
            }
            let _ = error.print();
            return ExitCode::from(2);
        }
        let printed = error.print().and_then(|()| io::stdout().flush());
        let code = ExitCode::SUCCESS;
        printed.map_or_else(|error| terminal::unwritten(&error, code), |()| code)
    })
}

/// Reports an invalid argument; returns the exit code.
pub(super) fn refuse(fault: &Fault) -> ExitCode {
    terminal::complain(&format!("one argument is wrong, so nothing was done:\n\n{fault}"));
    ExitCode::from(2)
}

/// Creates the fault of an argument of a command.
pub(super) fn fault_of(name: &str, value: Option<&str>, problem: Problem) -> Fault {
    Fault::new(name, value, Source::Flag(name.to_owned()), problem)
}

/// Returns the fault that an error of clap means, if it has more to say than clap.
fn fault(error: &Error) -> Option<Fault> {
    // Such as `--wait <DURATION>`.
    let argument = context(error, ContextKind::InvalidArg)?.strip_prefix("--")?;
    let name = argument.split([' ', '=']).next()?;
    match error.kind() {
        ErrorKind::ValueValidation => {
            let problem = std::error::Error::source(error)?.downcast_ref::<Problem>()?;
            Some(fault_of(name, context(error, ContextKind::InvalidValue), problem.clone()))
        }
        ErrorKind::UnknownArgument => {
            let setting = Setting::named(name).filter(|it| !it.is_flag_of(Verb::Run))?;
            let problem = Problem::new(
                format!("is a setting of `tenure exec` only: {}", setting.help),
                "remove it, or run a command with `tenure exec`",
            );
            Some(fault_of(name, None, problem))
        }
        _ => None,
    }
}

/// Replaces the suggestion of clap, which compares letters only, where the intent is known.
fn suggest(error: &mut Error, verb: Option<&str>) {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            error.remove(ContextKind::SuggestedSubcommand);
            context(error, ContextKind::InvalidSubcommand)
                .and_then(meant)
                .map(|verb| format!("did you mean 'tenure {verb}'?"))
        }
        ErrorKind::UnknownArgument if verb == Some("transfer") => {
            let given = context(error, ContextKind::InvalidArg);
            let identity = given.filter(|it| !it.starts_with('-'));
            identity.map(|it| format!("did you mean '--to {it}'?"))
        }
        _ => None,
    };
    if let Some(tip) = tip {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
}

fn context(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(given)) => Some(given),
        _ => None,
    }
}

/// Returns the argument that was most likely meant.
fn meant(given: &str) -> Option<String> {
    let synonym = SYNONYMS.iter().find(|(words, _)| words.contains(&given));
    if let Some((_, verb)) = synonym {
        return Some((*verb).to_owned());
    }
    let command = Cli::command();
    nearest(given, command.get_subcommands().map(clap::Command::get_name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(arguments: &[&str]) -> String {
        let error = Cli::try_parse_from(["tenure"].iter().chain(arguments)).unwrap_err();
        fault(&error).map_or_else(String::new, |it| it.to_string())
    }

    #[test]
    fn an_invalid_argument_is_reported_as_the_fault_of_a_setting() {
        for (arguments, lines) in [
            (&["wait", "--for", "active", "--timeout", "-1s"][..], "  timeout = \"-1s\""),
            (&["wait", "--for", "active", "--at-most", "soon"], "  at-most = \"soon\""),
            (&["wait", "--for", "exactly-one", "--of", "0"], "  of = \"0\" (flag --of)"),
            (&["check", "--min-remaining", "3"], "  min-remaining = \"3\""),
            (&["step-down", "--hold-off", "5"], "  hold-off = \"5\""),
            (&["transfer", "--to", "a", "--hold-off=2h"], "  hold-off = \"2h\""),
            (&["drained", "--term", "x"], "  term = \"x\" (flag --term)"),
            (
                &["run", "--stop-timeout", "1s"],
                "  stop-timeout (flag --stop-timeout)\n    is a setting of `tenure exec`",
            ),
            (&["run", "--election", "--observe"], "  election = \"--observe\""),
        ] {
            let found = reported(arguments);
            assert!(found.starts_with(lines) && found.contains("\n    remedy: "), "{found}");
        }
        assert_eq!(reported(&["run", "--lease-durations", "1s"]), "", "clap suggests the flag");
        assert_eq!(reported(&["ruin"]), "");
    }
}
