//! MongoDB: a stand-in, since no server of MongoDB itself can be had for the tests.

pub mod front;
pub mod server;
pub mod sign_in;
pub mod wire;
