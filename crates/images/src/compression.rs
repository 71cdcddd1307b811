//! How a layer or an archive is compressed, told by its first bytes: media types are known to lie.

use std::io::{self, BufReader, Cursor, Read};

use flate2::read::MultiGzDecoder;

use crate::error::{Error, Result};

/// Bytes that tell every compression we know of from the others.
const MAGIC_BYTES: usize = 6;
/// Bytes read from the compressed file at a time.
const READ_BYTES: usize = 128 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn of(start: &[u8]) -> Result<Self> {
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Zstd),
            // A zstd stream may begin with a frame that is to be skipped.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Self::Zstd),
            [b'B', b'Z', b'h', ..] => Err(Error::Compression { by: "bzip2".into() }),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(Error::Compression { by: "xz".into() }),
            _ => Ok(Self::None),
        }
    }

    pub(crate) fn layer_media_type(self) -> &'static str {
        match self {
            Self::None => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// Reads what `source` holds, uncompressed.
pub(crate) fn decompressed<'a>(
    mut source: impl Read + Send + 'a,
) -> Result<(Compression, Box<dyn Read + Send + 'a>)> {
    let mut start = Vec::with_capacity(MAGIC_BYTES);
    source
        .by_ref()
        .take(MAGIC_BYTES as u64)
        .read_to_end(&mut start)
        .map_err(|error| unreadable(error, "layer"))?;
    let compression = Compression::of(&start)?;
    let whole = Cursor::new(start).chain(source);
    let reader: Box<dyn Read + Send + 'a> = match compression {
        Compression::None => Box::new(whole),
        Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, whole))),
        Compression::Zstd => Box::new(
            zstd::Decoder::with_buffer(BufReader::with_capacity(READ_BYTES, whole))
                .map_err(|error| unreadable(error, "layer"))?,
        ),
    };
    Ok((compression, reader))
}

/// A decoder's complaint is about the bytes; a system call's is about the disk.
pub(crate) fn unreadable(error: io::Error, what: &str) -> Error {
    match error.raw_os_error() {
        Some(_) => Error::Io { act: "read".into(), path: what.into(), source: error },
        None => Error::corrupt(what, "a whole stream", error.to_string()),
    }
}
