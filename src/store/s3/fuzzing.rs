//! Fuzz target for what a server, or somebody in its place, answers.

use super::errors::Asked;
use super::identity;
use super::xml::Elements;
use crate::lease::StoreError;
use crate::lease::text::is_printable;
use crate::store::register::RegisterError;

/// Checks that arbitrary bodies of answers end in an error that can be shown, which is definite only by its
/// status, and that keys are read of none that has not all parts.
pub fn s3_answer(data: &[u8]) {
    let asked = Asked {
        server: "h:1",
        bucket: "leases",
        place: "the object s3://leases/orders",
        region: "eu-west-1",
        actual_region: None,
    };
    for status in [301, 400, 403, 404, 409, 412, 429, 500, 501, 503] {
        let error = asked.refused(status, data);
        let is_definite = matches!(error, RegisterError::Condition(_));
        assert_eq!(is_definite, status == 412, "{error}");
        let failed = StoreError::from(error);
        let message = &failed.failure().message;
        assert!(message.chars().all(is_printable), "{message}");
        assert!(matches!(failed, StoreError::Unknown(_) | StoreError::RetryNow(_)), "{failed:?}");
    }
    if let Ok((keys, _)) = identity::of_role(data) {
        let elements = Elements::read(data).expect("keys were read of it");
        assert!(elements.texts("AccessKeyId").any(|it| it == keys.id) && keys.token.is_some());
    }
    let _ = identity::given(data);
}
