//! Computed values: `{{http_date +120s}}` and its kin, in header values, bodies and events.
//!
//! A template is parsed when the scenario is loaded, so that a misspelt name is an error with a line and never a
//! surprise in the middle of a run. Evaluating one cannot fail: what is absent (a header the request did not have)
//! is the empty string. There are no conditions and no loops here: a scenario that needs them wants another route.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::effect::EffectRecord;
use super::limit::LimitView;
use super::request::Request;

/// What a template may read.
pub(crate) struct Context<'a> {
    pub(crate) wall_ms: u64,
    pub(crate) arrival: u64,
    /// How often this route's sequence was used in this scope, this use included.
    pub(crate) count: u64,
    pub(crate) base_url: &'a str,
    pub(crate) request: &'a Request,
    pub(crate) body: &'a [u8],
    pub(crate) counters: &'a mut BTreeMap<String, u64>,
    pub(crate) effect: Option<&'a EffectRecord>,
    pub(crate) matches: &'a [EffectRecord],
    /// The found records in the scenario's own shape, as a JSON array.
    pub(crate) items: &'a str,
    pub(crate) limit: Option<&'a LimitView>,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Computed(Expression),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    name: Name,
    argument: String,
    shift_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Now,
    HttpDate,
    Rfc850,
    Asctime,
    Rfc3339,
    Rfc3339Ms,
    Epoch,
    EpochMs,
    Arrival,
    Count,
    Counter,
    Id,
    Header,
    Method,
    Target,
    Path,
    Query,
    QueryDecoded,
    Body,
    BodySha256,
    Credential,
    BaseUrl,
    Effect,
    Match,
    Matches,
    Items,
    Limit,
}

/// Name, whether it takes an argument, whether it takes a shift in time.
const NAMES: [(&str, Name, bool, bool); 27] = [
    ("now", Name::Now, false, true),
    ("http_date", Name::HttpDate, false, true),
    ("rfc850_date", Name::Rfc850, false, true),
    ("asctime_date", Name::Asctime, false, true),
    ("rfc3339", Name::Rfc3339, false, true),
    ("rfc3339_ms", Name::Rfc3339Ms, false, true),
    ("epoch", Name::Epoch, false, true),
    ("epoch_ms", Name::EpochMs, false, true),
    ("n", Name::Arrival, false, false),
    ("count", Name::Count, false, false),
    ("counter", Name::Counter, true, false),
    ("id", Name::Id, true, false),
    ("header", Name::Header, true, false),
    ("method", Name::Method, false, false),
    ("target", Name::Target, false, false),
    ("path", Name::Path, true, false),
    ("query", Name::Query, true, false),
    ("query_decoded", Name::QueryDecoded, true, false),
    ("body", Name::Body, true, false),
    ("body_sha256", Name::BodySha256, false, false),
    ("credential", Name::Credential, false, false),
    ("base_url", Name::BaseUrl, false, false),
    ("effect", Name::Effect, true, false),
    ("match", Name::Match, true, false),
    ("matches", Name::Matches, false, false),
    ("items", Name::Items, false, false),
    ("limit", Name::Limit, true, false),
];

const LIMIT_FIELDS: [&str; 9] = [
    "max",
    "remaining",
    "retry_after_s",
    "retry_after_floor_s",
    "retry_after_ms",
    "reset_epoch",
    "reset_epoch_ms",
    "reset_rfc3339",
    "reset_duration",
];

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(source: String) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = source.as_str();
        while let Some(open) = rest.find("{{") {
            if open > 0 {
                pieces.push(Piece::Literal(rest[..open].to_owned()));
            }
            let after = &rest[open + 2..];
            let close = after.find("}}").ok_or_else(|| format!("`{source}`: `{{{{` without `}}}}`"))?;
            pieces.push(match after[..close].trim() {
                "open" => Piece::Literal("{{".to_owned()),
                text => Piece::Computed(Expression::parse(text)?),
            });
            rest = &after[close + 2..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        Ok(Self(pieces))
    }
}

impl Template {
    pub(crate) fn literal(text: &str) -> Self {
        Self(vec![Piece::Literal(text.to_owned())])
    }

    pub(crate) fn render(&self, context: &mut Context<'_>) -> String {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Computed(expression) => out.push_str(&expression.evaluate(context)),
            }
        }
        out
    }
}

