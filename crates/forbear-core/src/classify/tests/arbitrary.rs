//! Whatever a provider sends: no panic, no overflow, nothing unbounded, never earlier than it asked for.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::contract::{LimitHeader, LimitPart, ValueFormat};

const NAMES: [&str; 24] = [
    "retry-after",
    "retry-after-ms",
    "x-amz-retry-after",
    "date",
    "age",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "ratelimit-resettime",
    "ratelimit-name",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-resource",
    "x-rate-limit-reset",
    "x-should-retry",
    "content-encoding",
    "content-type",
    "sforce-limit-info",
    "x-odd-reset",
    "x-odd-prose",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop_oneof![Just(9_u8), 32_u8..=126, 128_u8..=255], 0..60),
        "[0-9]{1,30}(\\.[0-9]{0,12})?".prop_map(String::into_bytes),
        "-?([0-9]{1,22}(\\.[0-9]{1,4})?(ns|ms|s|m|h)){1,4}".prop_map(String::into_bytes),
        "\"[a-z]{1,4}\"(;(r|t|q|w)=-?[0-9]{1,15}){0,4}(, ?\"[a-z]\";r=0;t=[0-9]{1,15})?".prop_map(String::into_bytes),
        "limit=[0-9]{1,15}, remaining=[0-9]{1,3}, reset=[0-9]{1,15}".prop_map(String::into_bytes),
        "[0-9]{1,22}/[0-9]{1,22}".prop_map(String::into_bytes),
        (0_u64..=253_402_300_799).prop_map(|s| {
            httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(s)).into_bytes()
        }),
        Just(b"gzip".to_vec()),
        Just(b"true".to_vec()),
        Just(b"0".to_vec()),
    ]
}

fn body() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        Just(None),
        vec(any::<u8>(), 0..200).prop_map(Some),
        ("[0-9]{1,25}(\\.[0-9]{1,9})?", "\\PC{0,40}").prop_map(|(number, text)| {
            let body = json_body(&number, &text);
            Some(body.into_bytes())
        }),
    ]
}

fn json_body(number: &str, text: &str) -> String {
    let text = Value::from(format!("resets in {number}h {text}"));
    format!(
        r#"{{"retry_after":{number},"error":{{"resets_in_seconds":{number},"message":{text},"code":{text}}},"title":{text}}}"#
    )
}

fn contract() -> Contract {
    let header =
        |name: &str, format| LimitHeader { name: name.into(), reads: LimitPart::Reset, window: "*".into(), format };
    Contract {
        limit_headers: vec![
            header("sforce-limit-info", ValueFormat::Fraction),
            header("x-odd-*", ValueFormat::Prose),
            header("x-odd-reset", ValueFormat::EpochSFloat),
        ],
        codes: vec![
            code("body:error.code", "x", CodeMeaning::Exhausted),
            CodeRule {
                is: None,
                contains_any: vec!["a".into(), "h".into()],
                ..code("text", "", CodeMeaning::Throttled)
            },
            CodeRule { statuses: vec![200], ..code("body:title", "x", CodeMeaning::Rejected) },
            CodeRule { is: None, statuses: vec![477], ..code("", "", CodeMeaning::Unavailable) },
        ],
        waits: vec![
            WaitRule { at: "title".into(), format: ValueFormat::Prose, has: None, per_second: None },
            WaitRule {
                at: "retry_after".into(),
                format: ValueFormat::Auto,
                has: Some("error.resets_in_seconds".into()),
                per_second: Some("retry_after".into()),
            },
        ],
        ..Contract::default()
    }
}

fn assert_bounded(answer: &Classification) {
    assert!(answer.malformed.len() <= 16 && answer.windows.len() <= 64 && answer.contradictions.len() <= 16);
    assert!(answer.malformed.iter().all(|note| note.is_ascii() && note.len() <= 600));
    assert!(answer.code.as_ref().is_none_or(|code| code.len() <= 64));
    if let Some(boundary) = &answer.boundary {
        assert!(boundary.raw.is_ascii() && boundary.raw.len() <= 512, "{}", boundary.raw);
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_everything_is_bounded(
        status in any::<u16>(),
        fields in vec((0..NAMES.len(), value()), 0..12),
        body in body(),
        wall_ms in any::<i64>(),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(NAMES[name], HeaderValue::from_bytes(&value).unwrap());
        }
        let facts = ResponseFacts { status, headers: &headers, body: body.as_deref(), received: at(wall_ms) };
        for contract in [Contract::default(), contract()] {
            let answer = classify(&contract, Rank::UncertainWrite, &facts);
            assert_bounded(&answer);
            if let Some(boundary) = &answer.boundary {
                prop_assert_eq!(boundary.until, Wall(wall_ms).plus_ms(boundary.wait_ms));
            }
            let text = serde_json::to_string(&answer).unwrap();
            prop_assert_eq!(serde_json::from_str::<Classification>(&text).unwrap(), answer);
        }
    }

    #[test]
    fn a_boundary_is_never_earlier_than_the_largest_retry_after(
        status in prop_oneof![Just(429_u16), Just(503), Just(403), 400_u16..600],
        seconds in vec(0_u64..1_000_000_000, 1..4),
        others in vec((0..NAMES.len(), value()), 0..8),
        body in body(),
        wall_ms in 0_i64..4_000_000_000_000,
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in others {
            headers.append(NAMES[name], HeaderValue::from_bytes(&value).unwrap());
        }
        for seconds in &seconds {
            headers.append("retry-after", HeaderValue::from(*seconds));
        }
        let facts = ResponseFacts { status, headers: &headers, body: body.as_deref(), received: at(wall_ms) };
        let answer = classify(&contract(), Rank::Read, &facts);
        let asked_ms = seconds.iter().max().unwrap() * 1_000;
        let boundary = answer.boundary.expect("a valid Retry-After is a boundary");
        prop_assert!(boundary.wait_ms >= asked_ms, "{boundary:?} {asked_ms}");
        prop_assert!(boundary.until >= Wall(wall_ms).plus_ms(asked_ms));
    }
}
