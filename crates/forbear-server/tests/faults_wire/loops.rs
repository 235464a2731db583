//! A provider's address that leads back to the server itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;

use crate::agent::{PATIENCE, idle, policy};
use crate::rig::{Rig, serve};

const ANY: &str = "routes:\n  - match: '* /{rest...}'\n    respond: {body: ok}\n";

#[tokio::test]
async fn a_call_that_comes_back_goes_no_further() {
    let (way, to) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(OnceCell::new()));
    let (base_url, turns) = (format!("http://{}", way.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let (target, count) = (Arc::clone(&to), Arc::clone(&turns));
    tokio::spawn(async move {
        while let Ok((mut from, _)) = way.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut to = TcpStream::connect(*target.get().unwrap()).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let running = serve(&format!("{base_url}/p"), &policy("", false, ""), &dir).await;
    to.set(running.addr()).unwrap();
    let rig = Rig { running, dir, ..Rig::new(ANY, "").await };
    for (method, fields) in [("GET", vec![]), ("POST", vec![("cdn-loop", "other-cdn; v=1")])] {
        let before = turns.load(Ordering::SeqCst);
        let got = rig.call(method, "/p/x", &fields, "").await;
        assert_eq!((got.status, got.header("forbear-outcome")), (400, "rejected"), "{got:?}");
        assert_eq!(got.json()["type"], "/-/problems/leads_back", "{got:?}");
        assert!(turns.load(Ordering::SeqCst) <= before + 1, "one turn");
    }
    idle(&rig, PATIENCE).await;
}

#[tokio::test]
async fn an_agents_own_hops_are_kept_and_one_forbear_behind_another_is_no_loop() {
    let rig = Rig::new(ANY, "").await;
    let dir = tempfile::tempdir().unwrap();
    let front = serve(&format!("http://{}/p", rig.running.addr()), "", &dir).await;
    let behind = Rig { running: front, dir, provider: rig.provider };
    let got = behind.call("GET", "/p/x", &[("cdn-loop", "other-cdn; v=1, third")], "").await;
    assert_eq!(got.status, 200, "{got:?}");
    let arrivals = behind.provider.arrivals();
    let hops = arrivals[0].headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cdn-loop"));
    let hops: Vec<_> = hops.map(|(_, value)| value.as_str()).collect();
    assert_eq!((hops.len(), hops[0]), (3, "other-cdn; v=1, third"), "{hops:?}");
    assert!(hops[1] != hops[2] && hops[1..].iter().all(|hop| hop.starts_with("forbear-")), "{hops:?}");
}
