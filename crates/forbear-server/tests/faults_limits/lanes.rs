//! Scopes below an account: one that is closed holds its own calls and no others.

use std::time::Duration;

use crate::rig::{Got, Rig};

const CREDENTIAL: (&str, &str) = ("authorization", "Bearer k1");
const AT_ONCE: Duration = Duration::from_secs(2);

/// Configuration with the provider `p` of these keys.
fn provider(keys: &str) -> String {
    format!("providers:\n  p:\n    base_url: $BASE\n{keys}")
}

async fn at_once(call: impl Future<Output = Got>) -> Got {
    tokio::time::timeout(AT_ONCE, call).await.expect("it is not held")
}

fn names(rig: &Rig) -> Vec<String> {
    rig.running.shard().scopes(100).into_iter().map(|row| row.scope.to_string()).collect()
}

const BY_MODEL: &str = "
routes:
  - match: 'POST /chat'
    when: {body: {/model: big}}
    then:
      - {status: 429, headers: {Retry-After: '60'}, body: {}}
      - {body: {ok: true}}
  - match: 'POST /chat'
    when: {body: {/model: spent}}
    respond: {status: 429, headers: {Retry-After: '60'}, body: {error: {code: insufficient_quota}}}
  - match: 'POST /chat'
    respond: {body: {ok: true}}
";

fn model_keys() -> String {
    provider(
        "    routes: [{match: 'POST /chat', class: inference}]\n    scopes: [{name: model, by: 'body:model'}]\n    \
         scope: {max_delayed_requests: 0}\n",
    )
}

#[tokio::test]
async fn a_models_limit_holds_that_model_alone() {
    let rig = Rig::new(BY_MODEL, &model_keys()).await;
    let chat = |model: &str| {
        let body = format!(r#"{{"messages":[{{"model":"no"}}],"model":"{model}"}}"#);
        let rig = &rig;
        async move { rig.call("POST", "/p/chat", &[CREDENTIAL, ("forbear-deadline", "3s")], &body).await }
    };
    let refused = at_once(chat("big")).await;
    assert_eq!(refused.header("forbear-outcome"), "deadline_exhausted", "{refused:?}");
    assert_eq!(at_once(chat("small")).await.status, 200);
    let held = at_once(chat("big")).await;
    assert_eq!(held.header("forbear-outcome"), "deadline_exhausted", "{held:?}");
    assert_eq!(rig.provider.arrivals().len(), 2, "nothing more of the closed model left");
    let rows = rig.running.shard().scopes(100);
    let closed: Vec<_> =
        rows.iter().filter(|row| row.next_allowed_at.is_some()).map(|row| row.scope.as_str()).collect();
    assert!(closed.len() == 1 && closed[0].ends_with("/model=big"), "{closed:?}");
    // It survives the process, as every boundary does.
    let rig = rig.restart(&model_keys()).await;
    let again =
        at_once(rig.call("POST", "/p/chat", &[CREDENTIAL, ("forbear-deadline", "3s")], r#"{"model":"big"}"#)).await;
    assert_eq!((again.header("forbear-outcome"), rig.provider.arrivals().len()), ("deadline_exhausted", 2));
}

#[tokio::test]
async fn a_spent_account_is_spent_for_every_model() {
    let rig = Rig::new(BY_MODEL, &model_keys()).await;
    let chat = |model: &str| {
        let body = format!(r#"{{"model":"{model}"}}"#);
        let rig = &rig;
        async move { rig.call("POST", "/p/chat", &[CREDENTIAL, ("forbear-deadline", "3s")], &body).await }
    };
    assert_eq!(at_once(chat("spent")).await.status, 429);
    assert_eq!(at_once(chat("small")).await.header("forbear-outcome"), "deadline_exhausted");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn a_segment_cuts_scopes_and_is_not_on_record() {
    let scenario = "
routes:
  - match: 'POST /channels/c-secret-1/messages'
    respond: {status: 429, headers: {Retry-After: '60'}, body: {}}
  - match: 'POST /channels/{id}/messages'
    respond: {body: {ok: true}}
";
    let keys = provider(
        "    routes: [{match: 'POST /channels/{id}/messages', class: inference}]\n    scopes: [{name: channel, routes: ['POST \
         /channels/{id}/messages'], by: 'path:id'}]\n",
    );
    let rig = Rig::new(scenario, &keys).await;
    let fields = [CREDENTIAL, ("forbear-deadline", "3s")];
    let first = at_once(rig.call("POST", "/p/channels/c-secret-1/messages", &fields, "{}")).await;
    assert_eq!(first.header("forbear-outcome"), "deadline_exhausted");
    assert_eq!(at_once(rig.call("POST", "/p/channels/c-2/messages", &fields, "{}")).await.status, 200);
    let names = names(&rig);
    assert_eq!(names.iter().filter(|name| name.contains("/channel=")).count(), 2, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("c-secret")), "{names:?}");
}

#[tokio::test]
async fn a_family_of_routes_is_one_scope_and_the_rest_another() {
    let scenario = "
routes:
  - match: 'GET /search/{what}'
    respond: {status: 429, headers: {Retry-After: '60'}, body: {}}
  - match: 'GET /{rest...}'
    respond: {body: {ok: true}}
";
    let keys = provider(
        "    scopes:\n      - {name: search, routes: ['GET /search/{rest...}']}\n      - {name: core, except: ['GET \
         /search/{rest...}']}\n",
    );
    let rig = Rig::new(scenario, &keys).await;
    let fields = [CREDENTIAL, ("forbear-deadline", "3s")];
    assert_eq!(
        at_once(rig.call("GET", "/p/search/a", &fields, "")).await.header("forbear-outcome"),
        "deadline_exhausted"
    );
    assert_eq!(
        at_once(rig.call("GET", "/p/search/b", &fields, "")).await.header("forbear-outcome"),
        "deadline_exhausted"
    );
    assert_eq!(at_once(rig.call("GET", "/p/users/a", &fields, "")).await.status, 200);
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn slots_of_a_narrow_scope_bound_it_alone() {
    let scenario = "
routes:
  - match: 'GET /{rest...}'
    respond: {body: {ok: true}, delay_ms: 300}
";
    let keys = provider("    scopes: [{name: endpoint, by: route, max_concurrent_requests: 1}]\n");
    let rig = Rig::new(scenario, &keys).await;
    let (a, b, c) = tokio::join!(rig.get("/p/alpha"), rig.get("/p/alpha"), rig.get("/p/beta"));
    assert_eq!((a.status, b.status, c.status), (200, 200, 200));
    let arrivals = rig.provider.arrivals();
    let of = |target: &str| arrivals.iter().filter(|a| a.target == target).map(|a| a.at_ns).collect::<Vec<_>>();
    let (alpha, beta) = (of("/alpha"), of("/beta"));
    assert!(alpha[1] - alpha[0] >= 290_000_000, "the second waits for the first one's slot: {alpha:?}");
    assert!(beta[0] < alpha[1], "and the other endpoint does not");
}
