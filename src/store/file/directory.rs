//! The directory with the lock and the record of a `file:` store, opened anew on each call, so that
//! a repair takes effect at once.
//!
//! This module never waits for the lock, never follows a symbolic link, never changes a file that
//! is not a valid record of Tenure, and never renames or unlinks the lock file, since a lock on an
//! unlinked file excludes nobody.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::fault::FileError;
use super::permissions::{judge_directory, local_filesystem, other_filesystem};
use super::record::Stored;
use crate::config::FileSettings;
use crate::files::{self, GUARDED};
use crate::store::MOST_LISTED;

/// How many entries of a directory are read to list the elections in it.
const MOST_READ: usize = 10_000;

/// Longer than any record.
const LONGEST_RECORD: u64 = 64 * 1024;

/// The paths of a store's directory and files.
#[derive(Debug)]
pub(super) struct LeaseDirectory {
    directory: PathBuf,
    is_private: bool,
    election: String,
    lock: String,
    record: String,
    temporary: String,
    probe: String,
    /// Syncs a directory: `fsync`, or in tests a disk that fails.
    pub(super) sync: fn(BorrowedFd<'_>) -> rustix::io::Result<()>,
}

/// The directory, opened, so that all further operations are in the same one.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    place: &'a LeaseDirectory,
    fd: files::Directory,
}

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child process between fork and exec.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl LeaseDirectory {
    pub(super) fn new(settings: &FileSettings) -> Self {
        let election = &settings.election;
        Self {
            // A trailing slash or dot would cause a symbolic link to be followed.
            directory: settings.directory.components().collect(),
            is_private: settings.is_private,
            election: election.clone(),
            lock: settings.lock_file(),
            record: format!("{election}.json"),
            temporary: format!("{election}.tmp"),
            probe: format!("{election}.probe"),
            sync: |fd| fs::fsync(fd),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn election(&self) -> &str {
        &self.election
    }

    pub(super) fn record_name(&self) -> &str {
        &self.record
    }

    pub(super) fn record_path(&self) -> PathBuf {
        self.directory.join(&self.record)
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.directory.join(&self.lock)
    }

    /// Opens and checks the directory; `None` if it is missing but can be created.
    pub(super) fn open(&self) -> Result<Option<Directory<'_>>, FileError> {
        let Some(directory) = self.open_unchecked()? else {
            return Ok(None);
        };
        directory.check_filesystem()?;
        directory.check_owner()?;
        Ok(Some(directory))
    }

    /// Opens and checks the directory, creating it first if it is missing.
    pub(super) fn open_or_make(&self) -> Result<Directory<'_>, FileError> {
        if let Some(directory) = self.open()? {
            return Ok(directory);
        }
        let (parent, name) = self.parent()?;
        match fs::mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.fault("made", errno)),
        }
        self.open()?.ok_or_else(|| self.fault("opened", Errno::NOENT))
    }

    /// Opens the directory without checks; `None` if it is missing but can be created.
    pub(super) fn open_unchecked(&self) -> Result<Option<Directory<'_>>, FileError> {
        let (parent, name) = self.parent()?;
        match parent.child(name).and_then(|it| it.readable()) {
            Ok(fd) => Ok(Some(Directory { place: self, fd })),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(FileError::settings(
                format!("{} is a symbolic link or not a directory", self.shown()),
                "set --store to the directory itself",
            )),
            Err(errno) => Err(self.fault("opened", errno)),
        }
    }

    /// Opens the directory above, and returns the name of this one in it.
    fn parent(&self) -> Result<(files::Directory, &OsStr), FileError> {
        let parent = self.directory.parent().unwrap_or(Path::new("/"));
        let name = self.directory.file_name().unwrap_or(OsStr::new("."));
        let opened = files::Directory::open(parent).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FileError::settings(
                format!("the directory {} does not exist, nor does its parent", self.shown()),
                "create it, or set another --store",
            ),
            io::ErrorKind::InvalidInput => FileError::settings(
                format!("{} cannot be used: {error}", self.shown()),
                "or set another --store",
            ),
            _ => FileError::io(parent, "opened", error),
        });
        Ok((opened?, name))
    }

    fn shown(&self) -> std::path::Display<'_> {
        self.directory.display()
    }

    fn fault(&self, verb: &str, errno: Errno) -> FileError {
        FileError::io(&self.directory, verb, errno.into())
    }
}

