use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// A server that answers one connection with these bytes and gives back what it read of the head.
fn once(answer: Vec<u8>) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0u8; 1];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            head.push(byte[0]);
        }
        // The client may have hung up on a long answer.
        let _ = stream.write_all(&answer);
        String::from_utf8(head).unwrap()
    });
    (address, thread)
}

fn json(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn client(address: &str) -> Client {
    Client::new(address, Some(Token::new("secret\n"))).unwrap()
}

#[tokio::test]
async fn the_token_and_the_filter_are_sent() {
    let (address, server) = once(json("200 OK", r#"{"items":[],"next":null}"#));
    let query = ActionQuery { task: Some("a b/c".into()), open: true, limit: Some(7), ..ActionQuery::default() };
    let page = client(&address).actions(&query).await.unwrap();
    assert_eq!(page, Page { items: vec![], next: None });
    let head = server.join().unwrap();
    assert!(head.starts_with("GET /-/v1/actions?task=a%20b%2Fc&open=true&limit=7 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer secret\r\n"), "{head}");
}

#[tokio::test]
async fn not_ready_is_an_answer_and_not_an_error() {
    let (address, _server) = once(json("503 Service Unavailable", r#"{"ready":false,"why":"shutting down"}"#));
    let ready = client(&address).ready().await.unwrap();
    assert_eq!(ready, Ready { ready: false, why: Some("shutting down".into()) });
}

#[tokio::test]
async fn no_server_says_how_to_start_one() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = client(&format!("http://{closed}")).scopes().await.unwrap_err();
    assert_eq!(error.code(), "FB5002");
    assert!(error.what_to_do().contains("forbear serve"), "{error}");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let problem = |kind| serde_json::to_string(&Problem::unsent(kind, "because")).unwrap();
    for (status, kind, code) in [
        ("401 Unauthorized", crate::Kind::Unauthorized, "FB5006"),
        ("404 Not Found", crate::Kind::NotFound, "FB5007"),
        ("400 Bad Request", crate::Kind::BadQuery, "FB5008"),
    ] {
        let (address, _server) = once(json(status, &problem(kind)));
        assert_eq!(client(&address).action("act_1").await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn another_program_on_the_port_is_named_as_such() {
    for answer in [json("200 OK", "<html>"), json("404 Not Found", "nope")] {
        let (address, _server) = once(answer);
        assert_eq!(client(&address).scopes().await.unwrap_err().code(), "FB5005");
    }
    let (address, _server) = once(b"SSH-2.0-OpenSSH\r\n".to_vec());
    assert_eq!(client(&address).scopes().await.unwrap_err().code(), "FB5004");
}

#[tokio::test]
async fn a_cut_or_endless_answer_is_an_error() {
    let (address, _server) = once(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[".to_vec());
    assert_eq!(client(&address).scopes().await.unwrap_err().code(), "FB5004");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY_BYTES_MAX + 1).into_bytes();
    let (address, _server) = once([head, vec![b' '; BODY_BYTES_MAX + 1]].concat());
    assert!(matches!(client(&address).scopes().await.unwrap_err(), ClientError::TooLong { .. }));
}

#[tokio::test(start_paused = true)]
async fn silence_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    assert_eq!(client(&address).scopes().await.unwrap_err().code(), "FB5003");
}

#[test]
fn only_plain_addresses_are_taken() {
    for bad in ["127.0.0.1:8429", "https://127.0.0.1", "http://a/b", "http://u:p@h", "ftp://x", "", "http://"] {
        assert_eq!(Client::new(bad, None).unwrap_err().code(), "FB5001", "{bad}");
    }
    for good in ["http://127.0.0.1:8429", "http://localhost/", "http://[::1]:8429"] {
        assert!(Client::new(good, None).is_ok(), "{good}");
    }
}

#[test]
fn a_token_never_shows() {
    assert_eq!(format!("{:?}", client("http://h")), r#"Client { authority: h, token: Some(Token(…)), from: None }"#);
}
