//! The OpenAPI document, made from the code.

mod failures;
mod rules;

use utoipa::OpenApi;

use super::v1;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Warren",
        description = "Sandboxes for AI agents. In a path, a sandbox is given by its id or its name. All errors have the same \
                       shape, and their `kind` decides the status (an unsupported method is `not_found` with 405)."
    ),
    components(schemas(v1::ErrorBody, v1::ArchiveFormat, sandbox::WriteMode))
)]
struct Head;

pub(super) fn head() -> utoipa::openapi::OpenApi {
    Head::openapi()
}

/// The whole document.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = super::routes().into_openapi();
    name_operations(&mut document);
    failures::describe(&mut document);
    rules::apply(&mut document);
    document
}

/// Operations are named for their handlers, of which every noun has a `list`; with the noun in front the names are
/// unique.
fn name_operations(document: &mut utoipa::openapi::OpenApi) {
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete]
            .into_iter()
            .flatten()
        {
            let noun = operation.tags.iter().flatten().next();
            if let (Some(noun), Some(name)) = (noun, &operation.operation_id) {
                operation.operation_id = Some(format!("{noun}_{name}"));
            }
        }
    }
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
        assert_eq!(schemas["SandboxName"]["maxLength"], 63);
        assert_eq!(schemas["ChmodRequest"]["properties"]["path"]["pattern"], "^[^\\u0000]+$");
    }
}
