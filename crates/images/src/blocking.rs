//! Work that waits for the disk, off the threads that must not.

use crate::error::{Error, Result};

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only when the runtime ends.
            Err(_cancelled) => Err(Error::Unavailable {
                what: "the store of images".to_owned(),
                why: "this process is ending".to_owned(),
            }),
        },
    }
}
