//! PostgreSQL itself, with its standby and PgBouncer, and the lock of an election in it.

pub mod pooler;
pub mod server;
