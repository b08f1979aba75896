//! Checks the election exhaustively within bounds, and prints how many states there are.

#[path = "../tests/model/checked.rs"]
mod checked;

use std::env;
use stateright::{Checker, Model, report::WriteReporter};
use checked::{Bounds, Checked};

fn main() {
    let mut bounds = Bounds { candidates: 3, bids: Some(2), failures: Some(1), crashes: Some(1), resignations: Some(1), breaks: Some(1), seizures: Some(1), slips: Some(1) };
    let mut threads = 1;
    for arg in env::args().skip(1) {
        let (name, value) = arg.split_once('=').unwrap();
        let n = if value == "all" { None } else { Some(value.parse::<u8>().unwrap()) };
        match name {
            "candidates" => bounds.candidates = n.unwrap(),
            "bids" => bounds.bids = n,
            "failures" => bounds.failures = n,
            "crashes" => bounds.crashes = n,
            "resignations" => bounds.resignations = n,
            "breaks" => bounds.breaks = n,
            "seizures" => bounds.seizures = n,
            "slips" => bounds.slips = n,
            "threads" => threads = n.unwrap().into(),
            _ => panic!("{name}"),
        }
    }
    let checker = Checked { bounds }.checker().threads(threads).spawn_bfs().report(&mut WriteReporter::new(&mut std::io::stdout()));
    println!("depth {}", checker.max_depth());
}
