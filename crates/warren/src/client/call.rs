//! One request, one answer: bodies, JSON, errors.

use std::io;

use bytes::Bytes;
use frontends::rest::v1::ErrorBody;
use futures_util::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use http_body_util::{BodyExt, BodyStream, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response,
    body::{Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT},
};
use sandbox::{Error, ErrorKind, Thing};
use serde::{Serialize, de::DeserializeOwned};

use super::{Client, Target, transport::broken};
use crate::error::{CommandError, CommandResult};

/// A request's body: a piece of memory or a stream.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Largest response that is read into memory.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// How commands identify themselves in the audit.
const CLIENT_NAME: &str = concat!("warren/", env!("CARGO_PKG_VERSION"));
const OCTETS: &str = "application/octet-stream";
const NDJSON: &str = "application/x-ndjson";

pub(crate) fn empty_body() -> Body {
    whole("")
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

impl Client {
    /// Calls without a body; the answer is JSON.
    pub(crate) async fn get<T: DeserializeOwned>(&self, target: Target) -> CommandResult<T> {
        read_json(self.call(Method::GET, target, None, whole("")).await?).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, target: Target) -> CommandResult<T> {
        read_json(self.call(Method::POST, target, None, whole("")).await?).await
    }

    /// Calls with a JSON body; the answer is JSON.
    pub(crate) async fn post_json<T: DeserializeOwned>(
        &self,
        target: Target,
        body: &impl Serialize,
    ) -> CommandResult<T> {
        read_json(self.send_json(target, body).await?).await
    }

    /// Calls with a JSON body; the answer has no content.
    pub(crate) async fn post_json_quiet(&self, target: Target, body: &impl Serialize) -> CommandResult<()> {
        drain(self.send_json(target, body).await?).await
    }

    /// Calls with a JSON body; the answer is a stream of JSON lines.
    pub(crate) async fn post_for_lines(
        &self,
        target: Target,
        body: &impl Serialize,
    ) -> CommandResult<BoxStream<'static, io::Result<String>>> {
        let bytes = serde_json::to_vec(body).map_err(io::Error::other)?;
        let request = Request::post(target.as_str()).header(HOST, "warren").header(USER_AGENT, CLIENT_NAME);
        let request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, NDJSON);
        let request = request.body(whole(bytes)).map_err(io::Error::other)?;
        Ok(text_lines(checked(self.send(request).await?).await?).boxed())
    }

    /// Changes something by a JSON body; the answer is JSON.
    pub(crate) async fn patch_json<T: DeserializeOwned>(
        &self,
        target: Target,
        body: &impl Serialize,
    ) -> CommandResult<T> {
        let bytes = serde_json::to_vec(body).map_err(io::Error::other)?;
        read_json(self.call(Method::PATCH, target, Some("application/json"), whole(bytes)).await?).await
    }

    pub(crate) async fn put_json<T: DeserializeOwned>(
        &self,
        target: Target,
        body: &impl Serialize,
    ) -> CommandResult<T> {
        let bytes = serde_json::to_vec(body).map_err(io::Error::other)?;
        read_json(self.call(Method::PUT, target, Some("application/json"), whole(bytes)).await?).await
    }

    async fn send_json(&self, target: Target, body: &impl Serialize) -> CommandResult<Response<Incoming>> {
        let bytes = serde_json::to_vec(body).map_err(io::Error::other)?;
        self.call(Method::POST, target, Some("application/json"), whole(bytes)).await
    }

    pub(crate) async fn delete(&self, target: Target) -> CommandResult<()> {
        drain(self.call(Method::DELETE, target, None, whole("")).await?).await
    }

    /// The same, but the answer is JSON.
    pub(crate) async fn delete_for<T: DeserializeOwned>(&self, target: Target) -> CommandResult<T> {
        read_json(self.call(Method::DELETE, target, None, whole("")).await?).await
    }

    /// Streams the bytes of the answer.
    pub(crate) async fn download(
        &self,
        target: Target,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        Ok(byte_stream(self.call(Method::GET, target, None, whole("")).await?))
    }

    /// The same, with an `Accept` header.
    pub(crate) async fn stream(&self, target: Target, accept: &str) -> CommandResult<Response<Incoming>> {
        let request = Request::get(target.as_str()).header(HOST, "warren").header(ACCEPT, accept);
        let request = request.body(whole("")).map_err(io::Error::other)?;
        checked(self.send(request).await?).await
    }

    /// Streams bytes to the daemon; the answer is JSON.
    pub(crate) async fn upload<T: DeserializeOwned>(
        &self,
        method: Method,
        target: Target,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<T> {
        let body = StreamBody::new(bytes.map_ok(Frame::data)).boxed_unsync();
        read_json(self.call(method, target, Some(OCTETS), body).await?).await
    }

    /// Streams bytes to the daemon, and streams the answer.
    pub(crate) async fn upload_for(
        &self,
        target: Target,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<Response<Incoming>> {
        let body = StreamBody::new(bytes.map_ok(Frame::data)).boxed_unsync();
        self.call(Method::POST, target, Some("application/x-tar"), body).await
    }

    async fn call(
        &self,
        method: Method,
        target: Target,
        content_type: Option<&str>,
        body: Body,
    ) -> CommandResult<Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(target.as_str()).header(HOST, "warren");
        request = request.header(USER_AGENT, CLIENT_NAME);
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(body).map_err(io::Error::other)?;
        checked(self.send(request).await?).await
    }
}

