//! One scripted answer: what is sent, when, and where it breaks.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::values::{Code, Fields, Held, Json};
use crate::provider::template::Template;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Step {
    // How long this answer stands in its sequence.
    pub(crate) times: Option<u32>,
    pub(crate) for_ms: Option<u64>,
    pub(crate) after: Option<u64>,

    // The head.
    pub(crate) status: u16,
    pub(crate) reason: Option<String>,
    pub(crate) headers: Fields,
    pub(crate) date: bool,
    pub(crate) informational: Vec<Informational>,

    // The content: at most one of these.
    pub(crate) body: Option<Json>,
    pub(crate) base64: Option<String>,
    pub(crate) bytes: Option<u64>,
    pub(crate) events: Vec<Event>,
    pub(crate) raw: Option<Template>,

    // How the content is sent.
    pub(crate) gzip: bool,
    pub(crate) framing: Framing,
    pub(crate) content_length: Option<u64>,
    pub(crate) chunk_bytes: Option<usize>,
    pub(crate) chunk_gap_ms: u64,
    pub(crate) event_gap_ms: u64,
    pub(crate) trailers: Fields,

    // When.
    pub(crate) read_delay_ms: u64,
    pub(crate) process_ms: u64,
    pub(crate) delay_ms: u64,
    pub(crate) delay_spread_ms: u64,
    pub(crate) early: bool,
    #[serde(rename = "continue")]
    pub(crate) expect: Expect,
    pub(crate) abandon_on_close: bool,

    // What it does to the world.
    pub(crate) effect: Option<EffectSpec>,
    pub(crate) lookup: Option<Lookup>,

    // Where it breaks, and what becomes of the connection.
    pub(crate) fault: Option<Fault>,
    pub(crate) connection: Afterwards,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            times: None,
            for_ms: None,
            after: None,
            status: 200,
            reason: None,
            headers: Fields::default(),
            date: true,
            informational: Vec::new(),
            body: None,
            base64: None,
            bytes: None,
            events: Vec::new(),
            raw: None,
            gzip: false,
            framing: Framing::Auto,
            content_length: None,
            chunk_bytes: None,
            chunk_gap_ms: 0,
            event_gap_ms: 0,
            trailers: Fields::default(),
            read_delay_ms: 0,
            process_ms: 0,
            delay_ms: 0,
            delay_spread_ms: 0,
            early: false,
            expect: Expect::Auto,
            abandon_on_close: false,
            effect: None,
            lookup: None,
            fault: None,
            connection: Afterwards::Keep,
        }
    }
}

impl Step {
    /// Whether what happens is settled before the request's body is read.
    pub(crate) fn acts_at_head(&self) -> bool {
        self.early
            || self.read_delay_ms > 0
            || self.expect != Expect::Auto
            || self.fault.as_ref().is_some_and(|fault| fault.at == At::AfterHead)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Informational {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) headers: Fields,
    #[serde(default)]
    pub(crate) delay_ms: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Event {
    pub(crate) event: Option<String>,
    pub(crate) data: Option<Json>,
    pub(crate) id: Option<Template>,
    pub(crate) retry: Option<u64>,
    pub(crate) comment: Option<String>,
    pub(crate) raw: Option<Template>,
    pub(crate) gap_ms: Option<u64>,
    pub(crate) repeat: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Framing {
    #[default]
    Auto,
    Length,
    Chunked,
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expect {
    /// 100 is sent before a body that waits for it is read.
    #[default]
    Auto,
    /// The expectation is not seen: the body is waited for in silence.
    Ignore,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EffectSpec {
    pub(crate) name: String,
    pub(crate) id: Option<Template>,
    pub(crate) fields: BTreeMap<String, Template>,
    pub(crate) visible_after_ms: u64,
    pub(crate) visible_after_lookups: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lookup {
    #[serde(default)]
    pub(crate) effect: String,
    #[serde(default)]
    pub(crate) by: BTreeMap<String, Template>,
    #[serde(default)]
    pub(crate) within: BTreeMap<String, Template>,
    /// The shape of one found record in `{{json items}}`.
    pub(crate) item: Option<Json>,
    pub(crate) missing: Option<Held<Step>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    pub(crate) at: At,
    #[serde(default)]
    pub(crate) end: End,
    pub(crate) after_bytes: Option<u64>,
    pub(crate) after_events: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum At {
    AfterHead,
    AfterBody,
    AfterCommit,
    MidHead,
    MidBody,
    MidStream,
    AfterAnswer,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    #[default]
    Fin,
    Rst,
    Stall,
    ResetStream(Code),
    Goaway(Goaway),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Goaway {
    pub(crate) last_stream: LastStream,
    pub(crate) code: Code,
    pub(crate) then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LastStream {
    /// This request was not processed: the last stream is the one before it.
    #[default]
    Below,
    /// This request may have been processed.
    This,
    /// The highest number, as a server announces a shutdown that is still to come.
    Max,
    Number(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    /// The connection closes at once.
    #[default]
    Close,
    Rst,
    /// This stream is left alone, the others go on; the connection closes when they are done.
    Keep,
    /// As `keep`, but this stream is answered as scripted.
    Answer,
}

/// What becomes of an HTTP/1.1 connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Afterwards {
    #[default]
    Keep,
    /// Announced with `Connection: close`.
    Close,
    /// Closed at once, though the answer promised to keep it.
    CloseSilently,
    Rst,
    Idle {
        after_ms: u64,
        then: IdleEnd,
    },
    /// Closed when the first bytes of the next request come, without reading them.
    OnNextRequest(SocketEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IdleEnd {
    Fin,
    Rst,
    /// A 408 written on the idle connection, then FIN.
    #[serde(rename = "stale_408")]
    Stale408,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SocketEnd {
    Fin,
    Rst,
}
