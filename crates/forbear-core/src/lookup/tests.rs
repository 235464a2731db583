//! What is found in an answer, and what a text says once it is filled.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::contract::LookupBy;
use crate::time::Wall;

fn rule(found_at: Option<&str>, is: &[(&str, &str)]) -> LookupRule {
    LookupRule {
        of: "POST /v1/charges".into(),
        by: LookupBy::Reference,
        carried_at: "body:metadata.reference".into(),
        ask: "GET /v1/charges".into(),
        query: BTreeMap::new(),
        found_at: found_at.map(String::from),
        is: is.iter().map(|(at, is)| ((*at).into(), (*is).into())).collect(),
        made_at: None,
        visible_within_seconds: 60,
        absence_is_proof: false,
        source: "test".into(),
        unverified: false,
    }
}

fn names(body: &Value) -> Names<'_> {
    let sent = Wall(1_796_000_000_000);
    Names { name: "r-7", path: BTreeMap::from([("owner", "o")]), body: Some(body), sent }
}

#[test]
fn one_record_that_is_like_the_write_is_the_write() {
    let sent = json!({"amount": 100});
    let rule = rule(Some("$.data[*]"), &[("$.metadata.reference", "{name}"), ("$.amount", "{body.amount}")]);
    let record = |reference: &str, amount: u64| json!({"metadata": {"reference": reference}, "amount": amount});
    let find = |answer: &Value| match find(&rule, &names(&sent), answer) {
        Found::One(one) => one["amount"].to_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(find(&json!({"data": [record("r-6", 100), record("r-7", 100)]})), "100");
    assert_eq!(find(&json!({"data": [record("r-7", 101), record("R-7", 100), {}]})), "Nothing");
    assert_eq!(find(&json!({"data": [record("r-7", 100), record("r-7", 100)]})), "Several");
    assert_eq!(find(&json!({"data": []})), "Nothing");
    for unreadable in [json!({}), json!(null), json!({"data": {}}), json!({"data": vec![record("r-7", 100); 1_001]})] {
        assert_eq!(find(&unreadable), "Unreadable");
    }
}

#[test]
fn a_whole_answer_may_be_the_only_record() {
    let sent = json!({});
    let answer = json!({"id": "r-7", "live": true});
    assert_eq!(find(&rule(None, &[]), &names(&sent), &answer), Found::One(&answer));
    assert_eq!(find(&rule(None, &[("$.live", "true")]), &names(&sent), &answer), Found::One(&answer));
    assert_eq!(find(&rule(None, &[("$.id", "{body.id}")]), &names(&sent), &answer), Found::Unreadable);
    assert_eq!(find(&rule(None, &[("$.none", "")]), &names(&sent), &answer), Found::Nothing);
}

#[test]
fn what_was_made_before_the_write_is_not_the_write() {
    let sent = json!({});
    let rule = LookupRule { made_at: Some("$.made".into()), ..rule(Some("$[*]"), &[("$.login", "{name}")]) };
    let find = |made: &[Value]| {
        let records: Vec<Value> = made.iter().map(|made| json!({"login": "r-7", "made": made})).collect();
        match find(&rule, &names(&sent), &json!(records)) {
            Found::One(one) => one["made"].clone(),
            other => json!(format!("{other:?}")),
        }
    };
    let (old, new) = (json!(1_795_999_000), json!(1_796_000_001));
    assert_eq!(find(std::slice::from_ref(&old)), "Nothing");
    assert_eq!(find(&[old, new.clone()]), new);
    assert_eq!(find(&[json!("2026-11-30T00:53:20Z")]), "2026-11-30T00:53:20Z", "a clock that is a little behind");
    assert_eq!(find(&[json!("2026-11-29T00:53:20Z")]), "Nothing");
    assert_eq!(find(&[new.clone(), new]), "Several");
    for unreadable in [json!(null), json!("yesterday"), json!(1.5), json!(i64::MAX)] {
        assert_eq!(find(&[unreadable]), "Unreadable");
    }
}

#[test]
fn a_text_is_filled_wholly_or_not_at_all() {
    let body = json!({"a": {"b": "x"}, "n": 7, "list": []});
    let fill = |text: &str| fill(text, &names(&body));
    assert_eq!(fill("/repos/{path.owner}/{name}?{body.a.b}{body.n}").as_deref(), Some("/repos/o/r-7?x7"));
    for unknown in ["{path.repo}", "{body.list}", "{body.none}", "{nam}", "{", "}", "{}", "{query.x}", "{body.a..b}"] {
        assert_eq!(fill(unknown), None, "{unknown}");
    }
    assert_eq!(placeholders("a{name}b{path.x}"), Ok(vec!["name", "path.x"]));
    assert_eq!(placeholders("a}"), Err(TextFault::Unbalanced));
    assert_eq!(placeholders("{it}"), Err(TextFault::Unknown));
}
