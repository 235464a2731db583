//! Understands a request: which provider, whose quota, what kind of call, under which task, until when. Reads the head
//! only; nothing is decided and nothing is kept.
//!
//! It refuses, with the way out: an upgrade, a target that names no provider, an unknown provider, and fields of Forbear's
//! own that cannot be read. What an agent claims can only make its call stricter.

use std::sync::Arc;

use forbear_api::problem::Kind;
use forbear_core::event::{KeyOrigin, KeyUsed};
use forbear_core::idempotency_key::{self, KeyReading};
use forbear_core::ids::{ActionId, Digest, Key, Route, RunId, ScopeId, TaskId, TenantId};
use forbear_core::policy::{Priority, Rank};
use forbear_core::retry_marker::{self, RetryMarker};
use forbear_core::route::Matched;
use forbear_core::time::{Now, Wall};
use forbear_core::traceparent;
use http::header::{COOKIE, EXPECT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use hyper::body::Incoming;
use jiff::fmt::temporal::Pieces;

use forbear_core::advice::Advisable;

use super::Gateway;
use super::account::account;
use super::advice;
use super::own::Refusal;
use super::signature;
use super::table::{Class, Provider, Table};
use crate::http::{headers, target};

/// How long a provider is taken to honour keys where only the route says that it does.
const ROUTE_KEY_RETENTION_SECONDS: u64 = 24 * 3600;
/// Longest value of a `Forbear-*` field that names something.
const NAME_BYTES_MAX: usize = 200;
const FORBEAR_TASK: HeaderName = HeaderName::from_static("forbear-task");
const FORBEAR_RUN: HeaderName = HeaderName::from_static("forbear-run");
const FORBEAR_CLASS: HeaderName = HeaderName::from_static("forbear-class");
const FORBEAR_DEADLINE: HeaderName = HeaderName::from_static("forbear-deadline");
const FORBEAR_PRIORITY: HeaderName = HeaderName::from_static("forbear-priority");
const FORBEAR_GOAL: HeaderName = HeaderName::from_static("forbear-goal");
const FORBEAR_REFERENCE: HeaderName = HeaderName::from_static("forbear-reference");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Fields by which some servers take another method than the request line's.
const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];
/// Longest `Forbear-Goal`: one line that a person reads.
const GOAL_BYTES_MAX: usize = 500;

/// A request, understood. Its body has not been touched.
pub(super) struct Understood {
    pub action: ActionId,
    pub provider: Arc<Provider>,
    /// Bytes of what stood before the provider's path in the target: `/openai` or `/~task/openai`.
    pub prefix_bytes: usize,
    pub uri: Uri,
    pub task: TaskId,
    pub run: RunId,
    /// By its agent, or by its task's name.
    pub run_named: bool,
    pub scope: ScopeId,
    /// The credential, where its account has several.
    pub tenant: Option<TenantId>,
    pub route: Route,
    pub class: Class,
    pub priority: Priority,
    pub repeatable: bool,
    /// A success may hold an error.
    pub disguised: bool,
    pub content_ignores: Vec<Box<str>>,
    pub key: Option<KeyUsed>,
    /// A field to add for the key, where the agent gave none.
    pub key_field: Option<(HeaderName, HeaderValue)>,
    pub deadline: Wall,
    pub goal: Option<Arc<str>>,
    pub reference: Option<Arc<str>>,
    pub reference_key: Option<Key>,
    /// What its client says of repeating it.
    pub marker: Option<RetryMarker>,
    /// Its task was named, and is not made for this one call.
    pub task_named: bool,
    pub expects_continue: bool,
    /// The contract has advice for calls like this one.
    pub advisable: Option<Advisable>,
    /// By which it was understood.
    pub policy: Digest,
}

impl Understood {
    /// The path that the agent asked of the provider, without that of its `base_url`.
    pub(super) fn own_path(&self) -> &str {
        let path = self.uri.path();
        let own =
            path.strip_prefix(self.provider.base_path.as_str()).filter(|own| own.starts_with('/')).unwrap_or(path);
        path_of(own)
    }
}

