//! SFTP version 3 on the wire: `[length: u32 BE][type: u8][payload]`, and the fields of payloads.
//!
//! Paths are bytes here, never text: names inside need not be UTF-8.

/// Longest packet that we take, its length field not counted. What OpenSSH's server takes.
pub(super) const MAX_PACKET_BYTES: usize = 256 * 1024;
/// Most bytes of one read or write, which leaves room for the other fields of a packet.
pub(super) const MAX_DATA_BYTES: usize = MAX_PACKET_BYTES - 1024;
pub(super) const VERSION: u32 = 3;

/// Types of requests.
pub(super) mod request {
    pub(in crate::sftp) const INIT: u8 = 1;
    pub(in crate::sftp) const OPEN: u8 = 3;
    pub(in crate::sftp) const CLOSE: u8 = 4;
    pub(in crate::sftp) const READ: u8 = 5;
    pub(in crate::sftp) const WRITE: u8 = 6;
    pub(in crate::sftp) const LSTAT: u8 = 7;
    pub(in crate::sftp) const FSTAT: u8 = 8;
    pub(in crate::sftp) const SETSTAT: u8 = 9;
    pub(in crate::sftp) const FSETSTAT: u8 = 10;
    pub(in crate::sftp) const OPENDIR: u8 = 11;
    pub(in crate::sftp) const READDIR: u8 = 12;
    pub(in crate::sftp) const REMOVE: u8 = 13;
    pub(in crate::sftp) const MKDIR: u8 = 14;
    pub(in crate::sftp) const RMDIR: u8 = 15;
    pub(in crate::sftp) const REALPATH: u8 = 16;
    pub(in crate::sftp) const STAT: u8 = 17;
    pub(in crate::sftp) const RENAME: u8 = 18;
    pub(in crate::sftp) const READLINK: u8 = 19;
    pub(in crate::sftp) const SYMLINK: u8 = 20;
    pub(in crate::sftp) const EXTENDED: u8 = 200;
}

/// Types of replies.
pub(super) mod reply {
    pub(in crate::sftp) const VERSION: u8 = 2;
    pub(in crate::sftp) const STATUS: u8 = 101;
    pub(in crate::sftp) const HANDLE: u8 = 102;
    pub(in crate::sftp) const DATA: u8 = 103;
    pub(in crate::sftp) const NAME: u8 = 104;
    pub(in crate::sftp) const ATTRS: u8 = 105;
    pub(in crate::sftp) const EXTENDED: u8 = 201;
}

/// Codes of a status.
pub(super) mod status {
    pub(in crate::sftp) const OK: u32 = 0;
    pub(in crate::sftp) const EOF: u32 = 1;
    pub(in crate::sftp) const NO_SUCH_FILE: u32 = 2;
    pub(in crate::sftp) const PERMISSION_DENIED: u32 = 3;
    pub(in crate::sftp) const FAILURE: u32 = 4;
    pub(in crate::sftp) const BAD_MESSAGE: u32 = 5;
    pub(in crate::sftp) const OP_UNSUPPORTED: u32 = 8;
}

/// A packet that cannot be read. The stream is over: nobody knows where the next one begins, or what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The length of the first packet in `bytes`, its length field not counted. `None` if more bytes are needed to tell.
pub(super) fn packet_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.first_chunk::<4>() else { return Ok(None) };
    match u32::from_be_bytes(*head) as usize {
        length @ 1..=MAX_PACKET_BYTES => Ok(Some(length)),
        _ => Err(Malformed),
    }
}

/// Takes fields off the front of a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.first_chunk().ok_or(Malformed)?;
        Ok(u32::from_be_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.first_chunk().ok_or(Malformed)?;
        Ok(u64::from_be_bytes(*bytes))
    }

    pub(super) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }
}

/// Replies, one after the other, until they are sent.
#[derive(Debug, Default)]
pub(super) struct Replies(pub(super) Vec<u8>);

impl Replies {
    /// Writes one packet whose fields `fill` appends.
    pub(super) fn packet(&mut self, kind: u8, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.u32(0);
        self.0.push(kind);
        fill(self);
        self.finish(start);
    }

    /// The beginning of a `DATA` reply with room for `length` bytes, and where they go.
    pub(super) fn begin_data(&mut self, id: u32, length: usize) -> (usize, &mut [u8]) {
        let start = self.0.len();
        self.u32(0);
        self.0.push(reply::DATA);
        self.u32(id);
        self.u32(0);
        let data = self.0.len();
        self.0.resize(data + length, 0);
        (start, &mut self.0[data..])
    }

    /// Ends a `DATA` reply, of whose room `length` bytes were filled.
    pub(super) fn end_data(&mut self, start: usize, length: usize) {
        const FIELDS: usize = 4 + 1 + 4;
        let data = start + FIELDS + 4;
        self.0.truncate(data + length);
        self.set_u32(start + FIELDS, length);
        self.finish(start);
    }

    /// Takes back everything from `start` on.
    pub(super) fn take_back(&mut self, start: usize) {
        self.0.truncate(start);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn string(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn finish(&mut self, start: usize) {
        self.set_u32(start, self.0.len() - start - 4);
    }

    fn set_u32(&mut self, at: usize, value: usize) {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_where_the_payload_does() {
        let mut fields = Fields(&[0, 0, 0, 2, b'a', 0xff, 7]);
        assert_eq!(fields.string(), Ok(&[b'a', 0xff][..]));
        assert_eq!((fields.byte(), fields.byte()), (Ok(7), Err(Malformed)));
        assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xff, 1]).string(), Err(Malformed));
        assert_eq!(Fields(&[1, 2, 3]).u32(), Err(Malformed));
        assert_eq!(Fields(&[0; 7]).u64(), Err(Malformed));
    }

    #[test]
    fn a_packet_is_neither_empty_nor_endless() {
        assert_eq!(packet_length(&[0, 0, 0]), Ok(None));
        assert_eq!(packet_length(&[0, 0, 0, 5, 1]), Ok(Some(5)));
        assert_eq!(packet_length(&[0, 0, 0, 0]), Err(Malformed));
        assert_eq!(packet_length(&[0xff; 4]), Err(Malformed));
    }

    #[test]
    fn data_takes_only_as_much_as_was_read() {
        let mut replies = Replies::default();
        let (start, room) = replies.begin_data(9, 100);
        room[..3].copy_from_slice(b"abc");
        replies.end_data(start, 3);
        assert_eq!(replies.0, b"\0\0\0\x0c\x67\0\0\0\x09\0\0\0\x03abc");
    }
}
