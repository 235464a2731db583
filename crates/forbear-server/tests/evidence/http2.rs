//! Faults over HTTP/2: its own proofs, and what looks like one and is none.

use crate::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PUSH_PROMISE, RST_STREAM, SETTINGS, STREAM_MAX, WINDOW_UPDATE,
    data, fields, frame, goaway, head, http2, ok, reset, settings,
};
use crate::peer::{Ends, Peer, Reads};
use crate::table::{ByClass, CUT, DONE, REFUSED, Row, UNKNOWN, UNKNOWN_ONCE, check, rejected, row};

type Answers = fn(u32) -> Vec<u8>;

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Answers after the whole request.
fn after(name: &'static str, answers: Answers, ends: Ends, expects: ByClass) -> Row {
    row(name, http2(settings(&[]), Reads::Whole, answers, ends), expects, (1, 1, 1))
}

/// Answers while the body is still coming.
fn early(name: &'static str, answers: Answers, ends: Ends, expects: ByClass) -> Row {
    row(name, http2(settings(&[]), Reads::Head, answers, ends), expects, (1, 1, 0)).half()
}

fn resets() -> Vec<Row> {
    let one = |name, answers: Answers, expects| after(name, answers, Ends::Keep, expects).shared();
    vec![
        one("REFUSED_STREAM", |s| reset(s, REFUSED_STREAM), REFUSED),
        one("NO_ERROR without an answer", |s| reset(s, NO_ERROR), UNKNOWN),
        one("PROTOCOL_ERROR", |s| reset(s, PROTOCOL_ERROR), UNKNOWN),
        one("INTERNAL_ERROR", |s| reset(s, INTERNAL_ERROR), UNKNOWN),
        one("FLOW_CONTROL_ERROR", |s| reset(s, 3), UNKNOWN),
        one("STREAM_CLOSED", |s| reset(s, 5), UNKNOWN),
        one("CANCEL", |s| reset(s, CANCEL), UNKNOWN),
        one("ENHANCE_YOUR_CALM", |s| reset(s, ENHANCE_YOUR_CALM), UNKNOWN),
        one("INADEQUATE_SECURITY", |s| reset(s, 12), UNKNOWN),
        one("HTTP_1_1_REQUIRED", |s| reset(s, 13), UNKNOWN),
        one("a code nobody knows", |s| reset(s, 0xdead), UNKNOWN),
        one("REFUSED_STREAM after the head", |s| [head(s, "200", 0), reset(s, REFUSED_STREAM)].concat(), CUT),
        one("CANCEL inside the body", |s| [head(s, "200", 0), data(s, b"trun", 0), reset(s, CANCEL)].concat(), CUT),
        one("NO_ERROR inside the body", |s| [head(s, "200", 0), data(s, b"trun", 0), reset(s, NO_ERROR)].concat(), CUT),
    ]
}

fn early_answers() -> Vec<Row> {
    vec![
        early("413 while the body comes", |s| head(s, "413", END_STREAM), Ends::Silence, rejected(413)),
        early(
            "413 and NO_ERROR while the body comes",
            |s| [head(s, "413", END_STREAM), reset(s, NO_ERROR)].concat(),
            Ends::Keep,
            rejected(413),
        ),
        early(
            "400 and NO_ERROR",
            |s| [head(s, "400", END_STREAM), reset(s, NO_ERROR)].concat(),
            Ends::Keep,
            rejected(400),
        ),
        early("200 while the body comes", ok, Ends::Silence, DONE),
        early("200 and NO_ERROR", |s| [ok(s), reset(s, NO_ERROR)].concat(), Ends::Keep, DONE),
        early("CANCEL while the body comes", |s| reset(s, CANCEL), Ends::Keep, UNKNOWN_ONCE),
        early("closed while the body comes", |_| vec![], Ends::Fin, UNKNOWN_ONCE),
    ]
}

