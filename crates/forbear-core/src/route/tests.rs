//! The trie against a naive reading of the contract, and templates against anything a path can hold.

use proptest::prelude::*;

use super::*;
use crate::contract::{CodeMeaning, CodeRule, RouteRule};

fn contract(rules: &[(&str, &str)]) -> Contract {
    let routes = rules
        .iter()
        .map(|(pattern, class)| RouteRule {
            pattern: (*pattern).into(),
            class: (*class).into(),
            ..RouteRule::default()
        })
        .collect();
    Contract { routes, ..Contract::default() }
}

fn table(rules: &[(&str, &str)]) -> RouteTable {
    RouteTable::compile(&contract(rules)).unwrap()
}

fn check(rules: &[(&str, &str)], call: &str, expect: &str) {
    let table = table(rules);
    let (method, path) = call.split_once(' ').unwrap();
    let found = table.lookup(method, path);
    assert_eq!(format!("{} | {}", found.template, found.class), expect, "{call}");
}

const SHOP: &[(&str, &str)] = &[
    ("POST /v1/searches", "read"),
    ("GET /v1/trigger", "uncertain_write"),
    ("POST /v1/orders/special", "inference"),
    ("POST /v1/orders/{id}", "idempotent_write"),
    ("* /v1/any/{id}/x", "read"),
    ("POST /v1/files/{name}", "inference"),
    ("POST /v1/files/special", "read"),
    ("DELETE /v1/tree/{path...}", "idempotent_write"),
];

#[test]
fn rules_match_in_their_order() {
    check(SHOP, "POST /v1/searches", "POST /v1/searches | read");
    check(SHOP, "POST /v1/searches/", "POST /v1/searches | read");
    check(SHOP, "POST /v1/searches?q=1", "POST /v1/searches | read");
    check(SHOP, "POST /v1/orders/o_17", "POST /v1/orders/{id} | idempotent_write");
    check(SHOP, "POST /v1/orders/special", "POST /v1/orders/special | inference");
    check(SHOP, "PATCH /v1/any/7/x", "PATCH /v1/any/{id}/x | read");
    // The earlier rule wins, although the later one is the more exact.
    check(SHOP, "POST /v1/files/special", "POST /v1/files/{name} | inference");
    check(SHOP, "DELETE /v1/tree/a/17/c", "DELETE /v1/tree/a/{id}/c | idempotent_write");
    check(SHOP, "DELETE /v1/tree", "DELETE /v1/tree | uncertain_write");
}

#[test]
fn a_verb_behind_a_colon_tells_calls_of_one_segment_apart() {
    let rules = &[
        ("POST /models/{model}:generate", "inference"),
        ("POST /models/{model}:count", "read"),
        ("POST /models/{model}:count/x", "inference"),
        ("POST /models/{model}", "idempotent_write"),
    ];
    check(rules, "POST /models/flash-2:generate", "POST /models/{model}:generate | inference");
    check(rules, "POST /models/a:b:count", "POST /models/{model}:count | read");
    check(rules, "POST /models/a:count/x", "POST /models/{model}:count/x | inference");
    check(rules, "POST /models/a:other", "POST /models/{model} | idempotent_write");
    check(rules, "POST /models/:count", "POST /models/{model} | idempotent_write");
    for pattern in ["POST /{a}:", "POST /{a}b", "POST /{a...}:b", "POST /{a}:{b}", "POST /{a}:b:c", "POST /x{a}:b"] {
        assert!(RouteTable::compile(&contract(&[(pattern, "read")])).is_err(), "{pattern}");
    }
}

#[test]
fn a_success_may_hold_an_error_on_the_routes_that_say_so_or_on_all() {
    let mut contract = contract(&[("POST /graphql", "uncertain_write"), ("POST /a", "uncertain_write")]);
    let disguised = |contract: &Contract| {
        let table = RouteTable::compile(contract).unwrap();
        ["/graphql", "/a", "/b"].map(|path| table.lookup("POST", path).disguised)
    };
    assert_eq!(disguised(&contract), [false, false, false], "no code reads a success");
    contract.codes = vec![CodeRule {
        at: "body:ok".into(),
        is: Some("false".into()),
        is_any: vec![],
        contains: None,
        contains_any: vec![],
        statuses: vec![200],
        means: CodeMeaning::Rejected,
        before_work: None,
        closes: None,
        wait_seconds: None,
    }];
    assert_eq!(disguised(&contract), [true, true, true]);
    contract.routes[0].disguised = true;
    assert_eq!(disguised(&contract), [true, false, false]);
}

