//! What is refused, and where it is said to be.

use super::*;
use crate::contract::{
    AdviceKind, AdviceRule, CodeMeaning, CodeRule, Contract, Idempotency, LookupBy, LookupRule, RouteRule, ValueFormat,
    WaitRule,
};

fn contract() -> Contract {
    Contract { base_url: "https://api.example.com".into(), ..Contract::default() }
}

fn route(pattern: &str, class: &str) -> RouteRule {
    RouteRule { pattern: pattern.into(), class: class.into(), ..RouteRule::default() }
}

fn faults(change: impl FnOnce(&mut Policy, &mut Contract)) -> Vec<(String, FaultKind)> {
    let (mut policy, mut shop) = (Policy::default(), contract());
    change(&mut policy, &mut shop);
    policy.providers.insert("shop".into(), shop);
    check(&policy).into_iter().map(|f| (f.at.join("."), f.kind)).collect()
}

fn check_one(at: &str, kind: FaultKind, change: impl FnOnce(&mut Policy, &mut Contract)) {
    assert_eq!(faults(change), [(at.to_owned(), kind)]);
}

fn of<'p>(policy: &'p mut Policy, class: &str) -> &'p mut ClassRule {
    policy.request_classes.get_mut(class).unwrap()
}

#[test]
fn what_ships_is_in_order() {
    assert_eq!(faults(|_, _| ()), []);
}

#[test]
fn classes() {
    use FaultKind::*;
    check_one("request_classes.read.max_attempts", OutOfBounds, |p, _| of(p, "read").max_attempts = 0);
    check_one("request_classes.read.deadline_seconds", OutOfBounds, |p, _| of(p, "read").deadline_seconds = 0);
    check_one("request_classes.read.retry_statuses.1", OutOfBounds, |p, _| {
        of(p, "read").retry_statuses = vec![503, 200];
    });
    for class in ["idempotent_write", "uncertain_write"] {
        let at = format!("request_classes.{class}.unknown_resends");
        check_one(&at, UnsafeResend, |p, _| of(p, class).unknown_resends = 1);
    }
    check_one("request_classes.inference.unknown_resends", Contradiction, |p, _| {
        of(p, "inference").unknown_resends = 4;
    });
    check_one("request_classes.read.rank", Rank, |p, _| of(p, "read").rank = Some(super::Rank::Inference));
    check_one("request_classes.poll", Rank, |p, _| {
        let rule = of(p, "read").clone();
        p.request_classes.insert("poll".into(), rule);
    });
    check_one("request_classes", Rank, |p, _| drop(p.request_classes.remove("inference")));
}

#[test]
fn an_added_class_follows_its_rank() {
    check_one("request_classes.pay.unknown_resends", FaultKind::UnsafeResend, |p, _| {
        let mut rule = of(p, "inference").clone();
        rule.rank = Some(super::Rank::IdempotentWrite);
        p.request_classes.insert("pay".into(), rule);
    });
}

#[test]
fn bounds_that_contradict() {
    use FaultKind::*;
    check_one("shared_scope.max_concurrent_requests", OutOfBounds, |p, _| {
        p.shared_scope.max_concurrent_requests = Some(0);
    });
    check_one("providers.shop.warm_connections", OutOfBounds, |_, c| c.warm_connections = 9);
    check_one("providers.shop.scope.max_concurrent_requests", OutOfBounds, |_, c| {
        c.scope.max_concurrent_requests = Some(0);
    });
    check_one("backoff.floor_ms", Contradiction, |p, _| p.backoff.floor_ms = 61_000);
    check_one("backoff.base_ms", Contradiction, |p, _| p.backoff.base_ms = 61_000);
}

#[test]
fn base_urls() {
    use FaultKind::*;
    let bad = [
        "",
        "api.example.com",
        "/v1",
        "ftp://api.example.com",
        "https://",
        "https://api.example.com/",
        "https://api.example.com/v1?x=1",
        "https://api.example.com/v1#x",
        "https://api.example.com:99999",
        "https://api.example.com:0",
        "ht tp://x",
    ];
    for url in bad {
        check_one("providers.shop.base_url", BadUrl, |_, c| c.base_url = url.into());
    }
    for url in [
        "https://api.example.com/v1",
        "https://api.example.com:8443",
        "http://127.0.0.1:8080",
        "http://[::1]:1",
        "http://localhost:1",
    ] {
        assert_eq!(faults(|_, c| c.base_url = url.into()), [], "{url}");
    }
    check_one("providers.shop.base_url", CredentialInUrl, |_, c| c.base_url = "https://a:b@api.example.com".into());
    check_one("providers.shop.base_url", PlainHttp, |_, c| c.base_url = "http://api.example.com".into());
    check_one("providers.shop.base_url", PlainHttp, |_, c| c.base_url = "http://127.0.0.1.example.com".into());
}

