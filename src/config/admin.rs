//! Where operators reach us: the address of the admin listener, and the token that a TCP one wants.
//!
//! What it does not do: it binds nothing, and keeps no token: whoever needs it reads it with
//! [`token`].

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::faults::Problem;
use super::{Listen, values};

/// The fewest characters of a token.
const SHORTEST: usize = 16;

/// The largest file that is read as a token.
const LARGEST: u64 = 4_096;

/// Address of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// A unix socket, for our own user.
    Unix(PathBuf),
    /// A loopback address, for whoever knows the token.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The file that holds the token.
        token_file: PathBuf,
    },
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { address, .. } => address.fmt(f),
        }
    }
}

/// Reads the address: a unix socket or one of loopback's.
pub(super) fn address(text: &str) -> Result<Listen, Problem> {
    const WRITE: &str = "write unix:/run/tenure/admin.sock, or 127.0.0.1:4041 with \
                         --admin-token-file";
    match values::address(text) {
        Ok(Listen::Tcp(it)) if !it.ip().to_canonical().is_loopback() => Err(Problem::new(
            "is an address beyond loopback, and whoever reaches this listener may end a lead",
            format!("write 127.0.0.1:{} with --admin-token-file, or unix:/path", it.port()),
        )),
        Ok(it) => Ok(it),
        Err(problem) => Err(Problem::new(problem.problem, WRITE)),
    }
}

/// Checks that a socket can be made at the path; with `starting`, also that no live process has it.
pub(super) fn socket(path: &Path, starting: bool) -> Result<(), Problem> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        return Err(Problem::new(
            format!("is in {}, which is no directory", directory.display()),
            format!("make it first: mkdir -p {}", directory.display()),
        ));
    }
    let other = "choose another path, or end that process";
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Problem::new(
            format!("cannot be looked at: {error}"),
            "name a path that we may write to",
        )),
        Ok(found) if !found.file_type().is_socket() => {
            Err(Problem::new("is a file that is no socket", "move it away, or choose another path"))
        }
        Ok(_) if !starting => Ok(()),
        Ok(_) => match connect(path) {
            Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => {
                Err(Problem::new("is the socket of a process that is alive", other))
            }
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            Err(error) => {
                Err(Problem::new(format!("is a socket that is not ours: {error}"), other))
            }
        },
    }
}

/// Connects without waiting: a live process that accepts nobody must not hold up the start.
fn connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Reads the token of a file: one line of at least 16 printable characters, in a file that others
/// may not read.
///
/// # Errors
/// Says what is wrong, and never the token.
pub fn token(path: &Path) -> Result<String, String> {
    checked_token(path).map_err(|it| it.problem)
}

pub(super) fn checked_token(path: &Path) -> Result<String, Problem> {
    let make =
        format!("make one: (umask 077; head -c 32 /dev/urandom | base64 > {})", path.display());
    let cannot = |error: std::io::Error| {
        Problem::new(
            format!("cannot be read: {error}"),
            format!("name a file that we may read, or {make}"),
        )
    };
    let found = std::fs::metadata(path).map_err(cannot)?;
    if !found.is_file() || found.len() > LARGEST {
        return Err(Problem::new("is no file of one line", make));
    }
    if found.mode() & 0o006 != 0 {
        return Err(Problem::new(
            format!("has the mode {:04o}, which lets others at it", found.mode() & 0o7777),
            format!(
                "chmod o-rw {}; for a secret of Kubernetes: defaultMode: 0440 and an fsGroup",
                path.display()
            ),
        ));
    }
    let text = std::fs::read(path).map_err(cannot)?;
    let token = text.trim_ascii();
    let problem = if token.is_empty() {
        "is empty".to_owned()
    } else if !token.iter().all(u8::is_ascii_graphic) {
        "holds something else than one word of printable ASCII characters".to_owned()
    } else if token.len() < SHORTEST {
        format!("holds a token shorter than {SHORTEST} characters")
    } else {
        return Ok(String::from_utf8_lossy(token).into_owned());
    };
    Err(Problem::new(problem, make))
}
