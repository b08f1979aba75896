//! A directory by its descriptor: all that is done in it is done in this directory, whatever its
//! path leads to later.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The flags for opening every file in a directory: a symbolic link is refused, a FIFO does not
/// block, and no child process inherits the descriptor.
pub(crate) const GUARDED: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// As many symbolic links as Linux follows in one path.
const MOST_LINKS: usize = 40;

/// An opened directory. Its files can be used, but it cannot itself be synced or locked before it is
/// [`readable`](Self::readable).
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    /// Opens a directory. A symbolic link in its path is followed only if no other user can change
    /// it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut here = Self::start(path)?;
        let mut shown = PathBuf::from(if path.is_absolute() { "/" } else { "" });
        let mut rest: Vec<OsString> = steps(path).rev().map(OsStr::to_owned).collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            match here.child(&name) {
                Ok(next) => {
                    here = next;
                    shown.push(&name);
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let target = fs::readlinkat(&here, &name, Vec::new()).map_err(|errno| {
                        if errno == Errno::INVAL { Errno::NOTDIR } else { errno }
                    })?;
                    here.check_link(&shown.join(&name))?;
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = PathBuf::from(OsString::from(os_text(target.to_bytes())));
                    if target.is_absolute() {
                        here = Self::start(&target)?;
                        shown = PathBuf::from("/");
                    }
                    rest.extend(steps(&target).rev().map(OsStr::to_owned));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(here)
    }

    /// Opens the directory in which the resolution of a path begins.
    fn start(path: &Path) -> rustix::io::Result<Self> {
        let start = if path.is_absolute() { "/" } else { "." };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(start, flags, Mode::empty()).map(Self)
    }

    /// Opens a directory in this one; a symbolic link is refused with `ENOTDIR`.
    pub(crate) fn child(&self, name: impl rustix::path::Arg) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// Opens the same directory for reading, so that it can be synced and locked.
    pub(crate) fn readable(&self) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.0, ".", flags, Mode::empty()).map(Self)
    }

    /// Fails if another user can change the symbolic link at `path`, which is in this directory. A
    /// group with write permission was admitted by the owner.
    fn check_link(&self, path: &Path) -> io::Result<()> {
        let found = fs::fstat(&self.0)?;
        let writable = Mode::from_raw_mode(found.st_mode).contains(Mode::WOTH);
        if is_trusted(found.st_uid, geteuid().as_raw()) && !writable {
            return Ok(());
        }
        let shown = path.display();
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{shown} is a symbolic link in a directory that other users can write; set the \
                 path without the link"
            ),
        ))
    }

    /// Returns the owner, mode and device of this directory.
    pub(crate) fn status(&self) -> rustix::io::Result<Stat> {
        fs::fstat(&self.0)
    }

    /// Returns whether this directory is the root of a mounted file system, such as the volume of a
    /// container.
    pub(crate) fn is_mounted(&self) -> bool {
        let found = fs::statx(&self.0, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
        found.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    /// Returns what a name stands for, without following a symbolic link; `None` if nothing has
    /// the name.
    pub(crate) fn find(&self, name: impl rustix::path::Arg) -> rustix::io::Result<Option<Stat>> {
        match fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Removes a file, or a symbolic link itself; no file of that name is a success.
    pub(crate) fn remove(&self, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
        match fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Writes a new file, removing any of that name left behind earlier. With `durable` its content
    /// is on the disk when this returns.
    pub(crate) fn write_new(
        &self,
        name: &OsStr,
        bytes: &[u8],
        mode: Mode,
        durable: bool,
    ) -> io::Result<()> {
        self.remove(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | GUARDED;
        let mut file = File::from(fs::openat(&self.0, name, flags, mode)?);
        file.write_all(bytes)?;
        if durable { file.sync_data() } else { Ok(()) }
    }

    /// Renames a file, which replaces any of the new name.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> rustix::io::Result<()> {
        fs::renameat(&self.0, from, &self.0, to)
    }

    /// Fails if a name stands for anything but a regular file. No file is a success.
    pub(crate) fn check_regular(&self, name: &OsStr) -> io::Result<()> {
        let what = match self.find(name)?.map(|found| FileType::from_raw_mode(found.st_mode)) {
            None | Some(FileType::RegularFile) => return Ok(()),
            Some(FileType::Symlink) => "a symbolic link",
            Some(_) => "not a regular file",
        };
        let message = format!("it is {what}; set a regular file");
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the parts of a path that are opened one after the other.
fn steps(path: &Path) -> impl DoubleEndedIterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

fn os_text(bytes: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

fn is_trusted(owner: u32, us: u32) -> bool {
    owner == us || owner == 0
}

/// Returns how other users can replace the files of a directory with this owner and mode, and the
/// first half of a remedy; `None` if they cannot. The owner can, so it must be this user or root; so
/// can everyone with write permission, unless the directory is sticky. A group with write
/// permission was admitted by the owner.
pub(crate) fn exposure(owner: u32, mode: Mode, us: u32) -> Option<(String, &'static str)> {
    if !is_trusted(owner, us) {
        let what = format!("is owned by uid {owner}, which is neither this user ({us}) nor root");
        return Some((what, "chown it"));
    }
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return Some((format!("is world-writable (mode {:o})", mode.bits()), "chmod o-w it"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn opened(path: &Path) -> Result<u64, String> {
        let opened = Directory::open(path).map_err(|error| error.to_string())?;
        Ok(opened.status().unwrap().st_ino)
    }

    #[test]
    fn links_that_this_user_alone_can_change_are_followed_as_the_kernel_does() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir_all(at("real/inner")).unwrap();
        symlink("real", at("link")).unwrap();
        symlink(at("link/../link"), at("absolute")).unwrap();
        symlink("round", at("round")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        let expected = opened(&at("real/inner")).unwrap();
        for path in ["link/inner", "absolute/inner", "real/./inner/../inner", "link/../real/inner/"]
        {
            assert_eq!(opened(&at(path)), Ok(expected), "{path}");
        }
        for path in ["none", "real/none", "file", "file/x", "round", "round/x"] {
            assert!(opened(&at(path)).is_err(), "{path}");
        }
        assert_eq!(opened(Path::new("/")).unwrap(), opened(Path::new("/..")).unwrap());
    }

    #[test]
    fn links_that_others_can_change_are_refused_by_name_wherever_they_are() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir_all(at("shared/real")).unwrap();
        symlink("real", at("shared/link")).unwrap();
        symlink("shared/link", at("way")).unwrap();
        for mode in [0o757, 0o1777] {
            std::fs::set_permissions(at("shared"), PermissionsExt::from_mode(mode)).unwrap();
            assert!(opened(&at("shared/real")).is_ok());
            for path in ["shared/link", "way", "way/../real"] {
                let refused = opened(&at(path)).unwrap_err();
                let named = refused.contains("shared/link is a symbolic link");
                assert!(named, "{mode:o} {path}: {refused}");
            }
        }
        std::fs::set_permissions(at("shared"), PermissionsExt::from_mode(0o775)).unwrap();
        assert!(opened(&at("shared/link")).is_ok(), "its owner has admitted the group");
    }

    #[test]
    fn a_directory_must_belong_to_the_user_or_root_and_not_be_world_writable() {
        for (owner, mode, us, well) in [
            (1000, 0o700, 1000, true),
            (1000, 0o775, 1000, true),
            (0, 0o770, 1000, true),
            (0, 0o1777, 1000, true),
            (0, 0o777, 1000, false),
            (1000, 0o777, 1000, false),
            (1001, 0o700, 1000, false),
            (1001, 0o1777, 1000, false),
            (1001, 0o700, 0, false),
        ] {
            let exposed = exposure(owner, Mode::from_raw_mode(mode), us);
            assert_eq!(exposed.is_none(), well, "{owner} {mode:o} {us}");
        }
    }
}
