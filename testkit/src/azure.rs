//! Azure: Azurite, an in-process server of blobs by Microsoft's tables, accounts, tokens, the metadata
//! service of a machine.

pub mod account;
pub mod azurite;
pub mod blob_request;
pub mod blob_server;
pub mod metadata_server;
pub mod token_server;