const OLDER_DAEMON: &str = "The daemon is older than this command. `warren serve --stop` stops it, and the next command starts a \
    new one. Sandboxes live on.";

/// The answer if it is a success, else its error.
pub(crate) async fn checked(response: Response<Incoming>) -> CommandResult<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = collect(response).await?;
    let Ok(ErrorBody { error: detail }) = serde_json::from_slice(&bytes) else {
        let message = format!("the daemon answered {status} in an unknown format");
        return Err(Error::new(ErrorKind::Internal, message).into());
    };
    let failed = CommandError::from_daemon(detail);
    // A daemon of our own version has every route that commands use.
    Err(failed.map(|error| if error.is_about(Thing::Route) { error.with_hint(OLDER_DAEMON) } else { error }))
}

async fn collect(response: Response<Incoming>) -> CommandResult<Bytes> {
    let collected = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
    let collected = collected.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the daemon's answer ended early").with_source(error)
    })?;
    Ok(collected.to_bytes())
}

/// Reads the answer to its end, so that the connection can be reused.
async fn drain(response: Response<Incoming>) -> CommandResult<()> {
    collect(response).await.map(drop)
}

async fn read_json<T: DeserializeOwned>(response: Response<Incoming>) -> CommandResult<T> {
    let bytes = collect(response).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::new(ErrorKind::Internal, "the daemon sent an answer that this command does not understand")
            .with_source(error)
            .with_hint("The daemon may have another version; `warren version` shows both.")
            .into()
    })
}

pub(super) fn byte_stream(
    response: Response<Incoming>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<> {
    let frames = BodyStream::new(response.into_body());
    let bytes = frames.filter_map(|frame| async move {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(io::Error::other(broken(error)))),
        }
    });
    bytes.boxed()
}

/// Streams the lines of an answer, without their newlines.
pub(crate) fn text_lines(
    response: Response<Incoming>,
) -> impl Stream<Item = io::Result<String>> + Send + Unpin + use<> {
    use tokio::io::AsyncBufReadExt as _;
    let reader = tokio_util::io::StreamReader::new(byte_stream(response));
    futures_util::stream::try_unfold(reader.lines(), |mut lines| async move {
        Ok(lines.next_line().await?.map(|line| (line, lines)))
    })
    .boxed()
}
