//! What the watch lets pass and what it refuses.

use super::*;

const OK: &str = "GET /p/x HTTP/1.1\r\nHost: a\r\n\r\n";

fn follow_whole(bytes: &[u8]) -> Step {
    Framing::new().follow(bytes)
}

/// Shows the bytes in pieces of `size`, as a socket might, and gives what passed with the last word.
fn follow_in_pieces(bytes: &[u8], size: usize) -> (Vec<u8>, Option<Step>) {
    let (mut framing, mut held, mut passed) = (Framing::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        held.extend_from_slice(piece);
        match framing.follow(&held) {
            Step::Pass(n) => passed.extend(held.drain(..n)),
            Step::Refuse(n, refusal) => {
                passed.extend(held.drain(..n));
                return (passed, Some(Step::Refuse(0, refusal)));
            }
            Step::Broken(n, why) => {
                passed.extend(held.drain(..n));
                return (passed, Some(Step::Broken(0, why)));
            }
        }
    }
    (passed, None)
}

fn detail(head: &str) -> &'static str {
    match follow_whole(head.as_bytes()) {
        Step::Refuse(0, refusal) => refusal.detail,
        other => panic!("{head:?}: {other:?}"),
    }
}

#[test]
fn one_reading_passes() {
    for head in [
        OK,
        "\r\n\r\nGET /p/x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /p/x HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: a:80\r\n\r\n",
        "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        "POST /a|b/{c}/d\"e\"?x=[1]&y=^`z HTTP/1.1\r\nHost:\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST /p/%2F//.. HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
    ] {
        let bytes = head.as_bytes();
        assert_eq!(follow_whole(bytes), Step::Pass(bytes.len()), "{head:?}");
        for size in [1, 2, 3, 7] {
            assert_eq!(follow_in_pieces(bytes, size), (bytes.to_vec(), None), "{head:?} in pieces of {size}");
        }
    }
}

