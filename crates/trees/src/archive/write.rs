//! Headers of members. The same member has the same bytes everywhere.

use tar::{EntryType, Header};

use super::{BLOCK, KIND, Kind, MAX_HEADER_BYTES, Member, SOCKET, pax};
use crate::error::{Error, Result};

/// Largest number in a field of seven octal digits, and of eleven.
const MAX_ID: u32 = 0o777_7777;
const MAX_SIZE: u64 = 0o777_7777_7777;

/// Ends an archive.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Everything before the member's content.
pub(crate) fn write_header(member: &Member) -> Result<Vec<u8>> {
    let mut records = Vec::new();
    let mut header = Header::new_ustar();
    let attributes = &member.attributes;
    header.set_mode(attributes.mode);
    match &member.kind {
        Kind::Directory => header.set_entry_type(EntryType::Directory),
        Kind::File { stored } => set_size(&mut header, &mut records, *stored),
        Kind::Sparse { stored, size } => {
            set_size(&mut header, &mut records, *stored);
            pax::push(&mut records, b"GNU.sparse.major", b"1");
            pax::push(&mut records, b"GNU.sparse.minor", b"0");
            pax::push(&mut records, b"GNU.sparse.realsize", size.to_string().as_bytes());
        }
        Kind::Link { target } => {
            header.set_entry_type(EntryType::Symlink);
            set_link(&mut header, &mut records, target);
        }
        Kind::HardLink { target } => {
            header.set_entry_type(EntryType::Link);
            set_link(&mut header, &mut records, target);
        }
        Kind::Fifo => header.set_entry_type(EntryType::Fifo),
        Kind::Socket => pax::push(&mut records, KIND, SOCKET),
        Kind::Whiteout => {
            header.set_entry_type(EntryType::Char);
            for set in [Header::set_device_major, Header::set_device_minor] {
                set(&mut header, 0).map_err(|error| Error::archive(&error))?;
            }
        }
    }
    let mut path = member.path.clone();
    if member.kind == Kind::Directory {
        path.push(b'/');
    }
    set_text(&mut header.as_old_mut().name, &mut records, b"path", &path);
    set_id(&mut records, b"uid", attributes.uid, |id| header.set_uid(id));
    set_id(&mut records, b"gid", attributes.gid, |id| header.set_gid(id));
    header.set_mtime(u64::try_from(attributes.mtime.tv_sec).unwrap_or_default().min(MAX_SIZE));
    pax::push(&mut records, b"mtime", pax::time_text(attributes.mtime).as_bytes());
    for attribute in &member.extended {
        pax::push_attribute(&mut records, attribute);
    }
    header.set_cksum();
    let mut bytes = extended_header(records)?;
    bytes.extend_from_slice(header.as_bytes());
    Ok(bytes)
}

fn extended_header(mut records: Vec<u8>) -> Result<Vec<u8>> {
    let length = records.len() as u64;
    if length > MAX_HEADER_BYTES {
        return Err(Error::TooLarge {
            what: "what is to be written about one file".to_owned(),
            limit: "MAX_HEADER_BYTES".to_owned(),
            most: MAX_HEADER_BYTES,
        });
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

fn set_size(header: &mut Header, records: &mut Vec<u8>, size: u64) {
    header.set_size(size.min(MAX_SIZE));
    if size > MAX_SIZE {
        pax::push(records, b"size", size.to_string().as_bytes());
    }
}

fn set_id(records: &mut Vec<u8>, key: &[u8], id: u32, set: impl FnOnce(u64)) {
    set(u64::from(id.min(MAX_ID)));
    if id > MAX_ID {
        pax::push(records, key, id.to_string().as_bytes());
    }
}

fn set_link(header: &mut Header, records: &mut Vec<u8>, target: &[u8]) {
    set_text(&mut header.as_old_mut().linkname, records, b"linkpath", target);
}

/// In the header where it fits, and in full in a record where it does not.
fn set_text(field: &mut [u8], records: &mut Vec<u8>, key: &[u8], text: &[u8]) {
    let fitting = text.len().min(field.len());
    field[..fitting].copy_from_slice(&text[..fitting]);
    if text.len() > field.len() {
        pax::push(records, key, text);
    }
}