fn goaways() -> Vec<Row> {
    vec![
        after("GOAWAY below", |_| goaway(0, NO_ERROR), Ends::Keep, REFUSED),
        after("GOAWAY below, with an error", |_| goaway(0, INTERNAL_ERROR), Ends::Fin, REFUSED),
        after("GOAWAY at the stream, then closed", |s| goaway(s, NO_ERROR), Ends::Fin, UNKNOWN),
        after("GOAWAY at the stream, with an error", |s| goaway(s, INTERNAL_ERROR), Ends::Fin, UNKNOWN),
        after("GOAWAY above, then closed", |_| goaway(STREAM_MAX, NO_ERROR), Ends::Fin, UNKNOWN),
        after("GOAWAY above, then reset", |_| goaway(STREAM_MAX, NO_ERROR), Ends::Rst, UNKNOWN),
        after(
            "GOAWAY above, then below",
            |_| [goaway(STREAM_MAX, NO_ERROR), goaway(0, NO_ERROR)].concat(),
            Ends::Keep,
            REFUSED,
        ),
        after(
            "GOAWAY above, then at the stream, then closed",
            |s| [goaway(STREAM_MAX, NO_ERROR), goaway(s, NO_ERROR)].concat(),
            Ends::Fin,
            UNKNOWN,
        ),
        after("GOAWAY above, then an answer", |s| [goaway(STREAM_MAX, NO_ERROR), ok(s)].concat(), Ends::Keep, DONE),
        after("GOAWAY at the stream, then an answer", |s| [goaway(s, NO_ERROR), ok(s)].concat(), Ends::Keep, DONE),
        // A peer that takes the stream in and then says that it did not: the first word it gave of it was an answer.
        after("a head, then GOAWAY below", |s| [head(s, "200", 0), goaway(0, NO_ERROR)].concat(), Ends::Fin, CUT),
        early("GOAWAY below while the body comes", |_| goaway(0, NO_ERROR), Ends::Keep, REFUSED.map(once)),
    ]
}

/// The same for a body that could be streamed only once.
fn once(told: crate::table::Told) -> crate::table::Told {
    crate::table::Told { evidence: "refused", ..told }
}

fn connections() -> Vec<Row> {
    vec![
        after("closed after the request", |_| vec![], Ends::Fin, UNKNOWN),
        after("reset after the request", |_| vec![], Ends::Rst, UNKNOWN),
        after("no answer at all", |_| vec![], Ends::Keep, UNKNOWN).shared(),
        after("closed after the head", |s| head(s, "200", 0), Ends::Fin, CUT),
        after("reset inside the body", |s| [head(s, "200", 0), data(s, b"trun", 0)].concat(), Ends::RstOnceRead, CUT),
        after("closed inside the body", |s| [head(s, "200", 0), data(s, b"trun", 0)].concat(), Ends::Fin, CUT),
        after(
            "a length that is not kept",
            |s| {
                let fields = fields("200", Some("9"));
                [frame(HEADERS, END_HEADERS, s, &fields), data(s, b"trun", END_STREAM)].concat()
            },
            Ends::Keep,
            CUT,
        )
        .shared(),
        after("an answer", ok, Ends::Keep, DONE),
        after("a flood of 103, then an answer", |s| [head(s, "103", 0).repeat(200), ok(s)].concat(), Ends::Keep, DONE),
    ]
}

fn garbage() -> Vec<Row> {
    let one = |name, answers: Answers| after(name, answers, Ends::Silence, UNKNOWN);
    vec![
        one("HTTP/1.1 where frames belong", |_| b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
        one("a frame larger than allowed", |s| frame(HEADERS, END_HEADERS, s, &vec![0; 20_000])),
        one("DATA on no stream", |_| data(0, b"x", 0)),
        one("DATA before the head", |s| data(s, b"x", END_STREAM)),
        one("fields that cannot be decoded", |s| frame(HEADERS, END_HEADERS | END_STREAM, s, &[0xff; 8])),
        // Here the stream is the victim, not the connection.
        after("a head without a status", |s| frame(HEADERS, END_HEADERS | END_STREAM, s, &[]), Ends::Keep, UNKNOWN)
            .shared(),
        one("SETTINGS of an odd length", |_| frame(SETTINGS, 0, 0, &[0; 5])),
        one("RST_STREAM of a wrong length", |s| frame(RST_STREAM, 0, s, &[0; 3])),
        one("an answer on a stream nobody opened", |_| ok(99)),
        one("a promise nobody allowed", |s| frame(PUSH_PROMISE, END_HEADERS, s, &[0, 0, 0, 2, 0x82])),
        one("a window update of nothing", |_| frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        one("a head without end", |s| {
            [frame(HEADERS, 0, s, &fields("200", None)), frame(CONTINUATION, 0, s, &[0; 1000]).repeat(300)].concat()
        }),
    ]
}

fn keys(peer: &Peer) -> String {
    format!("base_url: http://{}\n    http2_prior_knowledge: true", peer.address)
}

const SOON: &str = "upstream: {head_timeout_seconds: 1}\n";

#[tokio::test]
async fn only_a_refusal_of_the_peers_own_proves_that_a_stream_was_not_processed() {
    check(resets().into_iter().chain(goaways()).collect(), keys, SOON).await;
}

#[tokio::test]
async fn an_early_answer_is_the_answer() {
    check(early_answers(), keys, SOON).await;
}

#[tokio::test]
async fn what_ends_or_confuses_a_connection_proves_nothing() {
    check(connections().into_iter().chain(garbage()).collect(), keys, SOON).await;
}
