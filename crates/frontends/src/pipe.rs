//! Between threads that block and tasks that do not: bytes in bounded pieces.

use engine::ByteStream;
use futures_util::{StreamExt as _, stream};
use hostfiles::{PipeReader, PipeWriter, Pumped, pieces, pump};
use sandbox::{Error, ErrorKind, Result};

/// The bytes still taken from a sender after nobody wants them any more, so that it reads why.
const MAX_DRAINED_BYTES: usize = 256 * 1024 * 1024;

/// For a thread that reads what comes as a stream.
pub(crate) fn readable(mut bytes: ByteStream) -> PipeReader<Error> {
    let (pieces, received) = pieces();
    tokio::spawn(async move {
        match pump(&mut bytes, &pieces).await {
            Ok(Pumped::All) => {}
            Ok(Pumped::Closed) => drain(bytes).await,
            Err(error) => pieces.send(Err(error)).await.unwrap_or(()),
        }
    });
    PipeReader::new(received)
}

/// The archive that `save` writes, once it has begun.
pub(crate) async fn written<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    save: impl FnOnce(PipeWriter<Error>) -> F,
) -> Result<ByteStream> {
    let (pieces, mut received) = pieces();
    let saving = tokio::spawn(save(PipeWriter::new(pieces)));
    let ended = |ended: std::result::Result<Result<T>, _>| {
        let broken =
            |error| Error::new(ErrorKind::Internal, "writing the archive ended too early").with_source(error);
        ended.map_err(broken).flatten()
    };
    let Some(first) = received.recv().await else {
        // An archive is never empty, so this one failed before its first byte.
        ended(saving.await)?;
        return Err(Error::new(ErrorKind::Internal, "the archive is empty"));
    };
    let rest = stream::unfold((received, Some(saving)), move |(mut received, saving)| async move {
        if let Some(piece) = received.recv().await {
            return Some((piece, (received, saving)));
        }
        // A stream that ends early must not look whole.
        ended(saving?.await).err().map(|error| (Err(error), (received, None)))
    });
    Ok(stream::iter([first]).chain(rest).boxed())
}

async fn drain(mut bytes: ByteStream) {
    let mut left = MAX_DRAINED_BYTES;
    while let Some(Ok(piece)) = bytes.next().await {
        let Some(rest) = left.checked_sub(piece.len()) else { return };
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};

    use bytes::Bytes;

    use super::*;

    async fn read(pieces: Vec<Result<Bytes>>) -> io::Result<String> {
        let mut reader = readable(stream::iter(pieces).boxed());
        tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn what_ends_early_is_told_from_what_ends() {
        let whole = vec![Ok("on".into()), Ok(Bytes::new()), Ok("e".into())];
        assert_eq!(read(whole).await.unwrap(), "one");
        let broken = vec![Ok("on".into()), Err(Error::new(ErrorKind::Cancelled, "the body ended early"))];
        assert_eq!(read(broken).await.unwrap_err().to_string(), "the body ended early");
    }
}
