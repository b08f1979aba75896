//! Unix sockets of the listeners and status files in directories of other users, and two processes
//! that start at the same path.

use testkit::http::status;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use status::{Feed, about, now};
use tenure::config::{FileFormat, Listen, StatusFile};
use tenure::election::Standing;
use tenure::metrics::Metrics;
use tenure::publish::api::bind;
use tenure::publish::file::{Outside, Writer};

/// The user who owns the directories of these tests.
const STRANGER: u32 = 65_534;

fn as_root() {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root, "only root can own files as another user: run this test as root");
}

/// Creates a directory of the stranger.
fn of_the_stranger(path: &Path) {
    fs::create_dir(path).unwrap();
    chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
}

async fn bound(path: &Path) -> Result<tenure::publish::api::Listener, String> {
    bind(&Listen::Unix(path.to_owned())).await.map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn fault_41_a_socket_in_a_directory_that_others_can_write_is_refused_with_a_remedy() {
    as_root();
    let directory = tempfile::tempdir().unwrap();
    let [theirs, open, sticky] = ["theirs", "open", "sticky"].map(|it| directory.path().join(it));
    of_the_stranger(&theirs);
    for (path, mode) in [(&open, 0o777), (&sticky, 0o1777)] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    // A link of the stranger leads to a directory of root, where a stale socket would be replaced.
    let own = directory.path().join("own");
    fs::create_dir(&own).unwrap();
    drop(UnixListener::bind(own.join("s")).unwrap());
    symlink(&own, theirs.join("link")).unwrap();
    for (path, words) in [
        (theirs.join("s"), "owned by uid 65534"),
        (open.join("s"), "world-writable"),
        (theirs.join("link/s"), "symbolic link"),
    ] {
        let refused = bound(&path).await.err().expect("it is refused");
        let parent = path.parent().unwrap().display().to_string();
        assert!(refused.contains(words) && refused.contains(&parent), "{refused}");
        assert!(refused.contains("choose a directory"), "{refused}");
    }
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
    assert!(UnixStream::connect(own.join("s")).is_err(), "the stale socket was replaced");
    let listener = bound(&sticky.join("s")).await.expect("/tmp is like this");
    drop(listener);
    assert_eq!(fs::read_dir(&sticky).unwrap().count(), 0, "nothing is left behind");
}

/// A mounted volume that everyone can write, as an emptyDir of Kubernetes is.
struct Volume(tempfile::TempDir);

impl Volume {
    fn new() -> Self {
        let it = Self(tempfile::tempdir().unwrap());
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "mode=777", "tenure-test"])
            .arg(it.0.path())
            .status();
        assert!(mount.unwrap().success(), "root alone can mount a tmpfs");
        it
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn fault_41_a_link_swapped_in_at_the_start_never_gives_a_file_away() {
    as_root();
    let volume = Volume::new();
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let path = volume.0.path().join("s");
    let done = AtomicBool::new(false);
    let swap = || {
        let aside = volume.0.path().join("aside");
        while !done.load(Ordering::Relaxed) {
            if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_symlink()) {
                symlink(&secret, &aside).unwrap();
                let _ = fs::rename(&aside, &path);
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(swap);
        for _ in 0..300 {
            let _ = runtime.block_on(bound(&path));
            let _ = fs::remove_file(&path);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    let _ = fs::remove_file(&path);
    let listener = runtime.block_on(bound(&path)).unwrap();
    assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o666, "whatever the umask");
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn of_many_that_start_over_one_stale_socket_exactly_one_listens_at_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    for _ in 0..50 {
        drop(UnixListener::bind(&path).unwrap());
        let together = Barrier::new(8);
        let start = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            together.wait();
            runtime.unwrap().block_on(bound(&path))
        };
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let refused: Vec<_> = started.iter().filter_map(|it| it.as_ref().err()).collect();
        assert_eq!(refused.len(), 7, "{refused:?}");
        assert!(refused.iter().all(|it| it.contains("another process listens")), "{refused:?}");
        assert!(UnixStream::connect(&path).is_ok(), "the one that listens lost its path");
        drop(started);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
    }
}

async fn written(path: &Path) -> Result<Writer, String> {
    let file = StatusFile { path: path.to_owned(), format: FileFormat::Json };
    let feed = Feed::new(Standing::Standby);
    let metrics = Metrics::new(&about(), false);
    let started = Writer::start(
        vec![file],
        about(),
        metrics,
        feed.subscribe(),
        Outside { now, ..Outside::REAL },
    )
    .await;
    started.map(|(writer, _)| writer).map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn fault_41_a_status_file_is_never_written_through_a_link_that_others_can_swap() {
    as_root();
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let [theirs, own, usual] = ["theirs", "own", "usual"].map(place);
    of_the_stranger(&theirs);
    fs::create_dir_all(own.join("deeper")).unwrap();
    let precious = own.join("deeper/status.json");
    fs::write(&precious, "precious").unwrap();
    symlink(&own, theirs.join("link")).unwrap();
    symlink("../own", theirs.join("relative")).unwrap();
    symlink(theirs.join("link"), &usual).unwrap();
    for link in [theirs.join("link"), theirs.join("relative"), usual] {
        let path: PathBuf = link.join("deeper/status.json");
        let refused = written(&path).await.err().expect("it is refused");
        assert!(refused.contains("symbolic link") && refused.contains("theirs"), "{refused}");
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    // The stranger's own directory is written, and a link that only root can change is followed.
    fs::create_dir(theirs.join("real")).unwrap();
    let trusted = place("trusted");
    symlink("own/../theirs", &trusted).unwrap();
    written(&trusted.join("real/status.json")).await.unwrap();
    assert!(theirs.join("real/status.json").exists());
}