#[test]
fn a_credential_in_a_url_is_not_repeated_in_the_error() {
    for url in ["https://u:hunter2@h", "ht tp://u:hunter2@h", "u:hunter2@h", "ftp://hunter2@h/"] {
        let mut policy = Policy::default();
        policy.providers.insert("x".into(), Contract { base_url: url.into(), ..contract() });
        let faults = check(&policy);
        assert_eq!(faults[0].kind, FaultKind::CredentialInUrl, "{url}");
        assert!(!format!("{faults:?}").contains("hunter2"), "{url}");
    }
}

#[test]
fn routes() {
    use FaultKind::*;
    check_one("providers.shop.routes.1.class", UnknownClass, |_, c| {
        c.routes = vec![route("POST /a", "read"), route("POST /b", "raed")];
    });
    check_one("providers.shop.routes.0.match", BadRoute, |_, c| c.routes = vec![route("POST a", "read")]);
    check_one("providers.shop.routes.0.class", NoKey, |_, c| c.routes = vec![route("POST /a", "idempotent_write")]);
    let keyed = [
        RouteRule { idempotency_header: Some("Idempotency-Key".into()), ..route("POST /a", "idempotent_write") },
        RouteRule { repeatable: true, ..route("PUT /a", "idempotent_write") },
    ];
    assert_eq!(faults(|_, c| c.routes = keyed.to_vec()), []);
    check_one("providers.shop.routes.1.class", NoKey, |_, c| {
        c.idempotency = Some(Idempotency {
            header: "Idempotency-Key".into(),
            member: None,
            only_with: None,
            retention_seconds: 1,
            methods: vec!["POST".into()],
            replay_header: None,
        });
        c.routes = vec![route("POST /a", "idempotent_write"), route("PUT /a", "idempotent_write")];
    });
}

#[test]
fn waits_and_keys_in_bodies() {
    use FaultKind::*;
    let wait = |at: &str, has: Option<&str>, per_second: Option<&str>| WaitRule {
        at: at.into(),
        format: ValueFormat::Auto,
        has: has.map(Into::into),
        per_second: per_second.map(Into::into),
    };
    check_one("providers.shop.waits.0.at", BadCode, |_, c| c.waits = vec![wait("a..b", None, None)]);
    check_one("providers.shop.waits.0.has", Contradiction, |_, c| c.waits = vec![wait("a", None, Some("b"))]);
    check_one("providers.shop.waits.0.per_second", BadCode, |_, c| c.waits = vec![wait("a", Some("b"), Some(""))]);
    assert_eq!(faults(|_, c| c.waits = vec![wait("a.b", Some("c"), Some("d"))]), []);
    let keys = |header: &str, member: Option<&str>| Idempotency {
        header: header.into(),
        member: member.map(Into::into),
        only_with: None,
        retention_seconds: 1,
        methods: vec!["POST".into()],
        replay_header: None,
    };
    check_one("providers.shop.idempotency.header", BadHeader, |_, c| c.idempotency = Some(keys("", None)));
    check_one("providers.shop.idempotency.member", BadCode, |_, c| c.idempotency = Some(keys("", Some("a."))));
    check_one("providers.shop.idempotency.member", Contradiction, |_, c| c.idempotency = Some(keys("X", Some("a"))));
    assert_eq!(faults(|_, c| c.idempotency = Some(keys("", Some("idempotency_key")))), []);
}

