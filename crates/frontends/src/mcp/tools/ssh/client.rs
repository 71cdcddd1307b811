//! A small client of the SFTP server inside: one request at a time, over a stream of the engine's.

use engine::PortStream;
use sandbox::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Longest reply that is read; the server sends no longer one.
const MAX_REPLY_BYTES: usize = 256 * 1024;
/// Bytes of one read or write.
const CHUNK_BYTES: usize = 128 * 1024;
const VERSION: u32 = 3;

const INIT: u8 = 1;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const WRITE: u8 = 6;
pub(super) const REMOVE: u8 = 13;
const MKDIR: u8 = 14;
pub(super) const RMDIR: u8 = 15;
pub(super) const REALPATH: u8 = 16;
pub(super) const READLINK: u8 = 19;
pub(super) const RENAME: u8 = 18;
pub(super) const SYMLINK: u8 = 20;

const SERVER_VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;

const STATUS_OK: u32 = 0;
const STATUS_EOF: u32 = 1;

const TO_READ: u32 = 1;
/// Write, create, truncate.
const TO_REPLACE: u32 = 2 | 8 | 16;

/// The fields of a request.
#[derive(Debug, Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut fields = self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        fields.0.extend_from_slice(bytes);
        fields
    }
}

/// A reply to one request.
struct Reply {
    kind: u8,
    payload: Vec<u8>,
    at: usize,
}

impl Reply {
    fn take(&mut self, n: usize) -> Result<&[u8]> {
        let from = self.at;
        self.at = from.saturating_add(n);
        self.payload.get(from..self.at).ok_or_else(nonsense)
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?.first_chunk().ok_or_else(nonsense)?;
        Ok(u32::from_be_bytes(*bytes))
    }

    fn bytes(&mut self) -> Result<Vec<u8>> {
        let length = self.u32()? as usize;
        Ok(self.take(length)?.to_vec())
    }
}

pub(super) struct SftpClient {
    stream: PortStream,
    last_id: u32,
}

impl SftpClient {
    pub(super) async fn begin(stream: PortStream) -> Result<Self> {
        let mut client = Self { stream, last_id: 0 };
        client.send(INIT, &VERSION.to_be_bytes()).await?;
        match client.receive().await? {
            (SERVER_VERSION, _) => Ok(client),
            _ => Err(nonsense()),
        }
    }

    /// A file's bytes, at most `limit`, and whether there are more.
    pub(super) async fn read(&mut self, path: &str, limit: usize) -> Result<(Vec<u8>, bool)> {
        let handle = self.open(path, TO_READ).await?;
        let mut content = Vec::new();
        // One byte more than wanted tells whether there are more.
        while content.len() <= limit {
            let wanted = CHUNK_BYTES.min(limit + 1 - content.len());
            let fields = Fields::default().bytes(&handle).u64(content.len() as u64);
            let fields = fields.u32(u32::try_from(wanted).unwrap_or(u32::MAX));
            let mut reply = self.ask(READ, fields).await?;
            if reply.kind != DATA {
                match status(&mut reply, path)? {
                    STATUS_EOF => break,
                    _ => return Err(nonsense()),
                }
            }
            let bytes = reply.bytes()?;
            if bytes.is_empty() || bytes.len() > wanted {
                return Err(nonsense());
            }
            content.extend_from_slice(&bytes);
        }
        let is_more = content.len() > limit;
        content.truncate(limit);
        self.close(&handle).await?;
        Ok((content, is_more))
    }

    pub(super) async fn write(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let handle = self.open(path, TO_REPLACE).await?;
        for (index, chunk) in content.chunks(CHUNK_BYTES).enumerate() {
            let offset = (index * CHUNK_BYTES) as u64;
            self.order(WRITE, Fields::default().bytes(&handle).u64(offset).bytes(chunk), path).await?;
        }
        self.close(&handle).await
    }

    pub(super) async fn mkdir(&mut self, path: &str) -> Result<()> {
        self.order(MKDIR, Fields::default().bytes(path.as_bytes()).u32(0), path).await
    }

