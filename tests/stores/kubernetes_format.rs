//! The fields of a Lease, on the in-process API server.

use testkit::kubernetes::kube_server::KubeServer;
use testkit::kubernetes::lease_format;

testkit::lease_format!(KubeServer::start());
