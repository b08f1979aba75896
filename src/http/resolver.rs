//! Resolves host names through the system, with one request at a time for each name.
//!
//! The system's resolver blocks a thread until it answers, which takes half a minute if no name
//! server responds. Concurrent requests for a name share the result, so that frequent probes do not
//! block more threads. Results are not cached.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

type Resolved = Result<Vec<SocketAddr>, Arc<str>>;

/// Resolves names; clones share pending requests.
#[derive(Clone, Default)]
pub(crate) struct Resolver(Arc<Mutex<HashMap<String, Shared<BoxFuture<'static, Resolved>>>>>);

impl Resolver {
    /// Returns the addresses of a host, with the port, or why there are none.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Resolved {
        // URLs write IPv6 addresses in brackets, which the system does not accept.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // Such a name is always this host (RFC 6761), and some systems ask a name server for it.
        if host.to_ascii_lowercase().ends_with(".localhost") {
            let here: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(here.map(|it| SocketAddr::new(it, port)).into());
        }
        let question = self
            .pending()
            .entry(host.to_owned())
            .or_insert_with(|| resolve_in_background(host))
            .clone();
        let answer = question.await;
        self.pending().retain(|name, it| name != host || it.peek().is_none());
        Ok(answer?.into_iter().map(|it| SocketAddr::new(it.ip(), port)).collect())
    }

    /// Returns how many names are being resolved.
    #[cfg(test)]
    pub(crate) fn lookups(&self) -> usize {
        self.pending().len()
    }

    fn pending(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<String, Shared<BoxFuture<'static, Resolved>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resolve_in_background(host: &str) -> Shared<BoxFuture<'static, Resolved>> {
    let host = host.to_owned();
    let asking = async move {
        let found: Vec<_> = tokio::net::lookup_host((host.as_str(), 0))
            .await
            .map(Iterator::collect)
            .unwrap_or_default();
        if found.is_empty() {
            return Err(format!("failed to resolve {host}").into());
        }
        Ok(found)
    };
    asking.boxed().shared()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lookups_of_one_name_share_the_answer() {
        let resolver = Resolver::default();
        let (one, other) =
            tokio::join!(resolver.resolve("localhost", 1), resolver.resolve("localhost", 2));
        assert_eq!(one.unwrap()[0].port(), 1);
        assert_eq!(other.unwrap()[0].port(), 2);
        assert!(resolver.pending().is_empty(), "an answer is kept");
    }

    #[tokio::test]
    async fn a_name_below_localhost_is_this_host_without_a_lookup() {
        let found = Resolver::default().resolve("acct.blob.Localhost", 7).now_or_never();
        let found: Vec<_> = found.unwrap().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1:7", "[::1]:7"]);
    }

    #[tokio::test]
    async fn an_abandoned_lookup_is_not_repeated() {
        let resolver = Resolver::default();
        let asked = resolver.resolve("localhost", 1);
        assert!(asked.now_or_never().is_none());
        assert_eq!(resolver.pending().len(), 1, "the thread is at work");
        assert!(resolver.resolve("localhost", 1).await.is_ok());
        assert!(resolver.pending().is_empty());
    }

    #[tokio::test]
    async fn addresses_need_no_lookup_and_a_bad_name_is_reported() {
        let resolver = Resolver::default();
        assert_eq!(resolver.resolve("[::1]", 7).await.unwrap()[0].to_string(), "[::1]:7");
        let said = resolver.resolve("no such name", 7).await.unwrap_err();
        assert_eq!(&*said, "failed to resolve no such name");
    }
}
