//! Fuzz target for what a server, or somebody in its place, answers, and for files of credentials.

use super::file::CredentialFile;
use super::{errors, identity};
use crate::lease::StoreError;
use crate::lease::text::is_printable;
use crate::store::register::RegisterError;

/// Checks that arbitrary bodies of answers end in an error that can be shown, which is definite only by its
/// status, and that a file of a credential names no server that others on the network can read.
pub fn gcs_answer(data: &[u8]) {
    for status in [302, 401, 403, 404, 408, 412, 429, 500, 503] {
        let error = errors::refused(status, data, "h:1", "the object gs://leases/orders");
        assert_eq!(matches!(error, RegisterError::Condition(_)), status == 412, "{error}");
        let failed = StoreError::from(error);
        let message = &failed.failure().message;
        assert!(message.chars().all(is_printable), "{message}");
        assert!(matches!(failed, StoreError::Unknown(_)), "{failed:?}");
    }
    if let Ok(file) = CredentialFile::read(data) {
        for url in file.servers() {
            let host = url.host_str().unwrap_or_default();
            let is_near = ["127.", "[::1]", "localhost"].iter().any(|it| host.contains(it));
            assert!(url.scheme() == "https" || is_near, "{url}");
        }
    }
    let _ = identity::given(data);
}
