//! Azure Blob Storage: Azurite, an in-process server by Microsoft's tables, accounts, tokens.

pub mod account;
pub mod azurite;
pub mod blob_request;
pub mod blob_server;
pub mod token_server;
