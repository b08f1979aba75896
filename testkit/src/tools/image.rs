//! The image that the Dockerfile describes: built by buildah as root, without a container engine
//! and a registry, and unpacked.
//!
//! The base of the first stage is the tool `image-stage`, under the name in the Dockerfile; this
//! machine's Rust and the crates in cargo's registry are mounted into it. Layers and compiled
//! dependencies are cached in that tool's storage; untagged images are deleted. To run the image
//! see [`containers`](crate::tools::containers).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// The date of the image: seconds since 1970.
pub const DATE: &str = "1767225600";

/// The value of the revision label.
pub const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";
pub const CREATED: &str = "2026-01-01T00:00:00Z";
pub const SOURCE: &str = "https://example.com/tenure";

/// The image of the tool `image-stage`: a Debian without Tenure.
pub const STAGE: &str = "localhost/tenure-stage:1";

/// Returns the repository.
pub fn home() -> &'static Path {
    crate::paths::repository()
}

/// Returns the text of the Dockerfile.
pub fn dockerfile() -> String {
    std::fs::read_to_string(home().join("Dockerfile")).expect("the Dockerfile is there")
}

/// Returns the storage of the images; podman reads its `root`.
pub fn storage() -> PathBuf {
    crate::paths::tool("image-stage")
}

/// The properties of the image, and of images that contain it, that tests check.
pub struct Image {
    /// Its name in the storage.
    pub name: String,
    /// The digest of the manifest.
    pub digest: String,
    pub manifest: Value,
    pub config: Value,
    /// The files of all layers, as in a container.
    pub tree: TempDir,
}

/// Builds the image once per process, and unpacks it.
pub fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let _alone = alone();
        name_base();
        let (stage, name) = (named("stage"), named("image"));
        // With a tag of its own, the first stage and its layers are not deleted.
        let dated = ["--timestamp", DATE, "--tag"];
        build(&[&["--target", "build"], &dated[..], &[&stage]].concat());
        build(&[&dated[..], &[&name]].concat());
        stdout_of(buildah(&["rmi", "--prune"]));
        take_apart(&name)
    })
}

/// Excludes other tests until it is dropped: a cleanup would delete layers that another build is
/// about to use.
pub fn alone() -> std::fs::File {
    let lock = std::fs::File::create(storage().join("lock")).expect("a lock");
    lock.lock().expect("locked");
    lock
}

/// Returns a tag for this checkout, since several checkouts may share the storage.
pub fn named(what: &str) -> String {
    let mut hasher = DefaultHasher::new();
    home().hash(&mut hasher);
    format!("localhost/tenure-tests:{what}-{:016x}", hasher.finish())
}

/// Gives the stage the name in the Dockerfile, and the path of the mounted Rust. The version of
/// Rust is part of the layers' cache key.
fn name_base() {
    let text = dockerfile();
    let name = text.lines().find_map(|it| it.strip_prefix("ARG RUST=")).expect("a base");
    let rust = stdout_of(Command::new("rustc").arg("--version"));
    let container = stdout_of(buildah(&["from", "--pull-never", STAGE]));
    let path =
        "PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let version = format!("RUST_VERSION={rust}");
    let variables = [path, "CARGO_HOME=/usr/local/cargo", "CARGO_NET_OFFLINE=true", &version];
    let mut config = buildah(&["config"]);
    config.args(variables.iter().flat_map(|it| ["--env", it])).arg(&container);
    stdout_of(config);
    stdout_of(buildah(&["commit", "--quiet", "--rm", "--timestamp", "0", &container, name]));
}

/// Builds the Dockerfile with more arguments, such as another file or a target.
pub fn build(arguments: &[&str]) -> String {
    let sysroot = stdout_of(Command::new("rustc").args(["--print", "sysroot"]));
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(
        || Path::new(&std::env::var_os("HOME").expect("a home")).join(".cargo"),
        PathBuf::from,
    );
    let registry = cargo.join("registry");
    let mut build = buildah(&["build", "--isolation", "chroot", "--layers", "--pull-never"]);
    build
        .args(["--volume", &format!("{sysroot}:/usr/local/rust:ro")])
        .args(["--volume", &format!("{}:/usr/local/cargo/registry:ro", registry.display())])
        .args(["--build-arg", &format!("SOURCE_DATE_EPOCH={DATE}")])
        .args(["--build-arg", &format!("REVISION={REVISION}")])
        .args(["--build-arg", &format!("CREATED={CREATED}")])
        .args(["--build-arg", &format!("SOURCE={SOURCE}")])
        .args(arguments)
        .arg(home());
    stdout_of(build)
}

/// Returns a buildah command on the storage, which also contains the cache mounts.
pub fn buildah(arguments: &[&str]) -> Command {
    let place = storage();
    let cache = place.join("cache");
    std::fs::create_dir_all(&cache).expect("a place for what is compiled");
    // A build on a slow machine takes minutes; a hang must not block the whole run.
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "1800", "buildah"])
        .arg("--root")
        .arg(place.join("root"))
        .arg("--runroot")
        .arg(place.join("run"))
        .args(["--storage-driver", "overlay"])
        .args(arguments)
        .env("TMPDIR", cache);
    command
}

/// Runs a command that must succeed, and returns its output.
pub fn stdout_of(mut command: impl std::borrow::BorrowMut<Command>) -> String {
    let command = command.borrow_mut();
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; tests/run --tools installs what the image needs")
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{stderr}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Returns the manifest, configuration and files of an image.
pub fn take_apart(name: &str) -> Image {
    let place = tempfile::tempdir_in(crate::paths::scratch()).expect("a directory");
    let layout = format!("oci:{}", place.path().display());
    stdout_of(buildah(&["push", "--quiet", name, &layout]));
    let blob = |digest: &Value| {
        let digest = digest.as_str().expect("a digest").strip_prefix("sha256:").expect("SHA-256");
        place.path().join("blobs/sha256").join(digest)
    };
    let index = json(&place.path().join("index.json"));
    let digest = &index["manifests"][0]["digest"];
    let manifest = json(&blob(digest));
    let tree = tempfile::tempdir_in(crate::paths::scratch()).expect("a directory");
    for layer in manifest["layers"].as_array().expect("layers") {
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--same-permissions", "--same-owner", "--directory"]);
        stdout_of(tar.arg(tree.path()).arg("--file").arg(blob(&layer["digest"])));
    }
    let config = json(&blob(&manifest["config"]["digest"]));
    let digest = digest.as_str().expect("a digest").to_owned();
    Image { name: name.to_owned(), digest, manifest, config, tree }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file of the image")).expect("JSON")
}

impl Image {
    /// Returns its files and directories, by their paths in a container.
    pub fn paths(&self) -> BTreeMap<String, std::fs::Metadata> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.tree.path().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                let data = path.symlink_metadata().expect("it is there");
                if data.is_dir() {
                    open.push(path.clone());
                }
                let inside = path.strip_prefix(self.tree.path()).expect("inside");
                found.insert(format!("/{}", inside.display()), data);
            }
        }
        found
    }

    /// Returns a label, by its name without the common prefix.
    pub fn label(&self, name: &str) -> &str {
        let name = format!("org.opencontainers.image.{name}");
        self.config["config"]["Labels"][name].as_str().unwrap_or_default()
    }
}
