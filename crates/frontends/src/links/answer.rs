//! Answers to requests by link.

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::{ByteStream, LinkTarget, OpenLink, SandboxRef};
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox::{Error, ErrorKind, ExecId, FileEntry, FileKind, Result};

use super::{
    Links,
    media::{Media, SNIFFED_BYTES},
    name,
    range::{Part, Version},
};
use crate::{
    code::{self, Budget},
    http::Refusal,
};

/// The headers of every answer. Nothing that is served may run, load, send, be framed or be taken for something else;
/// and no page that it leads to learns its address.
///
/// `sandbox` gives a document an origin of its own, without scripts, forms and windows. What is left to a picture in
/// SVG is its own style.
const ALWAYS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    // A browser may keep it and asks each time whether it still is what it has; nobody in between keeps it.
    ("cache-control", "private, no-cache"),
];
const RESOURCE_POLICY: &str = "cross-origin-resource-policy";

/// Answers a GET or HEAD of a link that holds.
pub(crate) async fn answer(
    links: &Links,
    link: &OpenLink,
    budget: &Budget,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    let source = Source { links, link, budget, which: SandboxRef::from(&link.sandbox) };
    let opened = match &link.target {
        LinkTarget::File { path } => source.open_file(path).await?,
        LinkTarget::Output { exec, number, mime } => source.open_output(exec, *number, mime).await?,
        // Tokens for these are valid elsewhere.
        LinkTarget::Port { .. } | LinkTarget::Inside => {
            return Err(Error::not_found("no such link").into());
        }
    };
    let mut response = source.send(&opened, method, headers).await?;
    for (name, value) in ALWAYS {
        response.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The target of a link, and the right to read it.
struct Source<'a> {
    links: &'a Links,
    link: &'a OpenLink,
    /// The budget for bytes on their way by links.
    budget: &'a Budget,
    which: SandboxRef,
}

/// The facts known of a target before its bytes are sent.
struct Opened {
    name: String,
    media: Media,
    version: Version,
    /// Its first bytes, or all of them.
    head: Bytes,
    /// The file that holds the other bytes.
    path: Option<String>,
}

impl Source<'_> {
    async fn open_file(&self, path: &str) -> Result<Opened> {
        let (entry, stream) = self.read(path, 0, SNIFFED_BYTES).await?;
        let name = name::of_path(path).to_owned();
        if entry.kind != FileKind::File {
            return Err(Error::new(ErrorKind::WrongState, format!("{name} is not a file"))
                .with_hint("Links work only for files; ask for a link to a file."));
        }
        let head: Vec<Bytes> = exactly(stream, entry.size.min(SNIFFED_BYTES)).try_collect().await?;
        let head = Bytes::from(head.concat());
        let version = Version { size: entry.size, modified_at_ms: entry.modified_at_ms };
        let media = Media::of(&name, &head);
        Ok(Opened { name, media, version, head, path: Some(path.to_owned()) })
    }

    async fn open_output(&self, exec: &ExecId, number: u32, mime: &str) -> Result<Opened> {
        let form =
            code::output(self.links.outputs(), &self.link.who, &self.which, exec, number, Some(mime)).await?;
        let (name, head) = (name::of_output(number, mime), Bytes::from(form.bytes));
        let sniffed = head.len().min(usize::try_from(SNIFFED_BYTES).unwrap_or(usize::MAX));
        let media = Media::of(&name, &head[..sniffed]);
        // The content of a ledger does not change.
        let version = Version { size: head.len() as u64, modified_at_ms: 0 };
        Ok(Opened { name, media, version, head, path: None })
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> Result<(FileEntry, ByteStream)> {
        let (engine, _) = self.links.outputs();
        let read = engine.read_file(&self.link.who, &self.which, path, offset, Some(length));
        read.await.map_err(explained)
    }

    async fn send(&self, opened: &Opened, method: &Method, headers: &HeaderMap) -> Result<Response, Refusal> {
        let Opened { name, media, version, .. } = opened;
        if version.is_had(headers) {
            let mut response = StatusCode::NOT_MODIFIED.into_response();
            tell_version(response.headers_mut(), *version);
            return Ok(response);
        }
        let (status, start, length) = match Part::asked(headers, *version) {
            Part::Whole => (StatusCode::OK, 0, version.size),
            Part::Piece { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
            Part::Nothing => return Ok(beyond(*version)),
        };
        let body = match *method == Method::HEAD {
            true => Body::empty(),
            false => self.bytes(opened, start, length).await?,
        };
        let mut response = (status, body).into_response();
        let own = response.headers_mut();
        own.insert(CONTENT_TYPE, HeaderValue::from_static(media.content_type));
        own.insert(CONTENT_LENGTH, length.into());
        own.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Ok(disposition) = name::disposition(media.is_inline, name).parse() {
            own.insert(CONTENT_DISPOSITION, disposition);
        }
        // A chat client on another origin may show a picture: whoever knows the address has the right to it, and a page
        // that embeds it still cannot read it. Nothing else is of use in another's page.
        let policy = if media.is_image() { "cross-origin" } else { "same-origin" };
        own.insert(RESOURCE_POLICY, HeaderValue::from_static(policy));
        if status == StatusCode::PARTIAL_CONTENT {
            let range = format!("bytes {start}-{}/{}", start + length - 1, version.size);
            own.extend(HeaderValue::from_str(&range).ok().map(|value| (CONTENT_RANGE, value)));
        }
        tell_version(own, *version);
        Ok(response)
    }

    /// Exactly the bytes that were announced, however a file grows meanwhile.
    async fn bytes(&self, opened: &Opened, start: u64, length: u64) -> Result<Body, Refusal> {
        let had = usize::try_from(start).ok().zip(usize::try_from(start + length).ok());
        let had = had.filter(|(_, to)| *to <= opened.head.len());
        match (had, &opened.path) {
            (None, Some(path)) => {
                let (_, stream) = self.read(path, start, length).await?;
                Ok(Body::from_stream(exactly(stream, length)))
            }
            (had, _) => {
                let (from, to) = had.unwrap_or_default();
                let whole = from == 0 && to == opened.head.len();
                // A part must not keep the rest.
                let part = || Bytes::copy_from_slice(&opened.head[from..to]);
                self.budget.body(if whole { opened.head.clone() } else { part() })
            }
        }
    }
}

fn tell_version(headers: &mut HeaderMap, version: Version) {
    headers.extend(version.header().map(|value| (ETAG, value)));
}

fn beyond(version: Version) -> Response {
    let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    let range = HeaderValue::from_str(&format!("bytes */{}", version.size));
    response.headers_mut().extend(range.ok().map(|value| (CONTENT_RANGE, value)));
    response
}

/// Cuts what is too much; what is too little breaks off, so that half a file does not look whole.
fn exactly(bytes: ByteStream, length: u64) -> ByteStream {
    stream::try_unfold((bytes, length), async |(mut bytes, left)| {
        if left == 0 {
            return Ok(None);
        }
        let Some(mut chunk) = bytes.try_next().await? else {
            return Err(Error::new(ErrorKind::WrongState, "the file was truncated while it was read"));
        };
        chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - chunk.len() as u64;
        Ok(Some((chunk, (bytes, left))))
    })
    .boxed()
}

/// For a person in front of a browser.
fn explained(error: Error) -> Error {
    let Some(state) = error.state() else { return error };
    error
        .reworded(|_| format!("the sandbox is {state}; links work only while it is running"))
        .with_hint("Start it and open the link again.")
}
