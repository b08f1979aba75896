//! Checks the election exhaustively, within bounds, and prints the number of states:
//!
//! `cargo run --profile sim -p simulator --bin model_check -- --candidates 3 --faults 4`
//!
//! `--faults` limits the number of faults in a run (`all` for no limit). `--kinds` selects the
//! kinds of fault, by default `delay,failure,crash,resignation,break,seizure,slip`. `--bids` limits
//! the leases that each candidate bids for. `--notices` allows so many notices of the leader's stream, true
//! or not (none). `--store` is `blob` (the default) or `register`. `--threads` sets the number of threads. If a property
//! is violated, it prints the shortest run that leads there and exits with code 1.

#![allow(clippy::print_stdout, reason = "the example prints its result")]

use std::env;
use std::process::ExitCode;

use anyhow::{Context, bail};
use simulator::model::{Bounds, Fault, check};

fn main() -> anyhow::Result<ExitCode> {
    let (bounds, threads) = arguments(env::args().skip(1))?;
    let start = tenure::clock::now();
    let checkup = check(bounds, threads);
    let seconds = start.elapsed_max(tenure::clock::now()).as_secs_f64();
    println!(
        "{} states, {} events, depth {}, {seconds:.1} s",
        checkup.states, checkup.events, checkup.depth
    );
    for failure in &checkup.failures {
        println!("{failure}");
    }
    for name in &checkup.unseen {
        println!("did not occur: {name}");
    }
    Ok(if checkup.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn arguments(mut words: impl Iterator<Item = String>) -> anyhow::Result<(Bounds, usize)> {
    let mut bounds = Bounds::of_faults(3, 3);
    let mut threads = 1;
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} wants a value"))?;
        let number = || value.parse::<u8>().with_context(|| format!("{word} {value}"));
        let bound = || if value == "all" { Ok(None) } else { number().map(Some) };
        match word.as_str() {
            "--candidates" => bounds.candidates = number()?,
            "--faults" => bounds.faults = bound()?,
            "--notices" => bounds.notices = number()?,
            "--bids" => bounds.bids = bound()?,
            "--store" if value == "register" => bounds = bounds.on_a_register(),
            "--store" if value == "blob" => {}
            "--threads" => threads = number()?.into(),
            "--kinds" => {
                let kinds = value.split(',').map(kind).collect::<Result<Vec<_>, _>>()?;
                bounds = bounds.only(&kinds);
            }
            _ => bail!("no such setting: {word}"),
        }
    }
    Ok((bounds, threads))
}

fn kind(name: &str) -> anyhow::Result<Fault> {
    let named = |fault: &Fault| format!("{fault:?}").eq_ignore_ascii_case(name);
    Fault::ALL.into_iter().find(named).with_context(|| format!("no such fault: {name}"))
}
