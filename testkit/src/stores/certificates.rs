//! The certificates of a server with TLS and of its clients, as files.

use std::path::{Path, PathBuf};

use tenure::config::StoreTls;
use tenure::tls::KeyPair;

use crate::faults::tls_front::{Authority, UNTIL};

/// An authority, with a certificate for the server on 127.0.0.1 and one for its clients.
pub struct Certificates {
    authority: Authority,
    /// The certificate of the authority.
    pub ca: PathBuf,
    pub server: KeyPair,
    pub client: KeyPair,
}

impl Certificates {
    /// Makes them in a directory.
    pub fn make(home: &Path, name: &str) -> Self {
        let authority = Authority::new(name);
        let ca = authority.write(home);
        let pair = |name: &str| KeyPair {
            cert: home.join(format!("{name}.crt")),
            key: home.join(format!("{name}.key")),
        };
        let it = Self { ca, server: pair("server"), client: pair("client"), authority };
        it.replace();
        it
    }

    /// Replaces those of the server and of the clients, each with a new key of the same authority.
    ///
    /// They have no common name, which etcd refuses at its gateway where it has users.
    pub fn replace(&self) {
        for pair in [&self.server, &self.client] {
            let (certificate, key) = self.authority.sign_pem_nameless("127.0.0.1", UNTIL);
            write(&pair.cert, &certificate);
            write(&pair.key, &key);
        }
    }

    /// Writes the key and the certificate of the server into one file, as Java wants them.
    pub fn in_one_file(&self) -> PathBuf {
        let read = |path: &Path| std::fs::read_to_string(path).expect("a file");
        let path = self.server.cert.with_extension("pem");
        write(&path, &(read(&self.server.key) + &read(&self.server.cert)));
        path
    }

    /// Returns the settings of a client with a certificate.
    pub fn settings(&self) -> StoreTls {
        StoreTls { ca_file: Some(self.ca.clone()), own: Some(self.client.clone()) }
    }

    /// Returns the arguments of `tenure` for these settings.
    pub fn arguments(&self) -> Vec<String> {
        let files = [
            ("--store-ca-file", &self.ca),
            ("--store-cert", &self.client.cert),
            ("--store-key", &self.client.key),
        ];
        files
            .into_iter()
            .flat_map(|(name, it)| [name.to_owned(), it.display().to_string()])
            .collect()
    }

    /// Returns an HTTP client with a certificate, or one without TLS.
    pub fn http_client(certificates: Option<&Self>) -> reqwest::Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bound = std::time::Duration::from_secs(10);
        let mut client = reqwest::Client::builder().no_proxy().timeout(bound);
        if let Some(it) = certificates {
            let read = |path: &Path| std::fs::read(path).expect("a file");
            let authority = reqwest::Certificate::from_pem(&read(&it.ca)).expect("a certificate");
            let own = [read(&it.client.cert), read(&it.client.key)].concat();
            let own = reqwest::Identity::from_pem(&own).expect("a certificate with its key");
            client = client.tls_certs_only([authority]).identity(own);
        }
        client.build().expect("a client")
    }
}

/// Writes a file that only its owner may read. A reader sees the old file or the new one.
fn write(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&beside, private).expect("private");
    std::fs::rename(&beside, path).expect("renamed");
}
