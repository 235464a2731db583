//! `forbear explain-response`: how an answer would be read, which rule and which field decided, and what would follow for a
//! call of that class. Nothing is sent, and no server is needed.

mod response;

use std::io::Read as _;

use forbear_core::action::verdict::{Situation, Verdict, verdict};
use forbear_core::classify::{
    BODY_BYTES_MAX, Below, Classification, Kind, Opening, ResponseFacts, Window, classify, classify_event,
    is_event_stream, may_disguise, opening,
};
use forbear_core::contract::Contract;
use forbear_core::effect::{Answer, Effect, Evidence, effect};
use forbear_core::input::HeadSeen;
use forbear_core::policy::{ClassRule, Policy, Rank};
use forbear_core::route::{RouteTable, without_rule};
use forbear_server::clock::Clock;
use forbear_server::config::{Overrides, known_contracts, load};
use serde::Serialize;

use super::providers::named;
use crate::cli::Explain;
use crate::failure::{Exit, NotSo};
use crate::output::{Output, shown, span, wrapped};

/// Bytes of a response that are read: more than a body is ever looked into, coded or not.
const RESPONSE_BYTES_MAX: u64 = 4 * BODY_BYTES_MAX as u64;

#[derive(Debug, Serialize)]
struct Explained {
    provider: String,
    status: u16,
    class: String,
    /// Whether the body took part.
    body_read: bool,
    classification: Classification,
    effect: Effect,
    next: &'static str,
    why: String,
}

pub(crate) fn run(options: &Explain, output: Output) -> anyhow::Result<Exit> {
    let loaded = load(options.of.config.as_deref(), &Overrides::default())?;
    let known = known_contracts(&loaded);
    let contract = named(&known, &options.provider)?;
    let mut text = Vec::new();
    std::io::stdin().lock().take(RESPONSE_BYTES_MAX).read_to_end(&mut text)?;
    let explained = explain(options, &loaded.compiled.policy, contract, &text)?;
    if output.json() {
        output.document(&explained)?;
    } else {
        output.line(&rendered(&explained));
    }
    Ok(Exit::Done)
}

fn explain(options: &Explain, policy: &Policy, contract: &Contract, text: &[u8]) -> Result<Explained, NotSo> {
    let response = response::parse(text)?;
    let call = call(options, policy, contract)?;
    let is_stream = response.status < 400 && is_event_stream(&response.headers);
    let event = match opening(&contract.stream, response.body, true) {
        Opening::Error(data) if is_stream => Some(data),
        _ => None,
    };
    let disguised = call.disguised && may_disguise(contract, response.status);
    let body_read = response.status >= 400 || disguised || event.is_some();
    let facts = ResponseFacts {
        status: response.status,
        headers: &response.headers,
        body: body_read.then_some(event.as_deref().unwrap_or(response.body)),
        received: Clock::default().now(),
    };
    let classification = match event {
        Some(_) => classify_event(contract, &facts),
        None => classify(contract, call.rank, &facts),
    };
    let answer = Answer {
        status: response.status,
        kind: classification.kind,
        before_work: classification.before_work,
        resent_below: classification.below.is_some(),
    };
    let effect = effect(Evidence::Answered, Some(answer));
    let seen = HeadSeen { status: response.status, classification };
    let next = verdict(Situation {
        rank: call.rank,
        rule: call.rule,
        evidence: Evidence::Answered,
        answer: Some(&seen),
        effect,
        sends: seen.classification.below.as_ref().map_or(1, |below| below.retries + 1),
        unsent: 0,
        unknown_resends: 0,
        key_honoured: call.has_key,
        repeatable: call.repeatable,
        deletes: options.method.eq_ignore_ascii_case("DELETE"),
        repeats_key: false,
        early_data: false,
        too_early: u32::from(response.status == 425),
        replayable: true,
        follow_only: false,
    });
    let (next, why) = match next {
        Verdict::Retry(why) => ("retry", why),
        Verdict::Relay(_) => ("relay", "the answer goes to the agent as it is"),
        Verdict::Unknown(why) => ("outcome_unknown", why),
        Verdict::Stop(why) => ("budget_exhausted", why),
    };
    Ok(Explained {
        provider: options.provider.clone(),
        status: response.status,
        class: call.class,
        body_read,
        classification: seen.classification,
        effect,
        next,
        why: why.to_owned(),
    })
}

/// What the call was, as far as it was said.
struct Call<'a> {
    class: String,
    rank: Rank,
    rule: &'a ClassRule,
    has_key: bool,
    repeatable: bool,
    disguised: bool,
}

