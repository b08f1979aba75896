//! Small files, such as tokens, keys and certificates, that other processes replace.
//!
//! A read may hang, if a mount is dead, and a file may be endless. Each file has at most one thread
//! that reads it, and a limit of its size. Reads that have timed out keep their thread, and the next
//! read of that file waits for it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A file to be read again and again.
#[derive(Clone, Debug)]
pub(crate) struct SmallFile {
    path: PathBuf,
    largest: u64,
    /// The permit to read the file, shared by all that read it in this process.
    permit: Arc<Semaphore>,
}

impl SmallFile {
    /// Names a file of at most `largest` bytes; opens nothing yet.
    pub(crate) fn new(path: &Path, largest: u64) -> Self {
        static PERMITS: Mutex<BTreeMap<PathBuf, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());
        let mut permits = PERMITS.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = permits.entry(path.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1)));
        Self { path: path.to_owned(), largest, permit: Arc::clone(permit) }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. Waits at most for `bound`; if it hangs, the error is `TimedOut`.
    pub(crate) async fn read(&self, bound: Duration) -> io::Result<Vec<u8>> {
        let largest = self.largest;
        let read = self.on_its_thread(bound, move |path| read(path, largest)).await??;
        Ok(read.0)
    }

    /// Does something with the file on the one thread that may block on it.
    pub(crate) async fn on_its_thread<T: Send + 'static>(
        &self,
        bound: Duration,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (path, permit) = (self.path.clone(), Arc::clone(&self.permit));
        let working = async {
            // The semaphore is never closed.
            let permit = permit.acquire_owned().await.map_err(io::Error::other)?;
            let task = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                work(&path)
            });
            task.await.map_err(io::Error::other)
        };
        timeout(bound, working).await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "timed out: its file system hangs"))
        })
    }
}

/// Reads a regular file of at most `largest` bytes; also returns its mode and owner. Symbolic links
/// are followed, since the platform replaces mounted secrets through them.
pub(crate) fn read(path: &Path, largest: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let refused = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    // Without this flag the opening of a FIFO waits for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return refused("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    if found.len() <= largest {
        // It may grow meanwhile.
        file.take(largest + 1).read_to_end(&mut bytes)?;
    }
    if found.len() > largest || bytes.len() as u64 > largest {
        return refused(format!("it is larger than {} KiB", largest / 1024));
    }
    Ok((bytes, found))
}

/// Returns why a file could not be read, without the number of a system error.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        // The text of this kind is "entity not found".
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        kind if error.raw_os_error().is_some() => kind.to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const BOUND: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_file_that_is_no_small_regular_file_is_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("small"), [b'x'; 1024]).unwrap();
        std::fs::write(at("large"), [b'x'; 1025]).unwrap();
        std::fs::File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        let made = rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::RUSR | Mode::WUSR);
        made.unwrap();
        std::os::unix::fs::symlink("small", at("link")).unwrap();
        let read = async |path: PathBuf| {
            let read = SmallFile::new(&path, 1024).read(BOUND).await;
            read.map(|bytes| bytes.len()).map_err(|error| reason(&error))
        };
        assert_eq!(read(at("small")).await, Ok(1024));
        assert_eq!(read(at("link")).await, Ok(1024));
        for (name, why) in [
            ("large", "it is larger than 1 KiB"),
            ("huge", "it is larger than 1 KiB"),
            ("fifo", "it is not a regular file"),
            ("", "it is not a regular file"),
            ("none", "no such file or directory"),
        ] {
            assert_eq!(read(at(name)).await, Err(why.to_owned()), "{name}");
        }
        assert!(read("/dev/zero".into()).await.is_err());
    }

    #[tokio::test]
    async fn fault_39_a_file_that_hangs_holds_one_thread_and_no_other_file() {
        let place = tempfile::tempdir().unwrap();
        let [hung, well] = ["hung", "well"].map(|it| place.path().join(it));
        for path in [&hung, &well] {
            std::fs::write(path, "old").unwrap();
        }
        let (go, stop) = mpsc::channel::<()>();
        let hang = move |_: &Path| stop.recv();
        let file = SmallFile::new(&hung, 1024);
        assert!(file.on_its_thread(SOON, hang).await.is_err());
        let (began, begun) = mpsc::channel();
        for _ in 0..3 {
            let began = began.clone();
            // Another user of the same file, as the store and a route are of one token.
            let other = SmallFile::new(&hung, 1024);
            let late = other.on_its_thread(SOON, move |_| began.send(())).await;
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert!(begun.try_recv().is_err(), "a second thread waits for the file");
        assert_eq!(SmallFile::new(&well, 1024).read(BOUND).await.unwrap(), b"old");
        std::fs::write(&hung, "new").unwrap();
        go.send(()).unwrap();
        assert_eq!(file.read(BOUND).await.unwrap(), b"new", "never what was read before");
    }
}
