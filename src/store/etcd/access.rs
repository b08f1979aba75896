//! Access to the members: an HTTP client with the TLS settings of the files as they are now, and the
//! token of the sign-in. Platforms replace certificates and passwords, so the files are read again when
//! they change, and the password after a refused sign-in too.
//!
//! Files that cannot be read, or a disk that hangs, never stop a request while what was read earlier
//! can be used.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;

use crate::clock::{self, Moment};
use crate::config::{EtcdSettings, EtcdUser};
use crate::http::reconnecting::Reconnecting;
use crate::store::client::{PERIOD, StoreClient};
use crate::store::register::RegisterError;
use crate::store::secret::Secret;

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) name: String,
    pub(super) password: String,
}

/// A token, with the login that it was given for.
#[derive(Clone)]
struct Token {
    /// `None` where the cluster has no authentication.
    header: Option<HeaderValue>,
    login: Login,
}

#[derive(Default)]
struct Last {
    login: Option<Login>,
    token: Option<Token>,
    /// When the files were last read.
    read: Option<Moment>,
}

/// Keeps client, login and token for one cluster.
pub(super) struct Access {
    client: StoreClient,
    user: Option<[Secret; 2]>,
    /// How long a request waits for files.
    patience: Duration,
    last: Mutex<Last>,
}

/// What a request is sent with.
pub(super) struct Credentials {
    pub(super) client: Reconnecting,
    /// The login to sign in with first, where there is no token.
    pub(super) login: Option<Login>,
    /// The value of `Authorization`.
    pub(super) token: Option<HeaderValue>,
}

impl Access {
    /// Reads the files of TLS, which blocks; a password file is read with the first request.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub(super) fn open(settings: &EtcdSettings) -> anyhow::Result<Self> {
        let user =
            |EtcdUser { name, password }: &EtcdUser| [Secret::new(name), Secret::new(password)];
        Ok(Self {
            client: StoreClient::open(settings.tls.as_ref(), settings.request_timeout)?,
            user: settings.user.as_ref().map(user),
            patience: settings.request_timeout / 4,
            last: Mutex::default(),
        })
    }

    /// Returns what to send a request with, from the files as they are now, or as last read if they
    /// cannot be read.
    pub(super) async fn credentials(&self) -> Result<Credentials, RegisterError> {
        let client = self.client().await?;
        let is_recent = |read: Moment| read.elapsed_max(clock::now()) < PERIOD;
        if !self.last().read.is_some_and(is_recent) {
            self.read().await?;
        }
        let last = self.last();
        let token = last.token.as_ref().filter(|it| last.login.as_ref() == Some(&it.login));
        Ok(Credentials {
            client,
            login: last.login.clone().filter(|_| token.is_none()),
            token: token.and_then(|it| it.header.clone()),
        })
    }

    /// Returns the client, with the files of TLS as they are now.
    pub(super) async fn client(&self) -> Result<Reconnecting, RegisterError> {
        let client = self.client.current().await;
        client.map_err(RegisterError::no_client)
    }

    /// Keeps the token of a sign-in; `None` where the cluster has no authentication.
    pub(super) fn signed_in(&self, login: Login, header: Option<HeaderValue>) {
        self.last().token = Some(Token { header, login });
    }

    /// Forgets a token that was refused, unless there is another one by now, and reads the files again
    /// for the next request.
    pub(super) fn distrust(&self, refused: Option<&HeaderValue>) {
        let mut last = self.last();
        if last.token.as_ref().is_some_and(|it| it.header.as_ref() == refused) {
            last.token = None;
        }
        last.read = None;
    }

    /// Reads the files of the login, for as long as a request may wait.
    async fn read(&self) -> Result<(), RegisterError> {
        let Some([name, password]) = &self.user else { return Ok(()) };
        let login = self.login(name, password).await;
        let mut last = self.last();
        match login {
            Ok(login) => last.login = Some(login),
            Err(error) if last.login.is_none() => return Err(error),
            Err(error) => tracing::debug!("the earlier password stays in use: {error}"),
        }
        last.read = Some(clock::now());
        Ok(())
    }

    async fn login(&self, name: &Secret, password: &Secret) -> Result<Login, RegisterError> {
        let read =
            async |it: &Secret| it.read(self.patience).await.map_err(RegisterError::no_credential);
        Ok(Login { name: read(name).await?, password: read(password).await? })
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use url::Url;

    use super::*;
    use crate::config::SecretSource;

    fn access(password: &Path) -> Access {
        Access::open(&EtcdSettings {
            members: vec![Url::parse("http://127.0.0.1:1/").unwrap()],
            prefix: "tenure".to_owned(),
            election: "orders".to_owned(),
            user: Some(EtcdUser {
                name: SecretSource::Value("me".to_owned()),
                password: SecretSource::File(password.to_owned()),
            }),
            tls: None,
            request_timeout: Duration::from_secs(2),
        })
        .unwrap()
    }

    async fn login(access: &Access) -> Option<String> {
        access.credentials().await.unwrap().login.map(|it| format!("{} {}", it.name, it.password))
    }

    #[tokio::test]
    async fn a_password_is_read_again_after_a_refusal_and_an_unreadable_one_keeps_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let access = access(&path);
        let Err(RegisterError::Local(why)) = access.credentials().await else {
            panic!("there is none")
        };
        let why = why.message;
        assert!(why.contains("failed to read") && why.contains("password"), "{why}");
        std::fs::write(&path, " one \n").unwrap();
        assert_eq!(
            login(&access).await.unwrap(),
            "me  one ",
            "only the end of the line is none of it"
        );
        std::fs::write(&path, "two").unwrap();
        assert_eq!(login(&access).await.unwrap(), "me  one ", "read just now");
        access.distrust(None);
        assert_eq!(login(&access).await.unwrap(), "me two");
        for spoilt in [&b""[..], b"\n", b"\xff"] {
            std::fs::write(&path, spoilt).unwrap();
            access.distrust(None);
            assert_eq!(login(&access).await.unwrap(), "me two", "{spoilt:?}");
        }
        std::fs::remove_file(&path).unwrap();
        access.distrust(None);
        assert_eq!(login(&access).await.unwrap(), "me two");
    }

    #[tokio::test]
    async fn a_token_is_used_until_it_is_refused_or_the_password_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "one").unwrap();
        let access = access(&path);
        let one = access.credentials().await.unwrap().login.unwrap();
        let token = HeaderValue::from_static("t1");
        access.signed_in(one.clone(), Some(token.clone()));
        let known = access.credentials().await.unwrap();
        assert!(known.login.is_none() && known.token.as_ref() == Some(&token));
        access.distrust(Some(&HeaderValue::from_static("t0")));
        assert_eq!(access.credentials().await.unwrap().token, Some(token.clone()), "a newer one");
        access.distrust(Some(&token));
        assert_eq!(login(&access).await.unwrap(), "me one");
        access.signed_in(one.clone(), None);
        let known = access.credentials().await.unwrap();
        assert!(known.login.is_none() && known.token.is_none(), "no authentication is needed");
        access.signed_in(one, Some(token));
        std::fs::write(&path, "two").unwrap();
        access.last().read = None;
        assert_eq!(login(&access).await.unwrap(), "me two");
    }
}
