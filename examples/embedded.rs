//! A service with an embedded election: one instance at a time does the work, without a sidecar.
//!
//! ```sh
//! cargo run --example embedded -- file:///tmp    # in two terminals; stop the first with Ctrl-C
//! ```
#![allow(clippy::print_stdout, reason = "the example prints what it does")]

use std::error::Error;
use std::time::Duration;

use tenure::Candidate;
use tenure::candidate::{Ended, Leadership};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let identity = format!("embedded-{}", std::process::id());
    let candidate = Candidate::builder("embedded", &store)
        .identity(&identity)
        .drain_timeout(Duration::from_secs(5))
        .start()?;
    println!("{identity} competes on {store}");
    // `join!` polls the work until it has ended, while the other future waits for the release.
    let (left, ()) = tokio::join!(leave_when_told(&candidate), serve(&candidate));
    left?;
    println!("{identity} has left");
    Ok(())
}

/// Runs the work in each leadership, until the candidate has resigned.
async fn serve(candidate: &Candidate) {
    loop {
        match candidate.run_while_leader(work).await {
            Ok(jobs) => println!("ended after {jobs} jobs, none of them cut off"),
            Err(Ended::Lost { term }) => println!("lost term {term}: another may lead now"),
            Err(_) => return,
        }
    }
}

/// The work of the leader: one job at a time. A drain lets the current job finish.
async fn work(leadership: Leadership) -> u32 {
    let term = leadership.term();
    println!("leads in term {term}");
    let mut jobs = 0;
    loop {
        tokio::select! {
            biased;
            () = leadership.draining() => return jobs,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        jobs += 1;
        // A job that writes to a resource passes the term, so that it can reject older ones.
        println!("job {jobs} with the fencing token {term}");
    }
}

/// Resigns on Ctrl-C or SIGTERM, and returns when the lease is released.
async fn leave_when_told(candidate: &Candidate) -> std::io::Result<()> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    candidate.resign().await;
    Ok(())
}
