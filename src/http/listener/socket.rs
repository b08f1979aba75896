//! The files of unix sockets. A socket is bound in a private directory and renamed when it listens
//! and has its mode, so that no path that another user could change is followed, and no client finds
//! a socket that does not listen. The directory is locked meanwhile, so that of two processes that
//! start at one path only one replaces a stale socket.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::BACKLOG;
use crate::files::{Directory, exposure};

/// How often and how long another process that starts in the same directory is waited for.
const LOCK_RETRY: Duration = Duration::from_millis(10);
const LOCK_TIME: Duration = Duration::from_secs(5);

const REMEDY: &str = "choose a directory that only this user and root can write";

/// The file of a unix socket, removed on drop unless it has been replaced.
pub struct SocketFile {
    pub(super) path: PathBuf,
    name: OsString,
    directory: Directory,
    made: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_id(&self.directory, &self.name).is_ok_and(|found| found == Some(self.made)) {
            let _ = self.directory.remove(&self.name);
        }
    }
}

/// Returns the device and inode of a file, which distinguish it from another of the same name.
fn file_id(directory: &Directory, name: &OsStr) -> rustix::io::Result<Option<(u64, u64)>> {
    Ok(directory.find(name)?.map(|found| (found.st_dev, found.st_ino)))
}

/// Listens at a path, with exactly this mode from the first moment on.
pub(super) async fn listen(path: &Path, mode: Mode) -> anyhow::Result<(SocketFile, UnixListener)> {
    let listening = async {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("the path names no file");
        };
        let directory = open(parent)?;
        let lock = Lock::take(&directory, parent).await?;
        check_free(&directory, name).await?;
        let private = Private::make(&directory, name)
            .with_context(|| format!("cannot create files in {}", parent.display()))?;
        let (made, listener) = private.listen(mode)?;
        drop(lock);
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok((SocketFile { path, name, directory, made }, listener))
    };
    listening.await.with_context(|| format!("cannot listen on unix:{}", path.display()))
}

/// Opens the directory of a socket, in which no other user may replace files. A volume that root has
/// mounted for everyone, such as an emptyDir in a pod, is accepted: whoever has it was given it.
fn open(path: &Path) -> anyhow::Result<Directory> {
    let shown = path.display();
    let directory = Directory::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow!("there is no directory {shown}: mkdir -p {shown}"),
        io::ErrorKind::InvalidInput => anyhow!("{error}, or {REMEDY}"),
        _ => anyhow!("the directory {shown} cannot be opened: {error}"),
    })?;
    let found = directory.status().with_context(|| format!("cannot examine {shown}"))?;
    let (owner, mode) = (found.st_uid, Mode::from_raw_mode(found.st_mode));
    if let Some((what, remedy)) = exposure(owner, mode, geteuid().as_raw())
        && !(owner == 0 && directory.is_mounted())
    {
        bail!("the directory {shown} {what}; {remedy}, or {REMEDY}");
    }
    directory.readable().with_context(|| format!("cannot read {shown}"))
}

/// A lock on the directory, which needs no file of its own.
struct Lock<'a>(&'a Directory);

impl<'a> Lock<'a> {
    async fn take(directory: &'a Directory, path: &Path) -> anyhow::Result<Self> {
        let taking = async {
            loop {
                match fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
                    Err(Errno::WOULDBLOCK) => tokio::time::sleep(LOCK_RETRY).await,
                    other => return other,
                }
            }
        };
        let shown = path.display();
        match tokio::time::timeout(LOCK_TIME, taking).await {
            Ok(Ok(())) => Ok(Self(directory)),
            Ok(Err(errno)) => Err(errno).with_context(|| format!("cannot lock {shown}")),
            // Every user who can read the directory can lock it, and must not prevent a start.
            Err(_) => {
                tracing::warn!(
                    "another process has locked {shown}; starting without the lock: find the \
                     process with `lslocks`"
                );
                Ok(Self(directory))
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child process between fork and exec.
        let _ = fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Fails unless the name is free, or is the socket of a process that is gone.
async fn check_free(directory: &Directory, name: &OsStr) -> anyhow::Result<()> {
    let Some(found) = directory.find(name)? else {
        return Ok(());
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        bail!("the path exists and is not a socket; move it away or choose another path");
    }
    match UnixStream::connect(within(directory, name)).await {
        Ok(_) => bail!("another process listens on it; end that process or choose another path"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error).context("the socket that is there cannot be checked"),
    }
}

/// Returns a path to a name in an opened directory, for the calls that take no descriptor.
fn within(directory: &Directory, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_fd().as_raw_fd().to_string()).join(name)
}

/// A directory beside the socket's place that only this user can enter; removed on drop.
struct Private<'a> {
    above: &'a Directory,
    own_name: OsString,
    own: Directory,
    /// The name of the socket.
    name: &'a OsStr,
}

impl<'a> Private<'a> {
    fn make(above: &'a Directory, name: &'a OsStr) -> io::Result<Self> {
        let mut own_name = OsString::from(".");
        own_name.push(name);
        own_name.push(".new");
        // Left behind by a process that was killed here; nobody else has one while it is locked.
        if let Ok(left) = above.child(&own_name) {
            left.remove(name)?;
            fs::unlinkat(above, &own_name, AtFlags::REMOVEDIR)?;
        }
        fs::mkdirat(above, &own_name, Mode::RWXU)?;
        let own = above.child(&own_name)?;
        let found = own.status()?;
        if found.st_uid != geteuid().as_raw()
            || Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO)
        {
            return Err(io::Error::other("it was replaced by another user"));
        }
        Ok(Self { above, own_name, own, name })
    }

    /// Listens in this directory, and moves the socket to its place; returns what identifies its
    /// file.
    fn listen(self, mode: Mode) -> anyhow::Result<((u64, u64), UnixListener)> {
        let socket = UnixSocket::new_stream()?;
        // Linux creates the file with the mode of the socket, less the umask.
        fs::fchmod(&socket, mode)?;
        socket.bind(within(&self.own, self.name)).context("failed to bind; is /proc mounted?")?;
        fs::chmodat(&self.own, self.name, mode, AtFlags::empty())?;
        let listener = socket.listen(BACKLOG)?;
        let found = self.own.find(self.name)?.ok_or(Errno::NOENT)?;
        let made = Mode::from_raw_mode(found.st_mode);
        if made != mode {
            bail!(
                "the socket was created with mode {:o} instead of {:o}: its file system ignores \
                 modes; choose another directory",
                made.bits(),
                mode.bits()
            );
        }
        fs::renameat(&self.own, self.name, self.above, self.name)?;
        Ok(((found.st_dev, found.st_ino), listener))
    }
}

impl Drop for Private<'_> {
    fn drop(&mut self) {
        let _ = self.own.remove(self.name);
        let _ = fs::unlinkat(self.above, &self.own_name, AtFlags::REMOVEDIR);
    }
}
