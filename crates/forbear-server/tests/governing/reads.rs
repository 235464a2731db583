//! Reads and inference: limits, budgets, deadlines.

use std::time::Duration;

use forbear_api::Client;
use forbear_api::client::Token;

use crate::rig::Rig;

#[tokio::test]
async fn a_plain_read_passes_and_is_on_record() {
    let rig = Rig::new("routes:\n  - match: 'GET /things'\n    respond: {body: {ok: true}}\n", "").await;
    let got = rig.get("/p/things?a=2&a=1").await;
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(got.json()["ok"], true);
    assert_eq!((got.header("forbear-outcome"), got.header("forbear-attempts")), ("succeeded", "1"));
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), 1);
    assert_eq!(arrivals[0].target, "/things?a=2&a=1");
    let action = got.header("forbear-action").parse().unwrap();
    rig.running.stop().await;
    let reader = forbear_store::Reader::open(&rig.dir.path().join("data")).unwrap();
    let story = reader.action(action).unwrap().expect("it is on record");
    assert_eq!(story.action.outcome.as_deref(), Some("succeeded"));
}

const THEN_FINE: &str = "
routes:
  - match: 'GET /things'
    then:
      - {status: 429, headers: {Retry-After: '1'}, body: {error: slow}}
      - {body: {ok: true}}
";

#[tokio::test]
async fn a_throttled_read_waits_for_the_boundary_and_succeeds() {
    let rig = Rig::new(THEN_FINE, "").await;
    let got = rig.get("/p/things").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{got:?}");
    assert!(rig.gap(1, 2) >= Duration::from_secs(1), "{:?}", rig.gap(1, 2));
    assert!(got.header("forbear-waited-ms").parse::<u64>().unwrap() >= 1_000);
}

#[tokio::test]
async fn a_boundary_holds_every_worker_of_the_scope_and_no_other() {
    let rig = Rig::new(THEN_FINE, "").await;
    let other = [("authorization", "Bearer k2")];
    let (first, second, third) = tokio::join!(
        rig.get("/p/things"),
        async {
            rig.provider.wait_until(Duration::from_secs(5), |a| a.iter().any(|a| a.status == Some(429))).await.unwrap();
            tokio::join!(rig.get("/p/things"), rig.call("GET", "/p/things", &other, ""))
        },
        async {}
    );
    let (second, free) = second;
    let () = third;
    assert_eq!((first.status, second.status, free.status), (200, 200, 200));
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), 4);
    let refused = arrivals[0].head_written_at_ns.unwrap();
    for later in &arrivals[1..] {
        let after = later.at_ns - refused;
        if later.credential == arrivals[0].credential {
            assert!(after >= 1_000_000_000, "{after}");
        } else {
            assert!(after < 900_000_000, "{after}");
        }
    }
}

#[tokio::test]
async fn a_wait_beyond_the_budget_ends_at_once() {
    let scenario =
        "routes:\n  - match: 'GET /things'\n    respond: {status: 429, headers: {Retry-After: '3600'}, body: {}}\n";
    let rig = Rig::new(scenario, "").await;
    let got = rig.get("/p/things").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{got:?}");
    let problem = got.json();
    assert_eq!(problem["attempts"], 1);
    assert_eq!(problem["answered"], true);
    assert!(problem["next_allowed_at"].is_string(), "{problem}");
    assert_eq!(got.header("x-should-retry"), "false");
    // The next call of the scope is not sent at all.
    let got = rig.get("/p/things").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "deferred"), "{got:?}");
    assert!(got.header("retry-after").parse::<u64>().unwrap() > 3_500);
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn attempts_are_bounded_and_the_last_status_is_told() {
    let scenario = "routes:\n  - match: 'GET /things'\n    respond: {status: 503, body: {error: {code: down}}}\n";
    let policy = "backoff: {base_ms: 10, cap_ms: 50, floor_ms: 10}\n";
    let rig = Rig::new(scenario, policy).await;
    let got = rig.get("/p/things").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (503, "budget_exhausted"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 4);
    assert_eq!(got.json()["provider_code"], "down");
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_as_unsent() {
    let rig = Rig::new(
        "routes: []\n",
        "providers:\n  gone: {base_url: 'http://127.0.0.1:9'}\nbackoff: {base_ms: 10, cap_ms: 50, floor_ms: 10}\n",
    )
    .await;
    let got = rig.get("/gone/things").await;
    assert_eq!(got.status, 504, "{got:?}");
    assert_eq!(got.json()["sent"], false);
    let got = rig.call("POST", "/gone/things", &[], "{}").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (422, "not_applied"), "{got:?}");
    assert_eq!(got.json()["effect"], "not_applied");
    let got = rig.get("/nowhere/things").await;
    assert_eq!(got.status, 404);
    assert!(String::from_utf8_lossy(&got.body).contains("openai"));
}

