//! The requests: each returns the arguments of one command, which executes a script on the two keys of an
//! election. Redis executes it alone, at one instant of its clock.
//!
//! - Both keys have one hash tag, so that they are on one node of a cluster.
//! - The script is sent with each request. Its hash alone would be shorter, but a server that was
//!   restarted does not know it, and a call has no second request.
//! - The lease is a string that Redis deletes at its end; the record is a hash without one.
//! - Each begins with the state, writes if a condition holds, and returns the state.

use std::time::Duration;

use uuid::Uuid;

use crate::lease::{Bid, Successor};

/// Ends the script on a server that is a replica. `ROLE` may not be called in a script; and a replica may be
/// writable, so that the server's own check is not enough.
const PRIMARY_ALONE: &str = "
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY the server is a replica')
end";

/// Reads the keys: whether they are of this format, and whether the lease is of the bid with this nonce.
const STATE: &str = "
local lease, record = KEYS[1], KEYS[2]
local channel, sender, nonce = ARGV[1], ARGV[2], ARGV[3]
local claim = redis.call('GET', lease)
local found = redis.call('HMGET', record, 'format', 'version', 'term', 'nonce')
local version, term, author = found[2] or '0', found[3], found[4]
local known = redis.call('EXISTS', record) == 0
  or found[1] == '1'
    and string.match(version, '^%d+$')
    and string.match(term or '1', '^%d+$')
    and string.match(author or '', '^%x*$')
local ours = known and claim and string.sub(claim, 1, 32) == nonce
local held = known and claim and string.sub(claim, 33, 38) == ' held '
local written = 0";

/// Counts a change that a bid is for, and tells others of one; whether they can be told does not matter for
/// what was written.
const CHANGES: &str = "
local function count()
  redis.call('HSET', record, 'format', '1')
  redis.call('HINCRBY', record, 'version', 1)
end
local function tell()
  written = 1
  local now = redis.call('GET', lease)
  redis.pcall('PUBLISH', channel, sender .. ' ' .. (now and string.sub(now, 1, 32) or '-'))
end";

/// Claims a free lease in the version that the bid has seen, or counts a claim of the bid anew.
const ACQUIRE: &str = "
local seen, millis, identity = ARGV[4], ARGV[5], ARGV[6]
local again = ours and held
if again or known and not claim and version == seen then
  if not again then
    count()
  end
  redis.call('SET', lease, nonce .. ' held ' .. identity, 'PX', millis)
  tell()
end";

const RENEW: &str = "
if ours and held then
  written = redis.call('PEXPIRE', lease, ARGV[4])
end";

/// Terms are compared as texts: Lua's numbers would round them. The nonce comes last, since it says that the
/// rest is there.
const WRITE_TERM: &str = "
local floor = ARGV[4]
local function set(field, value)
  if value == '' then
    redis.call('HDEL', record, field)
  else
    redis.call('HSET', record, field, value)
  end
end
if ours and held and author ~= nonce then
  redis.call('HINCRBY', record, 'term', 1)
  local next = redis.call('HGET', record, 'term')
  if #floor > #next or #floor == #next and floor > next then
    redis.call('HSET', record, 'term', floor)
  end
  redis.call('HSET', record, 'holder', ARGV[5], 'instance', ARGV[6])
  set('address', ARGV[7])
  set('peer', ARGV[8])
  redis.call('HDEL', record, 'successor', 'successor_hold_off_ms')
  redis.call('HSET', record, 'nonce', nonce)
  count()
  tell()
end";

const SET_SUCCESSOR: &str = "
local identity, hold_off = ARGV[4], ARGV[5]
local named = redis.call('HMGET', record, 'successor', 'successor_hold_off_ms')
if ours and held and author == nonce and (named[1] ~= identity or named[2] ~= hold_off) then
  redis.call('HSET', record, 'successor', identity, 'successor_hold_off_ms', hold_off)
  count()
  tell()
end";

const RELEASE: &str = "
if ours then
  redis.call('DEL', lease)
  count()
  tell()
end";

const BREAK: &str = "
if held and version == ARGV[4] then
  redis.call('SET', lease, string.sub(claim, 1, 32) .. ' broken ' .. string.sub(claim, 39), 'KEEPTTL')
  tell()
end";

const BREAK_AT_ONCE: &str = "
if known and claim and version == ARGV[4] then
  redis.call('DEL', lease)
  count()
  tell()
end";

const FIRST_TERM: &str = "
if known and not term then
  redis.call('HSET', record, 'term', ARGV[4])
  count()
  tell()