pub(super) fn understand(gateway: &Gateway, request: &Request<Incoming>) -> Result<Understood, Refusal> {
    let fields = request.headers();
    let table = gateway.table();
    if headers::wants_upgrade(request.version(), fields, request.extensions()) {
        return Err(Refusal::new(Kind::UpgradeUnsupported, "an upgrade (WebSocket and the like) was asked for"));
    }
    let target = target::parse(request.method(), request.version(), request.uri());
    let (task, name, rest) = match target {
        Ok(target::Target::Provider { task, provider, rest }) => (task, provider, rest),
        Ok(target::Target::Own { .. }) => return Err(unknown_provider(&table, "-")),
        Err(e) => return Err(Refusal::new(Kind::BadTarget, format!("{e}; {}", e.advice()))),
    };
    let provider = table.provider(name).ok_or_else(|| unknown_provider(&table, name))?;
    if gateway.hop.is_in(fields) {
        let what = format!("the base_url of provider `{name}`, or of one before it, is an address of Forbear's own");
        return Err(Refusal::new(Kind::LeadsBack, what));
    }
    let uri = target::upstream_uri(&provider.base_path, rest)
        .map_err(|e| Refusal::new(Kind::BadTarget, format!("the path cannot be sent on: {e}")))?;
    let now = gateway.shard.clock().now();
    let action = gateway.chance.action_id(now.wall).map_err(|e| Refusal::new(Kind::InternalError, e.to_string()))?;
    // What stands before the provider's path in the target: its length is that of the target less the rest's.
    let whole = request.uri().path_and_query().map_or("", |p| p.as_str());
    let prefix_bytes = whole.len() - rest.len();

    let matched = provider.compiled.routes.lookup(request.method().as_str(), path_of(rest));
    let class = if overrides_method(fields) {
        // What the provider does with it is not what the request line says.
        table.class(Rank::UncertainWrite.class()).cloned()
    } else {
        None
    };
    let class = class.map_or_else(|| class_of(&table, &matched, fields), Ok)?;
    for name in provider.credentials.iter() {
        end_to_end(fields, name)?;
        one_reading(fields, name)?;
    }
    let (scope, tenant) = account(gateway, provider, fields);
    // Names are one credential's.
    let owner = tenant.as_ref().map_or(scope.as_str(), TenantId::as_str);
    let named_task = field(fields, &FORBEAR_TASK)?.or(task);
    let task = match named_task {
        Some(task) => TaskId::new(task),
        None => TaskId::new(action.text().as_str()),
    };
    let traced = || traceparent::read(fields).map(|t| RunId::new(&t.trace_id_hex()));
    let named_run = field(fields, &FORBEAR_RUN)?.map(RunId::new).or_else(traced);
    let run_named = named_run.is_some() || named_task.is_some();
    let run = named_run.unwrap_or_else(|| RunId(Arc::clone(&task.0)));
    let reference = field(fields, &FORBEAR_REFERENCE)?.map(Arc::from);
    let priority = priority(&table, fields)?;
    let deadline = deadline(fields, now, class.rule.deadline_seconds)?;
    let deadline = match provider.compiled.contract.signature_seconds {
        // Only watched, it goes as it came.
        Some(lives) if !provider.compiled.observes => {
            let until = signature::check(request, provider.origin.authority().as_str(), lives)?;
            until.map_or(deadline, |until| until.min(deadline))
        }
        _ => deadline,
    };
    let goal = long_field(fields, &FORBEAR_GOAL, GOAL_BYTES_MAX)?.map(Arc::from);
    let asked =
        Asked { gateway, provider, fields, method: request.method().as_str(), matched: &matched, class: &class };
    let (key, key_field) = key(&asked, action, owner, named_task, reference.as_deref())?;
    // What the agent means by its words, also where no key of ours goes out.
    let is_named = class.rank.writes() && key.as_ref().is_none_or(|k| k.origin != KeyOrigin::Derived);
    let reference_key = reference
        .as_deref()
        .filter(|_| is_named)
        .map(|reference| gateway.keys.derived_key(owner, named_task.unwrap_or_default(), reference));
    let advisable = (class.rank == Rank::Read).then(|| advice::advisable(provider, &matched.template, rest)).flatten();
    let expects_continue = fields.get(EXPECT).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Ok(Understood {
        action,
        prefix_bytes,
        uri,
        task,
        run,
        run_named,
        scope,
        tenant,
        repeatable: matched.repeatable,
        disguised: matched.disguised,
        content_ignores: matched.content_ignores.to_vec(),
        route: matched.template,
        class,
        priority,
        key,
        key_field,
        deadline,
        goal,
        reference,
        reference_key,
        marker: retry_marker::read(fields),
        task_named: named_task.is_some(),
        expects_continue,
        advisable,
        provider: Arc::clone(provider),
        policy: table.compiled.digest,
    })
}

fn overrides_method(fields: &HeaderMap) -> bool {
    METHOD_OVERRIDES.iter().any(|name| fields.contains_key(name))
}

fn path_of(rest: &str) -> &str {
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if path.is_empty() { "/" } else { path }
}

