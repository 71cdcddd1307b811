//! Every answer that these tests see is one that the OpenAPI document describes: its status and its content type.

use std::sync::LazyLock;

use axum::{
    body::Body,
    http::{Method, Response, header},
};
use serde_json::Value;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(frontends::rest::document()).unwrap());

/// Fails the test if the document says nothing of this answer.
pub(crate) fn check(method: &Method, path: &str, response: &Response<Body>) {
    let Some(item) = item(path) else { return };
    // Routes answer HEAD like GET, without the body.
    let is_head = method == Method::HEAD;
    let method = if is_head { "get".to_owned() } else { method.as_str().to_lowercase() };
    let status = response.status().as_u16();
    let Some(operation) = item.get(&method) else {
        assert_eq!(status, 405, "{method} {path} is not in the document");
        return;
    };
    let described = resolve(&operation["responses"][status.to_string()]);
    assert!(described.is_object(), "{method} {path} answered {status}, which the document does not have");
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.map(|value| value.to_str().unwrap().split(';').next().unwrap().trim());
    let is_described = match (described["content"].as_object(), content_type) {
        (None, None) => true,
        (Some(_), None) => is_head,
        (None, Some(_)) => false,
        (Some(content), Some(sent)) => content.contains_key(sent) || content.contains_key("*/*"),
    };
    assert!(
        is_described,
        "{method} {path} answered {status} with {content_type:?}; the document has {described}"
    );
}

/// Returns the document's item for a path. Where two fit, the one with fewer parameters is meant, as for the router.
fn item(path: &str) -> Option<&'static Value> {
    let parts: Vec<&str> = path.split('/').collect();
    let paths = DOCUMENT["paths"].as_object().unwrap().iter();
    let fitting = paths.filter(|(template, _)| {
        let template: Vec<&str> = template.split('/').collect();
        let fits = |(of, part): (&&str, &&str)| of == part || (of.starts_with('{') && !part.is_empty());
        template.len() == parts.len() && template.iter().zip(&parts).all(fits)
    });
    fitting.min_by_key(|(template, _)| template.matches('{').count()).map(|(_, item)| item)
}

/// The response itself, or the component that it names.
fn resolve(response: &'static Value) -> &'static Value {
    match response["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(reference.trim_start_matches('#')).unwrap(),
        None => response,
    }
}