#[tokio::test]
async fn one_key_is_one_scope_however_it_is_spelled() {
    let scenario =
        "routes:\n  - match: 'GET /things'\n    respond: {status: 429, headers: {Retry-After: '3000'}, body: {}}\n";
    let rig = Rig::new(scenario, "").await;
    // `c2tfOTo=` is `sk_9:`
    for spelled in ["Bearer sk_9", "bearer sk_9", "BEARER  sk_9 ", "Basic c2tfOTo=", "basic c2tfOTo="] {
        rig.call("GET", "/p/things", &[("authorization", spelled)], "").await;
    }
    rig.call("GET", "/p/things", &[("x-api-key", "sk_9")], "").await;
    assert_eq!(rig.provider.arrivals().len(), 1);
    rig.call("GET", "/p/things", &[("authorization", "Bearer sk_8")], "").await;
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn an_absurd_instant_does_not_close_a_scope_for_ever() {
    for limits in [
        "x-ratelimit-remaining: '0', x-ratelimit-reset: '99999999999999999999'",
        "x-ratelimit-remaining-requests: '0', x-ratelimit-reset-requests: '99999999999999999h'",
        "RateLimit: '\"a\";r=0;t=999999999999999'",
    ] {
        let scenario =
            format!("routes:\n  - match: 'GET /things'\n    respond: {{headers: {{{limits}}}, body: {{}}}}\n");
        let rig = Rig::new(&scenario, "").await;
        for _ in 0..2 {
            let got = rig.get("/p/things").await;
            assert_eq!(got.status, 200, "{limits}: {got:?}");
        }
    }
    for after in ["99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let respond = format!("{{status: 429, headers: {{Retry-After: '{after}'}}, body: {{}}}}");
        let rig = Rig::new(&format!("routes:\n  - match: 'GET /things'\n    respond: {respond}\n"), "").await;
        assert_eq!(rig.get("/p/things").await.header("forbear-outcome"), "budget_exhausted");
        let later = rig.get("/p/things").await;
        let seconds = later.header("retry-after").parse::<u64>().unwrap();
        assert!((30 * 86_400..=31 * 86_400 + 1).contains(&seconds), "{after}: {seconds}");
        assert_eq!(rig.provider.arrivals().len(), 1);
    }
}

#[tokio::test]
async fn a_credential_that_the_provider_says_back_is_not_recorded() {
    let scenario = "
routes:
  - match: 'GET /echo'
    respond:
      status: 429
      headers: {retry-after: 'Bearer sk-secret-0123456789', x-should-retry: 'sk-secret-0123456789'}
      body: {error: {code: sk-secret-0123456789}}
";
    let rig = Rig::new(scenario, "").await;
    let got = rig.call("GET", "/p/echo", &[("authorization", "Bearer sk-secret-0123456789")], "").await;
    assert_eq!(got.status, 429);
    rig.running.stop().await;
    let reader = forbear_store::Reader::open(&rig.dir.path().join("data")).unwrap();
    let events = reader.events(forbear_core::ids::Seq(1), 100).unwrap();
    let text = serde_json::to_string(&events).unwrap();
    assert!(text.contains("[withheld]") && !text.contains("sk-secret"), "{text}");
}

#[tokio::test]
async fn a_read_is_on_record_for_whoever_looks_at_once() {
    let rig = Rig::new("routes: [{match: 'GET /x', respond: {body: {ok: true}}}]\n", "").await;
    let data = rig.running.data_dir();
    let client = Client::of_data_dir(data, "", Token::from_data_dir(data).ok()).unwrap();
    for _ in 0..20 {
        let answer = rig.get("/p/x").await;
        let story = client.action(answer.header("forbear-action")).await.unwrap();
        assert_eq!(story.action.outcome.as_deref(), Some("succeeded"));
    }
}

#[tokio::test]
async fn nothing_secret_of_a_request_is_recorded_wherever_it_stood_and_however_it_is_spelled() {
    let scenario = "
routes:
  - match: 'GET /basic'
    respond: {status: 400, body: {error: {code: 'no user somebody-0815 here'}}}
  - match: 'GET /password'
    respond: {status: 429, headers: {retry-after: 'open-sesame'}}
  - match: 'GET /beside'
    respond: {status: 400, body: {error: {code: 'bad OTHER-account-0815'}}}
  - match: 'GET /case'
    respond: {status: 429, headers: {retry-after: 'SK-SECRET-0123456789'}, body: {error: {code: sk-secret-0123456789}}}
  - match: 'GET /query'
    respond: {status: 400, body: {error: {code: 'key IN-the-query-0815'}}}
";
    let rig = Rig::new(scenario, "backoff: {base_ms: 10, cap_ms: 50, floor_ms: 10}\n").await;
    let basic = ("authorization", "Basic c29tZWJvZHktMDgxNTpvcGVuLXNlc2FtZQ==");
    let bearer = ("authorization", "Bearer sk-Secret-0123456789");
    for (path, fields) in [
        ("/p/basic", vec![basic]),
        ("/p/password", vec![basic]),
        ("/p/beside", vec![bearer, ("x-api-key", "other-account-0815")]),
        ("/p/beside", vec![("cookie", "lang=en; sid=other-account-0815")]),
        ("/p/case", vec![bearer]),
        ("/p/query?a=1&key=in-the-query-0815", vec![bearer]),
        ("/p/query?access_token=in%2Dthe-query-0815", vec![]),
    ] {
        let got = rig.call("GET", path, &fields, "").await;
        assert!(matches!(got.status, 400 | 429), "{path}: {got:?}");
    }
    rig.running.stop().await;
    let reader = forbear_store::Reader::open(&rig.dir.path().join("data")).unwrap();
    let text = serde_json::to_string(&reader.events(forbear_core::ids::Seq(1), 100).unwrap()).unwrap();
    let text = text.to_ascii_lowercase();
    assert!(text.matches("[withheld]").count() >= 7, "{text}");
    for secret in ["somebody-0815", "open-sesame", "other-account", "sk-secret", "in-the-query"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[tokio::test]
async fn a_credential_that_is_there_twice_has_two_readings_and_is_refused() {
    let rig = Rig::new("routes: [{match: 'GET /x', respond: {body: {ok: true}}}]\n", "").await;
    for name in ["authorization", "x-api-key"] {
        let got = rig.call("GET", "/p/x", &[(name, "Bearer one"), (name, "Bearer two")], "").await;
        assert_eq!(got.status, 400, "{got:?}");
        assert!(got.json()["detail"].as_str().unwrap().contains(name), "{got:?}");
        assert!(!String::from_utf8_lossy(&got.body).contains("two"), "{got:?}");
    }
    assert_eq!(rig.provider.arrivals().len(), 0);
    // Several different ones are one account and what goes with it.
    let got = rig.call("GET", "/p/x", &[("authorization", "Bearer one"), ("x-api-key", "two")], "").await;
    assert_eq!((got.status, rig.provider.arrivals().len()), (200, 1));
}