fn call<'a>(options: &Explain, policy: &'a Policy, contract: &Contract) -> Result<Call<'a>, NotSo> {
    let not_so = |happened: String, to_do: &str| NotSo { exit: Exit::Usage, happened, to_do: to_do.into() };
    if http::Method::from_bytes(options.method.as_bytes()).is_err() {
        let happened = format!("`{}` is no method", shown(&options.method));
        return Err(not_so(happened, "one word, such as --method POST"));
    }
    if let Some(path) = options.path.as_deref().filter(|path| !is_path(path)) {
        let happened = format!("`{}` is no path", shown(path));
        return Err(not_so(happened, "it begins with a slash and is percent-encoded: --path /v1/things/1"));
    }
    let method = options.method.to_ascii_uppercase();
    let table = RouteTable::compile(contract).unwrap_or_default();
    let matched = options.path.as_deref().map(|path| table.lookup(&method, path));
    let by_call = matched.as_ref().map_or_else(|| without_rule(&method).class(), |matched| matched.class);
    let class = options.class.as_deref().unwrap_or(by_call);
    let rule = policy.request_classes.get(class).ok_or_else(|| {
        let known: Vec<&str> = policy.request_classes.keys().map(String::as_str).collect();
        NotSo {
            exit: Exit::Usage,
            happened: format!("no class is named `{class}`"),
            to_do: format!("one of {}", known.join(", ")),
        }
    })?;
    let rank_of = |name: &str, rule: &ClassRule| Rank::built_in(name).or(rule.rank).unwrap_or(Rank::UncertainWrite);
    let rank = rank_of(class, rule);
    // Without a path nothing is known of its route, whose rule may be looser than the method.
    let least = policy.request_classes.get(by_call).map(|rule| rank_of(by_call, rule));
    if options.path.is_some() && least.is_some_and(|least| rank < least) {
        let happened = format!("class `{class}` is looser than `{by_call}`, which that call has by its route");
        return Err(not_so(happened, "an agent can only make its class stricter: leave --class away, or name one"));
    }
    let by_contract = contract.idempotency.as_ref().is_some_and(|rule| rule.methods.contains(&method));
    Ok(Call {
        rank,
        class: class.to_owned(),
        rule,
        has_key: by_contract || matched.as_ref().is_some_and(|matched| matched.idempotency_header.is_some()),
        repeatable: matched.as_ref().is_some_and(|matched| matched.repeatable),
        disguised: matched.is_none_or(|matched| matched.disguised),
    })
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.parse::<http::Uri>().is_ok()
}

fn rendered(e: &Explained) -> String {
    let c = &e.classification;
    let mut lines = vec![entry("read as", &format!("{}: {}", word(&c.kind), meaning(c.kind)))];
    lines.push(entry("decided by", &c.rule));
    if let Some(code) = &c.code {
        lines.push(entry("its code", code));
    }
    lines.push(match &c.boundary {
        Some(b) => entry(
            "boundary",
            &format!("in {}, by {} `{}` ({})", span(b.wait_ms), b.source.as_str().replace('_', " "), b.raw, b.reading),
        ),
        None => entry("boundary", no_boundary(c.kind)),
    });
    lines.extend(c.windows.iter().map(|window| entry("window", &said(window))));
    if let Some(verdict) = c.should_retry {
        lines.push(entry("its verdict", if verdict { "retry" } else { "do not retry" }));
    }
    lines.extend(c.below.as_ref().map(|below| entry("sent below", &below_words(below))));
    lines.extend(c.contradictions.iter().map(|what| entry("contradiction", what)));
    lines.extend(c.malformed.iter().map(|what| entry("unreadable", what)));
    if !e.body_read {
        lines.push(entry("body", "not looked at: nothing says that an answer of this status holds an error"));
    }
    lines.push(entry("effect", effect_words(e)));
    lines.push(entry("what follows", &format!("{}: {}", e.next.replace('_', " "), e.why)));
    format!("{} from {}, to a call of class {}\n{}", e.status, e.provider, e.class, lines.join("\n"))
}

fn entry(name: &str, text: &str) -> String {
    wrapped(&format!("  {name:<14} {text}"), &" ".repeat(17))
}

fn word(kind: &Kind) -> String {
    serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(String::from)).unwrap_or_default()
}

const fn meaning(kind: Kind) -> &'static str {
    match kind {
        Kind::Success => "what was asked was answered",
        Kind::Throttled => "too fast; the scope slows down",
        Kind::Exhausted => "a quota or the money is spent; no retry brings it back",
        Kind::Unavailable => "overload; few retries, and the scope goes on",
        Kind::Transient => "something broke; few retries, for a write only under a key",
        Kind::Conflict => "it conflicts with what is there",
        Kind::InProgress => "the first call with this key still runs",
        Kind::Rejected => "refused, and refused again if it is sent unchanged",
        Kind::Disguised => "an error inside a success",
    }
}

const fn no_boundary(kind: Kind) -> &'static str {
    match kind {
        Kind::Throttled | Kind::Exhausted => "no instant is named: the scope closes for as long as this call backs off",
        _ => "none",
    }
}

