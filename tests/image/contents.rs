//! The image that the Dockerfile describes: its files, metadata and labels, and that the same
//! sources and date reproduce it byte for byte.

use testkit::tools::image;

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use image::{alone, build, buildah, dockerfile, home, image, named, stdout_of, take_apart};

#[test]
fn hadolint_accepts_the_dockerfile() {
    let hadolint = testkit::paths::tool("hadolint");
    let output = Command::new(hadolint)
        .arg(home().join("Dockerfile"))
        .output()
        .expect("hadolint runs: tests/run --tools installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_image_has_the_binary_the_trust_roots_and_the_licences_only() {
    let paths = image().paths();
    let files: BTreeSet<_> =
        paths.iter().filter(|(_, it)| !it.is_dir()).map(|(path, _)| path.as_str()).collect();
    let wanted = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/licenses/LICENSE-APACHE",
        "/licenses/LICENSE-MIT",
        "/tenure",
    ];
    assert_eq!(files, wanted.into());
    for (path, data) in &paths {
        let mode = if data.is_dir() || path == "/tenure" { 0o755 } else { 0o644 };
        assert_eq!((data.uid(), data.gid()), (0, 0), "{path} is not its user's to change");
        assert_eq!(data.permissions().mode() & 0o7777, mode, "{path}");
    }
    let roots = std::fs::read_to_string(image().tree.path().join(&wanted[0][1..])).unwrap();
    assert!(
        roots.matches("BEGIN CERTIFICATE").count() > 100,
        "the signers of the public clouds are"
    );
    assert!(!roots.contains("PRIVATE KEY"));
}

#[test]
fn the_image_has_at_most_10_mb() {
    let bytes = |it: &std::fs::Metadata| if it.is_dir() { 0 } else { it.len() };
    let paths = image().paths();
    let unpacked: u64 = paths.values().map(bytes).sum();
    let layers = image().manifest["layers"].as_array().unwrap();
    let pulled: u64 = layers.iter().map(|it| it["size"].as_u64().unwrap()).sum();
    eprintln!("{unpacked} bytes, {pulled} to pull");
    assert!(pulled < unpacked && unpacked <= 10_000_000, "{unpacked}");
}

#[test]
fn the_binary_is_static_and_of_this_version() {
    let binary = image().tree.path().join("tenure");
    let headers = stdout_of(Command::new("readelf").arg("--program-headers").arg(&binary));
    assert!(!headers.contains("INTERP"), "it wants no loader, which is not there:\n{headers}");
    let version = stdout_of(Command::new(binary).arg("--version").env_clear());
    let stores = "stores: azure, consul, etcd, file, gcs, kubernetes, memory, postgres, redis, s3, zookeeper";
    assert_eq!(version, format!("tenure {}\n{stores}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_image_starts_the_sidecar_without_a_shell_as_a_numeric_user() {
    let config = &image().config["config"];
    assert_eq!(config["Entrypoint"], serde_json::json!(["/tenure"]));
    assert_eq!(config["Cmd"], serde_json::json!(["run"]));
    // runAsNonRoot cannot be verified for a user name.
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["ExposedPorts"], serde_json::json!({"4040/tcp": {}}));
    for absent in ["Volumes", "Healthcheck", "StopSignal", "WorkingDir", "OnBuild", "Shell"] {
        assert!(config[absent].as_str().unwrap_or_default().is_empty(), "{absent}: {config}");
    }
    let variables = config["Env"].as_array().unwrap();
    assert!(variables.iter().all(|it| it.as_str().unwrap().starts_with("PATH=")), "{variables:?}");
    assert_eq!(image().config["os"], "linux");
}

#[test]
fn the_labels_name_the_image_and_its_sources() {
    let image = image();
    let manifest = include_str!("../../Cargo.toml");
    let field = |name: &str| {
        let line = manifest.lines().find_map(|it| it.strip_prefix(&format!("{name} = "))).unwrap();
        line.trim_matches('"').to_owned()
    };
    assert_eq!(image.label("title"), "Tenure");
    assert_eq!(image.label("description"), field("description"));
    assert_eq!(image.label("licenses"), field("license"));
    assert_eq!(
        image.label("version"),
        field("version"),
        "the default of VERSION in the Dockerfile"
    );
    assert_eq!(image.label("revision"), image::REVISION);
    assert_eq!(image.label("created"), image::CREATED);
    assert_eq!(image.label("source"), image::SOURCE);
}

#[test]
fn the_image_has_no_trace_of_the_build_machine() {
    let image = image();
    let cargo = format!("{}/.cargo", std::env::var("HOME").unwrap());
    let mut secrets = vec![cargo, home().display().to_string()];
    secrets.extend(["/usr/local/rust", "/usr/local/cargo", "/build/src"].map(String::from));
    secrets.push(image::storage().display().to_string());
    // The values of variables whose names suggest a secret.
    let about = ["HOSTNAME", "TOKEN", "SECRET", "PASSWORD", "KEY"];
    let named = std::env::vars().filter(|(name, _)| about.iter().any(|it| name.contains(it)));
    secrets.extend(named.map(|(_, value)| value));
    secrets.push(stdout_of(Command::new("uname").arg("-n")));
    // Shorter values may occur in a certificate by chance.
    secrets.retain(|it| it.len() >= 8);
    let mut bytes = serde_json::to_vec(&image.config).unwrap();
    for (path, data) in image.paths() {
        if data.is_file() {
            bytes.extend(std::fs::read(image.tree.path().join(&path[1..])).unwrap());
        }
    }
    for secret in secrets {
        let found = bytes.windows(secret.len()).position(|it| it == secret.as_bytes());
        let around = found.map(|at| {
            String::from_utf8_lossy(&bytes[at.saturating_sub(60)..(at + 100).min(bytes.len())])
        });
        assert_eq!(around, None, "{secret}");
    }
}

/// Builds everything after the compiler again, at another time and without a cache.
fn again(name: &str, arguments: &[&str]) -> image::Image {
    let text = dockerfile();
    let (_, after) = text.split_once("\nCOPY LICENSE-").unwrap();
    let stage = named("stage");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("Dockerfile");
    std::fs::write(&file, format!("FROM {stage} AS build\nCOPY LICENSE-{after}")).unwrap();
    let name = named(name);
    let file = file.to_str().unwrap();
    build(&[&["--no-cache", "--file", file, "--tag", &name], arguments].concat());
    let made = take_apart(&name);
    stdout_of(buildah(&["rmi", &name]));
    made
}

#[test]
fn the_same_sources_and_the_same_date_make_the_same_image() {
    let first = image();
    let _alone = alone();
    let second = again("again", &["--timestamp", image::DATE]);
    assert_eq!(second.manifest, first.manifest);
    assert_eq!(second.digest, first.digest);
    // Tools that do not set dates in a layer themselves use those of the Dockerfile.
    let [third, fourth] = ["third", "fourth"].map(|it| again(it, &[]).config["rootfs"].clone());
    assert_eq!(third, fourth);
}
