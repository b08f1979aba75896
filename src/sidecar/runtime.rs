//! A runtime on a thread of its own, for all that runs beside the election.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How long the end waits for blocking tasks: one may be starting a hook or a probe, which must not
/// outlive this process. Others, such as a name resolution without an answer, may never end.
const LAST_START: Duration = Duration::from_millis(500);

/// A single-threaded runtime on its own thread. When this is dropped, its tasks are dropped and the
/// thread ends.
pub(super) struct ServiceRuntime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ServiceRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no room for a thread or for the file descriptors of a runtime.
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the runtime of the listeners cannot be created")?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            // An error means that the sender was dropped.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(LAST_START);
        };
        let thread = thread::Builder::new().name("services".to_owned()).spawn(run);
        let thread = thread.context("the thread of the listeners cannot be started")?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs a future on this runtime and returns its output. If this is dropped before, the future
    /// is dropped too. A panic of the future continues here.
    pub(super) async fn run<F>(&self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let mut task = AbortOnDrop(self.handle.spawn(future));
        match (&mut task.0).await {
            Ok(output) => output,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => unreachable!("the task is aborted with its handle alone"),
            },
        }
    }
}

impl Drop for ServiceRuntime {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Sockets' files are removed when the tasks are dropped. No task blocks the thread.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
