//! A network namespace with two links to the host: one to the store, which can be cut, and one to
//! the candidate's listener, which stays up. Requires root, `ip` of iproute2 and `nft` of nftables.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// A namespace; deleted when it is dropped.
pub struct Network {
    name: String,
    /// The host's end of the link to the store.
    pub store_side: Ipv4Addr,
    /// The candidate's end of the link to its listener.
    pub asked_at: Ipv4Addr,
}

impl Network {
    /// Creates a namespace with addresses from 198.18.0.0/15, which are reserved for network tests.
    pub fn new() -> Self {
        static MADE: AtomicU8 = AtomicU8::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        // The low bits of the process id are in the middle of the address, so that concurrent test
        // runs use different addresses.
        let [.., middle] = process.to_be_bytes();
        let [_, _, upper, _] = process.to_be_bytes();
        let second = 18 + (upper & 1);
        let ends = |link: u8| {
            let base = number * 8 + link * 4;
            [1, 2].map(|end| Ipv4Addr::new(198, second, middle, base + end))
        };
        let name = format!("tn{process}-{number}");
        let (store, listener) = (ends(0), ends(1));
        let it = Self { name: name.clone(), store_side: store[0], asked_at: listener[1] };
        run(&["ip", "netns", "add", &name]);
        for (link, [outside, inside]) in [("s", store), ("a", listener)] {
            let (near, far) = (format!("{name}{link}"), format!("{link}0"));
            run(&[
                "ip", "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &name,
            ]);
            run(&["ip", "addr", "add", &format!("{outside}/30"), "dev", &near]);
            run(&["ip", "link", "set", &near, "up"]);
            it.inside(&["ip", "addr", "add", &format!("{inside}/30"), "dev", &far]);
            it.inside(&["ip", "link", "set", &far, "up"]);
        }
        it.inside(&["ip", "link", "set", "lo", "up"]);
        it
    }

    /// Returns the command prefix that runs a command in the namespace.
    pub fn by(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// Drops packets from the candidate to the store, without an error.
    pub fn raise_firewall(&self) {
        let rule = format!("ip daddr {} drop", self.store_side);
        let rules = format!(
            "table inet cut {{\nchain out {{\ntype filter hook output priority 0\n{rule}\n}}\n}}"
        );
        self.inside(&["nft", &rules]);
    }

    /// Removes the firewall rule.
    pub fn drop_firewall(&self) {
        self.inside(&["nft", "delete table inet cut"]);
    }

    /// Takes the link to the store down, or up again.
    pub fn set_link(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        self.inside(&["ip", "link", "set", "s0", state]);
    }

    fn inside(&self, command: &[&str]) {
        run(&[&self.by()[..], command].concat());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Deletes the links too.
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn run(command: &[&str]) {
    let ended = Command::new(command[0]).args(&command[1..]).output();
    let ended = ended.unwrap_or_else(|error| {
        panic!("{}: {error}: install iproute2 and nftables, as tests/run does", command[0])
    });
    assert!(
        ended.status.success(),
        "{command:?} failed, it needs root and network namespaces: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