fn unknown_provider(table: &Table, name: &str) -> Refusal {
    let known: Vec<&str> = table.names().collect();
    Refusal::new(Kind::UnknownProvider, format!("no provider is named `{name}`; known: {}", known.join(", ")))
}

/// The route's class, or the stricter one that the agent asks for.
fn class_of(table: &Table, matched: &Matched<'_>, fields: &HeaderMap) -> Result<Class, Refusal> {
    let asked = field(fields, &FORBEAR_CLASS)?;
    if let Some(name) = asked
        && table.class(name).is_none()
    {
        let known: Vec<&str> = table.class_names().collect();
        return Err(bad_field("forbear-class", format!("no class is named `{name}`; known: {}", known.join(", "))));
    }
    let class = table.compiled.class_of(matched, asked);
    let class = class.and_then(|c| table.class(&c.name));
    if let (Some(asked), Some(class)) = (asked, class)
        && class.name.as_str() != asked
    {
        tracing::debug!(asked, used = %class.name, "the route's class is stricter than the one asked for");
    }
    class
        .cloned()
        .ok_or_else(|| Refusal::new(Kind::InternalError, "the route names a class that the policy does not have"))
}

/// What the agent claims, within what the policy lets it claim.
fn priority(table: &Table, fields: &HeaderMap) -> Result<Priority, Refusal> {
    let Some(name) = field(fields, &FORBEAR_PRIORITY)? else { return Ok(Priority::default()) };
    let claimed = Priority::named(name).ok_or_else(|| {
        let known: Vec<&str> = Priority::ALL.iter().map(|p| p.as_str()).collect();
        bad_field("forbear-priority", format!("no priority is named `{name}`; known: {}", known.join(", ")))
    })?;
    let most = table.compiled.policy.fairness.claim_max;
    if claimed < most {
        tracing::info!(claimed = claimed.as_str(), used = most.as_str(), "a claim of priority beyond claim_max");
    }
    Ok(claimed.max(most))
}

/// What the agent asks for, within what the class allows.
fn deadline(fields: &HeaderMap, now: Now, class_seconds: u64) -> Result<Wall, Refusal> {
    let most = now.wall.plus_ms(class_seconds.saturating_mul(1_000));
    let Some(text) = field(fields, &FORBEAR_DEADLINE)? else { return Ok(most) };
    let asked = instant(text, now.wall).ok_or_else(|| {
        bad_field("forbear-deadline", "write an RFC 3339 instant or a duration such as `90s`, `5m` or `PT90S`")
    })?;
    Ok(asked.min(most))
}

/// RFC 3339, or a duration from now.
fn instant(text: &str, now: Wall) -> Option<Wall> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(Wall(at.as_millisecond()));
    }
    if let Ok(duration) = text.parse::<jiff::SignedDuration>() {
        // Below nothing is past; beyond all counting is never.
        let never = if duration.is_negative() { 0 } else { u64::MAX };
        return Some(now.plus_ms(u64::try_from(duration.as_millis()).unwrap_or(never)));
    }
    // The last days of RFC 3339, which mean `never`, are beyond what a timestamp holds.
    let pieces = Pieces::parse(text).ok()?;
    let is_instant = pieces.time().is_some() && pieces.offset().is_some();
    (is_instant && pieces.date().year() == 9999).then_some(Wall(i64::MAX))
}

struct Asked<'a> {
    gateway: &'a Gateway,
    provider: &'a Provider,
    fields: &'a HeaderMap,
    method: &'a str,
    matched: &'a Matched<'a>,
    class: &'a Class,
}

type KeyAndField = (Option<KeyUsed>, Option<(HeaderName, HeaderValue)>);

