//! File descriptors: those who ask must not take the ones that the store needs.
//!
//! What it does not do: it closes nothing. Connections over the limit are the listener's affair.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is kept for the store, its names and certificates, the status files and the log.
const RESERVE: u64 = 64;

/// Raises our limit of open files as far as `connections` need, and returns how many of them fit
/// into what we got.
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
        "max-connections is lowered from {connections} to {fits}: raise the limit of open files \
         (ulimit -n) to at least {wanted}"
    );
    fits
}

/// How many of so many connections fit into our limit of open files at this moment: somebody may
/// have lowered it meanwhile.
pub(crate) fn fits(connections: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return connections;
    };
    let room = usize::try_from(limit.saturating_sub(RESERVE)).unwrap_or(connections);
    room.max(1).min(connections)
}
