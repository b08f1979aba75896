//! The binary: arguments → settings → logs → run → exit code.

use std::process::ExitCode;
use tenure::config::{Environment, Flags, SETTINGS, load};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let mut flags = Flags::new();
    let mut args = std::env::args().skip(2);
    while let (Some(name), Some(value)) = (args.next(), args.next()) {
        let setting = SETTINGS.iter().find(|it| name[2..] == *it.name).expect("known");
        flags.entry(setting.name).or_default().push(value);
    }
    let settings = load(&flags, &Environment::of_process())?.settings;
    let logs = tenure::logs::start(settings.log_format, &settings.log_level)?;
    tenure::cli::run::run(settings, &logs).await
}
