//! The requests: each returns the arguments of one command, which executes a script on the key of an
//! election. Redis executes it alone.
//!
//! - The keys of an election have one hash tag, so that they are on one node of a cluster.
//! - The script is sent with each request. Its hash alone would be shorter, but a server that was
//!   restarted does not know it, and a call has no second request.
//! - The value, what its next write compares, and the term for the user's own commands are fields of one hash,
//!   written in one step.

use uuid::Uuid;

use crate::store::register::{Body, If, Slot};

/// The format of the hash; in format 1 a second key had the lease.
pub(super) const FORMAT: &str = "2";

/// Lets a script write although the memory is full: it replaces as much as it writes. Servers before version 7
/// have no such flags.
const ALLOWS_OOM: &str = "#!lua flags=allow-oom";

/// Ends the script on a server that is a replica. `ROLE` may not be called in a script; and a replica may be
/// writable, so that the server's own check is not enough.
const PRIMARY_ALONE: &str = "
if not string.find(redis.call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY the server is a replica')
end";

/// Returns whether there is a hash, its fields, and the date.
const READ: &str = "
local found = redis.call('HMGET', KEYS[1], 'format', 'write', 'body')
local now = redis.call('TIME')
return { redis.call('EXISTS', KEYS[1]), found[1], found[2], found[3], now[1], now[2] }";

/// Writes the hash where its `write` is the one that is given, or where there is none and an empty one is given;
/// returns whether it did, and the date. Whether others can be told does not matter for what was written.
const WRITE: &str = "
local key, seen = KEYS[1], ARGV[1]
local holds = seen == '' and redis.call('EXISTS', key) == 0
  or seen ~= '' and redis.call('HGET', key, 'write') == seen
if holds then
  redis.call('HSET', key, 'format', ARGV[2], 'write', ARGV[3], 'body', ARGV[4])
  if ARGV[5] == '' then
    redis.call('HDEL', key, 'term')
  else
    redis.call('HSET', key, 'term', ARGV[5])
  end
  if ARGV[6] ~= '' then
    redis.pcall('PUBLISH', ARGV[6], ARGV[7])
  end
end
local now = redis.call('TIME')
return { holds and 1 or 0, now[1], now[2] }";

/// A command with its arguments.
pub(super) type Command = Vec<Vec<u8>>;

/// The keys and the channel of one election, and the requests to them.
pub(super) struct Scripts {
    lease: String,
    trial: String,
    /// The channel on which changes are told.
    pub(super) channel: String,
    /// What the messages of this instance are.
    pub(super) own: String,
}

impl Scripts {
    /// Those of an election.
    pub(super) fn new(election: &str) -> Self {
        Self {
            lease: format!("tenure:{{{election}}}:record"),
            trial: format!("tenure:{{{election}}}:trial"),
            channel: format!("tenure:{{{election}}}:changes"),
            own: Uuid::new_v4().simple().to_string(),
        }
    }

    pub(super) fn key(&self, slot: Slot) -> &str {
        match slot {
            Slot::Lease => &self.lease,
            Slot::Trial => &self.trial,
        }
    }

    /// Reads a value.
    pub(super) fn read(&self, slot: Slot) -> Command {
        let script = [PRIMARY_ALONE, READ].concat();
        command(&["EVAL", &script, "1", self.key(slot)])
    }

    /// Writes a value on a condition. News are told to others.
    pub(super) fn write(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
        is_news: bool,
        allows_oom: bool,
    ) -> Command {
        let flags = if allows_oom { ALLOWS_OOM } else { "" };
        let script = [flags, PRIMARY_ALONE, WRITE].concat();
        let (write, content) = (body.write.to_string(), body.encode());
        let term = body.record.term.map(|it| it.to_string()).unwrap_or_default();
        let seen = match condition {
            If::Absent => "",
            If::Tagged(tag) => tag,
        };
        let channel = if is_news { self.channel.as_str() } else { "" };
        let mut command = command(&["EVAL", &script, "1", self.key(slot), seen, FORMAT, &write]);
        command.push(content);
        command.extend([&term, channel, &self.own].map(|it| it.as_bytes().to_vec()));
        command
    }
}

/// Makes a command of its name and its arguments.
pub(super) fn command(arguments: &[&str]) -> Command {
    arguments.iter().map(|it| it.as_bytes().to_vec()).collect()
}
