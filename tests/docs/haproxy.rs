//! The settings of the page on HAProxy, as HAProxy itself reads them.

use std::path::Path;
use std::process::Command;

#[test]
fn haproxy_accepts_the_settings_of_its_page() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/haproxy.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks: Vec<_> = text.split("```haproxy\n").skip(1).collect();
    assert_eq!(blocks.len(), 2, "one for each way");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("haproxy.cfg");
    for block in blocks {
        let backend = block.split("\n```").next().unwrap();
        let settings = format!(
            "defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
             frontend in\n  bind 127.0.0.1:8080\n  default_backend orders\n{backend}\n"
        );
        std::fs::write(&file, &settings).unwrap();
        let checked = Command::new("haproxy").arg("-c").arg("-f").arg(&file).output();
        let checked = checked.expect("haproxy is missing: run tests/run --tools");
        let said = [checked.stdout, checked.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(checked.status.success() && !said.contains("WARNING"), "{said}\n{settings}");
    }
}
