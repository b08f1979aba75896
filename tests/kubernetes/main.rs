//! Charts, manifests, routes and the Lease store with the in-process API server.

#![allow(clippy::disallowed_methods, reason = "tests use the real clock and environment")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod charts;
mod charts_around;
mod charts_gcs;
mod charts_guards;
mod charts_made;
mod charts_moved;
mod charts_names;
mod charts_platforms;
mod charts_pod;
mod charts_s3;
mod charts_stores;
mod charts_tls;
mod deploy;
mod doctor;
mod errors;
mod krew;
mod processes;
mod route_endpointslice;
mod route_events;
mod route_label;
mod route_reconciler;
