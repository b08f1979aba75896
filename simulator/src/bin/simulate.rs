//! The command line of the simulator: runs a campaign, replays an episode, or draws a figure.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]
#![allow(clippy::disallowed_methods, reason = "measures its own speed")]
#![allow(clippy::cast_possible_truncation, reason = "indices of a few dozen")]

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::Parser;
use simulator::campaign::{self, Found, Tally};
use simulator::checker::Kind;
use simulator::engine::Extent;
use simulator::faults::{self, Kind as Fault, Target};
use simulator::scenario::{Nature, Scenario};
use simulator::timeline::{Bar, Frame};
use simulator::world::World;
use simulator::{MILLI, SECOND};

/// Simulates the election under faults, from a seed.
///
/// The last line has the simulated hours, the number of faults, and how often two instances led at
/// once (dual), a term decreased, or there was no leader in time (stuck). The exit code is 1 if any of
/// these occurred; the command that replays the shortest schedule showing it precedes that line.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  cargo run --profile sim -p simulator --bin simulate -- --hours 20000 --seed 7 --json
  cargo run --profile sim -p simulator --bin simulate -- --shell --hours 500
  cargo run --profile sim -p simulator --bin simulate -- --seed 7 --episode 12 --faults 3,17 --trace")]
struct Arguments {
    /// How many hours to simulate
    #[arg(long, default_value_t = 1_000.0)]
    hours: f64,
    /// The seed; random if absent
    #[arg(long)]
    seed: Option<u64>,
    /// Run the core in the real driver, with the real publisher and status files
    #[arg(long, conflicts_with = "figure")]
    shell: bool,
    /// How many episodes to play at once, which changes no result [default: two for each core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print the last line as JSON
    #[arg(long)]
    json: bool,
    /// Replay this one episode of the seed
    #[arg(long)]
    episode: Option<u64>,
    /// With --episode: only these faults of its schedule, by number (`3,17`, or `none`)
    #[arg(long, requires = "episode", value_parser = chosen)]
    faults: Option<Chosen>,
    /// With --episode: print every event
    #[arg(long, requires = "episode")]
    trace: bool,
    /// Draw a fixed run as SVG: the leader crashes, or is stopped for 20 s
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["episode", "json"])]
    figure: Option<Figure>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Figure {
    /// The leader is killed.
    Crash,
    /// The leader is stopped for 20 s and continues.
    Pause,
}

/// The numbers of the chosen faults.
#[derive(Clone, Debug)]
struct Chosen(Vec<u32>);

