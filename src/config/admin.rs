//! Settings of the admin listener: its address, and the token for a TCP one. The token is never
//! stored in the settings; [`token`] reads it from its file when it is needed.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::faults::Problem;
use super::machine;
use super::values::{self, Listen};
use crate::files;

/// The fewest characters of a token.
const SHORTEST: usize = 16;

/// The most bytes of a token file.
pub(crate) const LARGEST: u64 = 4_096;

/// The address of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// A unix socket, for the user of this process.
    Unix(PathBuf),
    /// A loopback address, for holders of the token.
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

/// Parses the address: a unix socket or a loopback address.
pub(super) fn address(text: &str) -> Result<Listen, Problem> {
    const WRITE: &str = "write unix:/run/tenure/admin.sock, or 127.0.0.1:4041 with \
                         --admin-token-file";
    match values::address(text) {
        Ok(Listen::Tcp(it)) if !it.ip().to_canonical().is_loopback() => Err(Problem::new(
            "is not a loopback address, and anyone who reaches this listener can end leadership",
            format!("write 127.0.0.1:{} with --admin-token-file, or unix:/path", it.port()),
        )),
        Ok(it) => Ok(it),
        Err(problem) => Err(Problem::new(problem.problem, WRITE)),
    }
}

impl Admin {
    /// Returns whether a running process listens there; always false for a TCP address.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Unix(path) if machine::is_taken(path))
    }
}

/// Reads the token from a file: one line of at least 16 printable characters. The file must not be
/// accessible to others.
///
/// # Errors
/// Returns what is wrong, without the token.
pub fn token(path: &Path) -> Result<String, String> {
    checked_token(path).map_err(|it| it.problem)
}

pub(super) fn checked_token(path: &Path) -> Result<String, Problem> {
    let make =
        format!("create one: (umask 077; head -c 32 /dev/urandom | base64 > {})", path.display());
    let cannot = |error: std::io::Error| {
        Problem::new(
            format!("cannot be read: {}", files::reason(&error)),
            format!("name a file that Tenure can read, or {make}"),
        )
    };
    let (text, found) = files::read(path, LARGEST).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => Problem::new("is not a file of one line", make.clone()),
        _ => cannot(error),
    })?;
    if found.mode() & 0o006 != 0 {
        return Err(Problem::new(
            format!("has mode {:04o}, which gives other users access", found.mode() & 0o7777),
            format!(
                "chmod o-rw {}; for a secret of Kubernetes: defaultMode: 0440 and an fsGroup",
                path.display()
            ),
        ));
    }
    let token = text.trim_ascii();
    let problem = if token.is_empty() {
        "is empty".to_owned()
    } else if !token.iter().all(u8::is_ascii_graphic) {
        "contains something other than one word of printable ASCII characters".to_owned()
    } else if token.len() < SHORTEST {
        format!("contains a token shorter than {SHORTEST} characters")
    } else {
        return Ok(String::from_utf8_lossy(token).into_owned());
    };
    Err(Problem::new(problem, make))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_admin_address_is_a_socket_or_loopback() {
        assert_eq!(address("unix:/run/a"), Ok(Listen::Unix("/run/a".into())));
        for good in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "127.0.0.1:0"]
        {
            assert!(matches!(address(good), Ok(Listen::Tcp(_))), "{good}");
        }
        for (bad, problem, remedy) in [
            ("0.0.0.0:41", "not a loopback", "127.0.0.1:41"),
            ("[::]:41", "not a loopback", "127.0.0.1:41"),
            ("10.0.0.1:41", "not a loopback", "127.0.0.1:41"),
            ("unix:x", "begin with /", "unix:/run"),
            ("off", "not an IP address", "unix:/run"),
            ("", "empty", "unix:/run"),
        ] {
            let found = address(bad).unwrap_err();
            assert!(found.problem.contains(problem), "{bad}: {found:?}");
            assert!(found.remedy.contains(remedy), "{bad}: {found:?}");
        }
    }

    #[test]
    fn a_token_is_one_long_word_that_others_cannot_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let write = |content: &[u8], mode: u32| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            token(&path)
        };
        for mode in [0o600, 0o400, 0o440] {
            assert_eq!(write(b" 0123456789abcdef\n", mode).as_deref(), Ok("0123456789abcdef"));
            std::fs::remove_file(&path).unwrap();
        }
        for (content, mode, words) in [
            (&b"0123456789abcdef"[..], 0o644, "mode 0644"),
            (b"0123456789abcdef", 0o602, "mode 0602"),
            (b"", 0o600, "is empty"),
            (b"\n \n", 0o600, "is empty"),
            (b"0123456789abcde\n", 0o600, "shorter than 16"),
            (b"0123456789 abcdef", 0o600, "one word"),
            ("0123456789äöüabc".as_bytes(), 0o600, "one word"),
            (&[b'x'; 5_000], 0o600, "one line"),
        ] {
            let found = write(content, mode).unwrap_err();
            assert!(found.contains(words) && !found.contains("0123"), "{found}");
        }
        assert!(token(&place.path().join("none")).unwrap_err().contains("cannot be read"));
        assert!(token(place.path()).unwrap_err().contains("is not a file"));
    }
}
