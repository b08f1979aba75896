//! Servers of the tests' own that answer each request of HTTP/1.1 by a function, alone or before another
//! server. Their threads end with the test.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::wire::Message;

/// Answers requests on a free port of loopback; returns the port.
pub fn serve(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> u16 {
    listen(move |client| converse(client, |request| Some(answer(request))))
}

/// Answers requests before a server on a port of loopback; returns a port of its own. Where there is no answer,
/// the connection is closed.
pub fn before(
    server: u16,
    answer: impl Fn(&Message, &mut Behind) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> u16 {
    listen(move |client| {
        let mut behind = Behind { port: server, connection: None };
        converse(client, |request| answer(request, &mut behind));
    })
}

/// Returns an answer with a body, and with lines of headers that each end with CR and LF.
pub fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The server behind, with one connection for each of a client's.
pub struct Behind {
    port: u16,
    connection: Option<BufReader<TcpStream>>,
}

impl Behind {
    /// Forwards a request as these bytes; returns the answer, or `None` if there is none.
    pub fn forward(&mut self, request: &Message, bytes: &[u8]) -> Option<Vec<u8>> {
        let connected = match self.connection.take() {
            Some(it) => it,
            None => BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).ok()?),
        };
        let connected = self.connection.insert(connected);
        connected.get_mut().write_all(bytes).ok()?;
        Some(Message::answer(connected, request).ok()?.bytes)
    }
}

fn listen(serve: impl Fn(&TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(&client));
        }
    });
    port
}

fn converse(mut client: &TcpStream, mut answer: impl FnMut(&Message) -> Option<Vec<u8>>) {
    let mut reader = BufReader::new(client);
    while let Ok(Some(request)) = Message::request(&mut reader) {
        let Some(bytes) = answer(&request) else { return };
        if client.write_all(&bytes).is_err() {
            return;
        }
    }
}
