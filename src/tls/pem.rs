//! The PEM files of one side of a connection, and the certificates and keys in them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};

use crate::files::{self, SmallFile};

/// The largest file that is read: a bundle of authorities has some hundred kilobytes.
const LARGEST: u64 = 1024 * 1024;

/// The longest time that a read of one file is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, followed by the intermediate ones.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// One of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The certificate.
    Certificate,
    /// Its key.
    Key,
    /// The authorities that sign the certificates of the other side.
    Authorities,
}

/// What is wrong with one of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault {
    /// The file.
    pub part: Part,
    /// Its path.
    pub path: PathBuf,
    /// What is wrong, as the end of a sentence that begins with the path.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.path.display(), self.problem, self.remedy)
    }
}

/// The files of one side.
#[derive(Clone, Debug)]
pub(super) struct PemFiles {
    own: Option<[SmallFile; 2]>,
    authorities: Option<SmallFile>,
}

/// What was in the files; `None` for those that are not configured.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    own: Option<[Vec<u8>; 2]>,
    authorities: Option<Vec<u8>>,
}

impl PemFiles {
    pub(super) fn new(own: Option<&KeyPair>, authorities: Option<&Path>) -> Self {
        let file = |path: &Path| SmallFile::new(path, LARGEST);
        Self {
            own: own.map(|it| [file(&it.cert), file(&it.key)]),
            authorities: authorities.map(file),
        }
    }

    /// Returns a fault of one of the files, which must be configured.
    pub(super) fn fault(&self, part: Part, problem: String, remedy: &str) -> TlsFault {
        let file = match part {
            Part::Certificate => self.own.as_ref().map(|[cert, _]| cert),
            Part::Key => self.own.as_ref().map(|[_, key]| key),
            Part::Authorities => self.authorities.as_ref(),
        };
        let path = file.map(|it| it.path().to_owned()).unwrap_or_default();
        TlsFault { part, path, problem, remedy: remedy.to_owned() }
    }

    fn unreadable(&self, part: Part, error: &io::Error) -> TlsFault {
        let problem = format!("cannot be read: {}", files::reason(error));
        self.fault(part, problem, "name a file that this user can read")
    }

    /// Reads the files at once, for the start. Returns the faults of all of them.
    pub(super) fn read_now(&self) -> Result<Contents, Vec<TlsFault>> {
        let mut faults = Vec::new();
        let mut read = |part, file: &SmallFile| match files::read(file.path(), LARGEST) {
            Ok((bytes, _)) => bytes,
            Err(error) => {
                faults.push(self.unreadable(part, &error));
                Vec::new()
            }
        };
        let own = self.own.as_ref();
        let own = own.map(|[cert, key]| [read(Part::Certificate, cert), read(Part::Key, key)]);
        let authorities = self.authorities.as_ref().map(|it| read(Part::Authorities, it));
        if faults.is_empty() { Ok(Contents { own, authorities }) } else { Err(faults) }
    }

    /// Reads the files, for a bounded time each. Returns the first fault.
    pub(super) async fn read(&self) -> Result<Contents, TlsFault> {
        let read = async |part, file: &SmallFile| {
            file.read(PATIENCE).await.map_err(|error| self.unreadable(part, &error))
        };
        let own = match &self.own {
            Some([cert, key]) => {
                Some([read(Part::Certificate, cert).await?, read(Part::Key, key).await?])
            }
            None => None,
        };
        let authorities = match &self.authorities {
            Some(file) => Some(read(Part::Authorities, file).await?),
            None => None,
        };
        Ok(Contents { own, authorities })
    }
}

/// What one side presents and trusts.
pub(super) struct Parsed {
    pub(super) own: Option<CertifiedKey>,
    pub(super) authorities: Option<RootCertStore>,
}

impl Contents {
    /// Parses the contents of the files. Returns the faults of all of them.
    pub(super) fn parse(&self, files: &PemFiles) -> Result<Parsed, Vec<TlsFault>> {
        let mut faults = Vec::new();
        let own = self.own.as_ref().and_then(|[cert, key]| {
            let chain = chain(cert, files).map_err(|it| faults.push(it)).ok();
            let key = private_key(key, files).map_err(|it| faults.push(it)).ok();
            let own = matching(chain?, key?, files);
            own.map_err(|it| faults.push(it)).ok()
        });
        let authorities = self.authorities.as_ref().and_then(|pem| {
            let roots = authorities(pem);
            if roots.is_none() {
                let problem = "contains no certificate in PEM".to_owned();
                let remedy = "name a file with the certificates of the authorities";
                faults.push(files.fault(Part::Authorities, problem, remedy));
            }
            roots
        });
        if faults.is_empty() { Ok(Parsed { own, authorities }) } else { Err(faults) }
    }
}

/// Returns the authorities in a file; `None` if it contains no certificate.
pub(crate) fn authorities(pem: &[u8]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    (added > 0).then_some(roots)
}

fn chain(pem: &[u8], files: &PemFiles) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(pem).collect();
    let usable = chain.ok().filter(|chain| {
        chain.first().is_some_and(|first| ParsedCertificate::try_from(first).is_ok())
    });
    usable.ok_or_else(|| {
        files.fault(
            Part::Certificate,
            "contains no valid certificate in PEM".to_owned(),
            "name a file with the certificate, followed by the intermediate ones",
        )
    })
}

fn private_key(pem: &[u8], files: &PemFiles) -> Result<PrivateKeyDer<'static>, TlsFault> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        files.fault(
            Part::Key,
            "contains no private key in PEM that is not encrypted".to_owned(),
            "name a file with the private key, decrypted by `openssl pkey -in KEY`",
        )
    })
}

/// Returns the certificate with its key, if they belong together.
fn matching(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    files: &PemFiles,
) -> Result<CertifiedKey, TlsFault> {
    CertifiedKey::from_der(chain, key, &super::provider()).map_err(|error| {
        if matches!(error, Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) {
            let problem = "is not the key of the certificate".to_owned();
            return files.fault(Part::Key, problem, "name the key that belongs to it");
        }
        files.fault(
            Part::Key,
            format!("cannot be used: {error}"),
            "use an RSA key of 2048 bits or more, an ECDSA key of P-256 or P-384, or Ed25519",
        )
    })
}