impl Expression {
    /// `name`, `name argument`, `name.argument`, `name +120s`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (word, argument) = match text.find(['.', ' ']) {
            Some(at) => (&text[..at], text[at + 1..].trim()),
            None => (text, ""),
        };
        let Some(&(_, name, takes_argument, takes_shift)) = NAMES.iter().find(|(known, ..)| *known == word) else {
            let known: Vec<&str> = NAMES.iter().map(|(known, ..)| *known).collect();
            return Err(format!("unknown computed value `{word}`; known are {}", known.join(", ")));
        };
        let shift_ms = match argument {
            "" => 0,
            shift if takes_shift => parse_shift_ms(shift)?,
            _ if takes_argument => 0,
            _ => return Err(format!("`{word}` takes no argument, it was given `{argument}`")),
        };
        let argument = if takes_shift { "" } else { argument };
        let needs_one =
            matches!(name, Name::Header | Name::Query | Name::QueryDecoded | Name::Effect | Name::Match | Name::Limit);
        if argument.is_empty() && needs_one {
            return Err(format!("`{word}` needs an argument, as in `{{{{{word}.x}}}}`"));
        }
        if name == Name::Limit && !LIMIT_FIELDS.contains(&argument) {
            return Err(format!("`limit` has no `{argument}`; it has {}", LIMIT_FIELDS.join(", ")));
        }
        Ok(Self { name, argument: argument.to_owned(), shift_ms })
    }

    pub(crate) fn evaluate(&self, context: &mut Context<'_>) -> String {
        let at_ms = context.wall_ms.saturating_add_signed(self.shift_ms);
        match self.name {
            Name::Now | Name::Rfc3339 => format_time(at_ms, "%Y-%m-%dT%H:%M:%SZ"),
            Name::Rfc3339Ms => format_time(at_ms, "%Y-%m-%dT%H:%M:%S.%3fZ"),
            Name::HttpDate => http_date(at_ms),
            Name::Rfc850 => format_time(at_ms, "%A, %d-%b-%y %H:%M:%S GMT"),
            Name::Asctime => format_time(at_ms, "%a %b %e %H:%M:%S %Y"),
            Name::Epoch => (at_ms / 1000).to_string(),
            Name::EpochMs => at_ms.to_string(),
            Name::Arrival => context.arrival.to_string(),
            Name::Count => context.count.to_string(),
            Name::Counter => {
                let counter = context.counters.entry(self.argument.clone()).or_default();
                *counter += 1;
                counter.to_string()
            }
            Name::Id => format!("{}{:016x}", self.argument, spread(context.arrival)),
            Name::Header => context.request.header(&self.argument).unwrap_or_default().to_owned(),
            Name::Method => context.request.method.clone(),
            Name::Target => context.request.target.clone(),
            Name::Path if self.argument.is_empty() => context.request.path().to_owned(),
            Name::Path => context.request.path_value(&self.argument).unwrap_or_default().to_owned(),
            Name::Query => context.request.query_value(&self.argument).unwrap_or_default().to_owned(),
            Name::QueryDecoded => percent_decoded(context.request.query_value(&self.argument).unwrap_or_default()),
            Name::Body if self.argument.is_empty() => String::from_utf8_lossy(context.body).into_owned(),
            Name::Body => body_at(context.body, &self.argument),
            Name::BodySha256 => super::request::sha256_hex(context.body),
            Name::Credential => context.request.credential.clone(),
            Name::BaseUrl => context.base_url.to_owned(),
            Name::Effect => context.effect.map(|record| record.field(&self.argument)).unwrap_or_default(),
            Name::Match => context.matches.first().map(|record| record.field(&self.argument)).unwrap_or_default(),
            Name::Matches => serde_json::to_string(context.matches).unwrap_or_default(),
            Name::Items => context.items.to_owned(),
            Name::Limit => context.limit.map(|view| limit_field(view, &self.argument)).unwrap_or_default(),
        }
    }
}

fn limit_field(view: &LimitView, field: &str) -> String {
    match field {
        "max" => view.max.to_string(),
        "remaining" => view.remaining.to_string(),
        "retry_after_s" => view.retry_after_ms.div_ceil(1000).to_string(),
        "retry_after_floor_s" => (view.retry_after_ms / 1000).to_string(),
        "retry_after_ms" => view.retry_after_ms.to_string(),
        "reset_epoch" => view.reset_wall_ms.div_ceil(1000).to_string(),
        "reset_epoch_ms" => view.reset_wall_ms.to_string(),
        "reset_rfc3339" => format_time(view.reset_wall_ms.div_ceil(1000) * 1000, "%Y-%m-%dT%H:%M:%SZ"),
        _ => go_duration(view.retry_after_ms),
    }
}

/// The compound form some providers use for resets: `17ms`, `1.5s`, `6m0s`, `23h47m36.648s`.
pub(crate) fn go_duration(ms: u64) -> String {
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let (hours, minutes, rest_ms) = (ms / 3_600_000, ms / 60_000 % 60, ms % 60_000);
    let mut out = String::new();
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    let fraction = format!("{:03}", rest_ms % 1000);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let _ = write!(out, "{}{dot}{fraction}s", rest_ms / 1000);
    out
}

