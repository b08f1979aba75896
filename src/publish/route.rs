//! Routing: directs a Kubernetes Service to the leader, by a label of the pods or by an
//! `EndpointSlice`, and records Events of each change.
//!
//! It reads what the driver published, and judges it by the clock: when a belief ends by itself,
//! the route is withdrawn too. The newest state is written, and retried until it is acknowledged;
//! periodically the route is read, so that changes by others are repaired.
//!
//! Only a release waits for the route, for at most one request-timeout (R8). The route is no
//! safeguard: requests in flight, and those of proxies that have not been updated, still reach an
//! old leader, which must not depend on the route.

mod client;
mod endpointslice;
mod events;
mod examine;
mod label;
mod pods;
mod reconciler;

use uuid::Uuid;

use crate::kube::KubeError;
use crate::kube::objects::Metadata;
use crate::status::Role;
pub use events::Events;
pub use examine::examine;
pub use reconciler::Reconciler;

/// The label with the election, on every object that a route writes.
pub(crate) const ELECTION: &str = "tenure.dev/election";

/// The annotation with the term of the last write, by which older writes are rejected.
pub(crate) const TERM: &str = "tenure.dev/term";

/// An annotation with a random value, set by a write that must invalidate one still in flight: it
/// changes the resource version where nothing else would.
const FENCE: &str = "tenure.dev/fence";

/// The role that the route is to report for this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Active, in this term.
    Active(u64),
    /// Passive.
    Passive {
        /// The last term in which this process led.
        led: Option<u64>,
    },
}

impl Target {
    fn role(self) -> Role {
        match self {
            Self::Active(_) => Role::Active,
            Self::Passive { .. } => Role::Passive,
        }
    }
}

/// The result of one reconciliation.
#[derive(Debug, Default)]
struct Outcome {
    /// Another pod that the route reports active although this instance leads.
    other: Option<String>,
    /// What failed.
    error: Option<RouteError>,
}

impl Outcome {
    fn with(self, error: RouteError) -> Self {
        Self { error: Some(error), ..self }
    }
}

/// What was found beyond what the route reports for this instance.
#[derive(Debug, Default)]
struct Survey {
    /// An endpoint behind the Service that is not the leader's.
    other: Option<String>,
    /// Whether this instance leads although its pod is gone.
    pod_is_gone: bool,
    /// What failed.
    error: Option<RouteError>,
}

/// Why the route is wrong, or may not stay right.
#[derive(Debug, thiserror::Error)]
enum RouteError {
    #[error(transparent)]
    Asked(#[from] KubeError),
    #[error(
        "{what} has term {newer}, but this instance led in term {ours}: a later leader wrote it; \
         if there was none, remove its annotation tenure.dev/term"
    )]
    Newer { what: String, newer: u64, ours: u64 },
    #[error("{0}")]
    Setting(String),
    #[error("{0} is modified concurrently too often")]
    Busy(String),
    #[error("the state has changed")]
    Overtaken,
}

impl RouteError {
    fn newer(what: String, newer: u64, target: Target) -> Self {
        let ours = match target {
            Target::Active(ours) => ours,
            Target::Passive { led } => led.unwrap_or_default(),
        };
        Self::Newer { what, newer, ours }
    }

    fn busy(what: &str) -> Self {
        Self::Busy(what.to_owned())
    }

    /// Returns whether an early retry is useless.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Newer { .. } | Self::Setting(_) => true,
            Self::Busy(_) | Self::Overtaken => false,
            Self::Asked(error) => matches!(
                error,
                KubeError::Missing(_)
                    | KubeError::NoNamespace(_)
                    | KubeError::Forbidden(_)
                    | KubeError::Invalid(_)
            ),
        }
    }
}

/// Returns whether a write with this error has certainly changed nothing, and will not.
fn changed_nothing(error: &KubeError) -> bool {
    matches!(
        error,
        KubeError::Missing(_)
            | KubeError::NoNamespace(_)
            | KubeError::Unauthorized(_)
            | KubeError::Forbidden(_)
            | KubeError::Throttled { .. }
            | KubeError::Invalid(_)
            | KubeError::Files(_)
    )
}

/// Returns the term in which an object was last written; `None` if it has no such annotation.
fn term_of(found: &Metadata) -> Option<u64> {
    found.annotations.get(TERM)?.parse().ok()
}

/// Returns a random value for [`FENCE`].
fn draw() -> String {
    format!("{:016x}", Uuid::new_v4().as_u128() & u128::from(u64::MAX))
}
