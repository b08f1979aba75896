//! The whole output of a command that is read, such as a document or a token: up to a limit.

use std::io::{self, ErrorKind};
use std::process::{Output, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Runs a command to its end; returns its status, its standard output, and its standard error where that
/// is a pipe. Its time is the caller's to limit: dropping the future kills the command.
///
/// # Errors
/// Returns an error if the command cannot be started, and one of the kind `FileTooLarge` once a stream
/// has more than `most` bytes; then the command is killed.
pub(crate) async fn output(mut command: Command, most: usize) -> io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(whole(out, most), whole(err, most))?;
    Ok(Output { status: child.wait().await?, stdout, stderr })
}

async fn whole(stream: Option<impl AsyncRead + Unpin>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(stream) = stream else { return Ok(bytes) };
    stream.take(most as u64 + 1).read_to_end(&mut bytes).await?;
    if bytes.len() > most {
        let problem = format!("it printed more than {} MiB", most >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1 << 20;

    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stderr(Stdio::piped());
        command
    }

    #[tokio::test]
    async fn each_stream_is_read_whole_up_to_the_limit() {
        let ran =
            output(script("head -c 1048576 /dev/zero; echo no >&2; exit 3"), MOST).await.unwrap();
        assert_eq!(
            (ran.stdout.len(), &*ran.stderr, ran.status.code()),
            (MOST, &b"no\n"[..], Some(3))
        );
        for endless in ["yes", "yes >&2", "cat /dev/zero", "head -c 1048577 /dev/zero; sleep 60"] {
            let error = output(script(endless), MOST).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{endless}");
            assert_eq!(error.to_string(), "it printed more than 1 MiB");
        }
        let missing = output(Command::new("/no/such/program"), MOST).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
