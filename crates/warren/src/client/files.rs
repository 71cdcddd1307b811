//! Calls about files.

use std::io;

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::Stream;
use hyper::Method;

use super::Client;
use crate::error::CommandResult;

impl Client {
    pub(crate) async fn stat(&self, sandbox: &str, path: &str) -> CommandResult<v1::FileEntry> {
        self.get(self.of(sandbox, &["files", "stat"]).with("path", path).with("follow", true)).await
    }

    /// As `stat`, of a link itself.
    pub(crate) async fn look(&self, sandbox: &str, path: &str) -> CommandResult<v1::FileEntry> {
        self.get(self.of(sandbox, &["files", "stat"]).with("path", path)).await
    }

    pub(crate) async fn make_directory(&self, sandbox: &str, path: &str) -> CommandResult<()> {
        let body = v1::MkdirRequest { path: path.to_owned(), parents: true, mode: None };
        self.post_json_quiet(self.of(sandbox, &["files", "mkdir"]), &body).await
    }

    /// An address of a file for a browser.
    pub(crate) async fn link(&self, sandbox: &str, body: &v1::LinkRequest) -> CommandResult<v1::Link> {
        self.post_json(self.of(sandbox, &["links"]), body).await
    }

    pub(crate) async fn read_file(
        &self,
        sandbox: &str,
        path: &str,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        self.download(self.of(sandbox, &["files", "content"]).with("path", path)).await
    }

    pub(crate) async fn write_file(
        &self,
        sandbox: &str,
        path: &str,
        mode: v1::Octal,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<u64> {
        let target = self.of(sandbox, &["files", "content"]).with("path", path).with("mode", mode);
        let written: v1::Written = self.upload(Method::PUT, target, bytes).await?;
        Ok(written.bytes)
    }

    pub(crate) async fn pack(
        &self,
        sandbox: &str,
        path: &str,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        self.download(self.of(sandbox, &["files", "archive"]).with("path", path)).await
    }

    pub(crate) async fn unpack(
        &self,
        sandbox: &str,
        path: &str,
        keep_ids: bool,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<u64> {
        let target = self.of(sandbox, &["files", "archive"]).with("path", path).with("keepIds", keep_ids);
        let written: v1::Written = self.upload(Method::PUT, target, tar).await?;
        Ok(written.bytes)
    }
}
