//! What holds a server at a step from outside: a door to the provider that can be shut, and a lock on its database.

use std::time::Duration;

use forbear_lab::provider::Provider;
use rusqlite::Connection;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::rig::Home;

/// A queue of so many, and one more, takes nobody else.
const QUEUE: u32 = 1;
const NOBODY_TAKES_IT: Duration = Duration::from_millis(150);
/// How long the lock is waited for.
const SOON: Duration = Duration::from_secs(15);

/// The way to the provider, which can be shut: who knocks then waits.
pub(crate) struct Door {
    pub(crate) addr: std::net::SocketAddr,
    passes: JoinHandle<TcpListener>,
    waiting: Vec<TcpStream>,
}

impl Door {
    /// Lets so many connections through, then none.
    pub(crate) async fn before(provider: &Provider, connections: usize) -> Self {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port is free");
        let listener = socket.listen(QUEUE).expect("it can be listened on");
        let (addr, to) = (listener.local_addr().expect("it is bound"), provider.addr());
        let passes = tokio::spawn(async move {
            for _ in 0..connections {
                let (mut from, _) = listener.accept().await.expect("somebody comes");
                let mut to = TcpStream::connect(to).await.expect("the provider listens");
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            }
            listener
        });
        Self { addr, passes, waiting: Vec::new() }
    }

    /// Fills the queue of who waits, so that the next one's connect hangs.
    pub(crate) async fn shut(&mut self) {
        while let Ok(stream) = timeout(NOBODY_TAKES_IT, TcpStream::connect(self.addr)).await {
            self.waiting.push(stream.expect("it is queued"));
            assert!(self.waiting.len() < 10, "the queue never fills");
        }
    }
}

/// The database, locked against its writer.
pub(crate) struct Lock {
    _held: Connection,
}

impl Lock {
    pub(crate) fn take(home: &Home) -> Self {
        let connection = Connection::open(home.data.join("journal.db")).expect("the database can be opened");
        connection.busy_timeout(SOON).expect("it can be set");
        connection.execute_batch("BEGIN IMMEDIATE").expect("the lock is had between two groups");
        Self { _held: connection }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.passes.abort();
    }
}