fn chosen(text: &str) -> Result<Chosen, std::num::ParseIntError> {
    match text {
        "none" => Ok(Chosen(Vec::new())),
        list => list.split(',').map(str::parse).collect::<Result<_, _>>().map(Chosen),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(figure) = arguments.figure {
        println!("{}", draw(figure));
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    if arguments.seed.is_none() {
        println!("seed {seed}");
    }
    let began = Instant::now();
    let tally = match arguments.episode {
        Some(episode) => replay(seed, episode, &arguments),
        None => campaign::run(seed, arguments.hours, arguments.extent(), arguments.jobs()),
    };
    let rate = tally.hours() / began.elapsed().as_secs_f64().max(1e-9);
    if let Some(found) = &tally.found {
        report(&tally, found);
    }
    if arguments.json {
        println!("{}", json(&tally, rate));
    } else {
        summarize(&tally, rate);
    }
    ExitCode::from(u8::from(tally.found.is_some()))
}

impl Arguments {
    fn extent(&self) -> Extent {
        if self.shell { Extent::Shell } else { Extent::Core }
    }

    /// Returns how many episodes are played at once. They take unequal time and are counted in their
    /// order, so that one for each core would leave cores idle.
    fn jobs(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(|| 2 * cores(), usize::from)
    }
}

/// Runs an episode with a single fault, and returns its timeline as SVG.
fn draw(figure: Figure) -> String {
    const STRUCK: u64 = 60 * SECOND + 700 * MILLI;
    let (kind, length, title, word) = match figure {
        Figure::Crash => (
            Fault::Crash,
            3_600 * SECOND,
            "The leader is killed: first its client's last answer expires, then the lease",
            "killed",
        ),
        Figure::Pause => (
            Fault::Pause,
            20 * SECOND,
            "The leader is stopped for 20 s: its belief ends by the clock, before the lease",
            "stopped",
        ),
    };
    let fault = faults::Fault { phase: 0, at: STRUCK, length, target: Target::Leader, kind };
    let scenario = Scenario::by_hand(Nature::Sleepy, vec![fault]);
    let mut world = World::new(&scenario, &[0]).with_timeline();
    world.play();
    let timeline = world.timeline().expect("it was asked for");
    let led = |bar: &&Bar| bar.from > STRUCK;
    let next = timeline.beliefs.iter().find(led).expect("another leads");
    let lost = timeline.lease.iter().rev().find(|it| it.until > STRUCK && it.from < STRUCK);
    let lost = lost.expect("there was a leader").until;
    let marks = [
        (STRUCK, word),
        (lost, "the lease has expired"),
        (next.from, "another leads"),
        (STRUCK + length, "continues: passive"),
    ];
    let shown = if length > 60 * SECOND { 3 } else { 4 };
    Frame {
        title,
        from: STRUCK - 7 * SECOND,
        until: STRUCK + 23 * SECOND,
        marks: &marks[..shown],
        nodes: 3,
    }
    .draw(timeline)
}

/// Replays one episode, with all of its faults or the chosen ones.
fn replay(seed: u64, episode: u64, arguments: &Arguments) -> Tally {
    let scenario = campaign::scenario(seed, episode, arguments.extent());
    let all = 0..scenario.faults.len() as u32;
    let kept = match &arguments.faults {
        Some(Chosen(some)) => all.filter(|it| some.contains(it)).collect(),
        None => all.collect::<Vec<u32>>(),
    };
    let mut world = World::new(&scenario, &kept);
    if arguments.trace {
        println!("{scenario:#?}");
        world = world.with_trace();
    }
    let outcome = world.play();
    for line in world.lines() {
        println!("{line}");
    }
    Tally {
        seed,
        extent: scenario.extent,
        length: outcome.length,
        episodes: 1,
        faults: outcome.faults,
        elections: outcome.elections,
        notified: outcome.notified,
        history: outcome.history,
        found: outcome.violation.map(|violation| Found { episode, violation, kept }),
    }
}

fn report(tally: &Tally, found: &Found) {
    let seed = tally.seed;
    let extent = if tally.extent == Extent::Shell { " --shell" } else { "" };
    let Found { episode, violation, kept } = found;
    let seconds = violation.at as f64 / simulator::SECOND as f64;
    eprintln!("{:?} after {seconds:.3} s of episode {episode}: {}", violation.kind, violation.text);
    let kept: Vec<String> = kept.iter().map(u32::to_string).collect();
    let faults = if kept.is_empty() { "none".to_owned() } else { kept.join(",") };
    eprintln!(
        "replay it:\n  cargo run --profile sim -p simulator --bin simulate -- --seed {seed} --episode \
         {episode} --faults {faults} --trace{extent}"
    );
}

fn counts(tally: &Tally) -> [(&'static str, u64); 5] {
    [
        (
            "dual",
            tally.count(&[
                Kind::DualLeaders,
                Kind::DualClients,
                Kind::DualChildren,
                Kind::ObserverLed,
                Kind::Revived,
                Kind::JumpForgotten,
            ]),
        ),
        ("term_falls", tally.count(&[Kind::TermFell, Kind::TermUnwritten])),
        (
            "stuck",
            tally.count(&[
                Kind::Leaderless,
                Kind::SlowHandover,
                Kind::LeftBehind,
                Kind::FileBehind,
                Kind::TooLate,
                Kind::SlowHeir,
            ]),
        ),
        (
            "unkept",
            tally.count(&[
                Kind::ReleasedEarly,
                Kind::DrainLapsed,
                Kind::StaleProbeCounted,
                Kind::HoldOffBroken,
                Kind::Ineligible,
                Kind::WrongSuccessor,
                Kind::LostUnrefused,
                Kind::NoJitter,
                Kind::TooEarly,
                Kind::BidUnread,
                Kind::StaleNotice,
                Kind::TooManyReads,
                Kind::Herd,
                Kind::NotSlowed,
            ]),
        ),
        ("broken", tally.count(&[Kind::TwoRequests, Kind::Panicked])),
    ]
}

fn json(tally: &Tally, rate: f64) -> String {
    let mut line = serde_json::json!({
        "hours": tally.hours().round(),
        "seed": tally.seed,
        "episodes": tally.episodes,
        "faults": tally.faults,
        "elections": tally.elections,
        "history": format!("{:016x}", tally.history),
        "hours_per_second": rate.round(),
        "notified_reads_a_minute": (tally.notified_reads_a_minute() * 100.0).round() / 100.0,
    });
    for (name, count) in counts(tally) {
        line[name] = count.into();
    }
    line.to_string()
}

fn summarize(tally: &Tally, rate: f64) {
    println!(
        "{:.0} hours in {} episodes, {} faults, {} elections, history {:016x}, {rate:.0} hours a \
         second",
        tally.hours(),
        tally.episodes,
        tally.faults,
        tally.elections,
        tally.history,
    );
    for (name, count) in counts(tally) {
        println!("{name}: {count}");
    }
}
