//! The notifications of others, on a connection of its own, so that whatever is sent on it delays no request:
//! anybody who can connect to the database may notify. A notification is a hint to read, whatever it says.
//!
//! Errors are waited out here, since nothing else handles them; through a pooler, which would mix up who
//! listens, a standby sees a release at its next poll.

use super::Table;
use super::connection::Connection;
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Told};

/// The connection, kept from one [`watch`](Table::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` before the first one, and after one that has ended.
    connection: Option<Connection>,
    /// The pause to the next one.
    pause: Pause,
}

impl Table {
    /// Resolves when another instance says that the row has changed, and on a new connection, since what
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
                    tracing::debug!(election, "the connection for notifications ended: {error}");
                    match error {
                        RegisterError::Invalid(_) => watching.pause.pass_refused().await,
                        _ => watching.pause.pass().await,
                    }
                }
            }
        }
    }

    async fn notified(&self, known: Option<Connection>) -> Result<Connection, RegisterError> {
        let Some(mut connection) = known else {
            return self.access.connect_to_listen().await;
        };
        let election = &self.settings.election;
        connection.notification(election, &self.statements.own).await?;
        Ok(connection)
    }
}
