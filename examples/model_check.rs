//! Checks the election exhaustively within bounds, and prints how many states there are.

#[path = "../tests/model/checked.rs"]
mod checked;

use checked::{Bounds, Checked, Fault};
use stateright::{Checker, Model, report::WriteReporter};
use std::env;

fn main() {
    let mut bounds = Bounds { candidates: 3, bids: None, faults: Some(1), each: [None; 7] };
    let mut threads = 1;
    for arg in env::args().skip(1) {
        let (name, value) = arg.split_once('=').unwrap();
        let n = if value == "all" { None } else { Some(value.parse::<u8>().unwrap()) };
        match name {
            "candidates" => bounds.candidates = n.unwrap(),
            "bids" => bounds.bids = n,
            "faults" => bounds.faults = n,
            "each" => bounds.each = [n; 7],
            "threads" => threads = n.unwrap().into(),
            _ => {
                let fault = Fault::ALL
                    .into_iter()
                    .find(|it| format!("{it:?}").to_lowercase() == name)
                    .unwrap();
                bounds.each[fault as usize] = n;
            }
        }
    }
    let checker = Checked { bounds }
        .checker()
        .threads(threads)
        .finish_when(stateright::HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .report(&mut WriteReporter::new(&mut std::io::stdout()));
    println!("depth {}", checker.max_depth());
}