#[test]
fn without_a_rule_the_method_decides_and_only_to_the_safe_side() {
    check(SHOP, "GET /v1/orders/o_17", "GET /v1/orders/{id} | read");
    check(SHOP, "OPTIONS *", "OPTIONS * | read");
    for method in ["PUT", "DELETE", "PATCH", "POST", "QUERY", "get", ""] {
        assert_eq!(table(SHOP).lookup(method, "/v2/nothing").class, "uncertain_write", "{method}");
    }
    assert_eq!(table(&[]).lookup("GET", "/").template.as_str(), "GET /");
}

#[test]
fn what_answers_get_answers_head() {
    check(SHOP, "HEAD /v1/trigger", "HEAD /v1/trigger | uncertain_write");
}

#[test]
fn another_spelling_of_a_path_is_no_way_around_its_rule() {
    check(SHOP, "GET /v1/%74rigger", "GET /v1/trigger | uncertain_write");
    check(SHOP, "GET /v1/trigger/", "GET /v1/trigger | uncertain_write");
    let table = table(SHOP);
    for twisted in [
        "/x/../v1/trigger",
        "/x/%2e%2E/v1/trigger",
        "/v1/./trigger",
        "//v1/trigger",
        "/v1//trigger",
        "/v1\\trigger",
        "/x/..;a=b/v1/trigger",
        "/v1/trigger//",
    ] {
        assert_eq!(table.lookup("GET", twisted).class, "uncertain_write", "{twisted}");
        assert_eq!(table.lookup("POST", &twisted.replace("trigger", "searches")).class, "uncertain_write", "{twisted}");
    }
}

#[test]
fn the_idempotency_header_is_the_rules_or_the_contracts() {
    let mut contract = contract(&[("POST /a", "idempotent_write"), ("PUT /a", "idempotent_write")]);
    contract.routes[0].idempotency_header = Some("X-Key".into());
    contract.idempotency = Some(Idempotency {
        header: "Idempotency-Key".into(),
        member: None,
        only_with: None,
        retention_seconds: 60,
        methods: vec!["POST".into()],
        replay_header: None,
    });
    let table = RouteTable::compile(&contract).unwrap();
    assert_eq!(table.lookup("POST", "/a").idempotency_header, Some("X-Key"));
    assert_eq!(table.lookup("POST", "/b").idempotency_header, Some("Idempotency-Key"));
    assert_eq!(table.lookup("PUT", "/a").idempotency_header, None);
}

#[test]
fn bad_patterns_say_why_and_where() {
    use PatternFault::*;
    let long = format!("GET /{}", "a".repeat(300));
    let bad: &[(&str, PatternFault)] = &[
        ("/v1/x", NoMethod),
        ("", NoMethod),
        ("post /v1/x", BadMethod),
        (" /v1/x", BadMethod),
        ("POST v1/x", NoSlash),
        ("POST /v1/x?y=1", BadCharacter),
        ("POST /v1/x y", BadCharacter),
        ("POST /v1//x", EmptySegment),
        ("POST /v1/x/", EmptySegment),
        ("POST /v1/{}", BadPlaceholder),
        ("POST /v1/a{id}", BadPlaceholder),
        ("POST /v1/{a b}", BadCharacter),
        ("POST /v1/{rest...}/x", RestNotLast),
        ("POST /v1/../x", DotSegment),
        (&long, TooLong),
    ];
    let rules: Vec<(&str, &str)> = bad.iter().map(|(p, _)| (*p, "read")).collect();
    let faults = RouteTable::compile(&contract(&rules)).unwrap_err();
    let expect: Vec<_> = bad.iter().enumerate().map(|(i, (_, fault))| (i, *fault)).collect();
    assert_eq!(faults, expect);
}

