//! Status files from a reader's view: both formats, invalid targets, a disk that fails, and the
//! acknowledgements to the driver.

use testkit::faults::small_disk::SmallDisk;
use testkit::http::status;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use status::{Feed, about, holder, leading, ms, now, pass, status as of};
use tenure::config::{FileFormat, StatusFile};
use tenure::election::{Standing, Status};
use tenure::metrics::Metrics;
use tenure::publish::file::{Outside, Writer};
use tenure::status::About;
use tenure::status::publish_acks::PublishAcks;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A running writer; stops when it is dropped.
struct Writing {
    feed: Option<Feed>,
    metrics: Metrics,
    acks: PublishAcks,
    tasks: JoinSet<()>,
}

fn named(path: &Path) -> StatusFile {
    let is_json = path.extension().is_some_and(|it| it == "json");
    let format = if is_json { FileFormat::Json } else { FileFormat::Env };
    StatusFile { path: path.to_owned(), format }
}

impl Writing {
    async fn start(feed: Feed, about: About, paths: &[PathBuf]) -> anyhow::Result<Self> {
        let metrics = Metrics::new(&about, false);
        let files = paths.iter().map(|it| named(it)).collect();
        let (writer, acks) = Writer::start(
            files,
            about,
            metrics.clone(),
            feed.subscribe(),
            Outside { now, ..Outside::REAL },
        )
        .await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run());
        Ok(Self { feed: Some(feed), metrics, acks, tasks })
    }

    fn feed(&self) -> &Feed {
        self.feed.as_ref().expect("the driver is not gone")
    }

    /// Publishes a status, and waits for the files' acknowledgement.
    async fn publish(&mut self, status: Status) {
        self.feed().change(status);
        self.acknowledged().await;
    }

    async fn acknowledged(&mut self) {
        let sequence = self.feed().last().sequence;
        let reached = timeout(Duration::from_secs(20), self.acks.reached(sequence)).await;
        reached.expect("the files acknowledge it");
    }

    fn errors(&self) -> u64 {
        let text = self.metrics.text(&self.feed().last(), 0, now());
        let line = text.lines().find(|it| it.starts_with("tenure_status_file_errors_total{"));
        line.and_then(|it| it.split(' ').next_back()?.parse().ok()).expect("the metric is there")
    }
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

const NAMES: [&str; 8] = [
    "ROLE",
    "STATE",
    "ELECTION",
    "IDENTITY",
    "TERM",
    "VALID_UNTIL",
    "VALID_UNTIL_BOOTTIME_NS",
    "BOOT_ID",
];

#[tokio::test]
async fn both_formats_have_the_fields_that_identify_a_stale_file() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["status.json", "status.env"].map(|it| directory.path().join(it));
    let feed = Feed::new(leading(42, ms(10_000)));
    let mut writing = Writing::start(feed, about(), &paths).await.unwrap();
    let document = json(&paths[0]);
    let expected: [(&str, serde_json::Value); 8] = [
        ("role", "active".into()),
        ("state", "leader".into()),
        ("election", "orders".into()),
        ("identity", "us".into()),
        ("term", 42.into()),
        ("valid_until", "2026-11-20T09:00:10Z".into()),
        ("valid_until_boottime_ns", 1_010_000_000_000_u64.into()),
        ("boot_id", about().boot_id.into()),
    ];
    for (name, value) in &expected {
        assert_eq!(&document[name], value, "{name}");
    }
    for path in &paths {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o133, 0, "no one may run it, and no other user may write it");
    }
    let text = fs::read_to_string(&paths[1]).unwrap();
    let lines: Vec<_> = expected
        .iter()
        .map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("TENURE_{}='{value}'\n", name.to_uppercase())
        })
        .collect();
    assert_eq!(text, lines.concat());

    writing.publish(Status { holder: holder("them", None, 43), ..of(Standing::Standby) }).await;
    let document = json(&paths[0]);
    assert_eq!((&document["role"], &document["state"]), (&"passive".into(), &"standby".into()));
    assert_eq!(
        (document["term"].as_u64(), document["valid_until_boottime_ns"].as_u64()),
        (None, Some(0))
    );
    let text = fs::read_to_string(&paths[1]).unwrap();
    assert!(
        text.contains("TENURE_ROLE='passive'\n") && text.contains("TENURE_TERM=''\n"),
        "{text}"
    );
}

#[tokio::test]
async fn each_renewal_moves_the_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    let feed = Feed::new(leading(42, ms(10_000)));
    let mut writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    let mut last = 0;
    for _ in 0..3 {
        pass(ms(2_000));
        writing.feed().renew(leading(42, ms(10_000)));
        writing.acknowledged().await;
        let until = json(&path)["valid_until_boottime_ns"].as_u64().unwrap();
        assert_eq!(u128::from(until), (now().boot + ms(10_000)).as_nanos());
        assert!(until > last);
        last = until;
    }
    assert_eq!(json(&path)["valid_until"], "2026-11-20T09:00:16Z");
}

