//! The settings as flags, made of the table in [`crate::config`], with unparsed values.

use clap::builder::{ArgAction, StyledStr};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::{Flags, Kind, Loaded, Problem, SETTINGS, Setting, Verb, Warning};

/// The flags of `tenure run`, or of `tenure exec`, that were given.
#[derive(Clone, Debug, Default)]
pub struct SettingsArgs<const EXEC: bool = false> {
    /// The values, by setting.
    pub flags: Flags,
}

/// The flags of `tenure exec`: those of `tenure run`, and its own.
pub type ExecSettingsArgs = SettingsArgs<true>;

impl<const EXEC: bool> Args for SettingsArgs<EXEC> {
    fn augment_args(command: Command) -> Command {
        let verb = if EXEC { Verb::Exec } else { Verb::Run };
        command.args(SETTINGS.iter().filter(|it| it.is_flag_of(verb)).map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const EXEC: bool> FromArgMatches for SettingsArgs<EXEC> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in SETTINGS {
            // A flag of `exec` is not an argument of `run`, which is no error here.
            if let Ok(Some(values)) = matches.try_get_many::<String>(setting.name) {
                self.flags.insert(setting.name, values.cloned().collect());
            }
        }
        Ok(())
    }
}

fn argument(setting: &Setting) -> Arg {
    let argument = Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.kind.value_name())
        .help(help(setting))
        .help_heading(setting.heading);
    let argument = match setting.kind {
        Kind::Switch => argument,
        // Such as --lease-duration -5s: the setting itself says what is wrong.
        _ => argument.allow_hyphen_values(true).value_parser(value),
    };
    match setting.kind {
        Kind::Switch => argument.num_args(0..=1).default_missing_value("true"),
        _ if setting.is_list => argument.action(ArgAction::Append),
        _ => argument,
    }
}

/// Returns a value as it is, unless it is the next flag.
fn value(text: &str) -> Result<String, Problem> {
    if text.starts_with("--") {
        return Err(Problem::new(
            "is the next argument, and the flag needs a value",
            "write a value after the flag",
        ));
    }
    Ok(text.to_owned())
}

/// Returns the meaning and the default of a setting.
fn help(setting: &Setting) -> StyledStr {
    let again = if setting.is_list { "; may be given several times" } else { "" };
    let default = match (setting.default_for(Verb::Run), setting.default_for(Verb::Exec)) {
        _ if setting.kind == Kind::Switch => String::new(),
        (None, _) if setting.otherwise.is_empty() => String::new(),
        (None, _) => format!(" [default: {}]", setting.otherwise),
        (Some(run), Some(exec)) if exec != run => format!(" [default: {run}; exec: {exec}]"),
        (Some(run), _) => format!(" [default: {run}]"),
    };
    format!("{}{again}{default}", setting.help).replace('`', "").into()
}

/// Logs the notes and warnings from loading the settings.
pub(super) fn log(loaded: &Loaded) {
    for note in &loaded.notes {
        tracing::debug!("{note}");
    }
    for Warning { subject, problem, remedy } in &loaded.warnings {
        tracing::warn!("{subject}: {problem}; {remedy}");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// A command line of settings alone, as `tenure run` or `tenure exec` takes them.
    #[derive(Parser)]
    struct Alone<const EXEC: bool> {
        #[command(flatten)]
        settings: SettingsArgs<EXEC>,
    }

    fn parsed<const EXEC: bool>(arguments: &[&str]) -> Result<Flags, Error> {
        let arguments = ["tenure"].iter().chain(arguments);
        Alone::<EXEC>::try_parse_from(arguments).map(|it| it.settings.flags)
    }

    #[test]
    fn every_setting_is_a_flag_that_takes_its_values() {
        for setting in SETTINGS {
            let flag = format!("--{}", setting.name);
            let (given, values) = match setting.kind {
                Kind::Switch => (vec![flag.as_str()], vec!["true"]),
                _ if setting.is_list => (vec![&*flag, "x", &*flag, "y"], vec!["x", "y"]),
                _ => (vec![&*flag, "x"], vec!["x"]),
            };
            let expected =
                Flags::from([(setting.name, values.into_iter().map(Into::into).collect())]);
            assert_eq!(parsed::<true>(&given).unwrap(), expected, "{flag}");
            let of_run = parsed::<false>(&given);
            assert_eq!(of_run.is_ok(), setting.is_flag_of(Verb::Run), "{flag}");
            assert!(of_run.is_err() || of_run.is_ok_and(|it| it == expected), "{flag}");
        }
    }

    #[test]
    fn a_switch_may_have_a_value() {
        assert_eq!(parsed::<false>(&["--observe=false"]).unwrap()["observe"], ["false"]);
        assert_eq!(parsed::<false>(&["--peers", "off"]).unwrap()["peers"], ["off"]);
        let flags = parsed::<false>(&["--peers", "--listen", "off"]).unwrap();
        assert_eq!(
            (&flags["peers"][..], &flags["listen"][..]),
            (&["true".to_owned()][..], &["off".to_owned()][..])
        );
        assert!(parsed::<false>(&[]).unwrap().is_empty());
    }

    #[test]
    fn the_help_has_the_defaults_of_both_commands() {
        let help = |name| help(Setting::named(name).unwrap()).to_string();
        assert!(help("retry-period").ends_with("a standby [default: 2s]"));
        assert!(help("listen").ends_with("[default: 127.0.0.1:4040; exec: 127.0.0.1:0]"));
        assert!(help("identity").ends_with("[default: POD_NAME, else the host name]"));
        assert!(help("observe").ends_with("who leads"));
    }
}
