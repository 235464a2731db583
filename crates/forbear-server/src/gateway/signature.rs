//! Signatures of AWS's kind (SigV4), which cover the host and the time: a call that is signed for Forbear's own host would be
//! refused by the provider with words that help nobody, and one that is held for long is refused too.

use forbear_api::problem::Kind;
use forbear_core::time::Wall;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, Request};

use super::own::Refusal;

const SCHEME: &str = "AWS4-";
const SIGNED_AT: HeaderName = HeaderName::from_static("x-amz-date");

/// Until when the signature is taken, for a call that has one.
pub(super) fn check<B>(request: &Request<B>, host: &str, lives_seconds: u64) -> Result<Option<Wall>, Refusal> {
    let fields = request.headers();
    let Some(signature) = text(fields, &AUTHORIZATION).filter(|value| value.starts_with(SCHEME)) else {
        return Ok(None);
    };
    let asked = text(fields, &HOST).or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    let asked = asked.unwrap_or_default();
    if covers_host(signature) && !asked.eq_ignore_ascii_case(host) {
        let what = format!("the signature is for the host `{asked}`, and the provider is `{host}`");
        return Err(Refusal::new(Kind::SignedElsewhere, what));
    }
    let signed_at = text(fields, &SIGNED_AT).and_then(|at| at.parse::<jiff::Timestamp>().ok());
    Ok(signed_at.map(|at| Wall(at.as_millisecond()).plus_ms(lives_seconds.saturating_mul(1_000))))
}

fn covers_host(signature: &str) -> bool {
    let names = signature.split(',').find_map(|part| part.trim().split_once("SignedHeaders=").map(|(_, names)| names));
    names.is_some_and(|names| names.split(';').any(|name| name == "host"))
}

fn text<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    fields.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request, \
                          SignedHeaders=content-type;host;x-amz-date, Signature=aa";

    fn ask(authorization: &str, host: &str, at: &str) -> Result<Option<i64>, String> {
        let request = Request::builder().header("authorization", authorization).header("host", host);
        let request = request.header("x-amz-date", at).body(()).unwrap();
        let checked = check(&request, "s3.us-east-1.amazonaws.com", 300);
        checked.map(|until| until.map(|at| at.0)).map_err(|refusal| format!("{refusal:?}"))
    }

    #[test]
    fn a_signature_for_another_host_is_refused_and_every_one_has_an_end() {
        let day = "20260101T000000Z";
        let ends = Ok(Some(1_767_225_600_000 + 300_000));
        assert_eq!(ask(SIGNED, "s3.us-east-1.amazonaws.com", day), ends);
        assert_eq!(ask(SIGNED, "S3.us-east-1.amazonaws.com", day), ends);
        assert_eq!(ask(SIGNED, "s3.us-east-1.amazonaws.com", "yesterday"), Ok(None));
        let refused = ask(SIGNED, "127.0.0.1:8429", day).unwrap_err();
        assert!(refused.contains("127.0.0.1:8429") && refused.contains("s3.us-east-1.amazonaws.com"), "{refused}");
        assert_eq!(ask("Bearer AWS4-x", "127.0.0.1:8429", day), Ok(None));
        assert_eq!(ask(&SIGNED.replace("host;", ""), "127.0.0.1:8429", day), ends);
    }
}
