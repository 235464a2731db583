//! The OpenAPI document of the control API, from the same types and handlers that answer.

use axum::Json;
use forbear_api::control::{ActionRow, ActionStory, Ready, ScopeRow, TaskCancelled};
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
        super::cancel_task
    ),
    components(schemas(ActionRow, ActionStory, Problem, Ready, ScopeRow, TaskCancelled))
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
}
