//! The probes `http://…` and `https://…`: succeed if the response has a status of 200 to 299.
//! Redirects are not followed.

use url::Url;

use super::Finding;
use crate::http::client::HttpClient;

/// A probe of this kind.
pub(super) struct Http {
    pub(super) url: Url,
    pub(super) client: HttpClient,
}

impl Http {
    pub(super) async fn probe(&self) -> Finding {
        match self.client.send(self.client.get(&self.url).build()).await {
            Ok(code) if code.is_success() => Finding::well(code.to_string()),
            Ok(code) if code.is_redirection() => {
                Finding::unwell(format!("{code}; redirects are not followed"))
            }
            Ok(code) => Finding::unwell(code.to_string()),
            Err(why) => Finding::unwell(why),
        }
    }
}
