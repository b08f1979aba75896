//! An emulator of Google Cloud Storage, with a front that asks for tokens and gives them, and a lock in it.

pub mod front;
pub mod server;
