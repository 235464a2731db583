//! The configuration is read again while calls are under way: none is dropped, and limits hold at once.

use std::time::{Duration, Instant};

use forbear_api::Client;
use forbear_api::client::Token;
use forbear_lab::provider::{Options, Provider, Scenario};
use futures_util::future::join_all;

use crate::rig::{Got, Rig};

const SLOW: &str = "routes:\n  - match: 'GET /{x}'\n    respond: {status: 200, delay_ms: 400, body: {}}\n";

impl Rig {
    /// The file says this from now on, beside the provider `p`.
    fn writes(&self, text: &str) {
        let provider = format!("providers:\n  p:\n    base_url: {}\n", self.provider.base_url());
        let text = if text.contains("providers:") { text.to_owned() } else { format!("{text}\n{provider}") };
        std::fs::write(self.dir.path().join("forbear.yaml"), text).unwrap();
    }

    fn client(&self) -> Client {
        let token = Token::from_data_dir(self.running.data_dir()).unwrap();
        Client::new(&format!("http://{}", self.running.addr()), Some(token)).unwrap()
    }

    /// So many calls have come to the provider.
    async fn arrived(&self, calls: usize) {
        self.provider.wait_for_arrivals(calls, Duration::from_secs(10)).await.unwrap();
    }
}

fn limits(slots: u32) -> String {
    format!("shared_scope: {{max_concurrent_requests: {slots}}}\n")
}

#[tokio::test]
async fn who_stands_in_line_has_a_slot_as_soon_as_there_are_more() {
    let rig = Rig::new(SLOW, &limits(1)).await;
    let rig = &rig;
    let calls = join_all((0..4).map(|n| async move { rig.get(&format!("/p/{n}")).await.status }));
    let reload = async {
        rig.arrived(1).await;
        rig.writes(&limits(4));
        let reloaded = rig.client().reload_config().await.unwrap();
        assert!(reloaded.changed && reloaded.needs_restart.is_empty(), "{reloaded:?}");
        rig.arrived(4).await;
    };
    let (statuses, ()) = tokio::join!(calls, reload);
    assert_eq!(statuses, [200; 4]);
    let arrivals = rig.provider.arrivals();
    let first_answer = arrivals[0].head_written_at_ns.unwrap();
    assert!(arrivals.iter().all(|arrival| arrival.at_ns < first_answer), "they left beside the first");
    assert_eq!(arrivals.len(), 4);
}

#[tokio::test]
async fn fewer_slots_take_nobodys_away() {
    let rig = Rig::new(SLOW, &limits(4)).await;
    let rig = &rig;
    let call = |n: u32| async move { rig.get(&format!("/p/{n}")).await.status };
    let calls = join_all((0..4).map(call));
    let reload = async {
        rig.arrived(4).await;
        rig.writes(&limits(1));
        assert!(rig.client().reload_config().await.unwrap().changed);
        join_all((4..7).map(call)).await
    };
    let (first, then) = tokio::join!(calls, reload);
    assert_eq!((first, then), (vec![200; 4], vec![200; 3]));
    let arrivals = rig.provider.arrivals();
    for pair in arrivals[4..].windows(2) {
        assert!(pair[1].at_ns > pair[0].head_written_at_ns.unwrap(), "they leave one by one");
    }
}

#[tokio::test]
async fn a_file_with_faults_changes_nothing_and_is_told_line_by_line() {
    let rig = Rig::new(SLOW, &limits(3)).await;
    let before = rig.client().reload_config().await.unwrap();
    assert!(!before.changed);
    rig.writes("shared_scope: {max_concurrent_requests: 0, no_such_key: 1}\n");
    let error = rig.client().reload_config().await.unwrap_err().to_string();
    assert!(error.contains("no_such_key") && error.contains("forbear.yaml:1"), "{error}");
    assert_eq!(rig.get("/p/1").await.status, 200);
    std::fs::remove_file(rig.dir.path().join("forbear.yaml")).unwrap();
    let error = rig.client().reload_config().await.unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    rig.writes(&limits(3));
    assert_eq!(rig.client().reload_config().await.unwrap(), before, "as it was, and nothing of it changed");
}