    /// A request on one or two paths whose answer says only whether it was done.
    pub(super) async fn change(&mut self, kind: u8, first: &str, second: Option<&str>) -> Result<()> {
        let mut fields = Fields::default().bytes(first.as_bytes());
        if let Some(second) = second {
            fields = fields.bytes(second.as_bytes());
        }
        self.order(kind, fields, first).await
    }

    /// A request whose answer is one name.
    pub(super) async fn name(&mut self, kind: u8, path: &str) -> Result<String> {
        let mut reply = self.ask(kind, Fields::default().bytes(path.as_bytes())).await?;
        if reply.kind != NAME {
            status(&mut reply, path)?;
            return Err(nonsense());
        }
        if reply.u32()? != 1 {
            return Err(nonsense());
        }
        Ok(String::from_utf8_lossy(&reply.bytes()?).into_owned())
    }

    async fn open(&mut self, path: &str, flags: u32) -> Result<Vec<u8>> {
        let fields = Fields::default().bytes(path.as_bytes()).u32(flags).u32(0);
        let mut reply = self.ask(OPEN, fields).await?;
        if reply.kind == HANDLE {
            return reply.bytes();
        }
        status(&mut reply, path)?;
        Err(nonsense())
    }

    async fn close(&mut self, handle: &[u8]) -> Result<()> {
        self.order(CLOSE, Fields::default().bytes(handle), "the file").await
    }

    async fn order(&mut self, kind: u8, fields: Fields, path: &str) -> Result<()> {
        let mut reply = self.ask(kind, fields).await?;
        match status(&mut reply, path)? {
            STATUS_OK => Ok(()),
            _ => Err(nonsense()),
        }
    }

    async fn ask(&mut self, kind: u8, fields: Fields) -> Result<Reply> {
        self.last_id = self.last_id.wrapping_add(1);
        let payload = [&self.last_id.to_be_bytes()[..], &fields.0].concat();
        self.send(kind, &payload).await?;
        let (kind, payload) = self.receive().await?;
        let mut reply = Reply { kind, payload, at: 0 };
        if reply.u32()? != self.last_id {
            return Err(nonsense());
        }
        Ok(reply)
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len() + 1).map_err(|_too_long| nonsense())?;
        let packet = [&length.to_be_bytes()[..], &[kind], payload].concat();
        self.stream.write_all(&packet).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)
    }

    async fn receive(&mut self) -> Result<(u8, Vec<u8>)> {
        let length = self.stream.read_u32().await.map_err(lost)? as usize;
        if !(1..=MAX_REPLY_BYTES).contains(&length) {
            return Err(nonsense());
        }
        let kind = self.stream.read_u8().await.map_err(lost)?;
        let mut payload = vec![0; length - 1];
        self.stream.read_exact(&mut payload).await.map_err(lost)?;
        Ok((kind, payload))
    }
}

/// The code of a status that is fine; an error for the others.
fn status(reply: &mut Reply, path: &str) -> Result<u32> {
    if reply.kind != STATUS {
        return Err(nonsense());
    }
    let code = reply.u32()?;
    if matches!(code, STATUS_OK | STATUS_EOF) {
        return Ok(code);
    }
    let message = String::from_utf8_lossy(&reply.bytes()?).into_owned();
    let kind = match code {
        2 => ErrorKind::NotFound,
        3 => ErrorKind::Denied,
        5 => ErrorKind::InvalidRequest,
        8 => ErrorKind::Unsupported,
        _ => ErrorKind::WrongState,
    };
    let shown: String = message.chars().filter(|char| !char.is_control()).take(200).collect();
    Err(Error::new(kind, format!("{path}: {shown}")))
}

/// The guest is not trusted to speak well.
fn nonsense() -> Error {
    Error::new(ErrorKind::Internal, "the SFTP server inside sent an invalid answer")
}

fn lost(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the SFTP server inside went away").with_source(error)
}
