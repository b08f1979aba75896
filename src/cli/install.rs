//! `tenure install`: copies this binary into a directory, for images without a shell or `cp`: an
//! init container puts Tenure into a volume, and a container of another image runs it from there.
//!
//! It creates no directory: one with a misspelt name would be lost with its container.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::StatVfsMountFlags;
use uuid::Uuid;

use super::terminal;
use crate::exec::watchdog_client::OURSELVES;

/// The name of the copy.
const NAME: &str = "tenure";

/// Executable for all users: the other container may run as another user.
const MODE: u32 = 0o755;

/// The target directory.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
The copy is DIR/tenure, with mode 0755, and replaces an earlier one atomically: processes that run \
the earlier one are not affected.

Examples:
  tenure install /shared
      in an init container, with an emptyDir mounted at /shared in both; the other then runs
      /shared/tenure exec --store URL -- ./worker
  tenure install ~/.local/bin
      for one user, without a package

Exit codes: 0 done, 1 failed, 2 bad usage")]
pub struct Args {
    /// An existing directory
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

/// Copies this binary and prints the path of the copy. Exits with 0 on success, 1 on failure.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    match install(&args.directory) {
        Ok(path) => {
            let version = env!("CARGO_PKG_VERSION");
            let text = format!("installed tenure {version} in {}\n", path.display());
            let code = terminal::print(&text, ExitCode::SUCCESS);
            if !cfg!(target_feature = "crt-static") {
                terminal::complain(
                    "this build is linked dynamically and needs a C library: use the static build \
                     of Tenure's image where there is none",
                );
            }
            code
        }
        Err(Refusal { problem, remedy }) => {
            terminal::complain(&format!("{problem}\n  {remedy}"));
            ExitCode::FAILURE
        }
    }
}

/// Why no copy was made, with a remedy.
#[derive(Debug)]
struct Refusal {
    problem: String,
    remedy: String,
}

fn install(directory: &Path) -> Result<PathBuf, Refusal> {
    let target = directory.join(NAME);
    let shown = directory.display();
    let found = std::fs::metadata(directory).map_err(|error| refusal(directory, &error))?;
    if !found.is_dir() {
        return Err(refusal(directory, &ErrorKind::NotADirectory.into()));
    }
    if target.is_dir() && !target.is_symlink() {
        return Err(Refusal {
            problem: format!("{} is a directory, but the copy needs that name", target.display()),
            remedy: "set another directory, or move it away".to_owned(),
        });
    }
    if rustix::fs::statvfs(directory).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOEXEC))
    {
        return Err(Refusal {
            problem: format!("{shown} is mounted noexec: the copy could not be run"),
            remedy: "mount the volume without noexec, or set another directory".to_owned(),
        });
    }
    let mut ourselves = File::open(OURSELVES).map_err(|error| Refusal {
        problem: format!("failed to read {OURSELVES}: {error}"),
        remedy: "mount /proc".to_owned(),
    })?;
    // In the target's directory, since a rename is atomic only within one file system.
    let temporary = directory.join(format!(".{NAME}.{}", Uuid::new_v4().simple()));
    let placed = place(&mut ourselves, &temporary, &target);
    placed.map(|()| target).map_err(|error| {
        // The file may not have been created at all.
        let _ = std::fs::remove_file(&temporary);
        refusal(directory, &error)
    })
}

/// Writes the complete copy, then renames it to the target.
fn place(ourselves: &mut File, temporary: &Path, target: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(MODE).open(temporary)?;
    io::copy(ourselves, &mut copy)?;
    // The umask may have removed permissions.
    copy.set_permissions(Permissions::from_mode(MODE))?;
    copy.sync_all()?;
    drop(copy);
    std::fs::rename(temporary, target)
}

fn refusal(directory: &Path, error: &io::Error) -> Refusal {
    let remedy = match error.kind() {
        ErrorKind::NotFound => {
            return Refusal {
                problem: format!("the directory {} does not exist", directory.display()),
                remedy: format!(
                    "mount a volume there that both containers share, or create it: mkdir -p {}",
                    directory.display()
                ),
            };
        }
        ErrorKind::NotADirectory => "set the directory, not a file in it",
        ErrorKind::PermissionDenied => {
            "run as a user with write permission; in Kubernetes an emptyDir is writable for all, \
             other volumes for the pod's fsGroup"
        }
        ErrorKind::ReadOnlyFilesystem => "mount the volume here without readOnly",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free 10 MB; an emptyDir may have a sizeLimit"
        }
        _ => "set another directory, or check which process uses this one",
    };
    Refusal {
        problem: format!("failed to copy to {}: {error}", directory.display()),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_remedy() {
        for (kind, words) in [
            (ErrorKind::NotFound, "mount a volume"),
            (ErrorKind::NotADirectory, "not a file"),
            (ErrorKind::PermissionDenied, "fsGroup"),
            (ErrorKind::ReadOnlyFilesystem, "without readOnly"),
            (ErrorKind::StorageFull, "sizeLimit"),
            (ErrorKind::Other, "another directory"),
        ] {
            let Refusal { problem, remedy } = refusal(Path::new("/shared"), &kind.into());
            assert!(problem.contains("/shared") && remedy.contains(words), "{kind}: {remedy}");
        }
    }
}