#[tokio::test]
async fn the_last_publication_is_written_after_the_driver_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    let feed = Feed::new(leading(42, ms(10_000)));
    let mut writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    // The writer does not run between these two lines.
    writing.feed().change(of(Standing::Stopped));
    writing.feed = None;
    let ended = timeout(Duration::from_secs(20), writing.tasks.join_next()).await;
    ended.expect("the writer ends").unwrap().unwrap();
    assert_eq!(
        (&json(&path)["state"], &json(&path)["role"]),
        (&"stopped".into(), &"passive".into())
    );
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("coreutils are there").success());
}

/// Returns functions that create each kind of target that is not a regular file.
fn no_files() -> [fn(&Path); 4] {
    [
        |path| {
            fs::write(path.with_extension("target"), "precious").unwrap();
            symlink(path.with_extension("target"), path).unwrap();
        },
        |path| symlink("/nowhere/at/all", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
        fifo,
    ]
}

#[tokio::test]
async fn fault_30_a_path_that_is_not_a_regular_file_is_refused_at_the_start_by_name() {
    for make in no_files() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["good.env", "bad.json"].map(|it| directory.path().join(it));
        make(&paths[1]);
        let started = Writing::start(Feed::new(Standing::Standby), about(), &paths);
        let started = timeout(Duration::from_secs(20), started).await.expect("nothing hangs");
        let error = format!("{:#}", started.err().expect("it is refused"));
        assert!(error.contains(&paths[1].display().to_string()), "{error}");
        assert!(!fs::symlink_metadata(&paths[1]).unwrap().is_file(), "nothing was replaced");
        if let Ok(target) = fs::read_to_string(paths[1].with_extension("target")) {
            assert_eq!(target, "precious");
        }
    }
    let missing = PathBuf::from("/nowhere/at/all/status.json");
    let started =
        Writing::start(Feed::new(Standing::Standby), about(), std::slice::from_ref(&missing)).await;
    assert!(format!("{:#}", started.err().unwrap()).contains("/nowhere/at/all/status.json"));
}

#[tokio::test]
async fn fault_30_a_path_that_stops_being_a_file_is_counted_and_the_others_are_written() {
    for make in no_files() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["bad.json", "good.json"].map(|it| directory.path().join(it));
        let mut writing =
            Writing::start(Feed::new(Standing::Starting), about(), &paths).await.unwrap();
        assert_eq!(writing.errors(), 0);
        fs::remove_file(&paths[0]).unwrap();
        make(&paths[0]);
        writing.feed().change(of(leading(42, ms(10_000))));
        until(|| writing.errors() == 1).await;
        writing.feed().change(of(Standing::Standby));
        until(|| writing.errors() == 2).await;
        // As long as one file is not written, there is no acknowledgement: a release waits as long
        // as it may.
        let sequence = writing.feed().last().sequence;
        assert!(timeout(ms(200), writing.acks.reached(sequence)).await.is_err());
        assert_eq!(json(&paths[1])["state"], "standby");
        assert!(!fs::symlink_metadata(&paths[0]).unwrap().is_file(), "nothing was replaced");
    }
}

/// Waits for a condition that another task fulfils.
async fn until(mut condition: impl FnMut() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(ms(5)).await;
        }
    };
    timeout(Duration::from_secs(20), met).await.expect("the condition comes true");
}

#[tokio::test]
async fn an_active_file_that_cannot_be_rewritten_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    let feed = Feed::new(leading(42, ms(10_000)));
    let mut writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    // A directory in place of the temporary file makes each write fail, whatever the user's
    // permissions.
    let temporary = directory.path().join(format!(".status.json.{}.tmp", std::process::id()));
    fs::create_dir_all(temporary.join("full")).unwrap();
    writing.feed().renew(leading(42, ms(10_000)));
    until(|| writing.errors() == 1).await;
    assert_eq!(json(&path)["role"], "active", "while it is true it stays");
    writing.feed().change(of(Standing::Standby));
    until(|| writing.errors() == 2).await;
    assert!(!path.exists(), "it says active yet");
    fs::remove_dir_all(&temporary).unwrap();
    writing.publish(of(Standing::Standby)).await;
    assert_eq!(json(&path)["role"], "passive");
}

#[tokio::test]
async fn fault_29_a_write_that_fails_leaves_no_part_of_it_behind() {
    let disk = SmallDisk::new(16);
    let path = disk.path().join("status.json");
    let feed = Feed::new(leading(42, ms(10_000)));
    let writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    disk.fill();
    writing.feed().renew(leading(42, ms(10_000)));
    until(|| writing.errors() == 1).await;
    let files = fs::read_dir(disk.path()).unwrap().map(|it| it.unwrap().file_name());
    let files: Vec<_> = files.filter(|it| *it != "filler").collect();
    assert_eq!(files, ["status.json"]);
}

