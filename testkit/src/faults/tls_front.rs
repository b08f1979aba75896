//! A TLS front for a plain server with any certificate, and the authorities that sign it. It
//! forwards the decrypted bytes unchanged.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The last year of a certificate that does not expire in a test.
pub const UNTIL: i32 = 2_099;

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate as PEM.
    pub certificate: String,
}

impl Authority {
    /// Creates an authority.
    pub fn new(name: &str) -> Self {
        let mut it = CertificateParams::new([]).expect("good parameters");
        it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        it.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = it.self_signed(&key).expect("signed").pem();
        Self { issuer: Issuer::new(it, key), certificate }
    }

    /// Writes its certificate to a directory, for clients that are to trust it.
    pub fn write(&self, directory: &Path) -> PathBuf {
        let file = directory.join("authorities.pem");
        std::fs::write(&file, &self.certificate).expect("written");
        file
    }

    /// Signs a certificate for a name or an address that expires at the end of a year.
    pub fn sign(&self, name: &str, until: i32) -> Shown {
        let (certificate, key) = self.sign_pem(name, until);
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        Shown(certificate.expect("a certificate"), key.expect("a key"))
    }

    /// Like [`sign`](Self::sign); returns the certificate and its key as PEM.
    pub fn sign_pem(&self, name: &str, until: i32) -> (String, String) {
        self.signed(CertificateParams::new([name.to_owned()]).expect("a name"), until)
    }

    /// Like [`sign_pem`](Self::sign_pem), without a common name.
    pub fn sign_pem_nameless(&self, name: &str, until: i32) -> (String, String) {
        let mut it = CertificateParams::new([name.to_owned()]).expect("a name");
        it.distinguished_name = DistinguishedName::new();
        self.signed(it, until)
    }

    fn signed(&self, mut it: CertificateParams, until: i32) -> (String, String) {
        it.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let certificate = it.signed_by(&key, &self.issuer).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }
}

/// A certificate with its key.
pub struct Shown(pub CertificateDer<'static>, pub PrivateKeyDer<'static>);

#[derive(Default)]
struct State {
    settings: Option<Arc<ServerConfig>>,
    /// The authority that must have signed the certificates of clients.
    of_clients: Option<CertificateDer<'static>>,
    /// The first byte of each connection.
    first: Vec<u8>,
}

type Shared = Arc<Mutex<State>>;

/// The front; stops when it is dropped.
pub struct TlsFront {
    /// The address that it listens on.
    pub address: SocketAddr,
    shared: Shared,
    /// Stops the thread when it is dropped.
    _end: oneshot::Sender<()>,
}

impl TlsFront {
    /// Starts it on a free port of loopback, in front of a plain server.
    pub fn start(server: SocketAddr, certificate: Shown) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address");
        let shared = Shared::default();
        let (end, ended) = oneshot::channel();
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    () = accept(listener, server, serving) => (),
                    _ = ended => (),
                }
            });
        });
        let it = Self { address, shared, _end: end };
        it.show(certificate);
        it
    }

    /// Accepts only clients with a certificate of this authority, from the next certificate on.
    pub fn ask_for_certificates(&self, authority: &Authority) {
        let der = CertificateDer::from_pem_slice(authority.certificate.as_bytes());
        lock(&self.shared).of_clients = Some(der.expect("a certificate"));
    }

    /// Presents another certificate on connections from now on.
    pub fn show(&self, Shown(certificate, key): Shown) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let settings = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let of_clients = lock(&self.shared).of_clients.clone();
        let settings = match of_clients {
            None => settings.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority).expect("an authority");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                settings.with_client_cert_verifier(verifier.expect("an authority"))
            }
        };
        let settings =
            settings.with_single_cert(vec![certificate], key).expect("a certificate with its key");
        lock(&self.shared).settings = Some(Arc::new(settings));
    }

    /// Returns the first byte of each connection so far; 22 is a TLS handshake.
    pub fn first_bytes(&self) -> Vec<u8> {
        lock(&self.shared).first.clone()
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: std::net::TcpListener, server: SocketAddr, shared: Shared) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _ = serve(stream, server, shared).await;
        });
    }
}

async fn serve(stream: TcpStream, server: SocketAddr, shared: Shared) -> std::io::Result<()> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(());
    }
    let settings = {
        let mut state = lock(&shared);
        state.first.push(first[0]);
        state.settings.clone().expect("there is a certificate")
    };
    let mut client = TlsAcceptor::from(settings).accept(stream).await?;
    let mut server = TcpStream::connect(server).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
