//! The messages of others, on a connection of its own. A message is a hint to read, whatever it says: others
//! may publish too.
//!
//! Errors are waited out here, since nothing else handles them; where the user may not subscribe, a standby
//! sees a release at its next poll.

use super::Database;
use super::connection::Connection;
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Told};

/// The connection, kept from one [`watch`](Database::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` before the first one, and after one that has ended.
    connection: Option<Connection>,
    /// The pause to the next one.
    pause: Pause,
}

impl Database {
    /// Resolves when another instance says that the value has changed, and on a new connection, since what
    /// was said before is missed.
    pub(super) async fn watch(&self) -> Told {
        let mut watching = self.watching.lock().await;
        loop {
            match self.notified(watching.connection.take()).await {
                Ok(connection) => {
                    watching.connection = Some(connection);
                    watching.pause.reset();
                    return Told::Hint;
                }
                Err(error) => {
                    let election = &self.settings.election;
                    tracing::debug!(election, "the connection for messages ended: {error}");
                    match error {
                        RegisterError::Invalid(_) | RegisterError::Denied(_) => {
                            watching.pause.pass_refused().await;
                        }
                        _ => watching.pause.pass().await,
                    }
                }
            }
        }
    }

    async fn notified(&self, known: Option<Connection>) -> Result<Connection, RegisterError> {
        let Some(mut connection) = known else {
            return self.access.connect_to_listen(&self.scripts.channel).await;
        };
        while connection.message().await? == self.scripts.own {}
        Ok(connection)
    }
}