#[test]
fn identifiers_leave_no_trace_in_a_template() {
    let cases = [
        ("/v1/charges/ch_3MmlLrLkdIwHu7ix0snN0B15/capture", "/v1/charges/{id}/capture"),
        ("/v1beta/models/gemini-2.5-pro:generateContent", "/v1beta/models/{id}:generateContent"),
        ("/users/jane@example.com/messages", "/users/{id}/messages"),
        ("/projects/group%2Fname/issues", "/projects/{id}/issues"),
        ("/x/7c9e6679-7425-40de-944b-e07fc1f90ae7", "/x/{id}"),
        ("/x/deadbeefcafebabe", "/x/{id}"),
        ("/bot12345:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage", "/{id}/sendMessage"),
        ("/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", "/services/{id}/{id}/{id}"),
        ("/chat.postMessage", "/chat.postMessage"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1.1/statuses/update.json", "/v1.1/statuses/update.json"),
        ("/v123/x", "/{id}/x"),
        ("/a/b/c/d/e/f/g/h/i/j/k/l", "/a/b/c/d/e/f/g/h/i/j/{more...}"),
        ("/kéy/x", "/{id}/x"),
        ("/qWeRtYuIoPaSd", "/{id}"),
        ("/xkcdqrtzpw", "/{id}"),
        ("/x/AEIOUAEIOU", "/x/{id}"),
        ("/x/abcdefabcdef", "/x/{id}"),
        ("", "/"),
    ];
    for (path, expect) in cases {
        assert_eq!(template("GET", path).as_str(), format!("GET {expect}"), "{path}");
    }
    assert_eq!(template("secret-method", "/a").as_str(), "OTHER /a");
}

/// The contract read rule by rule, as its author would.
fn naive(rules: &[(&str, &str)], method: &str, path: &str) -> Option<usize> {
    let calls: Vec<&str> = path.split('/').skip(1).filter(|s| !s.is_empty()).collect();
    rules.iter().position(|(pattern, _)| {
        let (own, inner) = pattern.split_once(" /").unwrap();
        let mut left = calls.as_slice();
        for segment in inner.split('/').filter(|s| !s.is_empty()) {
            let Some((first, more)) = left.split_first() else { return false };
            if segment.ends_with("...}") {
                left = &[];
                break;
            }
            if !segment.starts_with('{') && segment != *first {
                return false;
            }
            left = more;
        }
        left.is_empty() && (own == "*" || own == method)
    })
}

proptest! {
    #[test]
    fn the_trie_agrees_with_the_naive_reading(
        rules in prop::collection::vec("(POST|GET|\\*) (/[abc]|/\\{x\\}){0,4}(/\\{y\\.\\.\\.\\})?", 0..12),
        method in "(POST|GET|PUT)",
        path in "(/[abcd]){0,5}/?",
    ) {
        let rules: Vec<String> = rules.iter().map(|r| if r.ends_with(' ') { format!("{r}/") } else { r.clone() }).collect();
        let rules: Vec<(&str, &str)> = rules.iter().map(|r| (r.as_str(), "read")).collect();
        prop_assert_eq!(table(&rules).lookup(&method, &path).rule, naive(&rules, &method, &path));
    }

    #[test]
    fn a_template_is_short_and_shows_no_identifier(method in ".{0,20}", path in "(/?[\\PC]{0,40}){0,12}") {
        let found = table(SHOP).lookup(&method, &path).template;
        prop_assert!(found.as_str().len() <= TEMPLATE_BYTES_MAX);
        prop_assert!(found.as_str().is_ascii());
        prop_assert!(!found.as_str().contains(['@', '%', '?', '=']));
    }

    #[test]
    fn a_number_never_gets_through(prefix in "[a-z_-]{0,8}", number in 100u32.., suffix in "[a-z_-]{0,8}") {
        let path = format!("/things/{prefix}{number}{suffix}/x");
        let found = template("GET", &path);
        prop_assert_eq!(found.as_str(), "GET /things/{id}/x");
    }
}