/// A query value as forms encode it; what does not decode stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn body_at(body: &[u8], pointer: &str) -> String {
    let value = serde_json::from_slice::<serde_json::Value>(body).ok();
    match value.as_ref().and_then(|value| value.pointer(pointer)) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

pub(crate) fn http_date(at_ms: u64) -> String {
    format_time(at_ms, "%a, %d %b %Y %H:%M:%S GMT")
}

fn format_time(at_ms: u64, form: &str) -> String {
    let stamp = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    stamp.map(|stamp| stamp.strftime(form).to_string()).unwrap_or_default()
}

/// `+120s`, `-2s`, `+500ms`, `+6m`, `+1h`, `+1d`.
fn parse_shift_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is no shift in time; write one like +120s, -500ms, +6m, +1h or +1d");
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        _ => return Err(wrong()),
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit_ms = match rest[digits..].trim() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let amount: i64 = rest[..digits].parse().map_err(|_| wrong())?;
    amount.checked_mul(unit_ms * sign).ok_or_else(wrong)
}

/// A reproducible spread of small numbers over 64 bits (the splitmix64 finaliser), for ids and jitter.
pub(crate) fn spread(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> String {
        let mut request = Request::for_tests("POST", "/v1/items/7?q=two&q=three");
        request.headers.push(("X-Case".into(), "kept".into()));
        request.path_values.insert("id".into(), "7".into());
        let body = br#"{"metadata":{"ref":"r-1"},"n":5}"#;
        let mut counters = BTreeMap::new();
        let limit = LimitView { max: 5, remaining: 0, retry_after_ms: 2_900, reset_wall_ms: 784_111_779_900 };
        let template = Template::try_from(source.to_owned()).unwrap();
        template.render(&mut Context {
            wall_ms: 784_111_777_250,
            arrival: 3,
            count: 2,
            base_url: "http://127.0.0.1:1",
            request: &request,
            body,
            counters: &mut counters,
            effect: None,
            matches: &[],
            items: "[]",
            limit: Some(&limit),
        })
    }

    #[test]
    fn dates_have_their_four_forms() {
        assert_eq!(render("{{http_date}}"), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(render("{{http_date +120s}}"), "Sun, 06 Nov 1994 08:51:37 GMT");
        assert_eq!(render("{{rfc850_date}}"), "Sunday, 06-Nov-94 08:49:37 GMT");
        assert_eq!(render("{{asctime_date}}"), "Sun Nov  6 08:49:37 1994");
        assert_eq!(render("{{rfc3339 -1d}}"), "1994-11-05T08:49:37Z");
        assert_eq!(render("{{rfc3339_ms}}"), "1994-11-06T08:49:37.250Z");
        assert_eq!(render("{{epoch +30s}} {{epoch_ms -250ms}}"), "784111807 784111777000");
    }

    #[test]
    fn the_request_is_echoed() {
        assert_eq!(render("[{{query_decoded q}}]"), "[two]");
        assert_eq!(percent_decoded("a%20b+c%2Fd%zz%4"), "a b c/d%zz%4");
        assert_eq!(render("{{method}} {{path}} {{path.id}} {{query.q}}"), "POST /v1/items/7 7 two");
        assert_eq!(render("[{{header x-case}}] {{body./metadata/ref}} {{body./n}}"), "[kept] r-1 5");
        assert_eq!(render("{{n}} {{count}} {{counter a}}{{counter a}}{{counter b}} {{open}}"), "3 2 121 {{");
    }

    #[test]
    fn limits_are_told_in_every_dialect() {
        assert_eq!(render("{{limit.retry_after_s}} {{limit.retry_after_floor_s}}"), "3 2");
        assert_eq!(render("{{limit.reset_epoch}} {{limit.reset_duration}}"), "784111780 2.9s");
        for (ms, text) in [(17, "17ms"), (1500, "1.5s"), (360_000, "6m0s"), (85_656_648, "23h47m36.648s")] {
            assert_eq!(go_duration(ms), text);
        }
    }

    #[test]
    fn mistakes_are_found_when_the_scenario_is_loaded() {
        for (source, word) in [
            ("{{http_dat}}", "unknown computed value `http_dat`"),
            ("{{http_date 5}}", "no shift in time"),
            ("{{epoch +5x}}", "no shift in time"),
            ("{{header}}", "needs an argument"),
            ("{{limit.resets}}", "has no `resets`"),
            ("{{n 5}}", "takes no argument"),
            ("{{now", "without"),
        ] {
            let error = Template::try_from(source.to_owned()).unwrap_err();
            assert!(error.contains(word), "{source}: {error}");
        }
    }
}
