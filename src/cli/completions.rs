//! `tenure completions`: prints the completions of a shell to standard output.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, terminal};

/// The shell.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure completions bash > /etc/bash_completion.d/tenure
  tenure completions zsh > ~/.zfunc/_tenure
  tenure completions fish > ~/.config/fish/completions/tenure.fish")]
pub struct Args {
    shell: Shell,
}

/// Prints the completions.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut script);
    terminal::print(&String::from_utf8_lossy(&script), ExitCode::SUCCESS)
}
