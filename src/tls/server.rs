//! TLS of a listener.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use tokio::time::sleep;

use super::material::Material;
use super::pem::{KeyPair, Parsed, Part, PemFiles, TlsFault};
use super::validity::Validity;
use crate::clock;

/// The time between two reads of the files.
const PERIOD: Duration = Duration::from_secs(3);

/// The files of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate and key.
    pub own: KeyPair,
    /// The authorities that must have signed the certificates of clients; `None` if clients need
    /// none.
    pub client_ca: Option<PathBuf>,
}

/// The TLS settings of listeners, as their files last were usable; clones share them.
#[derive(Clone)]
pub struct ServerTls(Arc<Material<Server>>);

struct Server {
    config: Arc<ServerConfig>,
    validity: Option<Validity>,
}

impl ServerTls {
    /// Reads the files, which blocks.
    ///
    /// # Errors
    /// Returns everything that is wrong with them.
    pub fn load(files: &ServerFiles) -> Result<Self, Vec<TlsFault>> {
        let files = PemFiles::new(Some(&files.own), files.client_ca.as_deref());
        Material::load(files, Server::new).map(|it| Self(Arc::new(it)))
    }

    /// Returns for how long the certificate is valid, if its dates can be read.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.0.current().validity
    }

    /// Returns the settings for the next connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.current().config)
    }

    /// Reads the files again and again, and logs what changes; never ends.
    pub(crate) async fn follow(self) {
        let mut log = Log { failure: None, is_reported: false, objection: self.objection() };
        loop {
            sleep(PERIOD).await;
            log.read(self.0.refresh().await, self.validity());
            log.dates(self.objection());
        }
    }

    fn objection(&self) -> Option<String> {
        self.validity()?.objection(clock::now())
    }
}

impl Server {
    fn new(files: &PemFiles, parsed: Parsed) -> Result<Self, TlsFault> {
        let unusable = |error: &dyn std::error::Error| {
            files.fault(
                Part::Authorities,
                format!("cannot be used: {error}"),
                "name a file with the certificates of the clients' authorities",
            )
        };
        let Some(own) = parsed.own else {
            let problem = "is not configured".to_owned();
            return Err(files.fault(Part::Certificate, problem, "name the file"));
        };
        let validity = own.cert.first().and_then(Validity::of);
        let builder = ServerConfig::builder_with_provider(super::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = match parsed.authorities {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider());
                let verifier = verifier.build().map_err(|error| unusable(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), validity })
    }
}

/// What the log was told about the files.
struct Log {
    /// Why the last read failed.
    failure: Option<TlsFault>,
    /// Whether that is in the log.
    is_reported: bool,
    /// Why the certificate is not valid.
    objection: Option<String>,
}

impl Log {
    /// Logs the result of a read. A failure is logged at its second time in a row: files that are
    /// replaced one after the other do not fit together for a moment.
    fn read(&mut self, read: Result<bool, TlsFault>, validity: Option<Validity>) {
        match read {
            Ok(is_new) => {
                let was_reported = std::mem::take(&mut self.is_reported);
                self.failure = None;
                if is_new || was_reported {
                    let validity = validity.map(|it| format!(": the certificate is {it}"));
                    tracing::info!("read the TLS files again{}", validity.unwrap_or_default());
                }
            }
            Err(fault) if self.failure.as_ref() == Some(&fault) => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    tracing::warn!(
                        "the new TLS files cannot be used, so the earlier ones stay in use: {fault}"
                    );
                }
            }
            Err(fault) => {
                self.failure = Some(fault);
                self.is_reported = false;
            }
        }
    }

    /// Logs that the certificate in use is not valid any more, or not yet.
    fn dates(&mut self, objection: Option<String>) {
        if let Some(why) = objection.as_ref().filter(|it| self.objection.as_ref() != Some(it)) {
            tracing::warn!("the TLS certificate {why}: clients refuse it; replace the file");
        }
        self.objection = objection;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing;
    use super::*;

    fn faults(files: &ServerFiles) -> Vec<(Part, String)> {
        let faults = ServerTls::load(files).err().unwrap_or_default();
        assert!(faults.iter().all(|it| !it.remedy.is_empty()), "{faults:?}");
        faults.into_iter().map(|it| (it.part, it.problem)).collect()
    }

    #[test]
    fn every_fault_of_the_files_is_found_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (own, ca) = testing::write(directory.path(), "a", 2_100);
        let (other, _) = testing::write(directory.path(), "b", 2_100);
        let files = ServerFiles { own: own.clone(), client_ca: Some(ca.clone()) };
        assert_eq!(faults(&files), []);
        let missing = directory.path().join("none");
        let none = ServerFiles {
            own: KeyPair { cert: missing.clone(), key: missing.clone() },
            client_ca: Some(missing),
        };
        let cannot = "cannot be read: no such file or directory".to_owned();
        let all = [Part::Certificate, Part::Key, Part::Authorities];
        assert_eq!(faults(&none), all.map(|it| (it, cannot.clone())));
        let mixed = KeyPair { key: other.key, ..own.clone() };
        let mixed = faults(&ServerFiles { own: mixed, client_ca: None });
        assert_eq!(mixed, [(Part::Key, "is not the key of the certificate".to_owned())]);
        // The key in the place of the certificate, and the other way round.
        let swapped = KeyPair { cert: own.key.clone(), key: own.cert };
        let swapped = faults(&ServerFiles { own: swapped, client_ca: Some(own.key) });
        let parts: Vec<Part> = swapped.iter().map(|it| it.0).collect();
        assert_eq!(parts, all, "{swapped:?}");
        assert!(swapped[1].1.contains("no private key in PEM"), "{swapped:?}");
    }

    #[tokio::test]
    async fn new_files_are_used_and_spoilt_ones_leave_the_earlier_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let (own, _) = testing::write(directory.path(), "a", 2_100);
        let tls = ServerTls::load(&ServerFiles { own: own.clone(), client_ca: None }).unwrap();
        let first = tls.config();
        assert_eq!(tls.0.refresh().await, Ok(false));
        assert!(Arc::ptr_eq(&first, &tls.config()), "connections resume their sessions");
        let (next, _) = testing::write(directory.path(), "b", 2_101);
        fs::copy(&next.cert, &own.cert).unwrap();
        let fault = tls.0.refresh().await.unwrap_err();
        assert_eq!(fault.part, Part::Key, "{fault}");
        assert!(Arc::ptr_eq(&first, &tls.config()));
        fs::copy(&next.key, &own.key).unwrap();
        assert_eq!(tls.0.refresh().await, Ok(true));
        assert!(!Arc::ptr_eq(&first, &tls.config()));
        assert_eq!(tls.validity().unwrap().to_string(), "valid until 2101-12-31 00:00 UTC");
        fs::remove_file(&own.key).unwrap();
        assert!(tls.0.refresh().await.is_err());
        assert_eq!(tls.validity().unwrap().to_string(), "valid until 2101-12-31 00:00 UTC");
    }
}