impl Directory<'_> {
    /// Checks that the filesystem is one on which locks and renames are reliable, which network
    /// filesystems do not promise.
    pub(super) fn check_filesystem(&self) -> Result<&'static str, FileError> {
        let found = fs::fstatfs(&self.fd).map_err(|errno| self.place.fault("examined", errno))?;
        // The magic numbers have 32 bits on every platform, whatever the type of the field.
        let magic = found.f_type as u32;
        local_filesystem(magic).ok_or_else(|| {
            let name = other_filesystem(magic).unwrap_or("of an unknown kind");
            FileError::settings(
                format!(
                    "the filesystem of {} is {name} (0x{magic:x}), which is not a supported local \
                     filesystem",
                    self.place.shown()
                ),
                "set --store to a directory on ext, xfs, btrfs, zfs, f2fs, tmpfs or overlay",
            )
        })
    }

    /// Checks that no other user can replace the files.
    pub(super) fn check_owner(&self) -> Result<(), FileError> {
        let found = fs::fstat(&self.fd).map_err(|errno| self.place.fault("examined", errno))?;
        let (owner, mode) = (found.st_uid, Mode::from_raw_mode(found.st_mode));
        judge_directory(owner, mode, geteuid().as_raw(), self.place.is_private).map_err(
            |(what, remedy)| FileError::settings(format!("{} {what}", self.place.shown()), &remedy),
        )
    }

    /// Tries to take the lock, without waiting; `None` if another process has it.
    pub(super) fn try_lock(&self) -> Result<Option<Lock>, FileError> {
        let path = self.place.lock_path();
        let flags = OFlags::RDWR | OFlags::CREATE | GUARDED;
        let fd = fs::openat(&self.fd, &self.place.lock, flags, Mode::RUSR | Mode::WUSR).map_err(
            |errno| match errno {
                Errno::LOOP | Errno::ISDIR | Errno::NXIO => not_a_file(&path),
                _ => FileError::io(&path, "opened", errno.into()),
            },
        )?;
        check_file(&path, &fstat(&path, &fd)?)?;
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(FileError::io(&path, "locked", errno.into())),
        }
        let lock = Lock(fd);
        self.check_lock(&lock)?;
        Ok(Some(lock))
    }

    /// Returns the error for a lock that another process has.
    pub(super) fn locked_elsewhere(&self) -> FileError {
        FileError::unavailable(format!(
            "another process has locked {}; if this persists, that process is stopped: find it \
             with `lslocks`",
            self.place.lock_path().display()
        ))
    }

    /// Checks that the lock file still has its name, so that others will try the same one.
    fn check_lock(&self, lock: &Lock) -> Result<(), FileError> {
        let path = self.place.lock_path();
        let ours = fstat(&path, &lock.0)?;
        match fs::statat(&self.fd, &self.place.lock, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(theirs) if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(FileError::unavailable(format!(
                "{} was deleted or replaced during the request",
                path.display()
            ))),
            Err(errno) => Err(FileError::io(&path, "examined", errno.into())),
        }
    }

    /// Reads the record; `None` if there is none.
    pub(super) fn read(&self) -> Result<Option<Stored>, FileError> {
        let path = self.place.record_path();
        let flags = OFlags::RDONLY | GUARDED;
        let fd = match fs::openat(&self.fd, &self.place.record, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(FileError::foreign(&path, "is not a regular file"));
            }
            Err(errno) => return Err(FileError::io(&path, "read", errno.into())),
        };
        let found = fstat(&path, &fd)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(FileError::foreign(&path, "is not a regular file"));
        }
        check_file(&path, &found)?;
        let mut bytes = Vec::new();
        File::from(fd)
            .take(LONGEST_RECORD + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| FileError::io(&path, "read", error))?;
        if bytes.len() as u64 > LONGEST_RECORD {
            return Err(FileError::foreign(&path, "is too long"));
        }
        Stored::decode(&bytes).map(Some).map_err(|fault| FileError::foreign(&path, &fault))
    }

    /// Returns the names of the elections with a record here, sorted, at most [`MOST_LISTED`].
    pub(super) fn elections(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)?.take(MOST_READ) {
            let entry = entry?;
            let name = entry.file_name().to_str().ok().and_then(|it| it.strip_suffix(".json"));
            names.extend(name.map(str::to_owned));
        }
        names.sort();
        names.truncate(MOST_LISTED);
        Ok(names)
    }

    /// Replaces the record, as a whole or not at all, unless `last_word` fails just before. With
    /// `durable` a power failure does not bring the old one back.
    pub(super) fn write(
        &self,
        lock: &Lock,
        stored: &Stored,
        durable: bool,
        last_word: impl FnOnce() -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let path = self.place.record_path();
        let bytes = stored
            .encode()
            .map_err(|error| FileError::io(&path, "encoded", io::Error::other(error)))?;
        let written = self
            .fd
            .write_new(self.place.temporary.as_ref(), &bytes, Mode::RUSR | Mode::WUSR, true)
            .map_err(|error| FileError::io(&path, "written", error))
            .and_then(|()| last_word())
            .and_then(|()| self.check_lock(lock))
            .and_then(|()| {
                self.fd
                    .rename(self.place.temporary.as_ref(), self.place.record.as_ref())
                    .map_err(|errno| FileError::io(&path, "replaced", errno.into()))
            });
        if written.is_err() {
            let _ = self.fd.remove(&self.place.temporary);
        } else if durable {
            self.sync()?;
        }
        written
    }

    /// Makes the last replacement durable. A change whose sync has failed is there when the record is
    /// read again, so it is synced again before anyone relies on it.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        (self.place.sync)(self.fd.as_fd()).map_err(|errno| self.place.fault("synced", errno))
    }

    /// Writes and removes a probe file, to check that it is possible.
    pub(super) fn probe(&self) -> Result<(), FileError> {
        let name = self.place.probe.as_ref();
        let written = self.fd.write_new(name, b"{}\n", Mode::RUSR | Mode::WUSR, true);
        let _ = self.fd.remove(name);
        written.map_err(|error| {
            FileError::io(&self.place.directory.join(&self.place.probe), "written", error)
        })
    }
}

