//! Reading a resource.

use engine::{EntryBody, Follow, SandboxRef};
use futures_util::TryStreamExt;
use sandbox::{Error, ErrorKind, ExecId, FileKind, Result};
use serde_json::{Value, json};

use super::{Content, JSON, MAX_RESOURCE_BYTES, ResourceBody, inventory, uri::Target};
use crate::{
    code::{self, Form},
    links::media_type,
    mcp::{call::Call, tools::create::create_schema},
    output::Collector,
};

/// Reads the resource at an address as it is now. JSON stands there bare, without the envelope of tools.
pub(crate) async fn read(call: &Call, uri: &str) -> Result<Vec<ResourceBody>> {
    let (mime_type, content) = match Target::parse(uri)? {
        Target::Runtime => {
            let mut runtime = inventory::told_by(call, "runtime_check", json!({})).await?;
            runtime["policy"] = inventory::policy(call);
            pretty(&runtime)?
        }
        Target::Sandboxes => pretty(&inventory::told_by(call, "sandbox_list", json!({})).await?)?,
        Target::Volumes => pretty(&inventory::told_by(call, "volume_list", json!({})).await?)?,
        Target::Snapshots => pretty(&inventory::told_by(call, "snapshot_list", json!({})).await?)?,
        Target::Images => pretty(&inventory::told_by(call, "image_list", json!({})).await?)?,
        Target::CreateSchema => {
            let (_, schema) = pretty(&create_schema())?;
            ("application/schema+json", schema)
        }
        Target::Policy => pretty(&inventory::policy(call))?,
        Target::Sandbox { name } => {
            pretty(&inventory::told_by(call, "sandbox_inspect", json!({ "name": name })).await?)?
        }
        Target::File { name, path } => file(call, &call.sandbox(&name)?, &path).await?,
        Target::Exec { name, id } => {
            let view = call.engine().exec_view(&call.who, &call.sandbox(&name)?, &id).await?;
            pretty(&serde_json::to_value(view).map_err(unwritable)?)?
        }
        Target::Output { name, id } => output(call, &call.sandbox(&name)?, &id).await?,
        Target::Shown { name, id, number, mime } => {
            let which = call.sandbox(&name)?;
            let form =
                code::output(call.mcp.links().outputs(), &call.who, &which, &id, number, mime.as_deref())
                    .await?;
            return Ok(vec![shown(uri, form)]);
        }
    };
    Ok(vec![ResourceBody { uri: uri.to_owned(), mime_type: mime_type.to_owned(), content }])
}

/// Text as text, the rest as bytes.
fn shown(uri: &str, form: Form) -> ResourceBody {
    let Form { mime_type, bytes } = form;
    let is_text = mime_type.starts_with("text/") || mime_type.ends_with("json") || mime_type.ends_with("xml");
    let content = match String::from_utf8(bytes) {
        Ok(text) if is_text => Content::Text(text),
        Ok(text) => Content::Blob(text.into_bytes()),
        Err(error) => Content::Blob(error.into_bytes()),
    };
    ResourceBody { uri: uri.to_owned(), mime_type, content }
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Internal, "the resource could not be written").with_source(error)
}

fn pretty(value: &Value) -> Result<(&'static str, Content)> {
    Ok((JSON, Content::Text(serde_json::to_string_pretty(value).map_err(unwritable)?)))
}

async fn file(call: &Call, which: &SandboxRef, path: &str) -> Result<(&'static str, Content)> {
    // One more than fits, to see whether that was all.
    let length = Some(MAX_RESOURCE_BYTES as u64 + 1);
    let opened = call.engine().read_file(&call.who, which, path, 0, length).await;
    let (entry, mut stream) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(of_directory(call, which, path).await.unwrap_or(error)),
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.try_next().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_RESOURCE_BYTES {
            let size = entry.size.max(bytes.len() as u64);
            let message =
                format!("{path} has {size} bytes; at most {MAX_RESOURCE_BYTES} are given as a resource");
            return Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Read it in parts with the tool sandbox_fs_read, by offset and length."));
        }
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => (media_type(path, true), Content::Text(text)),
        Err(error) => (media_type(path, false), Content::Blob(error.into_bytes())),
    })
}

/// Returns the error to give if `path` is a directory.
async fn of_directory(call: &Call, which: &SandboxRef, path: &str) -> Option<Error> {
    let entry = call.engine().stat(&call.who, which, path, true).await.ok()?;
    (entry.kind == FileKind::Directory).then(|| {
        Error::invalid(format!("{path} is a directory; sandbox_fs_list shows what is in it"))
            .with_hint("Call the tool sandbox_fs_list to see what is in it, then read a file.")
    })
}

async fn output(call: &Call, which: &SandboxRef, exec: &ExecId) -> Result<(&'static str, Content)> {
    let mut items = call.engine().exec_entries(&call.who, which, exec, 1, Follow::No).await?;
    let mut collector = Collector::new(call.max_bytes(None).min(MAX_RESOURCE_BYTES));
    while let Some(entry) = items.try_next().await? {
        match entry.body {
            EntryBody::Stdout(bytes) | EntryBody::Stderr(bytes) => collector.push(&bytes),
            EntryBody::Trimmed { from } => {
                let through = entry.number;
                collector.push(format!("[… entries {from} to {through} were trimmed …]\n").as_bytes());
            }
            _ => {}
        }
    }
    // The text itself says how much was left out; a resource has no other place for it.
    Ok(("text/plain", Content::Text(collector.finish("output", String::new).text)))
}
