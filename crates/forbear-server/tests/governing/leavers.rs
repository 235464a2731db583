//! Agents that leave as their answer comes, and ask again at once: the write is not done a second time.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::rig::Rig;

const ANSWERS: &str = "
routes:
  - match: 'POST /w'
    respond: {status: 201, delay_ms: 6, effect: {name: w}, body: {ok: true}}
";
/// Runtimes wake in whole milliseconds: before, at and after the answer.
const MOMENT: Duration = Duration::from_micros(250);
const MOMENTS: u32 = 40;
const RUNS: u32 = 320;
/// At once.
const AGENTS: u32 = 4;

fn request(n: u32) -> String {
    let body = format!("{{\"ref\":\"leaver-{n}\"}}");
    format!(
        "POST /p/w HTTP/1.1\r\nHost: forbear\r\nAuthorization: Bearer k1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Leaves after so many moments and asks again.
async fn leaves(address: std::net::SocketAddr, n: u32) -> u16 {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket.write_all(request(n).as_bytes()).await.unwrap();
    // sleep: when an agent leaves is what is tested
    tokio::time::sleep(MOMENT * (n / AGENTS % MOMENTS)).await;
    drop(socket);
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request(n).as_bytes()).await.unwrap();
    let mut head = [0; 12];
    tokio::time::timeout(Duration::from_secs(10), tokio::io::AsyncReadExt::read_exact(&mut socket, &mut head))
        .await
        .expect("an answer")
        .unwrap();
    String::from_utf8_lossy(&head[9..]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_leaves_as_its_answer_comes_and_asks_again_has_one_effect() {
    let rig = Rig::new(ANSWERS, "").await;
    let address = rig.running.addr();
    let mut answers = std::collections::BTreeMap::<u16, u32>::new();
    for round in 0..RUNS / AGENTS {
        let mut agents = JoinSet::new();
        for agent in 0..AGENTS {
            agents.spawn(leaves(address, round * AGENTS + agent));
        }
        for status in agents.join_all().await {
            *answers.entry(status).or_default() += 1;
        }
    }
    let arrivals = rig.provider.arrivals();
    let twice = (0..RUNS).filter(|n| {
        let wanted = format!("{{\"ref\":\"leaver-{n}\"}}");
        arrivals.iter().filter(|a| a.body.as_deref() == Some(wanted.as_bytes())).count() > 1
    });
    let twice: Vec<u32> = twice.collect();
    assert!(twice.is_empty(), "{twice:?} of {RUNS} were sent twice: {answers:?}");
}