end";

/// Returns whether it was written, and the state.
const ANSWER: &str = "
local now = redis.call('TIME')
return {
  written, now[1], now[2], redis.call('PTTL', lease), redis.call('GET', lease), redis.call('EXISTS', record),
  redis.call('HMGET', record, 'format', 'version', 'term', 'nonce', 'holder', 'instance', 'address', 'peer',
    'successor', 'successor_hold_off_ms'),
}";

/// A command with its arguments.
pub(super) type Command = Vec<Vec<u8>>;

/// The keys and the channel of one election, and the requests to them.
pub(super) struct Scripts {
    pub(super) lease: String,
    pub(super) record: String,
    /// The channel on which changes are told.
    pub(super) channel: String,
    /// Tells what this store has published from what others have.
    pub(super) sender: String,
}

impl Scripts {
    /// Those of an election.
    pub(super) fn new(election: &str) -> Self {
        Self::of(&format!("tenure:{{{election}}}"))
    }

    /// Those on which `doctor` tries what it may, on the same node.
    pub(super) fn of_probe(election: &str) -> Self {
        Self::of(&format!("tenure:{{{election}}}:doctor"))
    }

    fn of(prefix: &str) -> Self {
        Self {
            lease: format!("{prefix}:lease"),
            record: format!("{prefix}:record"),
            channel: format!("{prefix}:changes"),
            sender: Uuid::new_v4().simple().to_string(),
        }
    }

    fn request(&self, operation: &str, nonce: &str, rest: &[&str]) -> Command {
        let Self { lease, record, channel, sender } = self;
        let script = [PRIMARY_ALONE, STATE, CHANGES, operation, ANSWER].concat();
        let fixed = ["EVAL", &script, "2", lease, record, channel, sender, nonce];
        command(&[&fixed, rest].concat())
    }

    fn of_bid(&self, operation: &str, bid: &Bid, rest: &[&str]) -> Command {
        self.request(operation, &bid.nonce.to_string(), rest)
    }

    /// Reads both keys.
    pub(super) fn read(&self) -> Command {
        self.request("", "", &[])
    }

    /// Claims the lease for a bid that was made for this version, or again if the bid has it already.
    pub(super) fn acquire(&self, bid: &Bid) -> Command {
        let rest = [&bid.seen.0, &millis(bid.lease_duration)[..], &bid.candidate.identity];
        self.of_bid(ACQUIRE, bid, &rest)
    }

    /// Counts the time of a claim anew.
    pub(super) fn renew(&self, bid: &Bid) -> Command {
        self.of_bid(RENEW, bid, &[&millis(bid.lease_duration)])
    }

    /// Writes the record of a bid under its claim, with a term above the last one and at least `floor`,
    /// unless it is there already.
    pub(super) fn write_term(&self, bid: &Bid, floor: i64) -> Command {
        let candidate = &bid.candidate;
        let optional = |it: &Option<String>| it.clone().unwrap_or_default();
        let (address, peer) = (optional(&candidate.address), optional(&candidate.peer));
        let floor = floor.to_string();
        let rest = [&floor, &candidate.identity, &candidate.instance, &address, &peer];
        self.of_bid(WRITE_TERM, bid, &rest.map(String::as_str))
    }

    /// Names a successor in the record of a bid under its claim, unless it is there already.
    pub(super) fn set_successor(&self, bid: &Bid, successor: &Successor) -> Command {
        let hold_off = successor.hold_off_millis().to_string();
        self.of_bid(SET_SUCCESSOR, bid, &[&successor.identity, &hold_off])
    }

    /// Ends the claim of a bid.
    pub(super) fn release(&self, bid: &Bid) -> Command {
        self.of_bid(RELEASE, bid, &[])
    }

    /// Lets the claim of this version run out, or ends it.
    pub(super) fn break_lease(&self, version: &str, at_once: bool) -> Command {
        self.request(if at_once { BREAK_AT_ONCE } else { BREAK }, "", &[version])
    }

    /// Writes a first term, if there is none.
    pub(super) fn first_term(&self, floor: i64) -> Command {
        self.request(FIRST_TERM, "", &[&floor.to_string()])
    }
}

/// Makes a command of its name and its arguments.
pub(super) fn command(arguments: &[&str]) -> Command {
    arguments.iter().map(|it| it.as_bytes().to_vec()).collect()
}

/// Formats a duration in whole milliseconds, rounded up.
fn millis(duration: Duration) -> String {
    duration.as_nanos().div_ceil(1_000_000).to_string()
}
