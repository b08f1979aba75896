//! The files of the subcommands for listeners with TLS.

use std::path::PathBuf;

use crate::config::Environment;
use crate::tls::{ClientTls, KeyPair, Part};

const CA_FILE: &str = "TENURE_CA_FILE";
const CERT: &str = "TENURE_CERT";
const KEY: &str = "TENURE_KEY";

/// The files for a listener with TLS.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct TlsArgs {
    /// For https://, the CA certificates, one of which must have signed the listener's [default:
    /// TENURE_CA_FILE, else those of the system]
    #[arg(long, value_name = "PATH")]
    ca_file: Option<PathBuf>,
    /// For https://, a certificate to present, where the listener has a --tls-client-ca [default:
    /// TENURE_CERT]
    #[arg(long, value_name = "PATH")]
    cert: Option<PathBuf>,
    /// The private key of that certificate [default: TENURE_KEY]
    #[arg(long, value_name = "PATH")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// Reads the files, which the variables name too.
    pub(super) fn load(&self, environment: &Environment) -> Result<ClientTls, String> {
        let path = |flag: &Option<PathBuf>, variable: &str| {
            flag.clone().or_else(|| environment.get(variable).map(PathBuf::from))
        };
        let ca = path(&self.ca_file, CA_FILE);
        let own = match (path(&self.cert, CERT), path(&self.key, KEY)) {
            (Some(cert), Some(key)) => Some(KeyPair { cert, key }),
            (None, None) => None,
            (Some(_), None) => return Err(incomplete("cert", "key", KEY)),
            (None, Some(_)) => return Err(incomplete("key", "cert", CERT)),
        };
        ClientTls::load(own.as_ref(), ca.as_deref()).map_err(|faults| {
            let name = |part| match part {
                Part::Certificate => "cert",
                Part::Key => "key",
                Part::Authorities => "ca-file",
            };
            let lines = faults.iter().map(|it| {
                let (name, path) = (name(it.part), it.path.display().to_string());
                format!("{name} = {path:?}\n    {}\n    remedy: {}", it.problem, it.remedy)
            });
            lines.collect::<Vec<_>>().join("\n")
        })
    }
}

fn incomplete(given: &str, missing: &str, variable: &str) -> String {
    format!(
        "{given} is set, but {missing} is not\n    remedy: name both files of a certificate, with \
         --{missing} or {variable}"
    )
}
