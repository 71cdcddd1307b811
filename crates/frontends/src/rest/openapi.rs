//! The OpenAPI document, made from the code.

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
    components(schemas(v1::ErrorBody))
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
    document
}
