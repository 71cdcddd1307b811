//! The OpenAPI document, made from the code.

mod rules;

use utoipa::{
    OpenApi,
    openapi::{Content, RefOr, Response, schema::Ref},
};

use super::v1;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Warren",
        description = "Sandboxes for AI agents. A sandbox in a path is its id or its name; a failure has one shape, and its \
                       `kind` decides the status."
    ),
    components(schemas(v1::ErrorBody, v1::ArchiveFormat))
)]
struct Head;

pub(super) fn head() -> utoipa::openapi::OpenApi {
    Head::openapi()
}

/// The whole document. Every operation may answer with an error, so that answer is added here, once.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = super::routes().into_openapi();
    let mut failure = Response::new("A failure; its `kind` says which.");
    failure.content.insert(
        "application/json".to_owned(),
        RefOr::T(Content::new(Some(RefOr::Ref(Ref::from_schema_name("ErrorBody"))))),
    );
    for item in document.paths.paths.values_mut() {
        for operation in
            [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
        {
            operation.responses.responses.insert("default".to_owned(), RefOr::T(failure.clone()));
        }
    }
    rules::apply(&mut document);
    document
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::document;

    /// Every `$ref` beneath a value.
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_says_what_is_sent() {
        let document = serde_json::to_value(document()).unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let place = reference.trim_start_matches('#');
            assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
        }
        let schemas = &document["components"]["schemas"];
        assert!(schemas["ExecOutcome"].to_string().contains("memoryLimitHit"));
        assert_eq!(
            schemas["Diff"]["properties"]["changes"]["items"],
            json!({ "$ref": "#/components/schemas/DiffChange" })
        );
        assert_eq!(schemas["DiffChange"]["properties"]["size"]["type"], "integer");
        assert_eq!(schemas["SandboxSpec"]["properties"]["name"]["maxLength"], 63);
        assert_eq!(schemas["ChmodRequest"]["properties"]["path"]["pattern"], "^/[^\\u0000]*$");
    }
}