fn fstat(path: &Path, fd: &OwnedFd) -> Result<Stat, FileError> {
    fs::fstat(fd).map_err(|errno| FileError::io(path, "examined", errno.into()))
}

fn not_a_file(path: &Path) -> FileError {
    FileError::settings(
        format!("{} is not a regular file, so it cannot be locked", path.display()),
        "move it away, or set another --store",
    )
}

/// Checks that a file is a regular one, owned by this user or root.
fn check_file(path: &Path, found: &Stat) -> Result<(), FileError> {
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(not_a_file(path));
    }
    let (owner, us) = (found.st_uid, geteuid().as_raw());
    if owner == us || owner == 0 {
        return Ok(());
    }
    Err(FileError::settings(
        format!("{} is owned by uid {owner}, but this instance runs as uid {us}", path.display()),
        "run all candidates of an election as the same user",
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    fn named(directory: &Path) -> LeaseDirectory {
        LeaseDirectory::new(&FileSettings {
            directory: directory.to_owned(),
            election: "orders".to_owned(),
            is_private: false,
        })
    }

    fn home() -> (TempDir, LeaseDirectory) {
        let home = tempfile::tempdir().unwrap();
        let place = named(home.path());
        (home, place)
    }

    /// Puts something that is not a regular file in a place, one kind after the other.
    fn irregular(path: &Path) -> [Box<dyn Fn() + '_>; 3] {
        let mode = Mode::RUSR | Mode::WUSR;
        [
            Box::new(move || symlink("/dev/null", path).unwrap()),
            Box::new(move || std::fs::create_dir(path).unwrap()),
            Box::new(move || fs::mknodat(fs::CWD, path, FileType::Fifo, mode, 0).unwrap()),
        ]
    }

    fn remove(path: &Path) {
        let removed =
            if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
        removed.unwrap();
    }

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped_though_a_child_process_inherited_it() {
        let (_home, place) = home();
        let directory = place.open().unwrap().unwrap();
        let lock = directory.try_lock().unwrap().expect("it is free");
        assert!(directory.try_lock().unwrap().is_none());
        let inherited = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(directory.try_lock().unwrap().is_some());
        drop(inherited);
    }

    #[test]
    fn a_lock_or_record_that_is_not_a_regular_file_is_refused() {
        let (_home, place) = home();
        let directory = place.open().unwrap().unwrap();
        for (path, is_lock) in [(place.lock_path(), true), (place.record_path(), false)] {
            for make in irregular(&path) {
                make();
                let error = if is_lock {
                    directory.try_lock().map(drop).unwrap_err()
                } else {
                    directory.read().unwrap_err()
                };
                let words = format!("{} is not a regular file", path.display());
                assert!(error.detail.starts_with(&words), "{}", error.detail);
                remove(&path);
            }
        }
    }

    #[test]
    fn a_file_of_another_user_is_refused_unless_that_is_root() {
        let file = tempfile::tempfile().unwrap();
        let us = geteuid().as_raw();
        for (owner, accepted) in [(us, true), (0, true), (us + 1, false)] {
            let mut found = fs::fstat(&file).unwrap();
            found.st_uid = owner;
            let checked = check_file(Path::new("orders.lock"), &found);
            assert_eq!(checked.is_ok(), accepted, "{owner}");
        }
    }

    #[test]
    fn nothing_is_written_under_a_lock_whose_file_was_replaced() {
        let (home, place) = home();
        let directory = place.open().unwrap().unwrap();
        let lock = directory.try_lock().unwrap().unwrap();
        directory.write(&lock, &Stored::first(), true, || Ok(())).unwrap();
        let before = std::fs::read(place.record_path()).unwrap();
        for replaced in [false, true] {
            let _ = std::fs::remove_file(place.lock_path());
            if replaced {
                std::fs::write(place.lock_path(), "").unwrap();
            }
            let mut changed = Stored::first();
            changed.touch();
            let error = directory.write(&lock, &changed, true, || Ok(())).unwrap_err();
            assert!(error.detail.contains("was deleted or replaced"), "{}", error.detail);
        }
        assert_eq!(std::fs::read(place.record_path()).unwrap(), before);
        assert!(!home.path().join("orders.tmp").exists());
    }

    #[test]
    fn a_record_of_64_kib_is_read_and_a_longer_one_refused() {
        let (_home, place) = home();
        let directory = place.open().unwrap().unwrap();
        assert_eq!(directory.read().unwrap(), None);
        let mut bytes = Stored::first().encode().unwrap();
        bytes.resize(64 * 1024, b' ');
        std::fs::write(place.record_path(), &bytes).unwrap();
        assert_eq!(directory.read().unwrap(), Some(Stored::first()));
        bytes.push(b' ');
        std::fs::write(place.record_path(), &bytes).unwrap();
        let error = directory.read().unwrap_err();
        assert!(error.detail.contains("is too long"), "{}", error.detail);
    }

    #[test]
    fn a_directory_that_cannot_be_trusted_or_found_is_refused_with_a_remedy() {
        let (home, place) = home();
        let writable = home.path().join("writable");
        std::fs::create_dir(&writable).unwrap();
        std::fs::set_permissions(&writable, PermissionsExt::from_mode(0o777)).unwrap();
        let linked = writable.join("linked");
        symlink(home.path(), &linked).unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        for (path, words) in [
            (writable, "is world-writable"),
            (PathBuf::from("/proc/sys"), "is proc (0x9fa0), which is not a supported"),
            (home.path().join("no/such"), "does not exist, nor does its parent"),
            (linked.clone(), "is a symbolic link or not a directory"),
            (file, "is a symbolic link or not a directory"),
            (linked.join("leases"), "that other users can write"),
        ] {
            let error = named(&path).open().unwrap_err();
            assert!(error.detail.contains(words), "{}", error.detail);
            assert!(error.remedy.is_some() && !error.is_transient(), "{}", error.detail);
        }
        assert!(place.open().unwrap().is_some());
    }

    #[test]
    fn a_probe_is_written_and_removed() {
        let (home, place) = home();
        let directory = place.open().unwrap().unwrap();
        directory.probe().unwrap();
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        std::fs::create_dir(home.path().join("orders.probe")).unwrap();
        let error = directory.probe().unwrap_err();
        assert!(error.detail.contains("orders.probe could not be written"), "{}", error.detail);
    }
}
