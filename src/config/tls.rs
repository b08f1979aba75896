//! Reads the settings of TLS. The files are read, since a listener without them cannot start; they
//! are read again when it does.

use super::faults::{Problem, Warning};
use super::reader::Reader;
use super::values::{self, Listen};
use crate::clock;
use crate::tls::{KeyPair, Part, ServerFiles, ServerTls, TlsFault};

impl Reader<'_> {
    /// Reads the files of TLS on the status listener; `Some(None)` without TLS.
    pub(super) fn tls(&mut self, listen: Option<&[Listen]>) -> Option<Option<ServerFiles>> {
        let cert = self.optional("tls-cert", values::path);
        let key = self.optional("tls-key", values::path);
        let client_ca = self.optional("tls-client-ca", values::path);
        let files = match (cert?, key?, client_ca?) {
            (Some(cert), Some(key), client_ca) => {
                ServerFiles { own: KeyPair { cert, key }, client_ca }
            }
            (None, None, None) => return Some(None),
            (Some(_), None, _) => {
                return self.incomplete(
                    "tls-cert",
                    "tls-key",
                    "the private key of this certificate",
                );
            }
            (None, Some(_), _) => {
                return self.incomplete("tls-key", "tls-cert", "the certificate of this key");
            }
            (None, None, Some(_)) => {
                return self.incomplete("tls-client-ca", "tls-cert", "the listener's certificate");
            }
        };
        self.check_use_of_tls(listen);
        match ServerTls::load(&files) {
            Ok(loaded) => {
                self.warn_of_dates(&files, &loaded);
                Some(Some(files))
            }
            Err(faults) => {
                for TlsFault { part, problem, remedy, .. } in faults {
                    self.fault_of(setting(part), Problem { problem, remedy });
                }
                None
            }
        }
    }

    /// Records that one of two files that belong together is set alone.
    pub(super) fn incomplete<T>(
        &mut self,
        given: &'static str,
        missing: &str,
        what: &str,
    ) -> Option<T> {
        let problem = Problem::new(
            format!("is set, but {missing} is not{}", self.sources(&[missing])),
            format!("set --{missing} to the file with {what}, or remove {given}"),
        );
        self.fault_of(given, problem);
        None
    }

    /// Checks that TLS applies to any address: who asks for it must not believe that there is some.
    /// A command that starts nothing may be given other addresses than the sidecar.
    fn check_use_of_tls(&mut self, listen: Option<&[Listen]>) {
        let Some(listen) = listen.filter(|_| self.starting) else { return };
        if listen.iter().any(Listen::is_remote) {
            return;
        }
        let problem = Problem::new(
            format!(
                "would not be used: no address of the status listener is beyond loopback, and a \
                 loopback address or unix socket has no TLS{}",
                self.sources(&["listen"])
            ),
            "add an address for other hosts, such as --listen [::]:4443, or remove tls-cert and \
             tls-key",
        );
        self.fault_of("tls-cert", problem);
    }

    /// Warns of a certificate that is not valid now. It may be replaced while Tenure runs, and the
    /// election needs no listener.
    fn warn_of_dates(&mut self, files: &ServerFiles, loaded: &ServerTls) {
        let why = loaded.validity().and_then(|it| it.objection(clock::now()));
        self.warnings.extend(why.map(|why| Warning {
            subject: "tls-cert",
            problem: format!("{} {why}: clients refuse it", files.own.cert.display()),
            remedy: "replace the file, or set the clock; no restart is needed".to_owned(),
        }));
    }
}

/// Returns the setting that names a file.
fn setting(part: Part) -> &'static str {
    match part {
        Part::Certificate => "tls-cert",
        Part::Key => "tls-key",
        Part::Authorities => "tls-client-ca",
    }
}
