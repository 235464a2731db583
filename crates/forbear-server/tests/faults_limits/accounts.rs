//! One account over several credentials: its quota is shared, and what each credential's calls came to is not.

use std::time::Duration;

use http::Request;
use http_body_util::Full;

use crate::rig::{Got, Rig};

const ONE: (&str, &str) = ("authorization", "Bearer k1");
const TWO: (&str, &str) = ("authorization", "Bearer k2");
const STRANGER: (&str, &str) = ("authorization", "Bearer k3");

/// What calls with these credentials were shown by.
async fn digests(rig: &Rig, credentials: &[(&str, &str)]) -> Vec<String> {
    let mut digests = Vec::new();
    for credential in credentials {
        assert_eq!(rig.call("GET", "/p/open", &[*credential], "").await.status, 200);
        let rows = rig.running.shard().scopes(10).into_iter().map(|row| row.scope.to_string());
        let digest = rows.map(|scope| scope.trim_start_matches("p/").to_owned()).find(|d| !digests.contains(d));
        digests.push(digest.expect("a scope of its own"));
    }
    digests
}

async fn shared(scenario: &str) -> Rig {
    let rig = Rig::new(scenario, "").await;
    let digests = digests(&rig, &[ONE, TWO]).await.join(", ");
    // The rig's own keys of `p` are all that it says of it.
    let policy = format!("providers:\n  p: {{base_url: $BASE, accounts: {{team: [{digests}]}}}}\n");
    let rig = rig.restart(&policy).await;
    let before = rig.provider.arrivals().len();
    assert_eq!(before, 2);
    rig
}

const SCENARIO: &str = "
routes:
  - match: 'GET /full'
    respond: {status: 429, headers: {Retry-After: '60'}, body: {}}
  - match: 'GET /{rest...}'
    respond: {body: {ok: true}}
  - match: 'POST /things'
    respond: {effect: {name: thing}, status: 201, body: {id: 7}}
";

/// What a credential's holder is shown of the action that answered so.
async fn looks(rig: &Rig, credential: (&str, &str), at: &Got) -> u16 {
    let got = look(rig, credential, at).await;
    assert!(got.status == 200 || got.json()["effect"] == "unknown", "what it did is told to nobody else: {got:?}");
    got.status
}

async fn look(rig: &Rig, credential: (&str, &str), at: &Got) -> Got {
    let look =
        Request::builder().uri(format!("/-/actions/{}", at.header("forbear-action"))).header("host", "127.0.0.1");
    rig.send(look.header(credential.0, credential.1).body(Full::default()).unwrap()).await
}

fn outcome(got: &Got) -> &str {
    got.header("forbear-outcome")
}

#[tokio::test]
async fn a_refusal_of_one_credential_holds_all_of_its_account() {
    let rig = shared(SCENARIO).await;
    let soon = ("forbear-deadline", "2s");
    assert_eq!(outcome(&rig.call("GET", "/p/full", &[ONE, soon], "").await), "deadline_exhausted");
    let arrivals = rig.provider.arrivals().len();
    let held = tokio::time::timeout(Duration::from_secs(2), rig.call("GET", "/p/open", &[TWO, soon], "")).await;
    assert_eq!(outcome(&held.expect("it is told at once")), "deadline_exhausted");
    assert_eq!(rig.provider.arrivals().len(), arrivals, "nothing leaves under the account's other credential");
    assert_eq!(rig.call("GET", "/p/open", &[STRANGER, soon], "").await.status, 200);
    let scopes: Vec<_> = rig.running.shard().scopes(10).into_iter().map(|row| row.scope.to_string()).collect();
    assert!(scopes.iter().any(|scope| scope == "p/team"), "{scopes:?}");
    assert_eq!(scopes.len(), 2, "{scopes:?}");
}

#[tokio::test]
async fn names_and_actions_are_one_credentials() {
    let mut rig = shared(SCENARIO).await;
    let key = ("idempotency-key", "same");
    let first = rig.call("POST", "/p/things", &[ONE, key], "{}").await;
    let second = rig.call("POST", "/p/things", &[TWO, key], "{}").await;
    assert_eq!((first.status, second.status, rig.provider.effects().count), (201, 201, 2));
    for restarts in 0..2 {
        for (credential, own, other) in [(ONE, &first, &second), (TWO, &second, &first)] {
            assert_eq!(looks(&rig, credential, own).await, 200, "{restarts}");
            assert_eq!(looks(&rig, credential, other).await, 404, "{restarts}");
            // The same name again is the credential's own write, and not done again by Forbear's own hand.
            let again = rig.call("POST", "/p/things", &[credential, key], "{}").await;
            assert_ne!(again.json()["action"], other.header("forbear-action"), "{restarts}");
        }
        let policy = std::fs::read_to_string(rig.dir.path().join("forbear.yaml")).unwrap_or_default();
        rig = rig.restart(&policy).await;
    }
}

#[tokio::test]
async fn a_straight_read_is_shown_to_its_own_credential() {
    let rig = shared(SCENARIO).await;
    let read = rig.call("GET", "/p/open", &[ONE], "").await;
    assert_eq!(looks(&rig, ONE, &read).await, 200);
    assert_eq!(looks(&rig, TWO, &read).await, 404);
}