#[test]
fn headers_codes_and_names() {
    use FaultKind::*;
    check_one("providers.shop.credential_headers.0", BadHeader, |_, c| c.credential_headers = vec!["x y".into()]);
    check_one("providers.shop.no_retry_headers.x:y", BadHeader, |_, c| {
        c.no_retry_headers = [("x:y".into(), "1".into())].into();
    });
    let keyed =
        |header: &str| RouteRule { idempotency_header: Some(header.into()), ..route("POST /x", "idempotent_write") };
    for name in ["Content-Length", "transfer-encoding", "Connection", "host", "TE", "upgrade", "Trailer", "Keep-Alive"]
        .into_iter()
        .chain(["proxy-authorization", "Proxy-Connection", "Forbear-Task", "forbear-outcome"])
    {
        let text = || String::from(name);
        check_one("providers.shop.credential_headers.0", BadHeader, |_, c| c.credential_headers = vec![text()]);
        check_one("providers.shop.url_headers.0", BadHeader, |_, c| c.url_headers = vec![text()]);
        check_one("providers.shop.verdict_headers.0", BadHeader, |_, c| c.verdict_headers = vec![text()]);
        check_one(&format!("providers.shop.no_retry_headers.{name}"), BadHeader, |_, c| {
            c.no_retry_headers = [(text(), "1".into())].into();
        });
        check_one("providers.shop.routes.0.idempotency_header", BadHeader, |_, c| {
            c.routes = vec![keyed(&text())];
        });
    }
    for name in ["Authorization", "cookie", "X-Api-Key", "x-shop-key"] {
        check_one("providers.shop.routes.0.idempotency_header", BadHeader, |_, c| {
            c.credential_headers = vec!["X-Shop-Key".into()];
            c.routes = vec![keyed(name)];
        });
        check_one("providers.shop.idempotency.header", BadHeader, |_, c| {
            c.credential_headers = vec!["X-Shop-Key".into()];
            c.idempotency = Some(Idempotency {
                header: name.into(),
                member: None,
                only_with: None,
                retention_seconds: 1,
                methods: vec!["POST".into()],
                replay_header: None,
            });
        });
    }
    let rule = |at: &str| CodeRule {
        at: at.into(),
        is: None,
        is_any: Vec::new(),
        contains: None,
        contains_any: Vec::new(),
        statuses: Vec::new(),
        means: CodeMeaning::Throttled,
        before_work: None,
        closes: None,
        wait_seconds: None,
    };
    for at in ["error.code", "body:", "body:a..b", "cookie:x", "", "text"] {
        check_one("providers.shop.codes.0.at", BadCode, |_, c| c.codes = vec![rule(at)]);
    }
    check_one("providers.shop.codes.0.contains", Contradiction, |_, c| {
        c.codes = vec![CodeRule { is: Some("a".into()), contains: Some("b".into()), ..rule("body:a") }];
    });
    check_one("providers.shop.codes.0.contains", Contradiction, |_, c| {
        c.codes = vec![CodeRule { is_any: vec!["a".into()], contains_any: vec!["b".into()], ..rule("text") }];
    });
    let by_status = CodeRule { statuses: vec![477], ..rule("") };
    let by_text = CodeRule { contains: Some("Retry later".into()), ..rule("text") };
    assert_eq!(faults(|_, c| c.codes = vec![by_status, by_text]), []);
    for host in ["https://a.example", "a.example/x", "a..example", "*.", "A.example", "a"] {
        check_one("providers.shop.hosts.0", BadUrl, |_, c| c.hosts = vec![host.into()]);
    }
    assert_eq!(faults(|_, c| c.hosts = vec!["*.shop.example".into(), "shop.example".into()]), []);
    for name in ["~x", "-", "UPPER", "a/b", ""] {
        let mut policy = Policy::default();
        policy.providers.insert(name.into(), contract());
        assert_eq!(check(&policy)[0].kind, BadName, "{name}");
    }
}

#[test]
fn an_advice_speaks_of_a_read_and_fits_into_a_header_field() {
    let advice = |change: fn(&mut AdviceRule)| {
        move |_: &mut Policy, shop: &mut Contract| {
            let (when, route) = (AdviceKind::Polling, "GET /a/{id}".into());
            let mut rule = AdviceRule { when, route, say: "Wait for the webhook".into(), see: None };
            change(&mut rule);
            shop.advice = vec![rule];
        }
    };
    assert_eq!(faults(advice(|rule| rule.see = Some("POST /hooks".into()))), []);
    check_one("providers.shop.advice.0.route", FaultKind::BadRoute, advice(|rule| rule.route = "POST /a".into()));
    check_one("providers.shop.advice.0.say", FaultKind::BadHeader, advice(|rule| rule.say = "two\nlines".into()));
    check_one("providers.shop.advice.0.say", FaultKind::BadHeader, advice(|rule| rule.say = "x".repeat(201)));
    check_one("providers.shop.advice.0.see", FaultKind::BadHeader, advice(|rule| rule.see = Some("\u{fc}ber".into())));
}

