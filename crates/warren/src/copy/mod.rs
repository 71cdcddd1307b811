//! Files and trees between this machine and a sandbox or a volume, as `docker cp` would have it.

mod download;
mod endpoint;
mod error;
mod landing;
mod progress;
mod upload;

use std::io;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};
use hostfiles::{Fidelity, Limits, Rules};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

pub(crate) use self::{
    download::{Links, Source, download, stream_out},
    endpoint::Endpoint,
    landing::{Landing, Readers},
    progress::Progress,
    upload::{stream_in, upload},
};

/// The user's own files: all of them, but for trees that no sandbox could send back.
const RULES: Rules =
    Rules { fidelity: Fidelity::Own, limits: Limits { entries: u64::MAX, bytes: u64::MAX, depth: 256 } };

/// Writes everything that comes; returns how many bytes that was.
pub(crate) async fn pour(
    mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    into: &mut (impl AsyncWrite + Unpin),
) -> io::Result<u64> {
    let mut n_bytes = 0;
    while let Some(piece) = bytes.try_next().await? {
        into.write_all(&piece).await?;
        n_bytes += piece.len() as u64;
    }
    into.flush().await?;
    Ok(n_bytes)
}
