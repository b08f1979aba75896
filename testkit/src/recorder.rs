//! A recorder that keeps polling every candidate, records when each reported active, and checks the
//! result.
//!
//! A *claim* is an answer 200 of `/leader`: the instance is active from the sending of the request
//! for `valid_for_ms`. Overlapping claims of two instances are a dual. All times are on the raw
//! monotonic clock of this host.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The default interval between requests to one candidate. An answer counts until its end, so that a
/// longer one costs no sight, but a shorter one costs the tests a good part of both cores.
const INTERVAL: Duration = Duration::from_millis(10);

/// One answer 200.
#[derive(Clone, Debug)]
pub struct Claim {
    pub instance: String,
    pub term: u64,
    pub sent: Duration,
    pub until: Duration,
}

/// Polls candidates on threads of its own until it is finished.
pub struct Recorder {
    claims: Arc<Mutex<Vec<Claim>>>,
    interval: Duration,
    over: Arc<AtomicBool>,
    /// The followed instances, each with its stop flag and thread.
    threads: Vec<(String, Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Recorder {
    pub fn start() -> Self {
        Self::every(INTERVAL)
    }

    /// Creates a recorder that polls each candidate at this interval.
    pub fn every(interval: Duration) -> Self {
        Self { claims: Arc::default(), interval, over: Arc::default(), threads: Vec::new() }
    }

    /// Returns the claims from index `from` on.
    pub fn claims(&self, from: usize) -> Vec<Claim> {
        self.claims.lock().unwrap()[from..].to_vec()
    }

    /// Stops polling an instance that is gone, because another process may get its address.
    pub fn forget(&mut self, instance: &str) {
        for (name, over, _) in &self.threads {
            if name == instance {
                over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Polls one more candidate from now on. `instance` names the process, not the identity.
    pub fn follow(&mut self, instance: &str, address: SocketAddr) {
        let (claims, all_over) = (Arc::clone(&self.claims), Arc::clone(&self.over));
        let (interval, over) = (self.interval, Arc::new(AtomicBool::default()));
        let (name, forgotten) = (instance.to_owned(), Arc::clone(&over));
        let instance = instance.to_owned();
        let thread = std::thread::spawn(move || {
            let mut connection = None;
            while !all_over.load(Ordering::Relaxed) && !forgotten.load(Ordering::Relaxed) {
                if let Some(claim) = ask(&mut connection, address, &instance) {
                    claims.lock().unwrap().push(claim);
                }
                std::thread::sleep(interval);
            }
        });
        self.threads.push((name, over, thread));
    }

    /// Returns whether an instance was seen to claim leadership.
    pub fn has_claim(&self, instance: &str) -> bool {
        self.claims.lock().unwrap().iter().any(|claim| claim.instance == instance)
    }

    /// Returns whether an instance was seen to claim leadership in this term.
    pub fn has_claim_in(&self, instance: &str, term: u64) -> bool {
        let claims = self.claims.lock().unwrap();
        claims.iter().rev().any(|claim| claim.instance == instance && claim.term == term)
    }

    /// Stops polling and evaluates all claims. `released` are the instances that released
    /// voluntarily: by contract, each is active until the sending of its last request with answer
    /// 200.
    pub fn finish(self, released: &[&str]) -> Verdict {
        self.over.store(true, Ordering::Relaxed);
        for (_, _, thread) in self.threads {
            thread.join().expect("the recorder's thread did not panic");
        }
        let mut claims =
            Arc::try_unwrap(self.claims).expect("no thread is left").into_inner().unwrap();
        claims.sort_by_key(|claim| claim.sent);
        Verdict::of(&claims, released)
    }
}

/// The evaluation of the claims of a run.
#[derive(Debug)]
pub struct Verdict {
    pub claims: usize,
    /// The terms in the order in which they were first claimed, with their instance.
    pub terms: Vec<(u64, String)>,
    /// Descriptions of the overlaps of two instances.
    pub duals: Vec<String>,
    /// Terms that two instances claimed.
    pub shared: Vec<u64>,
    /// Claims of a term lower than an earlier one.
    pub falls: Vec<String>,
}

impl Verdict {
    pub fn of(claims: &[Claim], released: &[&str]) -> Self {
        // The time of one instance in one term, from its first request to the end of its last
        // claim.
        let mut reigns: BTreeMap<(u64, &str), (Duration, Duration)> = BTreeMap::new();
        let mut terms: Vec<(u64, String)> = Vec::new();
        let mut falls = Vec::new();
        for claim in claims {
            let by_will = released.contains(&claim.instance.as_str());
            let until = if by_will { claim.sent } else { claim.until };
            let reign = reigns.entry((claim.term, &claim.instance)).or_insert((claim.sent, until));
            reign.1 = reign.1.max(until);
            if let Some((last, _)) = terms.last()
                && claim.term < *last
            {
                falls.push(format!("{claim:?} after term {last}"));
            }
            if !terms.iter().any(|(term, who)| *term == claim.term && *who == claim.instance) {
                terms.push((claim.term, claim.instance.clone()));
            }
        }
        let mut duals = Vec::new();
        let all: Vec<_> = reigns.iter().collect();
        for (index, ((term, who), (from, to))) in all.iter().enumerate() {
            for ((other_term, other), (other_from, other_to)) in &all[index + 1..] {
                if who != other && from < other_to && other_from < to {
                    duals.push(format!(
                        "{who} in term {term} from {from:?} to {to:?}, and \
                         {other} in term {other_term} from {other_from:?} to {other_to:?}"
                    ));
                }
            }
        }
        let mut shared: Vec<u64> = terms.iter().map(|(term, _)| *term).collect();
        shared.sort_unstable();
        let shared =
            shared.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        Self { claims: claims.len(), terms, duals, shared, falls }
    }

    /// Panics unless there was no dual, no shared and no falling term.
    pub fn assert_safe(&self) {
        assert!(self.claims > 0, "the recorder has no claim: {self:?}");
        assert!(
            self.duals.is_empty() && self.shared.is_empty() && self.falls.is_empty(),
            "not safe: {self:#?}"
        );
    }
}

type Connection = Option<BufReader<TcpStream>>;

/// Sends one request over a persistent connection, which is replaced the next time if it is broken.
fn ask(connection: &mut Connection, address: SocketAddr, instance: &str) -> Option<Claim> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => {
            let bound = Duration::from_secs(1);
            let stream = TcpStream::connect_timeout(&address, bound).ok()?;
            // Long enough for the answers of a process that was stopped, which count too.
            stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
            stream.set_nodelay(true).ok()?;
            BufReader::new(stream)
        }
    };
    let sent = tenure::clock::now().raw;
    stream.get_mut().write_all(b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let (code, term, valid_for) = read_answer(&mut stream)?;
    *connection = Some(stream);
    let until = sent + Duration::from_millis(valid_for);
    (code == 200).then(|| Claim { instance: instance.to_owned(), term, sent, until })
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> Option<(u16, u64, u64)> {
    let (mut code, mut term, mut valid_for, mut length) = (0, 0, 0, 0);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(status) = line.strip_prefix("http/1.1 ") {
            code = status.get(..3)?.parse().ok()?;
        } else if let Some((name, value)) = line.split_once(": ") {
            match name {
                "tenure-term" => term = value.parse().ok()?,
                "tenure-valid-for-ms" => valid_for = value.parse().ok()?,
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        } else if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((code, term, valid_for))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(instance: &str, term: u64, sent: u64, until: u64) -> Claim {
        let ms = Duration::from_millis;
        Claim { instance: instance.to_owned(), term, sent: ms(sent), until: ms(until) }
    }

    #[test]
    fn an_overlap_of_two_instances_is_a_dual_unless_the_first_released_the_lease() {
        let claims = [claim("a", 1, 0, 100), claim("b", 2, 50, 150)];
        assert_eq!(Verdict::of(&claims, &[]).duals.len(), 1);
        assert!(Verdict::of(&claims, &["a"]).duals.is_empty());
    }

    #[test]
    fn a_shared_term_and_a_falling_term_are_seen() {
        let claims = [claim("a", 2, 0, 10), claim("b", 2, 20, 30), claim("a", 1, 40, 50)];
        let verdict = Verdict::of(&claims, &[]);
        assert_eq!(verdict.shared, [2]);
        assert_eq!(verdict.falls.len(), 1);
    }
}
