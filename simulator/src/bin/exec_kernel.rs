//! Plays `tenure exec` on a simulated kernel through every pair of events:
//!
//! `cargo run --profile sim -p simulator --bin exec_kernel -- --pairs 1 --part 0/2`
//!
//! `--failures N` is after how many violations to stop. `--pairs N` and `--triples N` play each N-th of these scripts. `--part I/N` plays part I of N, `--once true` the scripts of a
//! command that runs once. A script in
//! place of settings is replayed, with all that happens: `'Exit@57 KillTenure@60'`. If a property is
//! violated, it prints the scripts and exits with code 1.

#![allow(clippy::print_stdout, reason = "the example prints its result")]

use std::env;
use std::process::ExitCode;

use anyhow::{Context, bail};
use simulator::kernel::{Extent, Script, explore, play};

fn main() -> anyhow::Result<ExitCode> {
    let mut words = env::args().skip(1).peekable();
    if words.peek().is_some_and(|it| !it.starts_with("--")) {
        return replay(&words.collect::<Vec<_>>().join(" ").parse()?);
    }
    let mut extent = Extent { once: None, each: [1, 1, 0], failures: 10, part: (0, 1) };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--once" => extent.once = Some(value.parse()?),
            "--pairs" => extent.each[1] = value.parse()?,
            "--triples" => extent.each[2] = value.parse()?,
            "--failures" => extent.failures = value.parse()?,
            "--part" => {
                let (part, parts) = value.split_once('/').context("--part wants I/N")?;
                extent.part = (part.parse()?, parts.parse()?);
            }
            _ => bail!("no such setting: {word}"),
        }
    }
    let start = tenure::clock::now();
    let found = explore(extent);
    let seconds = start.elapsed_max(tenure::clock::now()).as_secs_f64();
    let [none, single, pairs, triples] = found.played;
    println!("{none} + {single} + {pairs} + {triples} scripts, {seconds:.1} s");
    for (script, violation) in &found.failures {
        println!("{violation}: {script}");
    }
    Ok(if found.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(script: &Script) -> anyhow::Result<ExitCode> {
    let outcome = play(script, true);
    for line in outcome.log {
        println!("{line}");
    }
    println!("{} places, {} to go on at", outcome.places, outcome.window);
    Ok(outcome.violation.map_or(ExitCode::SUCCESS, |_| ExitCode::FAILURE))
}
