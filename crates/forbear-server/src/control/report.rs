//! The report: the journal summed up, as it is said over the wire.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use forbear_api::At;
use forbear_api::control::{Decided, ProviderReport, Report, ScopeReport, SinceQuery, Waits};
use forbear_api::problem::Kind;
use forbear_core::time::Wall;
use forbear_store::{Since, Sums, Tally, provider_of};
use jiff::{Span, SpanRelativeTo};

use super::Shared;
use super::reads::read;
use super::reply::problem;
use super::rows::at;

const DAY_MS: u64 = 86_400_000;
pub(super) const HOW_SINCE: &str = "`since`: write an RFC 3339 instant, or a duration such as `90m`, `24h` or `7d`";

#[utoipa::path(get, path = "/-/v1/report", params(SinceQuery), responses(
    (status = 200, body = Report, description = "What was done, and what would have been, by provider and scope")))]
pub(super) async fn report(State(shared): State<Shared>, query: Result<Query<SinceQuery>, QueryRejection>) -> Response {
    let since = match query {
        Ok(Query(query)) => since(query.since.as_deref()),
        Err(e) => return problem(Kind::BadQuery, &e.body_text()),
    };
    let Some(since) = since else { return problem(Kind::BadQuery, HOW_SINCE) };
    match read(&shared, move |reader| reader.tally(since)).await {
        Ok(tally) => Json(said(&tally)).into_response(),
        Err(response) => response,
    }
}

pub(super) fn since(text: Option<&str>) -> Option<Since> {
    let Some(text) = text else { return Some(Since::Last(DAY_MS)) };
    if let Ok(At(ms)) = text.parse() {
        return Some(Since::At(Wall(ms)));
    }
    let span = text.parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    u64::try_from(span.as_millis()).ok().map(Since::Last)
}

fn said(tally: &Tally) -> Report {
    let mut providers: Vec<(ProviderReport, Sums)> = Vec::new();
    // In the order of their names, so that a provider's scopes stand together.
    for (scope, sums) in &tally.scopes {
        let provider = provider_of(scope);
        if providers.last().is_none_or(|(last, _)| last.provider != provider) {
            let total = scope_report("*", &Sums::default());
            let new = ProviderReport { provider: provider.to_owned(), total, scopes: Vec::new() };
            providers.push((new, Sums::default()));
        }
        if let Some((last, total)) = providers.last_mut() {
            last.scopes.push(scope_report(scope, sums));
            total.add(sums);
        }
    }
    let providers = providers.into_iter().map(|(p, total)| ProviderReport { total: scope_report("*", &total), ..p });
    Report { from: tally.first_at.map(at), to: tally.last_at.map(at), providers: providers.collect() }
}

fn scope_report(scope: &str, sums: &Sums) -> ScopeReport {
    ScopeReport {
        scope: scope.to_owned(),
        calls: sums.calls,
        sends: sums.sends,
        done: decided(&sums.done),
        would: decided(&sums.would),
    }
}

fn decided(d: &forbear_store::Decided) -> Decided {
    let waits = &d.waits;
    Decided {
        saved: d.saved(),
        duplicates_prevented: d.duplicates(),
        held: d.held,
        retries: d.retries,
        joined: d.joined,
        already_done: d.already_done,
        open: d.open,
        key_mismatch: d.key_mismatch,
        ended: d.ended,
        waits: Waits { count: waits.count, total_ms: waits.total_ms, p50_ms: waits.p50_ms(), max_ms: waits.max_ms },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_an_instant_or_a_duration() {
        for (text, wanted) in [
            (None, Some(Since::Last(DAY_MS))),
            (Some("90m"), Some(Since::Last(5_400_000))),
            (Some("24h"), Some(Since::Last(DAY_MS))),
            (Some("7d"), Some(Since::Last(7 * DAY_MS))),
            (Some("1970-01-01T00:00:05Z"), Some(Since::At(Wall(5_000)))),
            (Some("-1h"), None),
            (Some("yesterday"), None),
            (Some(""), None),
        ] {
            assert_eq!(since(text), wanted, "{text:?}");
        }
    }
}