#[test]
fn only_reads_are_one_send_for_several() {
    let one = |class: &'static str| {
        move |_: &mut Policy, shop: &mut Contract| {
            shop.routes = vec![RouteRule { coalescable: true, ..route("POST /search", class) }];
        }
    };
    assert_eq!(faults(one("read")), []);
    check_one("providers.shop.routes.0.coalescable", FaultKind::Contradiction, one("inference"));
}

#[test]
fn a_lookup_can_be_asked_and_says_which_write_it_finds() {
    let lookup = |change: fn(&mut LookupRule)| {
        move |_: &mut Policy, shop: &mut Contract| {
            let mut rule = LookupRule {
                of: "POST /v1/{kind}/charges".into(),
                by: LookupBy::Reference,
                carried_at: "body:metadata.reference".into(),
                ask: "GET /v1/{path.kind}/charges".into(),
                query: [("query".into(), "ref:'{name}'".into())].into(),
                found_at: Some("$.data[*]".into()),
                is: [("$.amount".into(), "{body.amount}".into())].into(),
                made_at: Some("$.created".into()),
                visible_within_seconds: 60,
                absence_is_proof: false,
                source: "docs.example.com/search".into(),
                unverified: false,
            };
            change(&mut rule);
            shop.lookups = vec![rule];
        }
    };
    assert_eq!(faults(lookup(|_| ())), []);
    assert_eq!(faults(lookup(|rule| rule.carried_at = "path:kind".into())), []);
    assert_eq!(faults(lookup(|rule| rule.found_at = None)), []);
    for (at, kind, change) in [
        (".of", FaultKind::BadRoute, (|rule| rule.of = "GET /v1/{kind}/charges".into()) as fn(&mut LookupRule)),
        (".of", FaultKind::BadRoute, |rule| rule.of = "POST v1/{kind}".into()),
        (".carried_at", FaultKind::BadCode, |rule| rule.carried_at = "metadata".into()),
        (".carried_at", FaultKind::BadCode, |rule| rule.carried_at = "body:a..b".into()),
        (".carried_at", FaultKind::BadCode, |rule| rule.carried_at = "path:id".into()),
        (".carried_at", FaultKind::BadHeader, |rule| rule.carried_at = "header:a b".into()),
        (".ask", FaultKind::BadRoute, |rule| rule.ask = "POST /v1/search".into()),
        (".ask", FaultKind::BadRoute, |rule| rule.ask = "GET /v1/charges?limit=1".into()),
        (".ask", FaultKind::BadCode, |rule| rule.ask = "GET /v1/{path.id}".into()),
        (".query.query", FaultKind::BadCode, |rule| _ = rule.query.insert("query".into(), "{name} {it}".into())),
        (".found_at", FaultKind::BadCode, |rule| rule.found_at = Some("$.data".into())),
        (".found_at", FaultKind::BadCode, |rule| rule.found_at = Some("$..data".into())),
        (".made_at", FaultKind::BadCode, |rule| rule.made_at = Some("created".into())),
        (".is.$.a[*]", FaultKind::BadCode, |rule| _ = rule.is.insert("$.a[*]".into(), "1".into())),
        (".is.$.a", FaultKind::BadCode, |rule| _ = rule.is.insert("$.a".into(), "{".into())),
        ("", FaultKind::Contradiction, |rule| rule.query.clear()),
        (".visible_within_seconds", FaultKind::OutOfBounds, |rule| rule.visible_within_seconds = 3_000_000),
        (".absence_is_proof", FaultKind::Contradiction, |rule| {
            (rule.absence_is_proof, rule.unverified) = (true, true);
        }),
        (".source", FaultKind::Contradiction, |rule| rule.source = " ".into()),
    ] {
        check_one(&format!("providers.shop.lookups.0{at}"), kind, lookup(change));
    }
}
