//! The protocol of Redis, RESP2, as far as it is used: commands are sent, and replies parsed.
//!
//! The format: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

/// The longest reply that is read. Those here have some hundred bytes, and `INFO` some thousand.
const LONGEST: usize = 1024 * 1024;

/// How deep arrays may be nested.
const DEEPEST: usize = 4;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A status, or a value.
    Text(Vec<u8>),
    Number(i64),
    /// What the server could not do.
    Error(String),
    Nothing,
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns a value or status that is text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Returns the parts of an array.
    pub(super) fn parts(&self) -> &[Self] {
        match self {
            Self::Array(parts) => parts,
            _ => &[],
        }
    }
}

/// What no server of Redis sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Formats a command.
pub(super) fn format(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Takes the first reply from what was received; `None` if it is not complete yet.
pub(super) fn take(received: &mut Vec<u8>) -> Result<Option<Reply>, Malformed> {
    let mut rest = received.as_slice();
    match parse(&mut rest, DEEPEST)? {
        Some(reply) => {
            let taken = received.len() - rest.len();
            received.drain(..taken);
            Ok(Some(reply))
        }
        None if received.len() > LONGEST => Err(Malformed),
        None => Ok(None),
    }
}

fn parse(rest: &mut &[u8], depth: usize) -> Result<Option<Reply>, Malformed> {
    let Some((kind, line)) = line(rest)? else { return Ok(None) };
    let count = || -> Result<Option<usize>, Malformed> {
        match number(line)? {
            -1 => Ok(None),
            it => usize::try_from(it).ok().filter(|it| *it <= LONGEST).map(Some).ok_or(Malformed),
        }
    };
    Ok(Some(match kind {
        b'+' => Reply::Text(line.to_vec()),
        b'-' => Reply::Error(String::from_utf8_lossy(line).into_owned()),
        b':' => Reply::Number(number(line)?),
        b'$' => match count()? {
            None => Reply::Nothing,
            Some(length) => {
                let Some((text, after)) = rest.split_at_checked(length) else { return Ok(None) };
                let Some((end, after)) = after.split_at_checked(2) else { return Ok(None) };
                if end != b"\r\n" {
                    return Err(Malformed);
                }
                *rest = after;
                Reply::Text(text.to_vec())
            }
        },
        b'*' => match count()? {
            None => Reply::Nothing,
            Some(_) if depth == 0 => return Err(Malformed),
            Some(length) => {
                let mut parts = Vec::new();
                for _ in 0..length {
                    let Some(part) = parse(rest, depth - 1)? else { return Ok(None) };
                    parts.push(part);
                }
                Reply::Array(parts)
            }
        },
        _ => return Err(Malformed),
    }))
}

/// Takes a line with its kind; `None` if it is not complete yet.
fn line<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, Malformed> {
    let Some((kind, all)) = rest.split_first() else { return Ok(None) };
    if !b"+-:$*".contains(kind) {
        return Err(Malformed);
    }
    let Some(end) = all.iter().position(|it| *it == b'\r') else { return Ok(None) };
    match all.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => {
            *rest = &all[end + 2..];
            Ok(Some((*kind, &all[..end])))
        }
        Some(_) => Err(Malformed),
    }
}

fn number(line: &[u8]) -> Result<i64, Malformed> {
    str::from_utf8(line).ok().and_then(|it| it.parse().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(text: &str) -> Result<Option<Reply>, Malformed> {
        take(&mut text.as_bytes().to_vec())
    }

    #[test]
    fn each_kind_of_reply_is_parsed_and_no_part_of_one() {
        let text = |it: &str| Reply::Text(it.into());
        for (sent, expected) in [
            ("+OK\r\n", text("OK")),
            ("-ERR no\r\n", Reply::Error("ERR no".to_owned())),
            (":-2\r\n", Reply::Number(-2)),
            ("$4\r\na\r\nb\r\n", text("a\r\nb")),
            ("$-1\r\n", Reply::Nothing),
            ("*-1\r\n", Reply::Nothing),
            (
                "*3\r\n:1\r\n*1\r\n$0\r\n\r\n$-1\r\n",
                Reply::Array(vec![Reply::Number(1), Reply::Array(vec![text("")]), Reply::Nothing]),
            ),
        ] {
            for length in 0..sent.len() {
                assert_eq!(taken(&sent[..length]), Ok(None), "{sent:?}");
            }
            let mut more = format!("{sent}+next\r\n").into_bytes();
            assert_eq!(take(&mut more), Ok(Some(expected)));
            assert_eq!(more, b"+next\r\n");
        }
    }

    #[test]
    fn what_is_no_reply_is_malformed() {
        let deep = "*1\r\n".repeat(DEEPEST + 1);
        for sent in
            ["HTTP/1.1 400", "+OK\rx", ":x\r\n", "$-2\r\n", "$1\r\nabc", "*9999999999\r\n", &deep]
        {
            assert_eq!(taken(sent), Err(Malformed), "{sent:?}");
        }
        assert_eq!(take(&mut vec![b'+'; LONGEST + 1]), Err(Malformed));
    }

    #[test]
    fn the_longest_and_deepest_reply_is_read_and_no_more() {
        assert_eq!(take(&mut vec![b'+'; LONGEST]), Ok(None), "its end may be to come");
        for kind in ['$', '*'] {
            assert_eq!(taken(&format!("{kind}{LONGEST}\r\n")), Ok(None));
            assert_eq!(taken(&format!("{kind}{}\r\n", LONGEST + 1)), Err(Malformed));
        }
        let deep = "*1\r\n".repeat(DEEPEST) + ":1\r\n";
        assert!(matches!(taken(&deep), Ok(Some(Reply::Array(_)))));
    }

    proptest! {
        #[test]
        fn a_command_is_an_array_of_its_arguments(arguments: Vec<Vec<u8>>) {
            let parts = arguments.iter().cloned().map(Reply::Text).collect();
            let mut sent = format(&arguments);
            prop_assert_eq!(take(&mut sent), Ok(Some(Reply::Array(parts))));
            prop_assert!(sent.is_empty());
        }

        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>) {
            while let Ok(Some(_)) = take(&mut bytes) {}
        }
    }
}
