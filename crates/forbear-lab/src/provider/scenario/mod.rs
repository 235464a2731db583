//! The scenario language: how a scripted provider behaves, as data.
//!
//! A scenario is read whole and checked whole before anything listens: unknown keys, misspelt computed values and
//! answers that contradict themselves are refused with their place in the file. `docs/lab-provider.md` lists every key.

mod check;
pub(crate) mod step;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::pattern::Pattern;
use step::Step;
use values::{Fields, Held, Json};

/// A scenario file, read and checked.
#[derive(Debug, Clone)]
pub struct Scenario(pub(crate) Arc<Document>);

/// Why a scenario was refused, with its place.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{place}: {message}")]
    Malformed { place: String, message: String },
    #[error("{place}: {at}: {what}")]
    Contradictory { place: String, at: String, what: String },
}

impl Scenario {
    /// Reads a scenario from YAML text.
    pub fn from_yaml(text: &str) -> Result<Self, ScenarioError> {
        Self::read("scenario", text)
    }

    /// Reads a scenario from a file.
    pub fn from_file(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Unreadable { path: path.to_owned(), source })?;
        Self::read(&path.display().to_string(), &text)
    }

    /// The `name` the scenario gives itself.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The `about` line of the scenario.
    #[must_use]
    pub fn about(&self) -> Option<&str> {
        self.0.about.as_deref()
    }

    fn read(place: &str, text: &str) -> Result<Self, ScenarioError> {
        let document: Document = serde_saphyr::from_str(text)
            .map_err(|error| ScenarioError::Malformed { place: place.to_owned(), message: error.to_string() })?;
        check::check(&document).map_err(|(at, what)| ScenarioError::Contradictory {
            place: place.to_owned(),
            at,
            what,
        })?;
        Ok(Self(Arc::new(document)))
    }
}

