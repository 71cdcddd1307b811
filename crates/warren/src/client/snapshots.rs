//! Calls about snapshots, forks and changes.

use std::io;

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::Stream;
use hyper::Method;
use sandbox::SnapshotName;

use super::{Client, Target};
use crate::error::CommandResult;

/// The parts to include in an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SaveChoice {
    pub(crate) parents: bool,
    pub(crate) image: bool,
    pub(crate) plain: bool,
}

impl Client {
    fn snapshot_target(&self, snapshot: &str, tail: &[&str]) -> Target {
        let mut segments = vec!["snapshots", snapshot];
        segments.extend(tail);
        Target::new(&segments).maybe("namespace", self.namespace())
    }

    pub(crate) async fn create_snapshot(&self, request: &v1::SnapshotRequest) -> CommandResult<v1::Snapshot> {
        let request = v1::SnapshotRequest { namespace: self.namespace().cloned(), ..request.clone() };
        self.post_json(Target::new(&["snapshots"]), &request).await
    }

    pub(crate) async fn snapshots(&self) -> CommandResult<Vec<v1::Snapshot>> {
        let target = Target::new(&["snapshots"]).maybe("namespace", self.namespace());
        Ok(self.get::<v1::SnapshotList>(target).await?.snapshots)
    }

    pub(crate) async fn snapshot(&self, snapshot: &str) -> CommandResult<v1::Snapshot> {
        self.get(self.snapshot_target(snapshot, &[])).await
    }

    pub(crate) async fn verify_snapshot(
        &self,
        snapshot: &str,
        parents: bool,
    ) -> CommandResult<v1::SnapshotVerified> {
        self.post(self.snapshot_target(snapshot, &["verify"]).with("parents", parents)).await
    }

    pub(crate) async fn remove_snapshot(
        &self,
        snapshot: &str,
        force: bool,
    ) -> CommandResult<v1::SnapshotRemoved> {
        self.delete_for(self.snapshot_target(snapshot, &[]).with("force", force)).await
    }

    pub(crate) async fn reindex_snapshots(&self) -> CommandResult<v1::SnapshotsIndexed> {
        self.post(Target::new(&["snapshots", "reindex"])).await
    }

    pub(crate) async fn save_snapshot(
        &self,
        snapshot: &str,
        choice: SaveChoice,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        let target = self.snapshot_target(snapshot, &["archive"]).with("parents", choice.parents);
        self.download(target.with("image", choice.image).with("plain", choice.plain)).await
    }

    pub(crate) async fn load_snapshot(
        &self,
        name: Option<&SnapshotName>,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<v1::Snapshot> {
        let target = Target::new(&["snapshots", "load"]).maybe("namespace", self.namespace());
        self.upload(Method::POST, target.maybe("name", name), archive).await
    }

    pub(crate) async fn restore_snapshot(
        &self,
        snapshot: &str,
        request: &v1::RestoreRequest,
    ) -> CommandResult<v1::Sandbox> {
        self.post_json(self.snapshot_target(snapshot, &["restore"]), request).await
    }

    pub(crate) async fn fork(
        &self,
        sandbox: &str,
        request: &v1::ForkSandboxRequest,
    ) -> CommandResult<Vec<v1::Sandbox>> {
        Ok(self.post_json::<v1::ForkList>(self.of(sandbox, &["fork"]), request).await?.forks)
    }

    pub(crate) async fn diff(
        &self,
        sandbox: &str,
        since: Option<&str>,
        path: Option<&str>,
        patch: bool,
    ) -> CommandResult<v1::Diff> {
        let target = self.of(sandbox, &["diff"]).with("patch", patch).maybe("since", since);
        self.get(target.maybe("path", path)).await
    }
}
