//! Kubernetes: a real control plane, the in-process API server, charts and manifests.

pub mod chart_values;
pub mod clientgo;
pub mod control_plane;
pub mod kube_server;
pub mod kubectl;
pub mod kubelet;
pub mod lease_ground;
pub mod lease_lock;
pub mod manifests;
pub mod plugin;
pub mod raw_client;
pub mod real_lease;
pub mod rights;
pub mod routed;
pub mod yaml;
