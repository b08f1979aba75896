//! Routing: the cluster leads requests to whoever leads, by a label of the pods or by an
//! `EndpointSlice`, and hears of each change by an Event.
//!
//! It reads what the driver published, and judges it by the clock: a belief ends by itself, and the
//! route is taken back then too. The newest state is said, and said again until it is heard; now
//! and then it is looked up, so that what others changed is repaired.
//!
//! What it does not do: nothing waits for it but a release, and that no longer than one
//! request-timeout (R8). It is no safeguard: requests that are under way, and proxies that have not
//! heard yet, still come to an old leader, whose answers must not depend on the route.

mod desk;
mod endpointslice;
mod events;
mod examine;
mod keeper;
mod label;

use uuid::Uuid;

use crate::clock::Moment;
use crate::config::{Beside, Route};
use crate::kube::KubeError;
use crate::kube::objects::Metadata;
use crate::publish::{Role, RouteBoard};
pub use events::Events;
pub use examine::examine;
pub use keeper::Keeper;

/// The label of the election on everything that a route writes.
pub(crate) const ELECTION: &str = "tenure.dev/election";

/// The annotation of the term in which it was last written, and by which older writes are refused.
pub(crate) const TERM: &str = "tenure.dev/term";

/// The annotation that is drawn anew by a write which must overtake one that may yet arrive: it
/// changes the version where nothing else would.
const FENCE: &str = "tenure.dev/fence";

/// What the route is to say of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// That we lead, in this term.
    Active(u64),
    /// That we do not.
    Passive {
        /// The last term in which this process led.
        led: Option<u64>,
    },
}

impl Want {
    fn role(self) -> Role {
        match self {
            Self::Active(_) => Role::Active,
            Self::Passive { .. } => Role::Passive,
        }
    }
}

/// What one go at the route has shown.
#[derive(Debug, Default)]
struct Outcome {
    /// Another that it says active of, though we lead.
    other: Option<String>,
    /// What was wrong.
    trouble: Option<Trouble>,
}

impl Outcome {
    fn with(self, trouble: Trouble) -> Self {
        Self { trouble: Some(trouble), ..self }
    }
}

/// Why the route is not as it should be, or may not stay so.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Asked(#[from] KubeError),
    #[error(
        "{what} says term {newer}, and ours is {ours}: another leads, or led; if none did, take its \
         annotation tenure.dev/term away"
    )]
    Newer { what: String, newer: u64, ours: u64 },
    #[error("{0}")]
    Setting(String),
    #[error("{0} is written by others again and again")]
    Busy(String),
    #[error("a newer state is there")]
    Overtaken,
}

impl Trouble {
    fn newer(what: String, newer: u64, want: Want) -> Self {
        let ours = match want {
            Want::Active(ours) => ours,
            Want::Passive { led } => led.unwrap_or_default(),
        };
        Self::Newer { what, newer, ours }
    }

    fn busy(what: &str) -> Self {
        Self::Busy(what.to_owned())
    }

    /// Whether trying again soon would be no use.
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

/// Whether a write that was answered so has certainly changed nothing, now or later.
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

/// The board of the route that is set; empty where none is.
#[must_use]
pub fn board(beside: Option<&Beside>, now: Moment) -> RouteBoard {
    match beside.and_then(|it| it.route.as_ref()) {
        None => RouteBoard::default(),
        Some(Route::Label { .. }) => RouteBoard::new("label", now),
        Some(Route::EndpointSlice { .. }) => RouteBoard::new("endpointslice", now),
    }
}

/// The term in which an object was last written; `None` where it bears none.
fn term_of(found: &Metadata) -> Option<u64> {
    found.annotations.get(TERM)?.parse().ok()
}

/// Draws a value for [`FENCE`].
fn draw() -> String {
    format!("{:016x}", Uuid::new_v4().as_u128() & u128::from(u64::MAX))
}
