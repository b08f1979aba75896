//! What makes reads of a server of objects atomic. versitygw and fake-gcs-server take the version of an object
//! and its content one after the other, so that a read may show the content of one state with the version of
//! the state before.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// Lets no read of an object go on while a write of it does. Reads meet, and writes meet.
#[derive(Default)]
pub struct Turns {
    /// How many requests of each object go on: above 0 those that read, below 0 those that write.
    going: Mutex<HashMap<String, i32>>,
    ended: Condvar,
}

impl Turns {
    /// Makes a request when it is its turn; returns the answer.
    pub fn during<T>(&self, object: &str, reads: bool, request: impl FnOnce() -> T) -> T {
        let step = if reads { 1 } else { -1 };
        let going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        let others =
            |it: &mut HashMap<String, i32>| it.get(object).copied().unwrap_or(0) * step < 0;
        let going = self.ended.wait_while(going, others);
        *going.unwrap_or_else(PoisonError::into_inner).entry(object.to_owned()).or_default() +=
            step;
        let answer = request();
        let mut going = self.going.lock().unwrap_or_else(PoisonError::into_inner);
        let left = going.remove(object).unwrap_or(0) - step;
        if left != 0 {
            going.insert(object.to_owned(), left);
        }
        self.ended.notify_all();
        answer
    }
}
