//! Step 6: the process is really killed while two writes are on the wire and done, and started again on what it
//! remembers. The keyed write is repeated with its key; the one without is not sent a second time.

use std::path::Path;
use std::time::Duration;

use forbear_core::policy::Policy;
use serde_json::json;

use super::STEP_TIME_MAX;
use super::agent::{Answer, Call, ask};
use super::gateway::{Gateway, Launch};
use super::measure::keys;
use super::report::{Findings, Step};
use super::setup::{Provided, configuration, keyed};

pub(super) const NAME: &str = "a killed process repeats the key and not the effect";

const KEY: &str = "drill-transfer-2";
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
/// After the restart the provider replays at once; only a write that is sent anew meets its silence.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

pub(super) const SCENARIO: &str = "\
name: drill-killed
routes:
  - match: POST /v1/transfers
    idempotency: {header: Idempotency-Key, replay_headers: {Idempotent-Replayed: 'true'}}
    respond:
      status: 201
      effect: {name: transfer, id: '{{id tr_}}'}
      fault: {at: after_commit, end: stall}
      body: {id: '{{effect.id}}'}
  - match: POST /v1/notes
    respond:
      status: 201
      effect: {name: note, id: '{{id no_}}'}
      fault: {at: after_commit, end: stall}
      body: {id: '{{effect.id}}'}
";

pub(super) async fn run(program: &Path, dir: &Path, policy: &Policy) -> Step {
    match killed_and_back(program, dir, policy).await {
        Ok((provided, transfer, note)) => judge(&provided, &transfer, &note),
        Err(why) => Step::unmeasured(NAME, why),
    }
}

type Told = Result<Answer, String>;

async fn killed_and_back(program: &Path, dir: &Path, policy: &Policy) -> Result<(Provided, Told, Told), String> {
    let provided = Provided::start("killed", SCENARIO).await.map_err(|e| e.to_string())?;
    let configuration = configuration(policy, json!({provided.name: keyed(&provided)}));
    let launch = Launch { program, dir, configuration: &configuration };

    let gateway = Gateway::start(&launch).await.map_err(|e| e.to_string())?;
    let server = gateway.addr();
    let (first, second) = (transfer(&provided), note(&provided));
    let asking = async { tokio::join!(ask(server, &first, STEP_TIME_MAX), ask(server, &second, STEP_TIME_MAX)) };
    let killing = async {
        let both = |arrivals: &[crate::provider::Arrival]| arrivals.iter().filter(|a| a.effect.is_some()).count() == 2;
        let arrived = provided.provider.wait_until(ARRIVES_WITHIN, both).await;
        gateway.kill().await;
        arrived.map(|_| ()).map_err(|seen| format!("{} of 2 writes arrived before the kill", seen.len()))
    };
    let ((before, _), arrived) = tokio::join!(asking, killing);
    arrived?;
    if let Ok(answer) = before {
        return Err(format!(
            "the provider is silent, and yet the agent was answered {} before the kill",
            answer.status
        ));
    }

    let gateway = Gateway::start(&launch).await.map_err(|e| format!("started again: {e}"))?;
    let server = gateway.addr();
    let told = tokio::join!(ask(server, &first, ANSWERED_WITHIN), ask(server, &second, ANSWERED_WITHIN));
    gateway.kill().await;
    Ok((provided, told.0, told.1))
}

fn transfer(provided: &Provided) -> Call {
    Call::post(&provided.target("/v1/transfers"), r#"{"amount":7}"#)
        .with("authorization", "Bearer drill")
        .with("forbear-task", "drill-killed")
        .with("idempotency-key", KEY)
}

fn note(provided: &Provided) -> Call {
    Call::post(&provided.target("/v1/notes"), r#"{"text":"once"}"#)
        .with("authorization", "Bearer drill")
        .with("forbear-task", "drill-killed")
}

fn judge(provided: &Provided, transfer: &Told, note: &Told) -> Step {
    let arrivals = provided.provider.arrivals();
    let effects = provided.provider.effects();
    let (transfers, notes): (Vec<_>, Vec<_>) = arrivals.into_iter().partition(|a| a.target.ends_with("/transfers"));
    let count = |name: &str| effects.records.iter().filter(|r| r.name == name).count();
    let seen = keys(&transfers);
    let mut found = Findings::new(NAME);
    found.measured("keyed_arrivals", transfers.len());
    found.measured("keyed_effects", count("transfer"));
    found.measured("keys", seen.clone());
    found.measured("keyed_answer_status", transfer.as_ref().ok().map(|a| a.status));
    found.measured("unkeyed_arrivals", notes.len());
    found.measured("unkeyed_effects", count("note"));
    found.measured("unkeyed_outcome", note.as_ref().map_or("no answer", |a| a.field("forbear-outcome")));
    found.expect(count("transfer") == 1, || format!("the provider has {} transfers", count("transfer")));
    found.expect(seen == [KEY], || format!("the key did not stay: {}", seen.join(", ")));
    found.expect(transfers.len() == 2, || format!("the keyed write arrived {} times, not twice", transfers.len()));
    found.expect(transfer.as_ref().is_ok_and(|a| a.status == 201), || {
        "the repeated keyed write got no result".to_owned()
    });
    found.expect(notes.len() == 1 && count("note") == 1, || {
        format!("the write without a key arrived {} times and was done {} times", notes.len(), count("note"))
    });
    let unknown = |a: &Answer| a.status == 422 && a.field("forbear-outcome") == "outcome_unknown";
    found.expect(note.as_ref().is_ok_and(unknown), || match note {
        Ok(a) => format!("the write without a key was answered {} `{}`", a.status, a.field("forbear-outcome")),
        Err(why) => format!("the write without a key was not answered: {why}"),
    });
    found.conclude("the keyed write was asked again with its key and replayed; the other was not sent again, and the agent was told")
}
