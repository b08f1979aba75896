//! What makes reads of versitygw atomic. It takes the ETag and the content of an object one after the other, so
//! that a read may show the content of one state with the ETag of the state before.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::http::front;

/// Lets no read of an object go on while a write of it does. Reads meet, and writes meet.
pub fn before(server: u16) -> u16 {
    let turns = Turns::default();
    front::before(server, move |request, server| {
        let line = request.first_line();
        let mut words = line.split(' ');
        let reads = words.next() == Some("GET");
        let object = words.next().unwrap_or_default();
        turns.during(object, reads, || server.forward(request, &request.bytes))
    })
}

/// How many requests of each object go on: above 0 those that read, below 0 those that write.
#[derive(Default)]
struct Turns {
    going: Mutex<HashMap<String, i32>>,
    ended: Condvar,
}

impl Turns {
    fn during<T>(&self, object: &str, reads: bool, request: impl FnOnce() -> T) -> T {
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
