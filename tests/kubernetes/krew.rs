//! `deploy/krew`: the manifest has the version of the binary, and `fill` packs the binary that it names.

use testkit::kubernetes::{manifests, yaml};

use std::os::unix::fs::symlink;
use std::process::Command;

use manifests::{place, text};

/// The placeholder of an architecture's checksum.
fn placeholder(architecture: &str) -> String {
    format!("SHA256_{}", architecture.to_uppercase())
}

#[test]
fn the_manifest_of_krew_has_this_version_and_no_checksum_yet() {
    let manifest = yaml::document(&text("deploy/krew/tenure.yaml"));
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["spec"]["version"], version);
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for platform in platforms {
        let labels = &platform["selector"]["matchLabels"];
        assert_eq!(labels["os"], "linux");
        let architecture = labels["arch"].as_str().unwrap();
        let archive = format!("/download/{version}/tenure-linux-{architecture}.tar.gz");
        assert!(platform["uri"].as_str().unwrap().ends_with(&archive), "{platform}");
        assert_eq!(platform["sha256"], *placeholder(architecture));
    }
}

#[test]
fn a_release_fills_in_the_checksums_of_archives_that_contain_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    // In place of the binary, since it takes long to compress that of a test.
    let binary = folder.path().join("binary");
    std::fs::write(&binary, "#!/bin/sh\necho \"started as ${0##*/}\"\n").unwrap();
    let fill = || {
        let ran = Command::new(place("deploy/krew/fill"))
            .args([&binary, &binary])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        std::fs::read_to_string(folder.path().join("tenure.yaml")).unwrap()
    };
    let filled = fill();
    assert_eq!(fill(), filled, "the same binary gives the same archive");
    assert!(!filled.contains('#') && !filled.contains("SHA256"), "{filled}");
    let manifest = yaml::document(&filled);
    for platform in manifest["spec"]["platforms"].as_array().unwrap() {
        let name = platform["uri"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let archive = folder.path().join(&name);
        let sum = Command::new("sha256sum").arg(&archive).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        assert_eq!(Some(platform["sha256"].as_str().unwrap()), sum.split(' ').next(), "{name}");

        // As krew installs it: the files, and a link with the plugin's name to the binary.
        let installed = tempfile::tempdir().unwrap();
        let unpacked = Command::new("tar")
            .args(["--extract", "--gzip", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(installed.path())
            .status();
        assert!(unpacked.unwrap().success());
        for file in platform["files"].as_array().unwrap() {
            let from = installed.path().join(file["from"].as_str().unwrap());
            assert!(from.is_file(), "{name} has no {file}");
        }
        let link = installed.path().join("kubectl-tenure");
        symlink(installed.path().join(platform["bin"].as_str().unwrap()), &link).unwrap();
        let out = Command::new(link).output().unwrap().stdout;
        assert_eq!(String::from_utf8_lossy(&out), "started as kubectl-tenure\n");
    }
}
