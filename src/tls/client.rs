//! TLS of clients.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::material::Material;
use super::pem::{KeyPair, Parsed, Part, PemFiles, TlsFault};

/// The TLS settings of a client, as its files last were usable; clones share them.
#[derive(Clone)]
pub struct ClientTls(Arc<Material<Arc<ClientConfig>>>);

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls")
    }
}

impl ClientTls {
    /// Reads the files, which blocks: the client's own certificate, if it has one, and the
    /// authorities that must have signed the server's, by default those of the system. The server's
    /// certificate must be for the host that is connected to.
    ///
    /// # Errors
    /// Returns everything that is wrong with the files.
    pub fn load(own: Option<&KeyPair>, ca: Option<&Path>) -> Result<Self, Vec<TlsFault>> {
        Self::make(PemFiles::new(own, ca), |files, parsed| {
            let roots = parsed.authorities.clone().map_or_else(system_roots, Arc::new);
            build(files, parsed, |it| it.with_root_certificates(roots))
        })
    }

    /// Like [`load`](Self::load), but accepts every certificate that the authorities of this file
    /// have signed, for whatever host it is.
    ///
    /// This is for peers. They are reached by addresses that change with each restart, which no
    /// certificate names, and every holder of a certificate of the election's own authority is as
    /// good as another: the authority's signature alone says that it takes part. With authorities
    /// that sign for others too, such as those of the system, that would accept any server, so there
    /// is no variant without a file.
    ///
    /// # Errors
    /// Returns everything that is wrong with the files.
    pub fn load_for_any_name(own: Option<&KeyPair>, ca: &Path) -> Result<Self, Vec<TlsFault>> {
        Self::make(PemFiles::new(own, Some(ca)), |files, parsed| {
            let roots = parsed.authorities.clone().unwrap_or_else(RootCertStore::empty);
            let algorithms = super::provider().signature_verification_algorithms;
            let verifier = Arc::new(AnyName { roots, algorithms });
            build(files, parsed, |it| it.dangerous().with_custom_certificate_verifier(verifier))
        })
    }

    fn make(
        files: PemFiles,
        make: fn(&PemFiles, Parsed) -> Result<Arc<ClientConfig>, TlsFault>,
    ) -> Result<Self, Vec<TlsFault>> {
        Material::load(files, make).map(|it| Self(Arc::new(it)))
    }

    /// Returns the settings for the next connection, from the files as they are now, or as they last
    /// were usable.
    pub async fn config(&self) -> Arc<ClientConfig> {
        if let Err(fault) = self.0.refresh().await {
            tracing::debug!("TLS files cannot be used, so the earlier ones stay in use: {fault}");
        }
        Arc::clone(&self.0.current())
    }
}

type WantsVerifier = ConfigBuilder<ClientConfig, rustls::WantsVerifier>;
type Verified = ConfigBuilder<ClientConfig, WantsClientCert>;

/// Builds the settings of a client.
fn build(
    files: &PemFiles,
    parsed: Parsed,
    verify: impl FnOnce(WantsVerifier) -> Verified,
) -> Result<Arc<ClientConfig>, TlsFault> {
    let builder = builder().map_err(|error| {
        files.fault(Part::Authorities, format!("cannot be used: {error}"), "name another file")
    })?;
    let builder = verify(builder);
    Ok(Arc::new(match parsed.own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
    }))
}

fn builder() -> Result<WantsVerifier, Error> {
    ClientConfig::builder_with_provider(super::provider()).with_safe_default_protocol_versions()
}

/// Returns TLS settings that trust the system's root certificates; if TLS is not `wanted`, none are
/// loaded.
pub(crate) fn system_client(wanted: bool) -> Result<ClientConfig, Error> {
    trusting(if wanted { system_roots() } else { Arc::new(RootCertStore::empty()) })
}

/// Returns TLS settings that trust only these roots.
pub(crate) fn trusting(roots: impl Into<Arc<RootCertStore>>) -> Result<ClientConfig, Error> {
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the system's root certificates or, where there are none, as in an image from scratch,
/// those of browsers. They are loaded once.
fn system_roots() -> Arc<RootCertStore> {
    static LOADED: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            tracing::debug!("no system certificate authorities found; using the built-in ones");
            roots.add_parsable_certificates(
                webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned(),
            );
        }
        Arc::new(roots)
    };
    Arc::clone(LOADED.get_or_init(load))
}

/// Returns the certificates of the authorities of [`system_roots`], as PEM.
#[cfg(feature = "mongodb")]
pub(crate) fn system_authorities() -> Vec<u8> {
    let mut found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        found = webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec();
    }
    let mut text = String::new();
    for certificate in found {
        let lines = azure_core::base64::encode(&certificate);
        text += "-----BEGIN CERTIFICATE-----\n";
        for line in lines.as_bytes().chunks(64) {
            text += &String::from_utf8_lossy(line);
            text.push('\n');
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text.into_bytes()
}

/// Accepts the certificates of some authorities, for any name.
#[derive(Debug)]
struct AnyName {
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
