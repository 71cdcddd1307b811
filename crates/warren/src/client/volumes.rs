//! Calls about volumes.

use frontends::rest::v1;

use super::{Client, Target};
use crate::error::CommandResult;

impl Client {
    /// The path of one volume, in the namespace that the command was given.
    pub(super) fn of_volume(&self, volume: &str, tail: &[&str]) -> Target {
        let mut segments = vec!["volumes", volume];
        segments.extend(tail);
        Target::new(&segments).maybe("namespace", self.namespace())
    }

    pub(crate) async fn create_volume(&self, body: &v1::VolumeRequest) -> CommandResult<v1::Volume> {
        self.post_json(Target::new(&["volumes"]), body).await
    }

    pub(crate) async fn volumes(&self) -> CommandResult<Vec<v1::Volume>> {
        let target = Target::new(&["volumes"]).maybe("namespace", self.namespace());
        Ok(self.get::<v1::VolumeList>(target).await?.volumes)
    }

    pub(crate) async fn volume(&self, volume: &str) -> CommandResult<v1::Volume> {
        self.get(self.of_volume(volume, &[])).await
    }

    pub(crate) async fn remove_volume(&self, volume: &str) -> CommandResult<()> {
        self.delete(self.of_volume(volume, &[])).await
    }

    /// Like the above, but in this namespace, not the command's.
    pub(crate) async fn remove_volume_of(&self, volume: &v1::Volume) -> CommandResult<()> {
        let target = Target::new(&["volumes", volume.name.as_str()]).with("namespace", &volume.namespace);
        self.delete(target).await
    }
}
