//! Tests of the proof on a register in memory, with other candidates that write at the same time.

use std::sync::Mutex;

use super::*;

/// A register whose next writes meet writes of others.
#[derive(Default)]
struct Busy {
    value: Mutex<Option<Tagged>>,
    /// How many writes on a tag are preceded by one of others.
    others: Mutex<usize>,
}

impl Busy {
    fn write(&self, content: Vec<u8>) -> Written {
        let mut value = self.value.lock().expect("no test panicked with it");
        let next = value.as_ref().map_or(0, |it| it.tag.parse().unwrap_or(0)) + 1;
        *value = Some(Tagged { tag: next.to_string(), content, date: None });
        Written { tag: next.to_string(), date: None }
    }
}

#[async_trait]
impl Register for Busy {
    fn kind(&self) -> &'static str {
        "busy"
    }

    fn place(&self, _slot: Slot) -> String {
        "the value".to_owned()
    }

    fn answered(&self) -> String {
        "it answered".to_owned()
    }

    fn credential(&self) -> Option<String> {
        None
    }

    async fn get(&self, _slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        Ok(self.value.lock().expect("no test panicked with it").clone())
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        content: Vec<u8>,
    ) -> Result<Option<Written>, RegisterError> {
        if let If::Tagged(_) = condition {
            let mut others = self.others.lock().expect("no test panicked with it");
            if *others > 0 {
                *others -= 1;
                self.write(b"another's".to_vec());
            }
        }
        let found = self.get(slot).await?;
        let holds = match condition {
            If::Absent => found.is_none(),
            If::Tagged(tag) => found.is_some_and(|it| it.tag == tag),
        };
        Ok(holds.then(|| self.write(content)))
    }

    async fn others(&self) -> Option<Vec<String>> {
        None
    }

    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }
}

#[tokio::test]
async fn candidates_that_try_at_the_same_time_do_not_spoil_the_proof() {
    for (others, proven) in [(0, true), (1, true), (4, true), (5, false)] {
        let register = Busy::default();
        *register.others.lock().unwrap() = others;
        let proof = proof::prove(&register).await;
        assert_eq!(proof.is_ok(), proven, "{others}: {proof:?}");
        if let Err(error) = proof {
            assert_eq!(error.failure().cause, Cause::Unavailable, "it says nothing of the server");
        }
        // The value stays, and the next candidate finds it.
        assert!(proof::prove(&register).await.is_ok());
    }
}

#[test]
fn what_is_kept_beside_the_elections_is_not_listed_as_one() {
    let found = ["orders", "b.2", "orders_trial", ".b_trial.tmp.17", "Readme", "", "a-1"];
    assert_eq!(elections(found.into_iter()), ["a-1", "b.2", "orders"]);
}
