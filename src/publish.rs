//! Publishes the status: over HTTP, as a page, to HAProxy, in files and systemd notifications, by
//! hooks and by the route of a Service.
//!
//! Publishers read what the driver published, and judge it by the clock at each request. They never
//! write the status, never call the election, and do not know each other.

pub mod agent_check;
pub mod api;
pub mod file;
pub mod hooks;
mod page;
pub mod route;
pub mod systemd;
