//! doctor
use super::Azure;
use crate::store::Finding;
pub(super) async fn examine(_: &Azure) -> Vec<Finding> {
    Vec::new()
}
