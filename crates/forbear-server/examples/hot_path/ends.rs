//! Both ends of a call, as little as they can be: bytes that are written, bytes that are waited for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::Failure;

/// One call's bytes; its length and the end of its head are added.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    head: &'static str,
    body: &'static [u8],
}

/// Straight through, with fields as a client's library sends them.
pub(super) const READ: Call = Call {
    head: "GET /bench/v1/items?limit=1 HTTP/1.1\r\nHost: bench.example\r\nAccept: application/json\r\n\
           User-Agent: hot-path/1\r\nAuthorization: Bearer bench\r\n",
    body: b"",
};
/// Without a key: its intent and its result wait for the disk.
pub(super) const WRITE: Call = Call {
    head: "POST /bench/v1/items HTTP/1.1\r\nHost: bench.example\r\nContent-Type: application/json\r\n\
           User-Agent: hot-path/1\r\nAuthorization: Bearer bench\r\n",
    body: br#"{"name":"a small item","amount":1200,"currency":"eur"}"#,
};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\
                        Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n{\"id\":\"item_001\"}";
const HEAD_BYTES_MAX: u64 = 64 * 1024;

/// Answers every connection in a thread of its own; gives the address.
pub(super) fn answer_on_threads() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection ends when its other side is gone.
            std::thread::spawn(move || answer(&stream));
        }
    });
    Ok(address)
}

fn answer(stream: &TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(body_bytes) = head(&mut reader)? {
        std::io::copy(&mut (&mut reader).take(body_bytes), &mut std::io::sink())?;
        let mut writer = stream;
        writer.write_all(ANSWER)?;
    }
    Ok(())
}

/// Calls on one connection, each after the answer to the one before.
pub(super) fn call_in_turn(address: SocketAddr, call: Call, count: u64) -> Result<(), Failure> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(&stream);
    let length = if call.body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", call.body.len()) };
    let bytes = [call.head.as_bytes(), length.as_bytes(), b"\r\n", call.body].concat();
    for _ in 0..count {
        let mut writer = &stream;
        writer.write_all(&bytes)?;
        let body_bytes = head(&mut reader)?.ok_or("the server closed the connection")?;
        let mut body = vec![0; usize::try_from(body_bytes)?];
        reader.read_exact(&mut body)?;
        if !ANSWER.ends_with(&body) {
            return Err(format!("not the origin's answer: {}", String::from_utf8_lossy(&body)).into());
        }
    }
    Ok(())
}

/// Reads a head and gives the length of the body that it announces; nothing at the connection's end.
fn head(reader: &mut BufReader<&TcpStream>) -> Result<Option<u64>, Failure> {
    let mut body_bytes = 0;
    let mut line = String::new();
    let mut head = reader.take(HEAD_BYTES_MAX);
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            return Ok(Some(body_bytes));
        }
        if let Some((_, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            body_bytes = value.trim().parse()?;
        }
    }
}
