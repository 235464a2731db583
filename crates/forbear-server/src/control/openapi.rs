//! The OpenAPI document of the control API, from the same types and handlers that answer.

use axum::Json;
use forbear_api::control::{
    ActionRow, ActionStory, Cancelled, CircuitRow, ConfigReloaded, LiveRow, Ready, Reopened, Report, RouteSuggestions,
    ScopeRow,
};
use forbear_api::problem::Problem;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(title = "Forbear", description = "The control API of a Forbear server"),
    paths(
        super::ready,
        super::scopes,
        super::reads::actions,
        super::reads::action,
        super::reads::own_action,
        super::report::report,
        super::suggestions::routes,
        super::live::live,
        super::live::circuits,
        super::config::reload,
        super::cancel::task,
        super::cancel::run,
        super::cancel::action,
        super::cancel::reopen_task,
        super::cancel::reopen_run
    ),
    components(schemas(
        ActionRow,
        ActionStory,
        Cancelled,
        CircuitRow,
        ConfigReloaded,
        LiveRow,
        Problem,
        Ready,
        Reopened,
        Report,
        RouteSuggestions,
        ScopeRow
    ))
)]
struct Document;

pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

#[cfg(test)]
mod tests {
    use super::super::ADDRESSES;
    use super::*;

    #[test]
    fn every_address_that_answers_json_is_described() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let plain = ["/-/healthy", "/-/problems/{slug}", "/-/v1/openapi.json"];
        for (method, path) in ADDRESSES.iter().filter(|(_, path)| !plain.contains(path)) {
            let method = method.to_ascii_lowercase();
            assert!(document["paths"][path][&method].is_object(), "{method} {path} is not in the document");
        }
    }

    #[test]
    fn every_reference_resolves() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let mut references = Vec::new();
        gather(&document, &mut references);
        assert!(references.len() > 5, "{references:?}");
        for reference in references {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference} is not in the document");
        }
    }

    fn gather(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(members) => {
                into.extend(members.get("$ref").and_then(|r| r.as_str()).map(str::to_owned));
                members.values().for_each(|member| gather(member, into));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| gather(item, into)),
            _ => {}
        }
    }
}
