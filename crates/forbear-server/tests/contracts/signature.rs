//! Calls that are signed over their host and their time, as those to AWS.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;

use crate::rig::Rig;

const SCENARIO: &str = "
routes:
  - match: GET /x
    then:
      - {status: 503, headers: {Retry-After: '2'}, body: {}}
      - {body: {ok: true}}
";
const POLICY: &str = "providers: {p: {base_url: $BASE, signature_seconds: 300}}\n";

async fn ask(rig: &Rig, host: &str, signed_at: &str) -> (u16, String) {
    let signature =
        "AWS4-HMAC-SHA256 Credential=AKID/20260101/r/s/aws4_request, SignedHeaders=host;x-amz-date, Signature=aa";
    let request = Request::get("/p/x").header("host", host).header("authorization", signature);
    let got = rig.send(request.header("x-amz-date", signed_at).body(Full::new(Bytes::new())).unwrap()).await;
    (got.status, got.header("forbear-outcome").to_owned())
}

#[tokio::test]
async fn a_call_is_signed_for_its_provider_and_lives_as_long_as_its_signature() {
    let rig = Rig::new(SCENARIO, POLICY).await;
    let host = rig.provider.base_url().trim_start_matches("http://").to_owned();
    let now = jiff::Timestamp::now();
    let stamp = |at: jiff::Timestamp| at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let ago = |seconds: i64| stamp(now - jiff::SignedDuration::from_secs(seconds));

    assert_eq!(ask(&rig, "127.0.0.1:1", &stamp(now)).await.0, 400);
    assert_eq!(ask(&rig, &host, &ago(400)).await, (504, "deadline_exhausted".into()));
    assert_eq!(rig.provider.arrivals().len(), 0, "neither was sent");

    // The wait that is asked for ends after the signature does.
    assert_eq!(ask(&rig, &host, &ago(299)).await, (504, "deadline_exhausted".into()));
    assert_eq!(rig.provider.arrivals().len(), 1);
    let rig = Rig::new(SCENARIO, POLICY).await;
    let host = rig.provider.base_url().trim_start_matches("http://").to_owned();
    assert_eq!(ask(&rig, &host, &stamp(now)).await, (200, "succeeded".into()));
    assert_eq!(rig.provider.arrivals().len(), 2);
}