#[tokio::test]
async fn fault_41_a_directory_swapped_for_a_link_keeps_the_files_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let [theirs, own] = ["theirs", "own"].map(|it| directory.path().join(it));
    for path in [&theirs.join("inner"), &own] {
        fs::create_dir_all(path).unwrap();
    }
    // Every user can swap what is in it.
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o757)).unwrap();
    fs::write(own.join("status.json"), "precious").unwrap();
    let path = theirs.join("inner/status.json");
    let feed = Feed::new(leading(42, ms(10_000)));
    let mut writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    fs::remove_dir_all(theirs.join("inner")).unwrap();
    symlink(&own, theirs.join("inner")).unwrap();
    // As passive, the file that cannot be written is removed, but not through the link.
    writing.feed().change(of(Standing::Standby));
    until(|| writing.errors() == 1).await;
    assert_eq!(fs::read_to_string(own.join("status.json")).unwrap(), "precious");
    fs::remove_file(theirs.join("inner")).unwrap();
    fs::create_dir(theirs.join("inner")).unwrap();
    writing.publish(of(Standing::Standby)).await;
    assert_eq!(json(&path)["state"], "standby");
}

#[tokio::test]
async fn fault_29_a_directory_that_is_deleted_and_restored_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let path = inner.join("status.json");
    let mut writing =
        Writing::start(Feed::new(Standing::Starting), about(), std::slice::from_ref(&path))
            .await
            .unwrap();
    fs::remove_dir_all(&inner).unwrap();
    writing.feed().change(of(leading(42, ms(10_000))));
    until(|| writing.errors() == 1).await;
    fs::create_dir(&inner).unwrap();
    writing.publish(of(Standing::Standby)).await;
    assert_eq!(json(&path)["state"], "standby");
    assert_eq!(writing.errors(), 1);
}

#[tokio::test]
async fn a_publication_is_acknowledged_only_after_the_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    let feed = Feed::new(Standing::Starting);
    let mut writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    for term in 1..50 {
        writing.feed().change(of(leading(term, ms(10_000))));
        let sequence = writing.feed().last().sequence;
        let early = timeout(Duration::ZERO, writing.acks.reached(sequence)).await;
        assert!(early.is_err() || json(&path)["term"] == term, "word before the write");
        writing.acknowledged().await;
        assert_eq!(json(&path)["term"], term);
    }
    let never = timeout(ms(200), writing.acks.reached(writing.feed().last().sequence + 1)).await;
    assert!(never.is_err(), "word of what was not published");
}

#[tokio::test]
async fn a_reader_never_sees_a_partial_file_and_no_temporary_file_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("status.json");
    let feed = Feed::new(Standing::Starting);
    let mut writing = Writing::start(feed, about(), std::slice::from_ref(&path)).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (ends, read) = (Arc::clone(&done), path.clone());
    let reader = std::thread::spawn(move || {
        let mut count = 0;
        while !ends.load(Ordering::Relaxed) {
            let text = fs::read_to_string(&read).expect("the file is always there");
            serde_json::from_str::<serde_json::Value>(&text)
                .unwrap_or_else(|_| panic!("torn: {text:?}"));
            count += 1;
        }
        count
    });
    for term in 0..500 {
        writing.publish(of(leading(term, ms(10_000)))).await;
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().expect("no file was torn") > 10);
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["status.json"]);
}

/// Returns the values of the variables after a shell has sourced the files, one per line.
fn sourced(paths: &[PathBuf]) -> String {
    let print: String =
        NAMES.iter().map(|name| format!("printf '%s\\n' \"$TENURE_{name}\"; ")).collect();
    let script = format!("set -eu; for file; do . \"$file\"; {print} done");
    let output = Command::new("sh")
        .args(["-c", &script, "sh"])
        .args(paths)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .expect("sh is there");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_shell_parses_any_identity(
        mut identities in prop::collection::vec("[ -~]{1,128}", 20),
    ) {
        let nasty = ["'", "''", "\\'", "$(touch pwned)", "`id`", "a'; exit 7; '", "\"$HOME\"", "-n", "\\", "!!", "#"];
        identities.extend(nasty.map(str::to_owned));
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut paths = Vec::new();
        for (number, identity) in identities.iter().enumerate() {
            let path = directory.path().join(format!("{number}.env"));
            let about = About { identity: identity.clone(), ..about() };
            let feed = Feed::new(leading(42, ms(10_000)));
            runtime.block_on(Writing::start(feed, about, std::slice::from_ref(&path))).unwrap();
            paths.push(path);
        }
        let printed = sourced(&paths);
        let lines: Vec<_> = printed.lines().collect();
        prop_assert_eq!(lines.len(), identities.len() * NAMES.len());
        for (values, identity) in lines.chunks(NAMES.len()).zip(&identities) {
            prop_assert_eq!(values[0], "active");
            prop_assert_eq!(values[3], identity.as_str());
            prop_assert_eq!(values[4], "42");
            prop_assert_eq!(values[6], "1010000000000");
        }
    }
}
