//! The probes `http://…` and `https://…`: succeed if the response has a status of 200 to 299.
//! Redirects are not followed.

use url::Url;

use super::Outcome;
use crate::http::client;

/// A probe of this kind.
pub(super) struct Http {
    pub(super) url: Url,
    pub(super) client: reqwest::Client,
}

impl Http {
    pub(super) async fn probe(&self) -> Outcome {
        match client::status(self.client.get(self.url.clone())).await {
            Ok(code) if code.is_success() => Outcome::success(code.to_string()),
            Ok(code) if code.is_redirection() => {
                Outcome::failure(format!("{code}; redirects are not followed"))
            }
            Ok(code) => Outcome::failure(code.to_string()),
            Err(why) => Outcome::failure(why),
        }
    }
}
