//! Peers from an operator's view: the table of real candidates on each of them, and the findings of
//! `tenure doctor`.

use testkit::ports::free_port;
use testkit::processes::process;

use std::path::Path;

use process::{BOUND, Process, Ran, run_verb, until};
use serde_json::Value;

/// The flags of a candidate with this peer address, which a listener of its own serves if it runs.
fn flags(directory: &Path, address: &str) -> Vec<String> {
    let store = format!("file://{}", directory.join("lease").display());
    ["--store", &store, "--peers", "--listen", address, "--peer-address", address]
        .map(str::to_owned)
        .to_vec()
}

fn candidate(name: &str, directory: &Path, more: &[&str]) -> (Process, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let flags = flags(directory, &address);
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    (Process::run(name, &flags, &[]), address)
}

/// Returns identity, role, priority, and whether next in line, of each candidate that an instance shows
/// as connected.
fn connected(of: &Process) -> Option<Vec<(String, Value, Value, Value)>> {
    let document = of.status()?;
    let all = document["candidates"].as_array()?.iter().filter(|it| it["connected"] == true);
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let pick = |it: &Value| {
        (text(&it["identity"]), it["role"].clone(), it["priority"].clone(), it["heir"].clone())
    };
    Some(all.map(pick).collect())
}

#[test]
fn every_instance_shows_the_same_table_with_the_heir_by_priority() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _) = candidate("web-1", directory.path(), &[]);
    until(BOUND, "web-1 leads", || first.is_leader().then_some(()));
    let (second, _) = candidate("web-2", directory.path(), &["--zone", "b"]);
    let (third, _) = candidate("web-3", directory.path(), &["--priority", "70"]);
    let row = |name: &str, role: &str, priority: u8, heir: bool| {
        (name.to_owned(), role.into(), priority.into(), heir.into())
    };
    let expected = vec![
        row("web-1", "active", 50, false),
        row("web-3", "passive", 70, true),
        row("web-2", "passive", 50, false),
    ];
    for instance in [&first, &second, &third] {
        until(BOUND, &format!("{} shows the table", instance.name), || {
            (connected(instance).as_ref() == Some(&expected)).then_some(())
        });
    }
    let url = format!("http://{}", second.address);
    let shown = run_verb(&["status", "--url", &url], &[]).out;
    for words in ["web-3      passive  standby", "next in line", "  zone  ", "connected"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    drop(third);
    let is_gone = |it: &Value| it["identity"] == "web-3" && it["connected"] == false;
    until(BOUND, "web-2 shows that web-3 is gone", || {
        second.status()?["candidates"].as_array()?.iter().any(is_gone).then_some(())
    });
}

fn doctor(directory: &Path, address: &str, identity: &str) -> Ran {
    let flags = flags(directory, address);
    let arguments: Vec<_> = ["doctor", "--identity", identity]
        .into_iter()
        .chain(flags.iter().map(String::as_str))
        .collect();
    run_verb(&arguments, &[])
}

#[test]
fn doctor_connects_to_the_own_peer_address_and_to_the_leaders() {
    let directory = tempfile::tempdir().unwrap();
    let (first, address) = candidate("web-1", directory.path(), &[]);
    until(BOUND, "web-1 leads", || first.is_leader().then_some(()));
    let own = doctor(directory.path(), &address, "web-1");
    let accepts = format!("ok      peer address: http://{address}/peer accepts connections");
    assert!(own.out.contains(&accepts), "{}", own.out);
    assert!(!own.out.contains("leader's peer address"), "it is the same: {}", own.out);

    let other = format!("127.0.0.1:{}", free_port());
    let found = doctor(directory.path(), &other, "web-2").out;
    let leader =
        format!("ok      leader's peer address: web-1 accepts connections at http://{address}");
    for words in [&format!("note    peer address: nothing listens at {other}"), &leader] {
        assert!(found.contains(words), "{words} in {found}");
    }

    // The lease of the dead leader lasts a while.
    drop(first);
    let found = doctor(directory.path(), &other, "web-2");
    let leader = format!("WRONG   leader's peer address: web-1 at {address} cannot be reached");
    assert!(found.code == 1 && found.out.contains(&leader), "{}", found.out);
}

#[test]
fn doctor_warns_of_a_holder_with_the_same_identity_that_is_not_the_sidecar_here() {
    let directory = tempfile::tempdir().unwrap();
    let (first, address) = candidate("web-1", directory.path(), &[]);
    until(BOUND, "web-1 leads", || first.is_leader().then_some(()));
    let other = format!("127.0.0.1:{}", free_port());
    for (identity, listen, is_warned) in
        [("web-1", &other, true), ("web-2", &other, false), ("web-1", &address, false)]
    {
        let found = doctor(directory.path(), listen, identity).out;
        let words =
            "note    identity: another live instance has this identity, web-1, too (instance ";
        assert_eq!(found.contains(words), is_warned, "{identity} at {listen}: {found}");
    }
    // The sidecar of this host knows of a namesake what the store does not show.
    let (_second, other) = candidate("web-1", directory.path(), &[]);
    until(BOUND, "web-1 is warned", || {
        first.status()?["warnings"].as_array().filter(|it| !it.is_empty()).map(drop)
    });
    for listen in [&address, &other] {
        let found = doctor(directory.path(), listen, "web-1").out;
        assert!(found.contains("note    sidecar: another live instance has"), "{listen}: {found}");
    }
}
