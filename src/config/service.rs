//! Reads the settings of the listeners, the status files, the health probes and the hooks. No probe
//! or hook is run; checked on this machine is only what a start would fail for: programs, addresses,
//! directories, the token file.

use std::net::SocketAddr;
use std::time::Duration;

use super::admin::{self, Admin};
use super::duration;
use super::faults::{Problem, without_secrets};
use super::health::{self, Health};
use super::hooks::{self, Hook, Hooks};
use super::machine;
use super::reader::Reader;
use super::setting::Raw;
use super::values::{self, Listen, StatusFile};
use super::withheld::{StoreSecrets, Withheld};

/// The default of health-timeout, if health-interval is not shorter.
const LONGEST_PROBE: Duration = Duration::from_secs(1);

impl Reader<'_> {
    /// Reads the addresses of the status listener.
    pub(super) fn listen(&mut self) -> Option<Vec<Listen>> {
        let all = self.many("listen", values::listen)?;
        all.iter().for_each(|it| self.check_listener("listen", it));
        Some(all)
    }

    /// Checks that an address can be listened on.
    fn check_listener(&mut self, setting: &'static str, listen: &Listen) {
        let problem = match listen {
            Listen::Unix(path) => machine::socket(path, self.starting).err(),
            // The process that is examined may be the one that listens; a program has no listener.
            Listen::Tcp(_) if !self.starting || self.environment.by_program => None,
            // Port 0 means any free port.
            Listen::Tcp(address) if address.port() == 0 => None,
            Listen::Tcp(address) => {
                let error = (self.environment.can_bind)(*address).err();
                error.and_then(|it| machine::unbindable(*address, it))
            }
        };
        if let Some(problem) = problem {
            self.fault(setting, Some(&listen.to_string()), self.source(setting), problem);
        }
    }

    /// Reads the address for agent checks, which no other listener may have.
    pub(super) fn agent_check(
        &mut self,
        listen: Option<&[Listen]>,
        admin: Option<&Option<Admin>>,
    ) -> Option<Option<SocketAddr>> {
        let Some(address) = self.optional("agent-check", values::tcp_address)? else {
            return Some(None);
        };
        let own = Listen::Tcp(address);
        self.check_listener("agent-check", &own);
        let admin = match admin {
            Some(Some(Admin::Tcp { address, .. })) => Some(Listen::Tcp(*address)),
            _ => None,
        };
        for (setting, whose, taken) in
            [("listen", "status", listen.unwrap_or_default()), ("admin", "admin", admin.as_slice())]
        {
            if taken.iter().any(|it| it.overlaps(&own)) {
                let problem = Problem::new(
                    format!(
                        "is also an address of the {whose} listener{}",
                        self.sources(&[setting])
                    ),
                    "use another port: an agent check is no HTTP request",
                );
                self.fault_of("agent-check", problem);
            }
        }
        Some(Some(address))
    }

    /// Reads the status files.
    pub(super) fn status_files(&mut self) -> Option<Vec<StatusFile>> {
        let all = self.many("status-file", values::status_files)?;
        for StatusFile { path, .. } in &all {
            if let Err(problem) = machine::status_file(path, self.starting) {
                let (shown, source) = (path.display().to_string(), self.source("status-file"));
                self.fault("status-file", Some(&shown), source, problem);
            }
        }
        Some(all)
    }

    /// Reads whether child processes inherit secrets, and determines which they do not inherit.
    pub(super) fn withheld(&mut self, store: StoreSecrets) -> Option<Withheld> {
        let passed = self.one("pass-credentials", values::switch)?;
        let withheld = Withheld::of(self.environment, store, passed);
        let names = withheld.secrets_in(self.environment);
        if !names.is_empty() {
            self.layers.notes.push(format!(
                "withheld from the environment of child processes: {}; set pass-credentials to \
                 pass them on",
                names.join(", ")
            ));
        }
        Some(withheld)
    }

    /// Reads the probes and their timings.
    pub(super) fn health(&mut self, withheld: Option<&Withheld>) -> Option<Health> {
        let probes = self.probes();
        let interval = self.one("health-interval", values::period);
        let timeout = self.optional("health-timeout", values::period);
        let failures = self.one("health-failures", health::count);
        let successes = self.one("health-successes", health::count);
        let interval = interval?;
        let timeout = timeout?.unwrap_or(interval.min(LONGEST_PROBE));
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
            withheld: withheld?.clone(),
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
                    // The query of a file is no secret, and a misspelt one must be seen.
                    let shown = match text.starts_with("file:") {
                        true => text.clone(),
                        false => without_secrets(text),
                    };
                    self.fault("health", Some(&shown), source.clone(), problem);
                }
            }
        }
        (probes.len() == values.len()).then_some(probes)
    }

    /// Reads the hooks and their timeout.
    pub(super) fn hooks(&mut self, withheld: Option<&Withheld>) -> Option<Hooks> {
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
            withheld: withheld?.clone(),
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
        if let Some(Some(listen)) = &address {
            self.check_listener("admin", listen);
        }
        let address = address?;
        let overlaps = |it: &Listen| listen.unwrap_or_default().iter().any(|all| all.overlaps(it));
        if address.as_ref().is_some_and(overlaps) {
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
                Some(Some(Admin::Unix(path)))
            }
        }
    }
}
