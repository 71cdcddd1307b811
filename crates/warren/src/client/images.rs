//! Calls about images.

use std::io;

use bytes::Bytes;
use frontends::rest::v1;
use futures_util::{Stream, stream::BoxStream};
use hyper::Method;
use sandbox::{ErrorKind, Thing};

use super::{Client, Target};
use crate::error::{CommandError, CommandResult};

impl Client {
    pub(crate) async fn images(&self) -> CommandResult<Vec<v1::Image>> {
        Ok(self.get::<v1::ImageList>(Target::new(&["images"])).await?.images)
    }

    pub(crate) async fn image(&self, image: &str) -> CommandResult<v1::ImageDetail> {
        self.get(Target::new(&["images", image])).await.map_err(|error| about(error, image))
    }

    /// The events of the pull, line by line.
    pub(crate) async fn pull_image(
        &self,
        request: &v1::PullRequest,
    ) -> CommandResult<BoxStream<'static, io::Result<String>>> {
        self.post_for_lines(Target::new(&["images", "pull"]), request).await
    }

    pub(crate) async fn push_image(
        &self,
        image: &str,
        request: &v1::PushRequest,
    ) -> CommandResult<v1::Pushed> {
        let pushed = self.post_json(Target::new(&["images", image, "push"]), request).await;
        pushed.map_err(|error| about(error, image))
    }

    /// Whether the registry accepts these credentials.
    pub(crate) async fn check_login(&self, login: &v1::LoginRequest) -> CommandResult<()> {
        self.post_json_quiet(Target::new(&["images", "login"]), login).await
    }

    pub(crate) async fn load_images(
        &self,
        platform: Option<&str>,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<Vec<v1::Image>> {
        let target = Target::new(&["images", "load"]).maybe("platform", platform);
        Ok(self.upload::<v1::ImageList>(Method::POST, target, tar).await?.images)
    }

    pub(crate) async fn save_images(
        &self,
        images: &[String],
        format: &str,
    ) -> CommandResult<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>> {
        let target = Target::new(&["images", "save"]).with("format", format);
        let target = images.iter().fold(target, |target, image| target.with("reference", image));
        let saved = self.download(target).await;
        saved.map_err(|error| if let [image] = images { about(error, image) } else { error })
    }

    pub(crate) async fn import_image(
        &self,
        reference: &str,
        platform: Option<&str>,
        config: Option<&str>,
        tar: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<v1::ImageDetail> {
        let target = Target::new(&["images", "import"]).with("reference", reference);
        let target = target.maybe("platform", platform).maybe("config", config);
        self.upload(Method::POST, target, tar).await
    }

    pub(crate) async fn tag_image(&self, image: &str, target: &str) -> CommandResult<v1::ImageDetail> {
        let body = v1::TagRequest { target: target.to_owned() };
        let tagged = self.post_json(Target::new(&["images", image, "tag"]), &body).await;
        tagged.map_err(|error| about(error, image))
    }

    pub(crate) async fn remove_image(&self, image: &str, force: bool) -> CommandResult<v1::ImagesFreed> {
        let removed = self.delete_for(Target::new(&["images", image]).with("force", force)).await;
        removed.map_err(|error| about(error, image))
    }

    pub(crate) async fn prune_images(&self) -> CommandResult<v1::ImagesFreed> {
        self.post(Target::new(&["images", "prune"])).await
    }

    pub(crate) async fn images_usage(&self) -> CommandResult<v1::ImagesUsage> {
        self.get(Target::new(&["images", "usage"])).await
    }
}

/// Says which image was not found, as it was written.
fn about(error: CommandError, image: &str) -> CommandError {
    match error.kind() {
        Some(ErrorKind::NotFound) => error.map(|error| error.about(Thing::Image, image)),
        _ => error,
    }
}
