//! Detects nested elections: an `exec` passes a mark of its lease to its command, so that a
//! candidate for the same lease within the command is rejected. It would wait for a lease that is
//! held for as long as it waits. A command that clears its environment is not detected.

use crate::config::{Environment, Settings, StoreSettings};

/// The variable with the marks, one a line.
pub const VARIABLE: &str = "TENURE_INSIDE";

/// Returns the mark of the lease that these settings compete for; `None` for a store within the
/// process.
#[must_use]
pub fn mark(settings: &Settings) -> Option<String> {
    Some(match &settings.store {
        StoreSettings::Memory => return None,
        StoreSettings::File(it) => {
            // Several paths may lead to one directory.
            let known = std::fs::canonicalize(&it.directory);
            let directory = known.as_ref().unwrap_or(&it.directory);
            format!("file://{}/{}", directory.display(), it.lock_file())
        }
        shared => shared.to_string(),
    })
}

/// Returns the marks for the command: the inherited ones and that of these settings.
#[must_use]
pub fn handed_down(settings: &Settings, environment: &Environment) -> String {
    let given = environment.get(VARIABLE).map(str::to_owned);
    given.into_iter().chain(mark(settings)).collect::<Vec<_>>().join("\n")
}

/// Returns why these settings cannot be used here, if they cannot.
#[must_use]
pub fn refusal(settings: &Settings, environment: &Environment) -> Option<String> {
    let mark = mark(settings)?;
    environment.get(VARIABLE)?.lines().any(|it| it == mark).then(|| {
        format!(
            "this process runs inside a `tenure exec` that leads election {:?} in {}, so it would \
             wait for itself: set another --election or --store, or unset {VARIABLE} if that is \
             wrong",
            settings.election, settings.store,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Verb, load};

    fn settings(store: &str, api: &str) -> Settings {
        let flags =
            [("store", store), ("kube-api", api)].map(|(name, it)| (name, vec![it.to_owned()]));
        let environment = Environment::of([("POD_NAMESPACE", "prod")]);
        load(&Flags::from(flags), &environment, Verb::Exec).unwrap().settings
    }

    #[test]
    fn a_lease_of_kubernetes_is_the_same_by_api_server_namespace_and_name() {
        let around = settings("kubernetes:orders", "https://api.test:443");
        let outside = Environment::of([(VARIABLE, "another")]);
        let marks = handed_down(&around, &outside);
        let inside = Environment::of([(VARIABLE, marks)]);
        for (store, api, refused) in [
            ("kubernetes:prod/orders", "https://api.test/", true),
            ("kubernetes:orders", "https://API.test", true),
            ("kubernetes:other/orders", "https://api.test", false),
            ("kubernetes:others", "https://api.test", false),
            ("kubernetes:orders", "https://other.test", false),
            ("memory:", "https://api.test", false),
        ] {
            assert_eq!(refusal(&settings(store, api), &inside).is_some(), refused, "{store}");
        }
    }
}