fn said(window: &Window) -> String {
    let left = match (window.remaining, window.limit) {
        (Some(left), Some(limit)) => format!("{left} of {limit} left"),
        (Some(left), None) => format!("{left} left"),
        (None, Some(limit)) => format!("limit {limit}"),
        (None, None) => "how much is left is not said".to_owned(),
    };
    let reset = window.reset_ms.map(|ms| format!(", more in {}", span(ms))).unwrap_or_default();
    let length = window.window_ms.map(|ms| format!(", of every {}", span(ms))).unwrap_or_default();
    format!("{}: {left}{reset}{length}", window.name)
}

fn below_words(below: &Below) -> String {
    let claimed = if below.is_cut() { format!("; {} are claimed", below.claimed) } else { String::new() };
    format!("{} more by a layer of its own ({}){claimed}, charged as retries", below.retries, below.said)
}

fn effect_words(e: &Explained) -> &'static str {
    match e.effect {
        Effect::Applied => "applied",
        Effect::NotApplied => "not applied",
        Effect::Unknown => "unknown: for a call that writes it may have been done",
    }
}

#[cfg(test)]
mod tests {
    use forbear_server::config::load_text;

    use super::*;
    use crate::cli::OfConfiguration;

    fn explained(provider: &str, call: &str, text: &str) -> (Explained, String) {
        let (method, path) =
            call.split_once(' ').map_or((call, None), |(method, path)| (method, Some(path.to_owned())));
        let of = OfConfiguration { config: None };
        let options = Explain { provider: provider.into(), class: None, method: method.into(), path, of };
        let loaded = load(None, &Overrides::default()).unwrap();
        let known = known_contracts(&loaded);
        let explained = explain(&options, &loaded.compiled.policy, &known[provider], text.as_bytes()).unwrap();
        let text = rendered(&explained);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        (explained, text)
    }

    #[test]
    fn an_empty_account_is_told_from_a_burst() {
        let text = "HTTP/1.1 429 x\nx-ratelimit-limit-requests: 500\nx-ratelimit-remaining-requests: 499\n\n\
                    {\"error\": {\"code\": \"insufficient_quota\"}}";
        let (e, text) = explained("openai", "POST /v1/chat/completions", text);
        assert_eq!((e.classification.kind, e.next, e.class.as_str()), (Kind::Exhausted, "relay", "inference"));
        for said in ["exhausted", "code error.code=insufficient_quota", "499 of 500 left", "not applied"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn a_write_that_may_have_been_done_says_so() {
        let (e, text) = explained("github", "POST /repos/a/b/issues", "HTTP/2 502\n\n");
        assert_eq!((e.next, e.effect), ("outcome_unknown", Effect::Unknown));
        assert!(text.contains("uncertain_write") && text.contains("transient"), "{text}");
        let (e, _) = explained("stripe", "POST /v1/charges", "HTTP/2 502\n\n");
        assert_eq!(e.next, "retry");
    }

    #[test]
    fn a_success_is_looked_into_where_its_contract_says_so() {
        let limited = "HTTP/2 200\ncontent-type: application/json\n\n{\"errors\": [{\"type\": \"RATE_LIMITED\"}]}";
        let (e, _) = explained("github", "POST /graphql", limited);
        assert_eq!((e.classification.kind, e.body_read), (Kind::Throttled, true));
        let (e, text) = explained("github", "POST /repos/a/b/issues", limited);
        assert_eq!((e.classification.kind, e.body_read), (Kind::Success, false));
        assert!(text.contains("not looked at"), "{text}");
    }

    #[test]
    fn what_a_layer_below_says_of_its_own_retries_is_told_where_the_contract_names_it() {
        let text = "HTTP/1.1 503 x\nx-envoy-attempt-count: 3\n\n";
        let options = |path: &str| Explain {
            provider: "mesh".into(),
            class: None,
            method: "GET".into(),
            path: Some(path.into()),
            of: OfConfiguration { config: None },
        };
        let named = "providers: {mesh: {base_url: 'http://127.0.0.1:1', attempts_below: \
                     [{header: x-envoy-attempt-count, counts: attempts}]}}";
        for (policy, retries) in [(named, 2), ("providers: {mesh: {base_url: 'http://127.0.0.1:1'}}", 0)] {
            let loaded = load_text("t", policy).unwrap();
            let known = known_contracts(&loaded);
            let e = explain(&options("/x"), &loaded.compiled.policy, &known["mesh"], text.as_bytes()).unwrap();
            let told = rendered(&e).contains("sent below     2 more by a layer of its own (x-envoy-attempt-count: 3)");
            assert_eq!((e.classification.below.map_or(0, |b| b.retries), told), (retries, retries > 0));
        }
    }

    #[test]
    fn contradictions_and_what_is_unreadable_are_told() {
        let text = "HTTP/1.1 429 x\nretry-after: soon\nx-ratelimit-remaining: 7\nx-ratelimit-limit: 60\n\n";
        let (_, text) = explained("notion", "GET", text);
        assert!(text.contains("contradiction  429 with quota left: default has 7"), "{text}");
        assert!(text.contains("unreadable     retry-after: soon"), "{text}");
        assert!(text.contains("no instant is named"), "{text}");
    }
}
