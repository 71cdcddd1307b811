//! Calls about files.

use std::{fmt, io};

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::Stream;
use hyper::Method;

use super::{Client, Target};
use crate::error::CommandResult;

/// The owner of the files: a sandbox or a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within<'a> {
    Sandbox(&'a str),
    Volume(&'a str),
}

impl<'a> From<&'a str> for Within<'a> {
    fn from(sandbox: &'a str) -> Self {
        Self::Sandbox(sandbox)
    }
}

impl fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Sandbox(name) | Self::Volume(name)) = self;
        f.write_str(name)
    }
}

impl Client {
    fn route_of(&self, within: Within<'_>, what: &str) -> Target {
        let tail = ["files", what];
        match within {
            Within::Sandbox(sandbox) => self.of(sandbox, &tail),
            Within::Volume(volume) => self.of_volume(volume, &tail),
        }
    }

    fn files_of(&self, within: Within<'_>, what: &str, path: &str) -> Target {
        self.route_of(within, what).with("path", path)
    }

    /// Fails if the path does not exist.
    pub(crate) async fn check_there(&self, within: Within<'_>) -> CommandResult<()> {
        match within {
            Within::Sandbox(sandbox) => self.inspect(sandbox).await.map(drop),
            Within::Volume(volume) => self.volume(volume).await.map(drop),
        }
    }

    pub(crate) async fn stat<'a>(
        &self,
        within: impl Into<Within<'a>>,
        path: &str,
    ) -> CommandResult<v1::FileEntry> {
        self.get(self.files_of(within.into(), "stat", path).with("follow", true)).await
    }

    /// Like `stat`, but of a link itself.
    pub(crate) async fn look(&self, within: Within<'_>, path: &str) -> CommandResult<v1::FileEntry> {
        self.get(self.files_of(within, "stat", path)).await
    }

    pub(crate) async fn make_directory(&self, within: Within<'_>, path: &str) -> CommandResult<()> {
        let body = v1::MkdirRequest { path: path.to_owned(), parents: true, mode: None };
        self.post_json_quiet(self.route_of(within, "mkdir"), &body).await
    }

    pub(crate) async fn list_files(
        &self,
        within: Within<'_>,
        path: &str,
        recursive: bool,
        limit: u32,
    ) -> CommandResult<v1::FileList> {
        let target = self.files_of(within, "list", path);
        self.get(target.with("recursive", recursive).with("limit", limit)).await
    }

    pub(crate) async fn remove_path(&self, within: Within<'_>, path: &str) -> CommandResult<()> {
        let body = v1::RemoveRequest { path: path.to_owned(), recursive: true };
        self.post_json_quiet(self.route_of(within, "remove"), &body).await
    }

    /// A link to a file, for a browser.
    pub(crate) async fn link(&self, sandbox: &str, body: &v1::LinkRequest) -> CommandResult<v1::Link> {
        self.post_json(self.of(sandbox, &["links"]), body).await
    }

    pub(crate) async fn read_file(
        &self,
        within: Within<'_>,
        path: &str,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        self.download(self.files_of(within, "content", path)).await
    }

    /// In a volume, missing parent directories are created.
    pub(crate) async fn write_file<'a>(
        &self,
        within: impl Into<Within<'a>>,
        path: &str,
        mode: Option<v1::Octal>,
        bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<u64> {
        let within = within.into();
        let target = self.files_of(within, "content", path).maybe("mode", mode);
        let parents = matches!(within, Within::Volume(_)).then_some(true);
        let written: v1::Written = self.upload(Method::PUT, target.maybe("parents", parents), bytes).await?;
        Ok(written.bytes)
    }

    pub(crate) async fn pack(
        &self,
        within: Within<'_>,
        path: &str,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        self.download(self.files_of(within, "archive", path)).await
    }

    pub(crate) async fn unpack(
        &self,
        within: Within<'_>,
        path: &str,
        keep_ids: bool,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<u64> {
        let target = self.files_of(within, "archive", path);
        let written: v1::Written =
            self.upload(Method::PUT, target.maybe("keepIds", keep_ids.then_some(true)), tar).await?;
        Ok(written.bytes)
    }
}
