//! The limit of open files: keeps file descriptors in reserve for the store, so that clients cannot
//! use up all of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The reserve for the store with its name resolution and certificates, the status files and the
/// log.
const RESERVE: u64 = 64;

/// Raises the limit of open files as far as `connections` need, and returns how many of them fit
/// into the resulting limit.
pub(crate) fn make_room(connections: usize) -> usize {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(RESERVE);
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else {
        return connections;
    };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let got = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised,
        Err(_) => current,
    };
    if got >= wanted {
        return connections;
    }
    let fits = fits(connections);
    tracing::warn!(
        limit = got,
        "max-connections lowered from {connections} to {fits}: raise the limit of open files \
         (ulimit -n) to at least {wanted}"
    );
    fits
}

/// Returns how many of the given connections fit into the current limit of open files, which may
/// have been lowered since the start.
pub(crate) fn fits(connections: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return connections;
    };
    let room = usize::try_from(limit.saturating_sub(RESERVE)).unwrap_or(connections);
    room.max(1).min(connections)
}
