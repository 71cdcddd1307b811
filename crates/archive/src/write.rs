//! Members into an archive.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::FileExt as _,
};

use tar::{EntryType, Header};

use crate::{
    BLOCK, Content, Kind, Member, Part,
    error::{Error, Result},
    holes::parts_of_file,
    pax::{self, KIND, SOCKET},
    sparse::written_map,
};

/// Longest extended header that is written.
pub const MAX_HEADER_BYTES: u64 = 4 * 1024 * 1024;

const BUFFER_BYTES: usize = 64 * 1024;
/// A file with more parts is written whole: not every reader remembers so many.
const MAX_WRITTEN_PARTS: usize = 64 * 1024;

/// Largest number in a field of seven octal digits, and of eleven.
const MAX_ID: u64 = 0o777_7777;
const MAX_SIZE: u64 = 0o777_7777_7777;

/// Writes members one after the other.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    written: u64,
    /// Content of the current member that is still to be written, and what fills its last block.
    left: u64,
    padding: usize,
    /// For content on its way.
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(to: W) -> Self {
        Self { to, written: 0, left: 0, padding: 0, buffer: Vec::new() }
    }

    /// Bytes of the archive so far, in whole blocks.
    pub fn written(&self) -> u64 {
        self.written + self.padding as u64
    }

    /// Writes everything before a member's content, which is to follow by [`Writer::write`].
    pub fn begin(&mut self, member: &Member) -> Result<()> {
        self.end_member()?;
        let header = header(member)?;
        self.put(&header)?;
        if let Kind::File(content) = &member.kind {
            self.left = content.stored();
            self.padding = usize::try_from(self.left.wrapping_neg() % BLOCK as u64).unwrap_or_default();
            if content.has_holes() {
                self.put(&written_map(content))?;
            }
        }
        Ok(())
    }

    /// Writes the next of the member's content: its parts, one behind the other.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Error::OtherLength)?;
        self.put(bytes)
    }

    /// Writes a member with all that `content` has, which must be as long as the member says.
    pub fn add(&mut self, member: &Member, content: impl Read) -> Result<()> {
        self.begin(member)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BUFFER_BYTES, 0);
        let copied = self.copy(content, &mut buffer);
        self.buffer = buffer;
        copied
    }

    /// Writes an open file of `size` bytes with the holes that it has, whatever content the member names. One that
    /// becomes shorter meanwhile is an error.
    pub fn add_file(&mut self, mut member: Member, file: &File, size: u64) -> Result<()> {
        let mut content = parts_of_file(file, size).map_err(io::Error::from)?;
        if content.parts.len() > MAX_WRITTEN_PARTS {
            content = Content::whole(size);
        }
        let parts = FileParts { file, parts: content.parts.clone().into_iter(), at: 0, left: 0 };
        member.kind = Kind::File(content);
        self.add(&member, parts)
    }

    fn copy(&mut self, mut content: impl Read, buffer: &mut [u8]) -> Result<()> {
        loop {
            match content.read(buffer) {
                Ok(0) if self.left == 0 => return Ok(()),
                Ok(0) => return Err(Error::OtherLength),
                Ok(n) => self.write(&buffer[..n])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes the end and returns where it went.
    pub fn finish(mut self) -> Result<W> {
        self.end_member()?;
        self.put(&[0; 2 * BLOCK])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn end_member(&mut self) -> Result<()> {
        if self.left > 0 {
            return Err(Error::OtherLength);
        }
        let padding = std::mem::take(&mut self.padding);
        self.put(&[0; BLOCK][..padding])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

/// The parts of a file, one behind the other.
struct FileParts<'a> {
    file: &'a File,
    parts: std::vec::IntoIter<Part>,
    /// The position in the file, within the current part.
    at: u64,
    left: u64,
}

impl Read for FileParts<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some(part) = self.parts.next() else { return Ok(0) };
            (self.at, self.left) = (part.offset, part.length);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

/// All headers of a member.
pub fn header(member: &Member) -> Result<Vec<u8>> {
    let mut records = Vec::new();
    let mut header = Header::new_ustar();
    header.set_mode(member.mode);
    header.set_size(0);
    let link = match &member.kind {
        Kind::Symlink { target } | Kind::HardLink { target } => &target[..],
        _ => &[],
    };
    header.set_entry_type(match &member.kind {
        Kind::Directory => EntryType::Directory,
        Kind::File(_) | Kind::Socket => EntryType::Regular,
        Kind::Symlink { .. } => EntryType::Symlink,
        Kind::HardLink { .. } => EntryType::Link,
        Kind::Fifo => EntryType::Fifo,
        Kind::Whiteout => EntryType::Char,
        Kind::Device | Kind::Unknown(_) => return Err(Error::Unsupported("such a member".to_owned())),
    });
    match &member.kind {
        Kind::File(content) => {
            let map = if content.has_holes() { written_map(content).len() as u64 } else { 0 };
            let stored = content.stored() + map;
            set_number(&mut records, b"size", stored, MAX_SIZE, |size| header.set_size(size));
            if content.has_holes() {
                pax::push(&mut records, b"GNU.sparse.major", b"1");
                pax::push(&mut records, b"GNU.sparse.minor", b"0");
                pax::push(&mut records, b"GNU.sparse.realsize", content.size.to_string().as_bytes());
            }
        }
        Kind::Socket => pax::push(&mut records, KIND, SOCKET),
        Kind::Whiteout => {
            header.set_device_major(0)?;
            header.set_device_minor(0)?;
        }
        _ => {}
    }
    set_path(&mut header, &mut records, member);
    if !set_text(&mut header.as_old_mut().linkname, link) {
        pax::push(&mut records, b"linkpath", link);
    }
    set_number(&mut records, b"uid", member.uid, MAX_ID, |id| header.set_uid(id));
    set_number(&mut records, b"gid", member.gid, MAX_ID, |id| header.set_gid(id));
    let seconds = u64::try_from(member.mtime.tv_sec).ok().filter(|&seconds| seconds <= MAX_SIZE);
    header.set_mtime(seconds.unwrap_or_default());
    if seconds.is_none() || member.mtime.tv_nsec != 0 {
        pax::push(&mut records, b"mtime", pax::time_text(member.mtime).as_bytes());
    }
    for attribute in &member.attributes {
        pax::push_attribute(&mut records, attribute);
    }
    header.set_cksum();
    let mut bytes = extended_header(records)?;
    bytes.extend_from_slice(header.as_bytes());
    Ok(bytes)
}

fn extended_header(mut records: Vec<u8>) -> Result<Vec<u8>> {
    let length = records.len() as u64;
    if length == 0 {
        return Ok(Vec::new());
    }
    if length > MAX_HEADER_BYTES {
        return Err(Error::LongHeader { most: MAX_HEADER_BYTES });
    }
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XHeader);
    header.as_old_mut().name[..3].copy_from_slice(b"pax");
    header.set_size(length);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    records.resize(records.len().next_multiple_of(BLOCK), 0);
    let mut bytes = header.as_bytes().to_vec();
    bytes.append(&mut records);
    Ok(bytes)
}

/// In its field where it fits, and in a record where it does not.
fn set_number(records: &mut Vec<u8>, key: &[u8], number: u64, most: u64, set: impl FnOnce(u64)) {
    set(number.min(most));
    if number > most {
        pax::push(records, key, number.to_string().as_bytes());
    }
}

/// In the field of names where it fits, else divided between that and the field of what is above, else in a record.
fn set_path(header: &mut Header, records: &mut Vec<u8>, member: &Member) {
    let mut path = member.path.clone();
    if member.kind == Kind::Directory && !path.ends_with(b"/") {
        path.push(b'/');
    }
    if set_text(&mut header.as_old_mut().name, &path) {
        return;
    }
    let is_between = |at: &usize| path[*at] == b'/' && *at > 0 && path.len() - at - 1 <= 100;
    let middle = (0..path.len().saturating_sub(1).min(156)).find(is_between);
    match (middle, header.as_ustar_mut()) {
        (Some(at), Some(fields)) => {
            fields.name = [0; 100];
            set_text(&mut fields.prefix, &path[..at]);
            set_text(&mut fields.name, &path[at + 1..]);
        }
        _ => pax::push(records, b"path", &path),
    }
}

/// Sets as much of the text as fits; whether that was all.
fn set_text(field: &mut [u8], text: &[u8]) -> bool {
    let fitting = text.len().min(field.len());
    field[..fitting].copy_from_slice(&text[..fitting]);
    text.len() <= field.len()
}
