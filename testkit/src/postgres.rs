//! PostgreSQL itself, with its standby and PgBouncer, and the lock of an election in it.

pub mod lock;
pub mod pooler;
pub mod server;
