//! Reads the settings of the health probes, the hooks and the admin listener. No probe or hook is
//! run; checked on this machine is only what a start would fail for: programs, the directory of the
//! admin socket, the token file.

use super::admin::{self, Admin};
use super::duration;
use super::faults::{Problem, without_secrets};
use super::health::{self, Health};
use super::hooks::{self, Hook, Hooks};
use super::reader::Reader;
use super::table::Raw;
use super::values::{self, Listen};

impl Reader<'_> {
    /// Reads the probes and their timings.
    pub(super) fn health(&mut self) -> Option<Health> {
        let probes = self.probes();
        let interval = self.one("health-interval", values::period);
        let timeout = self.one("health-timeout", values::period);
        let failures = self.one("health-failures", health::count);
        let successes = self.one("health-successes", health::count);
        let (interval, timeout) = (interval?, timeout?);
        if timeout > interval {
            let problem = format!(
                "is longer than health-interval, {}, so a service that hangs would be detected \
                 later than after health-interval × health-failures{}",
                duration::format(interval),
                self.sources(&["health-interval"]),
            );
            let remedy = format!(
                "set health-timeout to at most {}, or health-interval to at least {}",
                duration::format(interval),
                duration::format(timeout),
            );
            self.fault_of("health-timeout", Problem::new(problem, remedy));
        }
        Some(Health {
            probes: probes?,
            interval,
            timeout,
            failures: failures?,
            successes: successes?,
        })
    }

    /// Reads the probes; each invalid one is a fault of its own.
    fn probes(&mut self) -> Option<Vec<health::Probe>> {
        let Some(Raw { values, source }) = self.raw("health") else {
            return Some(Vec::new());
        };
        let path = self.environment.get("PATH");
        let mut probes = Vec::new();
        for text in &values {
            let probe = match health::probe(text, path) {
                Ok(probe) if probes.contains(&probe) => {
                    Err(Problem::new("is listed twice", "list each probe once"))
                }
                other => other,
            };
            match probe {
                Ok(probe) => probes.push(probe),
                Err(problem) => {
                    self.fault("health", Some(&without_secrets(text)), source.clone(), problem);
                }
            }
        }
        (probes.len() == values.len()).then_some(probes)
    }

    /// Reads the hooks and their timeout.
    pub(super) fn hooks(&mut self) -> Option<Hooks> {
        let on_active = self.hook("on-active");
        let on_passive = self.hook("on-passive");
        let on_drain = self.hook("on-drain");
        let on_leader_change = self.hook("on-leader-change");
        let timeout = self.one("hook-timeout", values::period);
        Some(Hooks {
            on_active: on_active?,
            on_passive: on_passive?,
            on_drain: on_drain?,
            on_leader_change: on_leader_change?,
            timeout: timeout?,
        })
    }

    fn hook(&mut self, name: &'static str) -> Option<Option<Hook>> {
        let path = self.environment.get("PATH");
        self.optional(name, |text| hooks::hook(text, path))
    }

    /// Reads the admin listener: a socket that can be created, or an address with its token.
    pub(super) fn admin(&mut self, listen: Option<&[Listen]>) -> Option<Option<Admin>> {
        let address = self.optional("admin", admin::address);
        let token_file = self.optional("admin-token-file", values::path);
        let address = address?;
        if address.as_ref().is_some_and(|it| listen.unwrap_or_default().contains(it))
            && !matches!(&address, Some(Listen::Tcp(it)) if it.port() == 0)
        {
            let problem = Problem::new(
                format!("is also an address of the status listener{}", self.sources(&["listen"])),
                "use another address: the two listeners have different access rules",
            );
            self.fault_of("admin", problem);
        }
        match (address, token_file?) {
            (Some(Listen::Tcp(address)), Some(token_file)) => {
                if let Err(problem) = admin::checked_token(&token_file) {
                    self.fault_of("admin-token-file", problem);
                }
                Some(Some(Admin::Tcp { address, token_file }))
            }
            (Some(Listen::Tcp(_)), None) => {
                let problem = Problem::new(
                    "is an address that every user of this machine can reach, and there is no \
                     token",
                    "set --admin-token-file to a file with a token, or write unix:/path",
                );
                self.fault_of("admin", problem);
                None
            }
            (socket, token_file) => {
                if token_file.is_some() {
                    let problem = Problem::new(
                        "applies only to an admin listener on a loopback address, and there is \
                         none",
                        "remove it, or set an address such as --admin 127.0.0.1:4041",
                    );
                    self.fault_of("admin-token-file", problem);
                }
                let Some(Listen::Unix(path)) = socket else { return Some(None) };
                if let Err(problem) = admin::socket(&path, self.starting) {
                    self.fault_of("admin", problem);
                }
                Some(Some(Admin::Unix(path)))
            }
        }
    }
}
