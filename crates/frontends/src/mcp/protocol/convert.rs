//! Between our words and the library's.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmcp::{ErrorData, model};
use sandbox::{Error, ErrorKind};
use serde_json::json;

use crate::mcp::{
    envelope::{Failure, Part},
    prompts::PromptEntry,
    resources::{Content, ResourceBody, ResourceEntry, TemplateEntry},
    surface::Reply,
    words,
};

/// A reply as text, for models, and as data, for programs; pictures and links behind the text. A client whose protocol
/// has no links finds the same addresses in the text.
pub(super) fn tool_result(reply: Reply, takes_links: bool) -> model::CallToolResult {
    let text = reply.text.or_else(|| reply.data.as_ref().map(ToString::to_string)).unwrap_or_default();
    let text = model::ContentBlock::text(text);
    let parts = reply.parts.into_iter().filter_map(|part| content(part, takes_links));
    let mut result = model::CallToolResult::success(std::iter::once(text).chain(parts).collect());
    result.is_error = Some(reply.error_code.is_some());
    result.structured_content = reply.data;
    result
}

fn content(part: Part, takes_links: bool) -> Option<model::ContentBlock> {
    match part {
        Part::Image { mime_type, base64 } => Some(model::ContentBlock::image(base64, mime_type)),
        Part::Link(link) if takes_links => {
            let mut resource = model::Resource::new(link.uri, link.name);
            resource.mime_type = link.mime_type;
            resource.size = link.size;
            Some(model::ContentBlock::resource_link(resource))
        }
        Part::Link(_) => None,
    }
}

/// A failure outside tools, where the protocol has errors of its own. Its data is what an envelope would say.
pub(super) fn error(error: Error) -> ErrorData {
    let code = match error.kind() {
        ErrorKind::InvalidRequest | ErrorKind::NotFound => model::ErrorCode::INVALID_PARAMS,
        ErrorKind::Unsupported => model::ErrorCode::METHOD_NOT_FOUND,
        _ => model::ErrorCode::INTERNAL_ERROR,
    };
    error_with(code, error)
}

/// The same where something that is not there has a code of its own, and its address in the data.
pub(super) fn resource_error(uri: &str, failed: Error) -> ErrorData {
    if failed.kind() != ErrorKind::NotFound {
        return error(failed);
    }
    let mut error = error_with(model::ErrorCode::RESOURCE_NOT_FOUND, failed);
    if let Some(data) = &mut error.data {
        data["uri"] = uri.into();
    }
    error
}

fn error_with(code: model::ErrorCode, error: Error) -> ErrorData {
    let told = Failure::from(error).worded(words::hint);
    ErrorData::new(code, told.message.clone(), Some(json!(told)))
}

pub(super) fn resource(entry: ResourceEntry) -> model::Resource {
    let mut resource = model::Resource::new(entry.uri, entry.name);
    resource.title = Some(entry.title);
    resource.description = Some(entry.description);
    resource.mime_type = Some(entry.mime_type);
    resource.size = entry.size;
    resource
}

pub(super) fn template(entry: TemplateEntry) -> model::ResourceTemplate {
    let mut template = model::ResourceTemplate::new(entry.uri_template, entry.name);
    template.title = Some(entry.title);
    template.description = Some(entry.description);
    template.mime_type = entry.mime_type;
    template
}

pub(super) fn contents(body: ResourceBody) -> model::ResourceContents {
    let contents = match body.content {
        Content::Text(text) => model::ResourceContents::text(text, body.uri),
        Content::Blob(bytes) => model::ResourceContents::blob(STANDARD.encode(bytes), body.uri),
    };
    contents.with_mime_type(body.mime_type)
}

pub(super) fn prompt(entry: PromptEntry) -> model::Prompt {
    let arguments = entry.arguments.into_iter().map(|argument| {
        model::PromptArgument::new(argument.name)
            .with_description(argument.description)
            .with_required(argument.required)
    });
    model::Prompt::new(entry.name, Some(entry.description), Some(arguments.collect())).with_title(entry.title)
}