impl std::str::FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        Self::from_yaml(text)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Document {
    pub(crate) name: Option<String>,
    pub(crate) about: Option<String>,
    /// Header fields, beyond the usual ones, whose values are credentials.
    pub(crate) credentials: Vec<String>,
    /// Added to every scripted answer.
    pub(crate) headers: Fields,
    pub(crate) connections: Connections,
    pub(crate) http2: Http2Settings,
    pub(crate) limits: Vec<LimitSpec>,
    pub(crate) routes: Vec<Route>,
    pub(crate) unmatched: Option<Held<Step>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Connections {
    /// By connection number; what comes after the list is accepted.
    pub(crate) accept: Vec<Accept>,
    /// After so many answers the connection is closed, announced.
    pub(crate) max_requests: Option<u64>,
    pub(crate) idle_close_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Accept {
    Ok,
    Fin,
    Rst,
    /// Accepted and never read.
    Stall,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Http2Settings {
    pub(crate) max_concurrent_streams: Option<u32>,
    pub(crate) initial_window_bytes: Option<u32>,
    pub(crate) max_frame_bytes: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    #[serde(rename = "match")]
    pub(crate) pattern: Pattern,
    #[serde(default)]
    pub(crate) when: When,
    /// Whose sequence it is.
    #[serde(default)]
    pub(crate) per: Per,
    #[serde(default, rename = "loop")]
    pub(crate) again: bool,
    pub(crate) respond: Option<Held<Step>>,
    #[serde(default)]
    pub(crate) then: Vec<Held<Step>>,
    pub(crate) idempotency: Option<Idempotency>,
}

impl Route {
    /// Whether the request's body takes part in choosing the route or the scope.
    pub(crate) fn needs_body(&self) -> bool {
        !self.when.body.is_empty() || matches!(self.per, Per::Body(_))
    }

    /// Whether an answer may have to act before the body is read.
    pub(crate) fn acts_at_head(&self) -> bool {
        self.steps().iter().any(|step| step.acts_at_head())
    }

    pub(crate) fn steps(&self) -> &[Held<Step>] {
        self.respond.as_ref().map_or(&self.then, std::slice::from_ref)
    }
}

/// Further conditions on a route, all of which must hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct When {
    /// A value, or `*` for any.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) without_headers: Vec<String>,
    pub(crate) query: BTreeMap<String, String>,
    /// By JSON pointer.
    pub(crate) body: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Per {
    #[default]
    Global,
    Credential,
    Connection,
    Header(String),
    Path(String),
    Query(String),
    Body(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitSpec {
    pub(crate) name: String,
    /// Empty is every route.
    #[serde(default)]
    pub(crate) on: Vec<Pattern>,
    #[serde(default)]
    pub(crate) per: Per,
    pub(crate) window: Option<Window>,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) concurrency: Option<Concurrency>,
    /// Refused arrivals use the limit up as well.
    #[serde(default)]
    pub(crate) count_refused: bool,
    /// Added to what the answer says of the reset, so that it lies.
    #[serde(default)]
    pub(crate) shift_ms: i64,
    pub(crate) answer: Option<Held<Step>>,
    /// Added to the answers of what was let through.
    #[serde(default)]
    pub(crate) announce: Fields,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    pub(crate) max: u64,
    pub(crate) per_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bucket {
    pub(crate) capacity: u64,
    pub(crate) refill: u64,
    pub(crate) per_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Concurrency {
    pub(crate) max: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Idempotency {
    pub(crate) header: Option<String>,
    /// JSON pointer of a key in the body, where the provider has it there.
    pub(crate) body: Option<String>,
    pub(crate) per: Per,
    /// Routes with one space share their keys; without it a route has its own.
    pub(crate) space: Option<String>,
    pub(crate) retention_ms: u64,
    /// The key stays in progress so much longer than the work.
    pub(crate) hold_ms: u64,
    pub(crate) replay_headers: Fields,
    pub(crate) remember_statuses: Option<Vec<u16>>,
    pub(crate) compare_body: bool,
    pub(crate) in_progress: Option<Held<Step>>,
    pub(crate) mismatch: Option<Held<Step>>,
    /// Answered instead of the replay.
    pub(crate) repeated: Option<Held<Step>>,
    /// Answered when the key is missing; without it such a request is simply not deduplicated.
    pub(crate) missing: Option<Held<Step>>,
}

pub(crate) const RETENTION_DEFAULT_MS: u64 = 24 * 3_600_000;

impl Default for Idempotency {
    fn default() -> Self {
        Self {
            header: None,
            body: None,
            per: Per::Credential,
            space: None,
            retention_ms: RETENTION_DEFAULT_MS,
            hold_ms: 0,
            replay_headers: Fields::default(),
            remember_statuses: None,
            compare_body: true,
            in_progress: None,
            mismatch: None,
            repeated: None,
            missing: None,
        }
    }
}

/// The provider's own answer where the scenario gives none.
pub(crate) fn plain_problem(status: u16, code: &str, message: &str) -> Step {
    use super::template::Template;
    let text = |text: &str| Json::Text(Template::literal(text));
    let error = Json::Map(vec![("code".to_owned(), text(code)), ("message".to_owned(), text(message))]);
    Step { status, body: Some(Json::Map(vec![("error".to_owned(), error)])), ..Step::default() }
}

#[cfg(test)]
mod tests {
    use super::step::{EffectSpec, Event, Fault, Goaway, Informational, Lookup};
    use super::*;

    /// The keys that a type knows, as its own error message lists them.
    fn keys<T: serde::de::DeserializeOwned>() -> Vec<String> {
        let error = serde_json::from_str::<T>(r#"{"no such key":1}"#).err().unwrap().to_string();
        let known = error.split_once("expected").unwrap().1;
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_page_has_every_key() {
        let page = include_str!("../../../../../docs/lab-provider.md");
        let all = [
            keys::<Document>(),
            keys::<Connections>(),
            keys::<Http2Settings>(),
            keys::<Route>(),
            keys::<When>(),
            keys::<LimitSpec>(),
            keys::<Idempotency>(),
            keys::<Step>(),
            keys::<Event>(),
            keys::<EffectSpec>(),
            keys::<Lookup>(),
            keys::<Fault>(),
            keys::<Informational>(),
            keys::<Goaway>(),
        ];
        assert!(all.concat().len() > 80, "{all:?}");
        for key in all.concat() {
            let written = [format!("`{key}`"), format!("{key}: ")];
            assert!(written.iter().any(|form| page.contains(form)), "docs/lab-provider.md does not tell of `{key}`");
        }
    }
}
