//! The binary: arguments → settings → logs → run → exit code.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let loaded =
        tenure::config::load(&Default::default(), &tenure::config::Environment::of_process())?;
    let settings = loaded.settings;
    let logs = tenure::logs::start(settings.log_format, &settings.log_level)?;
    tenure::cli::run::run(settings, &logs).await
}
