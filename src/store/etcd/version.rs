//! The releases of etcd that end live leases without a check.
//!
//! A member that was the leader of the cluster, and does not know yet that it is no longer, may have the
//! leases revoked whose time it has not seen renewed (etcd issue 15247). Since 3.6.0, 3.5.13 and 3.4.31 it
//! asks the others first, unless its own loop has turned within the last three ticks: so not always where
//! it was stopped and has just continued. That member knows nothing of the lease of the last renewal, so no
//! leadership of Tenure ends by this.

/// A release: major, minor and patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(u32, u32, u32);

impl Release {
    /// Parses a version, such as `3.6.8` or `3.7.0-rc.1`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let plain = text.split(['-', '+']).next()?;
        let mut parts = plain.split('.').map(|it| it.parse().ok());
        let release = Self(parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(release)
    }

    /// Returns whether members of this release ask the others before they end a lease.
    pub(super) fn asks_first(self) -> bool {
        match self {
            Self(3, 4, patch) => patch >= 31,
            Self(3, 5, patch) => patch >= 13,
            later => later >= Self(3, 6, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_releases_with_the_mending_are_known() {
        for (text, asks) in [
            ("3.6.8", true),
            ("3.7.0-alpha.0", true),
            ("4.0.0", true),
            ("3.5.13", true),
            ("3.5.12", false),
            ("3.4.31", true),
            ("3.4.23", false),
            ("3.3.27", false),
            ("3.6.0+git", true),
        ] {
            assert_eq!(Release::parse(text).unwrap().asks_first(), asks, "{text}");
        }
        for text in ["", "3.6", "3.6.x", "three", "3.6.8.1", "Not decided"] {
            assert_eq!(Release::parse(text), None, "{text}");
        }
    }
}
