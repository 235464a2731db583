//! Answers that lay in our own send buffer when their agent left: such a write is not done a second time.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::rig::Rig;

const PATIENCE: Duration = Duration::from_secs(10);

const ANSWERS: &str = "
routes:
  - match: 'POST /w'
    respond: {status: 201, effect: {name: w}, bytes: 300000}
  - match: 'POST /small'
    respond: {status: 201, effect: {name: w}, body: {ok: true}}
";

fn request(path: &str, fields: &str) -> String {
    format!(
        "POST /p{path} HTTP/1.1\r\nHost: forbear\r\nAuthorization: Bearer k1\r\n{fields}Content-Length: 2\r\n\r\n{{}}"
    )
}

/// An agent with hardly any room for an answer.
async fn narrow(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(address).await.unwrap()
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    timeout(PATIENCE, socket.read_exact(&mut head)).await.expect("an answer").unwrap();
    let mut rest = vec![0; 400_000];
    let _ = socket.read(&mut rest).await;
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[tokio::test]
async fn an_answer_of_which_one_byte_was_read_was_not_told() {
    for (n, (resets, stays_ms, marked)) in
        [(false, 0, false), (false, 400, false), (true, 0, false), (true, 400, false), (false, 400, true)]
            .into_iter()
            .enumerate()
    {
        let rig = Rig::new(ANSWERS, "").await;
        let address = rig.running.addr();
        let mut agent = narrow(address).await;
        agent.write_all(request("/w", "").as_bytes()).await.unwrap();
        let mut byte = [0];
        timeout(PATIENCE, agent.read_exact(&mut byte)).await.expect("an answer").unwrap();
        // sleep: longer than an end rests whose answer was taken
        tokio::time::sleep(Duration::from_millis(stays_ms)).await;
        if resets {
            agent.set_zero_linger().unwrap();
        }
        drop(agent);
        let mark = if marked { "X-Stainless-Retry-Count: 1\r\n" } else { "" };
        let again = ask(address, &request("/w", mark)).await;
        assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1), "{n}: {again}");
    }
}

#[tokio::test]
async fn what_was_taken_whole_may_be_asked_for_again() {
    // The connection stays, is closed by the agent, or by its answer: equal writes that are meant to be equal.
    for fields in ["", "Connection: close\r\n"] {
        for (path, bytes) in [("/w", 300_000), ("/small", 11)] {
            let rig = Rig::new(ANSWERS, "").await;
            for n in 1..=3 {
                let mut agent = narrow(rig.running.addr()).await;
                agent.write_all(request(path, fields).as_bytes()).await.unwrap();
                let (mut read, mut piece) = (0, vec![0; 65_536]);
                let mut head_bytes = None;
                while head_bytes.is_none_or(|head| read < head + bytes) {
                    let got = timeout(PATIENCE, agent.read(&mut piece)).await.expect("more").unwrap();
                    assert!(got > 0, "{path} {fields:?}: the end after {read}");
                    let at = piece[..got].windows(4).position(|w| w == b"\r\n\r\n");
                    head_bytes = head_bytes.or(at.map(|at| read + at + 4));
                    read += got;
                }
                assert!(piece.len() > 12 && rig.provider.arrivals().len() == n, "{path} {fields:?} {n}");
            }
        }
    }
}
