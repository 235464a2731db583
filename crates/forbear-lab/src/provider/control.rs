//! The provider's own endpoint, under `/__lab/` on the same listener: what arrived, what was done, start over.
//! Calls to it are not arrivals.

use std::sync::Arc;

use bytes::Bytes;

use super::exchange::Shared;
use super::scenario::Scenario;

pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
const PREFIX: &str = "/__lab/";

pub(crate) struct ControlAnswer {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) body: Bytes,
}

pub(crate) fn is_control(target: &str) -> bool {
    target.starts_with(PREFIX)
}

pub(crate) fn answer(shared: &Arc<Shared>, method: &str, target: &str, body: &[u8]) -> ControlAnswer {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match (method, path.strip_prefix(PREFIX).unwrap_or_default()) {
        ("GET", "arrivals") => {
            let with_bodies = query.split('&').any(|pair| pair == "bodies" || pair == "bodies=true");
            let lines = shared.world().log.to_ndjson(with_bodies);
            ControlAnswer { status: 200, kind: "application/x-ndjson", body: lines.into() }
        }
        ("GET", "effects") => json(200, serde_json::to_string(&shared.world().effects).unwrap_or_default()),
        ("POST", "reset") => {
            reset(shared, None);
            json(200, "{}".to_owned())
        }
        ("POST", "scenario") => match std::str::from_utf8(body).map(Scenario::from_yaml) {
            Ok(Ok(scenario)) => {
                reset(shared, Some(scenario));
                json(200, "{}".to_owned())
            }
            Ok(Err(error)) => text(422, error.to_string()),
            Err(_) => text(422, "a scenario is UTF-8 text".to_owned()),
        },
        ("POST", "close-idle") => {
            shared.close_idle.send_replace(query == "rst");
            json(200, "{}".to_owned())
        }
        (_, "arrivals" | "effects") => text(405, "use GET".to_owned()),
        (_, "reset" | "scenario" | "close-idle") => text(405, "use POST".to_owned()),
        _ => text(404, "known are GET arrivals, GET effects, POST reset, POST scenario, POST close-idle".to_owned()),
    }
}

/// Starts over, with another scenario if one is given.
pub(crate) fn reset(shared: &Shared, scenario: Option<Scenario>) {
    shared.world().reset(scenario.map(|scenario| scenario.0));
    shared.changed.send_replace(());
}

fn json(status: u16, body: String) -> ControlAnswer {
    ControlAnswer { status, kind: "application/json", body: body.into() }
}

fn text(status: u16, body: String) -> ControlAnswer {
    ControlAnswer { status, kind: "text/plain; charset=utf-8", body: body.into() }
}