/// The action's idempotency key: the agent's own byte for byte, or one of ours on a route that makes writes idempotent.
fn key(
    asked: &Asked<'_>,
    action: ActionId,
    owner: &str,
    named_task: Option<&str>,
    reference: Option<&str>,
) -> Result<KeyAndField, Refusal> {
    let contract = asked.provider.compiled.contract.idempotency.as_ref();
    let by_contract = contract.filter(|i| !i.header.is_empty() && i.methods.iter().any(|m| m == asked.method));
    let by_route = asked.matched.idempotency_header;
    let name = match by_route.or(by_contract.map(|i| i.header.as_str())) {
        None => IDEMPOTENCY_KEY,
        Some(header) => match header.parse() {
            Ok(name) => name,
            Err(_) => return Ok((None, None)),
        },
    };
    let retention_seconds = match (by_contract, by_route) {
        (Some(i), _) => Some(i.retention_seconds),
        (None, Some(_)) => Some(ROUTE_KEY_RETENTION_SECONDS),
        (None, None) => None,
    };
    end_to_end(asked.fields, &name)?;
    let used = |value, origin| KeyUsed { header: name.as_str().to_owned(), value, origin, retention_seconds };
    let given = match idempotency_key::read(asked.fields, &name) {
        KeyReading::Absent => None,
        KeyReading::Key(key) => Some(key),
        KeyReading::Malformed(why) if asked.class.rank.writes() && !asked.provider.compiled.observes => {
            return Err(bad_field(name.as_str(), why.words()));
        }
        KeyReading::Malformed(_) => None,
    };
    if let Some(key) = given {
        return Ok((Some(used(Key::new(&key), KeyOrigin::Agent)), None));
    }
    let takes_ours = asked.class.rank == Rank::IdempotentWrite && retention_seconds.is_some();
    if !takes_ours || asked.provider.compiled.observes {
        return Ok((None, None));
    }
    let (key, origin) = match reference {
        Some(reference) => {
            (asked.gateway.keys.derived_key(owner, named_task.unwrap_or_default(), reference), KeyOrigin::Derived)
        }
        None => (asked.gateway.keys.made_key(action), KeyOrigin::Made),
    };
    let field = HeaderValue::from_str(key.as_str()).ok().map(|value| (name.clone(), value));
    Ok((Some(used(key, origin)), field))
}

/// What `Connection` names ends at this hop: a credential or a key that the provider never sees would count for nothing.
fn end_to_end(fields: &HeaderMap, name: &HeaderName) -> Result<(), Refusal> {
    if headers::ends_here(fields, name) {
        let what = format!("Connection names {name}, which is the provider's: take it out of Connection");
        return Err(Refusal::new(Kind::BadRequest, what));
    }
    Ok(())
}

/// Of two values one server reads the first and another the last: the call would be one account's here and another's there.
fn one_reading(fields: &HeaderMap, name: &HeaderName) -> Result<(), Refusal> {
    // Over HTTP/2 a cookie may come in pieces, which are one value (RFC 9113 section 8.2.3).
    if *name != COOKIE && fields.get_all(name).iter().nth(1).is_some() {
        let what =
            format!("the field {name} is there more than once, and which one counts is anybody's guess: send one");
        return Err(Refusal::new(Kind::BadRequest, what));
    }
    Ok(())
}

fn field<'h>(fields: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    long_field(fields, name, NAME_BYTES_MAX)
}

fn long_field<'h>(fields: &'h HeaderMap, name: &HeaderName, bytes_max: usize) -> Result<Option<&'h str>, Refusal> {
    let mut values = fields.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad_field(name.as_str(), "send it once"));
    }
    let text = value.to_str().map(str::trim).map_err(|_| bad_field(name.as_str(), "use visible ASCII only"))?;
    if text.is_empty() || text.len() > bytes_max {
        return Err(bad_field(name.as_str(), format!("1 to {bytes_max} characters")));
    }
    Ok(Some(text))
}

fn bad_field(name: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal::new(Kind::BadForbearHeader, format!("the field {name} cannot be read: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_an_instant_or_a_duration_and_never_may_be_asked_for() {
        let now = Wall(1_000);
        for (text, at) in [
            ("1970-01-01T00:00:05Z", Some(Wall(5_000))),
            ("1970-01-01T01:00:05+01:00", Some(Wall(5_000))),
            ("90s", Some(Wall(91_000))),
            ("PT90S", Some(Wall(91_000))),
            ("-90s", Some(now)),
            ("PT99999999999999999S", Some(Wall(i64::MAX))),
            ("9223372036854775807s", Some(Wall(i64::MAX))),
            ("9999-12-31T00:00:00Z", Some(Wall(i64::MAX))),
            ("9999-12-31T23:59:59.999-12:00", Some(Wall(i64::MAX))),
            ("9999-12-31T00:00:00", None),
            ("9999-12-31", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(instant(text, now), at, "{text}");
        }
    }

    #[test]
    fn no_deadline_is_later_than_the_class_allows() {
        let now = Now { mono: forbear_core::time::Mono(0), wall: Wall(1_000) };
        let mut fields = HeaderMap::new();
        for (text, at) in [("9999-12-31T00:00:00Z", 901_000), ("2h", 901_000), ("5s", 6_000)] {
            fields.insert(FORBEAR_DEADLINE, text.parse().unwrap());
            assert_eq!(deadline(&fields, now, 900).ok(), Some(Wall(at)), "{text}");
        }
    }
}
