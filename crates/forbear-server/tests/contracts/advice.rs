//! Every better way that a contract names, over sockets: the run that needs it is told it, at the call that makes it one too many.

use forbear_core::contract::{AdviceKind, AdviceRule};

use crate::rig::Rig;
use crate::{configuration, contract_names, load_text};

/// The same answer for everything; who asks for it is limited first.
const SCENARIO: &str = "
routes:
  - match: '* /{rest...}'
    when: {headers: {x-limit: '1'}}
    then: [{status: 429, headers: {Retry-After: '0'}, times: 1}, {body: {fine: true}}]
  - match: '* /{rest...}'
    respond: {headers: {ETag: '\"v1\"'}, body: {fine: true}}
";

/// A path of the route, whose last identifier is the n-th.
fn path(rule: &AdviceRule, n: usize) -> String {
    let template = rule.route.strip_prefix("GET ").unwrap();
    let last = template.rfind('{').unwrap_or(template.len());
    let segments = |text: &str, id: String| -> String {
        let filled = text.split('/').map(|segment| if segment.starts_with('{') { &id } else { segment });
        filled.collect::<Vec<_>>().join("/")
    };
    segments(&template[..last], "1".into()) + &segments(&template[last..], format!("{}", 1_000 + n))
}

/// So many calls of a run that does it, and what came with the last.
async fn told(rig: &Rig, provider: &str, rule: &AdviceRule, run: &str) -> Vec<String> {
    let (calls, limit) = match rule.when {
        AdviceKind::ManyDetails => (20, "0"),
        AdviceKind::Polling => (6, "0"),
        AdviceKind::Paging => (3, "1"),
    };
    let mut told = Vec::new();
    for n in 0..calls {
        let target = match rule.when {
            AdviceKind::ManyDetails => path(rule, n),
            AdviceKind::Polling => path(rule, 0),
            AdviceKind::Paging => format!("{}?page={n}", path(rule, 0)),
        };
        let fields = [("authorization", "k"), ("forbear-run", run), ("x-limit", limit)];
        let got = rig.call("GET", &format!("/{provider}{target}"), &fields, "").await;
        assert_eq!(got.status, 200, "{provider} {target}: {got:?}");
        told.push(got.header("forbear-advice").to_owned());
    }
    told
}

#[tokio::test]
async fn every_better_way_is_told_to_the_run_that_needs_it() {
    let policy = |base: &str| format!("backoff: {{base_ms: 10, cap_ms: 20, floor_ms: 10}}\n{}", configuration(base));
    let rig = Rig::new(SCENARIO, &policy("$BASE")).await;
    let compiled = load_text("t", &policy("http://127.0.0.1:1")).unwrap().compiled;
    let mut advised = Vec::new();
    for name in contract_names() {
        for (n, rule) in compiled.provider(name).unwrap().contract.advice.iter().enumerate() {
            let told = told(&rig, name, rule, &format!("{name}-{n}")).await;
            let (last, before) = told.split_last().unwrap();
            assert!(last.contains(&rule.say), "{name}: {} is not told: {told:?}", rule.route);
            assert!(before.iter().all(String::is_empty), "{name}: {} is told too soon: {told:?}", rule.route);
            advised.push(name);
        }
    }
    advised.dedup();
    assert!(advised.len() >= 13, "{advised:?}");
}