/// A body is anybody's bytes, also where it comes in one piece with the end of a head that came in two.
#[test]
fn line_ends_of_a_body_are_its_own() {
    let whole = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n{\n\"a\":1}".as_bytes();
    for size in 1..=whole.len() {
        assert_eq!(follow_in_pieces(whole, size), (whole.to_vec(), None), "in pieces of {size}");
    }
}

#[test]
fn what_two_parsers_read_differently_is_refused_on_any_request_of_a_connection() {
    let host = "Host: a\r\n";
    for head in [
        format!("POST /p HTTP/1.1\r\n{host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc"),
        format!("POST /p HTTP/1.1\r\n{host}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
        format!("POST /p HTTP/1.1\r\n{host}Content-Length: 3, 3\r\n\r\nabc"),
        format!("POST /p HTTP/1.1\r\n{host}Content-Length: +3\r\n\r\nabc"),
        format!("POST /p HTTP/1.1\r\n{host}Content-Length: 0x3\r\n\r\nabc"),
        format!("POST /p HTTP/1.1\r\n{host}Content-Length:\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Content-Length: 18446744073709551616\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding: identity\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        format!("POST /p HTTP/1.1\r\n{host}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
        "POST /p HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        format!("GET /p HTTP/1.1\r\n{host}X: a\r\n b\r\n\r\n"),
        format!("GET /p HTTP/1.1\r\n X: a\r\n{host}\r\n"),
        format!("GET /p HTTP/1.1\r\n{host}X: a\rb\r\n\r\n"),
        format!("GET /p HTTP/1.1\r\n{host}X: a\nY: b\r\n\r\n"),
        format!("GET /p HTTP/1.1\r\n{host}X: a\r\n\n"),
        format!("GET /p HTTP/1.1\n{host}\r\n"),
        "GET /p HTTP/1.1\nHost: a\n\n".into(),
        format!("\nGET /p HTTP/1.1\r\n{host}\r\n"),
        format!("\r\n\r\n\r\n\r\n\r\nGET /p HTTP/1.1\r\n{host}\r\n"),
        format!("GET /p#x HTTP/1.1\r\n{host}\r\n"),
        format!("GET /p?a#x HTTP/1.1\r\n{host}\r\n"),
        format!("GET /p q HTTP/1.1\r\n{host}\r\n"),
        format!("GET /p<> HTTP/1.1\r\n{host}\r\n"),
        format!("GET  /p HTTP/1.1\r\n{host}\r\n"),
        format!("GET /p HTTP/1.1\r\n{host}{host}\r\n"),
        "GET /p HTTP/1.1\r\nX: a\r\n\r\n".into(),
        "GET /p HTTP/1.1\r\nHost: a/b\r\n\r\n".into(),
        "GET /p HTTP/1.1\r\nHost: u@a\r\n\r\n".into(),
        format!("GET /p HTTP/2.0\r\n{host}\r\n"),
        format!("GET /p HTTP/1.1\r\n{host}X\r\n\r\n"),
        format!("GET /p HTTP/1.1\r\n{host}X: a\0\r\n\r\n"),
        "\x16\x03\x01\x02\x00\x01\x00".into(),
    ] {
        // Empty lines before a head may pass; they are no part of it.
        let step = follow_whole(head.as_bytes());
        assert!(matches!(step, Step::Refuse(0 | 8, _)), "{head:?}: {step:?}");
        for size in [1, 2, 5] {
            let (passed, last) = follow_in_pieces(head.as_bytes(), size);
            assert!(passed.iter().all(|b| b"\r\n".contains(b)), "{head:?} in pieces of {size}: {passed:?}");
            assert!(matches!(last, Some(Step::Refuse(..))), "{head:?} in pieces of {size}: {last:?}");
        }
        if !head.starts_with(['\r', '\n']) {
            let second = format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nxx{head}");
            let step = follow_whole(second.as_bytes());
            assert!(matches!(step, Step::Refuse(n, _) if n == second.len() - head.len()), "{head:?}: {step:?}");
        }
    }
}

#[test]
fn targets_pass_just_if_the_type_that_carries_them_keeps_every_byte() {
    for byte in 0x21..=0x7eu8 {
        for target in [format!("/x{}y", char::from(byte)), format!("/x?{}y", char::from(byte))] {
            let kept = http::Uri::try_from(&*target).is_ok_and(|u| u.to_string() == target);
            assert_eq!(inspect_target(&target).is_ok(), kept, "{target}");
        }
    }
    for target in ["/\u{fc}", "/?\u{fc}", "x", "a:443", "http://a/", "http://a", "*"] {
        assert_eq!(inspect_target(target).is_ok(), http::Uri::try_from(target).is_ok(), "{target}");
    }
}

#[test]
fn the_words_name_the_fault() {
    assert_eq!(detail("GET / HTTP/1.1\r\nA: b\r\n\r\n"), BAD_HOST.detail);
    assert_eq!(detail("GET /#a HTTP/1.1\r\nHost: b\r\n\r\n"), FRAGMENT.detail);
    assert_eq!(detail("GET / HTTP/1.1\r\nHost : b\r\n\r\n"), BAD_FIELD_NAME.detail);
}

#[test]
fn a_body_that_is_none_ends_the_connection() {
    let head = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, ok) in [
        ("5\r\nhello\r\n0\r\n\r\n", true),
        ("5;x=\"y\"\r\nhello\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", true),
        ("0000000000000005\r\nhello\r\n00\r\n\r\n", true),
        ("5\nhello\r\n0\r\n\r\n", false),
        ("5\r\nhello0\r\n\r\n", false),
        ("5\r\nhello\n0\r\n\r\n", false),
        ("5 \r\nhello\r\n0\r\n\r\n", false),
        ("0x5\r\nhello\r\n0\r\n\r\n", false),
        ("-5\r\nhello\r\n0\r\n\r\n", false),
        ("\r\nhello\r\n0\r\n\r\n", false),
        ("00000000000000005\r\nhello\r\n0\r\n\r\n", false),
        ("5;a\nb\r\nhello\r\n0\r\n\r\n", false),
        ("5\r\nhello\r\n0\r\nX: a\n\r\n", false),
        ("5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", false),
        ("5\r\nhello\r\n0\r\nX: a\rb\r\n\r\n", false),
        ("5\r\nhello\r\n0\r\n\n", false),
    ] {
        let whole = format!("{head}{body}{OK}");
        let step = follow_whole(whole.as_bytes());
        assert_eq!(step == Step::Pass(whole.len()), ok, "{body:?}: {step:?}");
        let (passed, last) = follow_in_pieces(whole.as_bytes(), 1);
        assert_eq!((passed.len() == whole.len(), last.is_none()), (ok, ok), "{body:?}: {last:?}");
    }
}

#[test]
fn bounds_hold() {
    let with = |fields: String| format!("GET /p HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for (bytes, ok) in [(3_500, true), (16_000, true), (65_000, true), (70_000, false)] {
        let head = with(format!("Cookie: {}\r\n", "c".repeat(bytes)));
        for (passed, last) in [follow_in_pieces(head.as_bytes(), head.len()), follow_in_pieces(head.as_bytes(), 4096)] {
            assert_eq!(passed.len() == head.len(), ok, "{bytes}");
            assert_eq!(last, (!ok).then_some(Step::Refuse(0, HEAD_TOO_LARGE)), "{bytes}");
        }
    }
    // It need not end to be too large.
    let endless = format!("GET /{}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(follow_whole(endless.as_bytes()), Step::Refuse(0, HEAD_TOO_LARGE));
    assert!(matches!(follow_whole(with("X: a\r\n".repeat(99)).as_bytes()), Step::Pass(_)));
    assert_eq!(follow_whole(with("X: a\r\n".repeat(100)).as_bytes()), Step::Refuse(0, TOO_MANY_HEADERS));
    let chunked = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let trailers = format!("{chunked}0\r\nX: {}", "x".repeat(20_000));
    assert!(matches!(follow_whole(trailers.as_bytes()), Step::Broken(..)));
    let extensions = format!("{chunked}{}", "1;abcdefghijklmnop\r\nx\r\n".repeat(1100));
    assert!(matches!(follow_whole(extensions.as_bytes()), Step::Broken(..)));
}