#[tokio::test]
async fn a_provider_that_goes_away_answers_who_it_has_and_nobody_new() {
    let rig = Rig::new(SLOW, "").await;
    let reload = async {
        rig.arrived(1).await;
        rig.writes("providers:\n  q:\n    base_url: http://127.0.0.1:1\ndrain_seconds: 7\n");
        rig.client().reload_config().await.unwrap()
    };
    let (got, reloaded): (Got, _) = tokio::join!(rig.get("/p/1"), reload);
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(reloaded.needs_restart, ["drain_seconds"]);
    let got = rig.get("/p/1").await;
    assert!(got.status == 404 && got.json()["detail"].as_str().unwrap().contains("q"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

/// Counted at the provider: each call leaves once, however often the limits change around it.
#[tokio::test]
async fn under_load_no_call_is_lost_and_none_is_made_twice() {
    let fast = "routes:\n  - match: 'POST /{x}'\n    respond: {status: 201, delay_ms: 3, body: {}}\n";
    let rig = Rig::new(fast, &limits(8)).await;
    let rig = &rig;
    let until = Instant::now() + Duration::from_secs(2);
    let worker = |worker: usize| async move {
        let mut made = 0;
        while Instant::now() < until {
            let path = format!("/p/{worker}-{made}");
            let got = rig.call("POST", &path, &[("authorization", "k")], "{}").await;
            assert_eq!(got.status, 201, "{got:?}");
            made += 1;
        }
        made
    };
    let reloads = async {
        let mut loaded = 0_u32;
        while Instant::now() < until {
            rig.writes(&limits([1, 8, 3][loaded as usize % 3]));
            assert!(rig.client().reload_config().await.unwrap().changed);
            loaded += 1;
        }
        loaded
    };
    let (made, loaded) = tokio::join!(join_all((0..12).map(worker)), reloads);
    assert!(loaded > 10, "{loaded} reloads");
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), made.iter().sum::<usize>());
}

/// The old address has whom it had, the new one who comes now.
#[tokio::test]
async fn a_provider_that_moves_is_called_where_it_is() {
    let rig = Rig::new(SLOW, "").await;
    let moved = Provider::start(Scenario::from_yaml(SLOW).unwrap(), Options::default()).await.unwrap();
    let reload = async {
        rig.arrived(1).await;
        rig.writes(&format!("providers:\n  p:\n    base_url: {}\n", moved.base_url()));
        rig.client().reload_config().await.unwrap()
    };
    let (got, _) = tokio::join!(rig.get("/p/1"), reload);
    assert_eq!((got.status, rig.get("/p/2").await.status), (200, 200));
    assert_eq!((rig.provider.arrivals().len(), moved.arrivals().len()), (1, 1));
}

/// The file is read by each in its turn; what it says last holds.
#[tokio::test]
async fn reloads_at_once_come_one_after_another() {
    let rig = Rig::new(SLOW, &limits(1)).await;
    rig.writes(&limits(2));
    let client = rig.client();
    let reloads = join_all((0..8).map(|_| client.reload_config())).await;
    let changed = reloads.into_iter().filter(|reloaded| reloaded.as_ref().unwrap().changed).count();
    assert_eq!(changed, 1, "the first one finds it changed, and the others as it is");
}

/// What is under way is answered, whatever is read meanwhile.
#[tokio::test]
async fn a_reload_while_draining_keeps_nobody_from_the_end() {
    let rig = Rig::new(SLOW, &limits(1)).await;
    let reload = std::sync::Arc::clone(rig.running.reload());
    let stopping = async {
        rig.arrived(1).await;
        rig.running.shard().drain();
        rig.writes(&limits(5));
        reload.reload("test").await.unwrap()
    };
    let (got, reloaded) = tokio::join!(rig.get("/p/1"), stopping);
    assert!(got.status == 200 && reloaded.changed, "{got:?}");
    rig.running.stop().await;
}

/// The server's own address is the one that it listens on, whatever the file says by now.
#[tokio::test]
async fn no_provider_may_lead_back_to_where_the_server_listens() {
    let rig = Rig::new(SLOW, "").await;
    let own = rig.running.addr();
    rig.writes(&format!("listen: 127.0.0.1:1\nproviders:\n  p:\n    base_url: http://{own}\n"));
    let error = rig.client().reload_config().await.unwrap_err().to_string();
    assert!(error.contains("base_url"), "{error}");
}
