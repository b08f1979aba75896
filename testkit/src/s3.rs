//! A real server of S3: versitygw on a directory, and a lock in it. And one of the tests' own that accepts
//! conditions and ignores them.

pub mod careless;
pub mod front;
pub mod server;
