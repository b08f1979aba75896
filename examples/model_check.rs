//! Checks the election exhaustively, within bounds, and prints the number of states:
//!
//! `cargo run --profile sim --example model_check -- --candidates 3 --faults 4`
//!
//! `--faults` limits the faults of a run, `all` means any number; `--kinds` names the faults to
//! inject, by default `delay,failure,crash,resignation,break,seizure,slip`; `--bids` limits the
//! leases that each candidate bids for; `--threads`. The exit code is 1 if a property is violated;
//! the shortest run that violates it is printed.

#![allow(clippy::print_stdout, reason = "the example prints its result")]

#[path = "../tests/model/checked.rs"]
mod checked;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, bail};
use checked::{Bounds, Fault, check};

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
        println!("not seen: {name}");
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
            "--bids" => bounds.bids = bound()?,
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
