//! HTTP/1.1 messages as bytes: read in full from a stream, classified, and forwarded unchanged.
//! Only their length and the call of Azure Blob Storage are parsed.

use std::io::{self, BufRead};

/// A call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Matches every request; no request is classified as this.
    Any,
    /// HEAD of the blob.
    Look,
    /// `x-ms-lease-action: acquire`.
    Acquire,
    /// `x-ms-lease-action: renew`.
    Renew,
    /// `x-ms-lease-action: release`.
    Release,
    /// `x-ms-lease-action: break` or `change`, by an operator.
    Break,
    /// `comp=metadata`, which writes the term.
    Write,
    /// The creation of a container or a blob, and everything else.
    Other,
}

/// A complete request or answer.
#[derive(Clone, Debug)]
pub struct Message {
    /// The bytes as received.
    pub bytes: Vec<u8>,
    /// The length of the head, including the empty line.
    head: usize,
}

impl Message {
    /// Reads a request; `None` if the stream ends before it begins.
    pub fn request(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        Self::read(stream, false)
    }

    /// Reads the answer to a request.
    pub fn answer(stream: &mut impl BufRead, to: &Self) -> io::Result<Self> {
        let bodiless = to.first_line().starts_with("HEAD ");
        Self::read(stream, bodiless)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read(stream: &mut impl BufRead, bodiless: bool) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        loop {
            let start = bytes.len();
            if stream.read_until(b'\n', &mut bytes)? == 0 {
                return if start == 0 {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
            if bytes[start..] == *b"\r\n" {
                break;
            }
        }
        let mut it = Self { head: bytes.len(), bytes };
        if bodiless {
            return Ok(Some(it));
        }
        if it.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            while !it.read_chunk(stream)? {}
        } else if let Some(length) = it.header("content-length").and_then(|it| it.parse().ok()) {
            it.read_exactly(stream, length)?;
        }
        Ok(Some(it))
    }

    /// Reads one chunk; returns true for the last.
    fn read_chunk(&mut self, stream: &mut impl BufRead) -> io::Result<bool> {
        let start = self.bytes.len();
        stream.read_until(b'\n', &mut self.bytes)?;
        let line = String::from_utf8_lossy(&self.bytes[start..]).into_owned();
        let size = usize::from_str_radix(line.trim_end(), 16);
        let size = size.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        self.read_exactly(stream, size + 2)?;
        Ok(size == 0)
    }

    fn read_exactly(&mut self, stream: &mut impl BufRead, length: usize) -> io::Result<()> {
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        stream.read_exact(&mut self.bytes[start..])
    }

    /// Returns a header's value. Header names are matched without regard to case.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.bytes[..self.head]);
        head.lines().skip(1).find_map(|line| {
            let (it, value) = line.split_once(':')?;
            it.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// Returns the line of the request, or of the status.
    pub fn first_line(&self) -> String {
        let head = String::from_utf8_lossy(&self.bytes[..self.head]);
        head.lines().next().unwrap_or_default().to_owned()
    }

    /// Returns the status of an answer; 0 if it has none.
    pub fn status(&self) -> u16 {
        self.first_line().split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    /// Returns the call of a request.
    pub fn call(&self) -> Call {
        let line = self.first_line();
        let action = self.header("x-ms-lease-action").unwrap_or_default();
        match action.as_str() {
            "acquire" => Call::Acquire,
            "renew" => Call::Renew,
            "release" => Call::Release,
            "break" | "change" => Call::Break,
            _ if line.starts_with("HEAD ") => Call::Look,
            _ if line.contains("comp=metadata") => Call::Write,
            _ => Call::Other,
        }
    }

    /// Returns the lease that a request is for.
    pub fn lease(&self) -> Option<String> {
        self.header("x-ms-proposed-lease-id").or_else(|| self.header("x-ms-lease-id"))
    }
}
