//! The servers of one store, which are asked in turn: all requests of one call go to one server, and if that
//! does not answer, the next call goes to the next server. Nothing is repeated here.

use url::Url;

use super::next_server::NextServer;
use super::register::RegisterError;

/// The servers of a store that is asked by HTTP.
pub(super) struct Turns {
    servers: Vec<Url>,
    next: NextServer,
}

impl Turns {
    /// Begins with the first of these servers, of which there is one at least.
    pub(super) fn new(servers: Vec<Url>) -> Self {
        Self { next: NextServer::new(servers.len()), servers }
    }

    /// Returns the server of a new call.
    pub(super) fn turn(&self) -> Turn<'_> {
        self.turn_of(self.next.get())
    }

    /// Returns the server of this number.
    pub(super) fn turn_of(&self, at: usize) -> Turn<'_> {
        Turn { turns: self, at, is_answered: true }
    }
}

/// The server of one call.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    at: usize,
    /// Whether the server answered the last request.
    is_answered: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.turns.next.move_on(self.at);
        }
    }
}

impl<'a> Turn<'a> {
    /// Records whether the server has answered the last request; not yet, while it is under way.
    pub(super) fn set_answered(&mut self, is_answered: bool) {
        self.is_answered = is_answered;
    }

    /// Records whether the server itself gave this answer, so that another would answer alike.
    pub(super) fn answered<T>(&mut self, outcome: &Result<T, RegisterError>) {
        self.is_answered = !matches!(
            outcome,
            Err(RegisterError::Unavailable(_)
                | RegisterError::Invalid(_)
                | RegisterError::Network(_))
        );
    }

    /// Returns the number of the server.
    #[cfg(feature = "etcd")]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the URL of the server, to be completed.
    pub(super) fn url(&self) -> Url {
        self.turns.servers[self.at].clone()
    }

    /// Returns host and port of the server.
    pub(super) fn name(&self) -> &'a str {
        self.turns.servers[self.at].authority()
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::NetworkError;
    use super::*;

    #[test]
    fn another_server_is_asked_after_what_this_one_did_not_answer_itself() {
        let url = |name: &str| Url::parse(&format!("http://{name}/")).unwrap();
        let why = || "x".to_owned();
        for (outcome, moves) in [
            (Ok(()), false),
            (Err(RegisterError::Missing(why())), false),
            (Err(RegisterError::Credential(why())), false),
            (Err(RegisterError::Denied(why())), false),
            (Err(RegisterError::no_credential(why())), false),
            (Err(RegisterError::Throttled(why())), false),
            (Err(RegisterError::Unavailable(why())), true),
            (Err(RegisterError::Invalid(why())), true),
            (Err(NetworkError::Disconnected(why()).into()), true),
        ] {
            let turns = Turns::new(vec![url("one"), url("two")]);
            turns.turn().answered(&outcome);
            assert_eq!(turns.turn().name() == "two", moves, "{outcome:?}");
        }
        let turns = Turns::new(vec![url("one"), url("two")]);
        turns.turn().set_answered(false);
        assert_eq!(turns.turn().name(), "two", "it was dropped while the answer was waited for");
    }
}
