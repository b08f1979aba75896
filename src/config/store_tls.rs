//! Reads how the servers of a store are reached: by TLS, except on loopback or where it is allowed to
//! do without. The files are read, so that what is wrong with them shows at the start; they are read
//! again when the store is opened, and when they change.

use std::path::PathBuf;

use super::faults::{Problem, Warning};
use super::reader::Reader;
use super::store_url::Address;
use super::values;
use crate::tls::{ClientTls, KeyPair, Part, TlsFault};

/// The files of TLS for connections to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTls {
    /// The certificates of the authorities that must have signed those of the servers; `None` for
    /// those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate to present, with its key.
    pub own: Option<KeyPair>,
}

impl Reader<'_> {
    /// Reads how the servers at these addresses are reached; `Some(None)` without TLS. Without
    /// addresses there are no servers, and nothing to check but the values themselves.
    pub(super) fn store_tls(&mut self, addresses: Option<&[Address]>) -> Option<Option<StoreTls>> {
        let ca_file = self.optional("store-ca-file", values::path);
        let cert = self.optional("store-cert", values::path);
        let key = self.optional("store-key", values::path);
        let is_insecure = self.one("store-insecure", values::switch);
        let Some(addresses) = addresses else { return Some(None) };
        let (ca_file, is_insecure) = (ca_file?, is_insecure?);
        let own = match (cert?, key?) {
            (Some(cert), Some(key)) => Some(KeyPair { cert, key }),
            (None, None) => None,
            (Some(_), None) => {
                let what = "the private key of this certificate";
                return self.incomplete("store-cert", "store-key", what);
            }
            (None, Some(_)) => {
                return self.incomplete("store-key", "store-cert", "the certificate of this key");
            }
        };
        let remote = addresses.iter().find(|it| !it.is_loopback());
        let has_files = ca_file.is_some() || own.is_some();
        if is_insecure {
            return self.without_tls(remote, has_files).then_some(None);
        }
        if remote.is_none() && !has_files {
            return Some(None);
        }
        self.check_files(StoreTls { ca_file, own }).map(Some)
    }

    /// Checks that nothing asks for TLS, and warns of what it means to do without. Returns whether it
    /// is so.
    fn without_tls(&mut self, remote: Option<&Address>, has_files: bool) -> bool {
        if has_files {
            let problem = Problem::new(
                format!(
                    "allows connections without TLS, and files for TLS are set{}",
                    self.sources(&["store-ca-file", "store-cert"])
                ),
                "remove store-insecure, or the files",
            );
            self.fault_of("store-insecure", problem);
            return false;
        }
        self.warnings.extend(remote.map(|address| Warning {
            subject: "store-insecure",
            problem: format!(
                "connections to {address} have no TLS: anyone on the network path can read the \
                 password, and take or free the lease"
            ),
            remedy: "use TLS, and remove store-insecure".to_owned(),
        }));
        true
    }

    fn check_files(&mut self, tls: StoreTls) -> Option<StoreTls> {
        let Err(faults) = ClientTls::load(tls.own.as_ref(), tls.ca_file.as_deref()) else {
            return Some(tls);
        };
        for TlsFault { part, problem, remedy, .. } in faults {
            let setting = match part {
                Part::Certificate => "store-cert",
                Part::Key => "store-key",
                Part::Authorities => "store-ca-file",
            };
            self.fault_of(setting, Problem { problem, remedy });
        }
        None
    }
}
