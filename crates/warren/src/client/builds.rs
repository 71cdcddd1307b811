//! Calls about builds.

use std::io;

use bytes::Bytes;
use futures_util::Stream;

use super::{Client, Target, call::text_lines};
use crate::error::CommandResult;

impl Client {
    /// Sends a context and returns the build's events, line by line.
    pub(crate) async fn build_image(
        &self,
        target: Target,
        context: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> CommandResult<impl Stream<Item = io::Result<String>> + Send + Unpin> {
        Ok(text_lines(self.upload_for(target, context).await?))
    }
}
