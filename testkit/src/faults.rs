//! Faults of the network, the clock, the resolver and the machine.

pub mod cgroup;
pub mod faketime;
pub mod fault_proxy;
pub mod flood;
pub mod half_answer;
pub mod load;
pub mod muffled;
pub mod network;
pub mod peer_proxy;
pub mod resolver;
pub mod small_disk;
pub mod tls_front;
