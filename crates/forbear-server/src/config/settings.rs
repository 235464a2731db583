//! What the server itself needs to know: where it listens, where it remembers, what bounds it. Nothing here reaches a
//! decision of the core. `forbear.default.yaml` says why each default is what it is.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use forbear_core::policy::{Fault, FaultKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The server's part of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where agents connect: an address and a port.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Where the journal and the keys are; `$XDG_DATA_HOME/forbear` or `~/.local/share/forbear` where it is not said.
    pub data_dir: Option<PathBuf>,
    /// How the server's log is written.
    pub log: LogFormat,
    /// How long calls in flight may go on after SIGTERM.
    pub drain_seconds: u64,
    /// Whether a read waits until its event is durable.
    pub journal_reads: JournalReads,
    /// How long ended actions are kept.
    pub retention_days: u64,
    /// The store's size at which writes are refused and reads go on.
    pub store_bytes_max: u64,
    /// The key that seals contents; `master.key` in the data directory where it is not said.
    pub master_key_file: Option<PathBuf>,
    /// The largest request body that is kept for a retry; a larger one is streamed once.
    pub body_replay_bytes_max: u64,
    /// The largest request body at all; a larger one gets 413.
    pub body_bytes_max: u64,
    /// All bodies that are kept for a retry together.
    pub replay_bytes_total_max: u64,
    /// How long an agent may take to send a head, or be silent within a body; a tenth of what it may leave unread for.
    pub header_read_seconds: u64,
    /// Agents' connections at once; at the bound the listener waits.
    pub connections_max: u64,
    /// Connections to providers.
    pub upstream: Upstream,
}

/// Connections to providers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Upstream {
    /// Address, connection and TLS together.
    pub connect_timeout_ms: u64,
    /// From the last byte of a request to the head of its answer.
    pub head_timeout_seconds: u64,
    /// How long an idle connection is kept.
    pub idle_timeout_ms: u64,
    /// How old a connection may become.
    pub age_seconds: u64,
    /// Idle connections kept to one origin.
    pub idle_connections_max: u64,
    /// A PEM file of further trust roots.
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object a line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalReads {
    /// The event follows within 10 ms; a crash may lose it, and recovery says so.
    Behind,
    /// The event is durable before the call is sent.
    Before,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8429)),
            data_dir: None,
            log: LogFormat::Text,
            drain_seconds: 30,
            journal_reads: JournalReads::Behind,
            retention_days: 30,
            store_bytes_max: 10 * GIB,
            master_key_file: None,
            body_replay_bytes_max: 8 * MIB,
            body_bytes_max: 256 * MIB,
            replay_bytes_total_max: 256 * MIB,
            header_read_seconds: 30,
            connections_max: 4_096,
            upstream: Upstream::default(),
        }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 10_000,
            head_timeout_seconds: 600,
            idle_timeout_ms: 4_000,
            age_seconds: 300,
            idle_connections_max: 256,
            ca_file: None,
        }
    }
}

impl Settings {
    /// The data directory, by the file, else by the environment that is passed in. `None` where neither says one.
    #[must_use]
    pub fn data_dir(&self, env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name| env(name).map(PathBuf::from).filter(|p: &PathBuf| p.is_absolute());
        self.data_dir.clone().or_else(|| {
            let base = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
            Some(base.join("forbear"))
        })
    }

    #[must_use]
    pub fn master_key_file(&self, data_dir: &Path) -> PathBuf {
        self.master_key_file.clone().unwrap_or_else(|| data_dir.join("master.key"))
    }

    /// Everything that makes no sense.
    pub(super) fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let up = &self.upstream;
        let bounds: [(&[&str], u64, u64, u64); 13] = [
            (&["drain_seconds"], self.drain_seconds, 0, 3_600),
            (&["retention_days"], self.retention_days, 1, 36_500),
            (&["store_bytes_max"], self.store_bytes_max, 64 * MIB, u64::MAX),
            (&["body_replay_bytes_max"], self.body_replay_bytes_max, 0, GIB),
            (&["body_bytes_max"], self.body_bytes_max, 1_024, u64::MAX),
            (&["replay_bytes_total_max"], self.replay_bytes_total_max, 0, u64::MAX),
            // Below 8 KiB hyper refuses to read.
            (&["header_read_seconds"], self.header_read_seconds, 1, 600),
            (&["connections_max"], self.connections_max, 1, 1_000_000),
            (&["upstream", "connect_timeout_ms"], up.connect_timeout_ms, 1, 600_000),
            (&["upstream", "head_timeout_seconds"], up.head_timeout_seconds, 1, 86_400),
            (&["upstream", "idle_timeout_ms"], up.idle_timeout_ms, 0, 3_600_000),
            (&["upstream", "age_seconds"], up.age_seconds, 1, 86_400),
            (&["upstream", "idle_connections_max"], up.idle_connections_max, 0, 100_000),
        ];
        for (at, is, least, most) in bounds {
            if !(least..=most).contains(&is) {
                let range =
                    if most == u64::MAX { format!("{least} or more") } else { format!("from {least} to {most}") };
                faults.push(fault(at, FaultKind::OutOfBounds, format!("{is} is not {range}"), &range));
            }
        }
        for (other, most) in
            [("body_bytes_max", self.body_bytes_max), ("replay_bytes_total_max", self.replay_bytes_total_max)]
        {
            if self.body_replay_bytes_max > most {
                faults.push(fault(
                    &["body_replay_bytes_max"],
                    FaultKind::Contradiction,
                    format!("body_replay_bytes_max {} is above {other} {most}", self.body_replay_bytes_max),
                    &format!("lower it, or raise {other}"),
                ));
            }
        }
        faults
    }
}

fn fault(at: &[&str], kind: FaultKind, happened: String, hint: &str) -> Fault {
    let at = at.iter().map(|s| (*s).to_owned()).collect();
    Fault { at, kind, happened, hint: hint.into(), candidates: Vec::new() }
}
