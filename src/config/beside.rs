//! Stub until the settings are merged.
#![allow(missing_docs)]
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;
#[derive(Clone, Debug)]
pub struct Health {
    pub probes: Vec<Probe>,
    pub interval: Duration,
    pub timeout: Duration,
    pub failures: u32,
    pub successes: u32,
}
#[derive(Clone, Debug)]
pub enum Probe {
    Http(Url),
    Tcp { host: String, port: u16 },
    File { path: PathBuf, max_age: Option<Duration> },
    Exec(CommandLine),
}
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => url.fmt(f),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::File { path, .. } => write!(f, "file:{}", path.display()),
            Self::Exec(it) => write!(f, "exec:{} {}", it.program.display(), it.arguments.join(" ")),
        }
    }
}
#[derive(Clone, Debug)]
pub struct Hooks {
    pub on_active: Option<Hook>,
    pub on_passive: Option<Hook>,
    pub on_drain: Option<Hook>,
    pub on_leader_change: Option<Hook>,
    pub timeout: Duration,
}
#[derive(Clone, Debug)]
pub enum Hook {
    Command(CommandLine),
    Webhook(Url),
}
#[derive(Clone, Debug)]
pub struct CommandLine {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}
