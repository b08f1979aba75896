//! Checks on this machine of what a start would fail for: addresses in use, missing directories of
//! sockets and status files. Nothing is created, and no address stays bound.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::faults::Problem;

/// Binds a TCP address and closes the socket again. It never listens, so no client can connect.
pub(super) fn bind(address: SocketAddr) -> Result<(), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // As the listener does: connections of an earlier process must not keep this one from binding.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)
}

/// Explains why a listener cannot be bound; `None` for errors that the listener itself deals with.
pub(super) fn unbindable(address: SocketAddr, errno: Errno) -> Option<Problem> {
    let port = address.port();
    Some(match errno {
        Errno::ADDRINUSE => Problem::new(
            "is in use by another process",
            format!(
                "choose another port, or end that process: `ss -ltnp 'sport = :{port}'` names it"
            ),
        ),
        Errno::ADDRNOTAVAIL => Problem::new(
            "is not an address of this host",
            format!("write an address that `ip address` lists, or [::]:{port} for all"),
        ),
        Errno::ACCESS => Problem::new(
            "is a port that this user may not listen on",
            "choose a port from 1024, or grant CAP_NET_BIND_SERVICE",
        ),
        _ => return None,
    })
}

/// Checks that a socket can be created at the path and, if `starting`, that no running process
/// listens there.
pub(super) fn socket(path: &Path, starting: bool) -> Result<(), Problem> {
    directory_of(path, starting)?;
    let other = "choose another path, or end that process";
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Problem::new(
            format!("cannot be inspected: {error}"),
            "choose a path that Tenure can write to",
        )),
        Ok(found) if !found.file_type().is_socket() => {
            Err(Problem::new("is a file, not a socket", "move it away, or choose another path"))
        }
        Ok(_) if !starting => Ok(()),
        Ok(_) => match connect(path) {
            alive if is_alive(alive) => {
                Err(Problem::new("is the socket of a running process", other))
            }
            Ok(()) | Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
            Err(error) => {
                Err(Problem::new(format!("is a socket that cannot be checked: {error}"), other))
            }
        },
    }
}

/// Checks that a status file can be written.
pub(super) fn status_file(path: &Path, starting: bool) -> Result<(), Problem> {
    directory_of(path, starting)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            let kind = if found.is_symlink() { "a symbolic link" } else { "not a regular file" };
            Err(Problem::new(format!("is {kind}"), "move it away, or choose another path"))
        }
        _ => Ok(()),
    }
}

/// Checks that the directory of a file exists and that this user can write to it, if `starting`:
/// systemd removes a unit's directory while the unit is stopped.
fn directory_of(path: &Path, starting: bool) -> Result<(), Problem> {
    if !starting {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    let directory = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let shown = directory.display();
    if !directory.is_dir() {
        return Err(Problem::new(
            format!("is in {shown}, which is not a directory"),
            format!("create it first: mkdir -p {shown}"),
        ));
    }
    let may_write = Access::WRITE_OK | Access::EXEC_OK;
    match rustix::fs::accessat(CWD, directory, may_write, AtFlags::EACCESS) {
        Err(errno) => Err(unwritable(directory, errno)),
        Ok(()) => Ok(()),
    }
}

fn unwritable(directory: &Path, errno: Errno) -> Problem {
    let shown = directory.display();
    let remedy = match errno {
        Errno::ROFS => "mount it writable, or choose another directory".to_owned(),
        _ => {
            let uid = rustix::process::geteuid().as_raw();
            format!("make it writable for uid {uid}, or choose another directory")
        }
    };
    Problem::new(format!("is in {shown}, which cannot be written to: {errno}"), remedy)
}

/// Returns whether a running process listens on a socket.
pub(super) fn is_taken(path: &Path) -> bool {
    is_alive(connect(path))
}

fn is_alive(connected: Result<(), Errno>) -> bool {
    matches!(connected, Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// Connects without blocking: a process that accepts no connections must not delay the start.
fn connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_address_in_use_is_found_and_a_free_one_stays_free() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(holder) = TcpListener::bind(host) else { continue };
            let address = holder.local_addr().unwrap();
            let errno = bind(address).unwrap_err();
            let problem = unbindable(address, errno).unwrap();
            assert!(problem.problem.contains("in use"), "{problem:?}");
            assert!(problem.remedy.contains(&format!(":{}", address.port())), "{problem:?}");
            drop(holder);
            assert_eq!(bind(address), Ok(()));
            assert!(TcpListener::bind(address).is_ok());
        }
        let elsewhere = "192.0.2.1:1".parse().unwrap();
        let problem = unbindable(elsewhere, bind(elsewhere).unwrap_err()).unwrap();
        assert!(problem.problem.contains("not an address of this host"), "{problem:?}");
        assert_eq!(unbindable(elsewhere, Errno::AFNOSUPPORT), None, "the listener falls back");
    }

    #[test]
    fn a_status_file_needs_a_directory_and_is_a_regular_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        assert_eq!(status_file(&path, true), Ok(()));
        assert_eq!(status_file(Path::new("a.json"), true), Ok(()), "in the working directory");
        std::fs::write(&path, "").unwrap();
        assert_eq!(status_file(&path, true), Ok(()));
        for (bad, words) in [("no/a.json", "not a directory"), ("a.json/b", "not a directory")] {
            let problem = status_file(&place.path().join(bad), true).unwrap_err();
            assert!(problem.problem.contains(words), "{problem:?}");
        }
        let link = place.path().join("b.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(status_file(&link, true).unwrap_err().problem.contains("symbolic link"));
        for (errno, words) in [(Errno::ROFS, "mount it writable"), (Errno::ACCESS, "for uid ")] {
            let problem = unwritable(place.path(), errno);
            assert!(problem.problem.contains("cannot be written to"), "{problem:?}");
            assert!(problem.remedy.contains(words), "{problem:?}");
        }
    }

    #[test]
    fn a_socket_needs_a_directory_and_a_path_that_no_live_process_uses() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        assert_eq!(socket(&path, true), Ok(()));
        let missing = socket(&place.path().join("no/s"), true).unwrap_err();
        assert!(missing.remedy.contains("mkdir -p"), "{missing:?}");
        assert_eq!(socket(&place.path().join("no/s"), false), Ok(()), "its unit is stopped");

        let listener = UnixListener::bind(&path).unwrap();
        let taken = socket(&path, true).unwrap_err();
        assert!(taken.problem.contains("running process"), "{taken:?}");
        assert_eq!(socket(&path, false), Ok(()), "it may belong to the process that is examined");
        assert!(is_taken(&path));
        drop(listener);
        assert_eq!(socket(&path, true), Ok(()), "a stale one is replaced");
        assert!(!is_taken(&path));

        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        for starting in [true, false] {
            let file = socket(&path, starting).unwrap_err();
            assert!(file.problem.contains("not a socket"), "{file:?}");
        }
    }

    #[test]
    fn a_process_that_accepts_no_connection_is_alive_and_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        // Fills the queue of the listener.
        let mut waiting = Vec::new();
        while waiting.len() < 8 && connect(&path).is_ok() {
            let flags = SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                    .unwrap();
            let _ = rustix::net::connect(&socket, &SocketAddrUnix::new(&path).unwrap());
            waiting.push(socket);
        }
        assert_eq!(connect(&path), Err(Errno::AGAIN), "else this tests nothing");
        assert!(socket(&path, true).unwrap_err().problem.contains("running"));
    }
}
