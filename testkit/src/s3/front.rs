//! A front for versitygw, whose reads are atomic behind it.

use crate::http::front;
use crate::http::turns::Turns;

/// Starts one before a server on a port of loopback; returns its port.
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
