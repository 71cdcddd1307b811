//! Calls about code and contexts.

use bytes::{Bytes, BytesMut};
use frontends::rest::v1;
use futures_util::TryStreamExt as _;
use sandbox::{ContextName, Error, ErrorKind};

use super::Client;
use crate::error::CommandResult;

/// Largest output that is read into memory.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

impl Client {
    /// Runs code to its end; the answer holds what it printed, capped.
    pub(crate) async fn run_code(
        &self,
        sandbox: &str,
        request: &v1::CodeRequest,
    ) -> CommandResult<v1::CodeResult> {
        self.post_json(self.of(sandbox, &["code"]), request).await
    }

    /// Something that code displayed, in one of its forms.
    pub(crate) async fn code_output(
        &self,
        sandbox: &str,
        exec: &str,
        number: u32,
        mime: &str,
    ) -> CommandResult<Bytes> {
        let number = number.to_string();
        let target = self.of(sandbox, &["execs", exec, "outputs", &number]).with("mime", mime);
        let mut pieces = self.download(target).await?;
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.try_next().await? {
            if whole.len() + piece.len() > MAX_OUTPUT_BYTES {
                let message = format!("output {number} of {exec} is longer than {MAX_OUTPUT_BYTES} bytes");
                return Err(Error::new(ErrorKind::LimitReached, message).into());
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    pub(crate) async fn contexts(&self, sandbox: &str) -> CommandResult<Vec<engine::ContextView>> {
        Ok(self.get::<v1::ContextList>(self.of(sandbox, &["contexts"])).await?.contexts)
    }

    pub(crate) async fn create_context(
        &self,
        sandbox: &str,
        request: &v1::ContextRequest,
    ) -> CommandResult<v1::ContextMade> {
        self.post_json(self.of(sandbox, &["contexts"]), request).await
    }

    pub(crate) async fn reset_context(
        &self,
        sandbox: &str,
        context: &ContextName,
    ) -> CommandResult<v1::ContextMade> {
        self.post(self.of(sandbox, &["contexts", context.as_str(), "reset"])).await
    }

    pub(crate) async fn remove_context(&self, sandbox: &str, context: &ContextName) -> CommandResult<()> {
        self.delete(self.of(sandbox, &["contexts", context.as_str()])).await
    }

    pub(crate) async fn fork_context(
        &self,
        sandbox: &str,
        context: &ContextName,
        request: &v1::ForkRequest,
    ) -> CommandResult<v1::ContextMade> {
        self.post_json(self.of(sandbox, &["contexts", context.as_str(), "fork"]), request).await
    }

    pub(crate) async fn languages(&self, sandbox: &str) -> CommandResult<Vec<engine::LanguageView>> {
        Ok(self.get::<v1::LanguageList>(self.of(sandbox, &["languages"])).await?.languages)
    }
}
