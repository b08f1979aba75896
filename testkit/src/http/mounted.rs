//! Files with certificates as the kubelet mounts a Secret: links to a directory, all of which are
//! replaced at once.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;
use tenure::tls::{KeyPair, ServerFiles};

use crate::faults::tls_front::Authority;

/// A certificate that is valid for a long time.
pub const FAR: i32 = 2_100;

/// A Secret with a certificate for `localhost`, its key and its authority.
pub struct Mounted {
    directory: TempDir,
    generations: u32,
}

impl Mounted {
    /// Mounts a certificate of an authority that is valid until the end of a year.
    pub fn new(authority: &Authority, until: i32) -> Self {
        let mut it = Self { directory: tempfile::tempdir().expect("a directory"), generations: 0 };
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), it.path(name)).expect("a link");
        }
        it.replace(authority, until);
        it
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the certificate by another one.
    pub fn replace(&mut self, authority: &Authority, until: i32) {
        let (certificate, key) = authority.sign_pem("localhost", until);
        self.put([&certificate, &key, &authority.certificate]);
    }

    /// Replaces the contents of the files.
    pub fn put(&mut self, contents: [&str; 3]) {
        self.generations += 1;
        let name = format!("..{}", self.generations);
        std::fs::create_dir(self.path(&name)).expect("a directory");
        for (file, content) in ["tls.crt", "tls.key", "ca.crt"].iter().zip(contents) {
            std::fs::write(self.path(&name).join(file), content).expect("written");
        }
        symlink(&name, self.path("..data_tmp")).expect("a link");
        std::fs::rename(self.path("..data_tmp"), self.path("..data")).expect("renamed");
        // An error means that there was none before.
        let _ = std::fs::remove_dir_all(self.path(&format!("..{}", self.generations - 1)));
    }

    /// Returns the certificate and its key.
    pub fn own(&self) -> KeyPair {
        KeyPair { cert: self.path("tls.crt"), key: self.path("tls.key") }
    }

    /// Returns the files of a listener for clients with or without certificates of the authority.
    pub fn server(&self, asks_clients: bool) -> ServerFiles {
        let client_ca = asks_clients.then(|| self.path("ca.crt"));
        ServerFiles { own: self.own(), client_ca }
    }
}
