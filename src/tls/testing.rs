//! Certificates for unit tests.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair as Key};

use super::KeyPair;

/// Writes `NAME.crt`, `NAME.key` and their authority `NAME.ca` to a directory, valid from 2000 to
/// the end of a year.
pub(crate) fn write(directory: &Path, name: &str, until: i32) -> (KeyPair, PathBuf) {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, name);
    let authority_key = Key::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let mut certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
    certificate.not_before = rcgen::date_time_ymd(2_000, 1, 1);
    certificate.not_after = rcgen::date_time_ymd(until, 12, 31);
    let key = Key::generate().unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let certificate_pem = certificate.signed_by(&key, &issuer).unwrap().pem();
    let path = |ending: &str| directory.join(format!("{name}.{ending}"));
    std::fs::write(path("crt"), certificate_pem).unwrap();
    std::fs::write(path("key"), key.serialize_pem()).unwrap();
    std::fs::write(path("ca"), authority_pem).unwrap();
    (KeyPair { cert: path("crt"), key: path("key") }, path("ca"))
}
