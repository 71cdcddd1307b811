//! One SFTP session: requests in, replies out, on one thread of a process of its own.

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, StatVfs},
    io::Errno,
};

use super::{
    attributes::{self, Attributes},
    handles::{Handles, MAX_HANDLES, Open},
    packet::{
        Fields, MAX_DATA_BYTES, MAX_PACKET_BYTES, Malformed, Replies, VERSION, packet_length, reply, request,
        status,
    },
    paths,
};
use crate::files::{QUIET, kind_of};

/// Bytes read from the client at once: one whole packet, and most of the next.
const READ_BYTES: usize = 2 * MAX_PACKET_BYTES;
/// Replies are sent when they are this long, or when no further request has arrived.
const SEND_BYTES: usize = 256 * 1024;
/// Names in one reply to a listing.
const NAMES_PER_REPLY: usize = 128;
/// Bytes of names in one reply, which every client takes.
const NAME_BYTES_PER_REPLY: usize = 32 * 1024;

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const TRUNCATE: u32 = 16;
const EXCLUSIVE: u32 = 32;

/// The extensions that we offer beyond version 3, as OpenSSH's server names them.
const EXTENSIONS: [(&[u8], &[u8]); 8] = [
    (b"posix-rename@openssh.com", b"1"),
    (b"statvfs@openssh.com", b"2"),
    (b"fstatvfs@openssh.com", b"2"),
    (b"hardlink@openssh.com", b"1"),
    (b"fsync@openssh.com", b"1"),
    (b"lsetstat@openssh.com", b"1"),
    (b"limits@openssh.com", b"1"),
    (b"expand-path@openssh.com", b"1"),
];

/// Why a request got no answer of its own kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// Ends the session.
    Malformed,
    Errno(Errno),
    /// There is nothing more to read or list.
    End,
    ReadOnly,
    Unsupported,
}

impl From<Malformed> for Refusal {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

type Done<T = ()> = Result<T, Refusal>;

/// The state of one session.
#[derive(Debug, Default)]
pub(super) struct Session {
    handles: Handles,
    read_only: bool,
    /// The user's home directory.
    home: String,
    has_begun: bool,
}

impl Session {
    pub(super) fn new(read_only: bool, home: String) -> Self {
        Self { read_only, home, ..Self::default() }
    }

    /// Serves until the client is gone, or sends something that is no packet.
    pub(super) fn serve(mut self, mut link: impl Read + Write) -> io::Result<()> {
        let (mut buffer, mut filled) = (vec![0; READ_BYTES], 0);
        let mut replies = Replies::default();
        loop {
            let n_read = match link.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if n_read == 0 {
                return Ok(());
            }
            filled += n_read;
            let n_taken = self.take_packets(&buffer[..filled], &mut replies, &mut link)?;
            link.write_all(&replies.0)?;
            replies.0.clear();
            buffer.copy_within(n_taken..filled, 0);
            filled -= n_taken;
        }
    }

    /// Answers every whole packet in `bytes`; returns the bytes of those.
    fn take_packets(
        &mut self,
        bytes: &[u8],
        replies: &mut Replies,
        link: &mut impl Write,
    ) -> io::Result<usize> {
        let malformed = |Malformed| io::Error::from(io::ErrorKind::InvalidData);
        let mut n_taken = 0;
        while let Some(length) = packet_length(&bytes[n_taken..]).map_err(malformed)? {
            let Some(packet) = bytes.get(n_taken + 4..n_taken + 4 + length) else { break };
            self.answer(packet, replies).map_err(malformed)?;
            n_taken += 4 + length;
            if replies.0.len() >= SEND_BYTES {
                link.write_all(&replies.0)?;
                replies.0.clear();
            }
        }
        Ok(n_taken)
    }

    /// Answers one packet.
    pub(super) fn answer(&mut self, packet: &[u8], replies: &mut Replies) -> Result<(), Malformed> {
        let mut fields = Fields(packet);
        let kind = fields.byte()?;
        // Either the client's version, or the number of the request.
        let id = fields.u32()?;
        if kind == request::INIT {
            return self.begin(replies);
        }
        if !self.has_begun {
            return Err(Malformed);
        }
        let start = replies.0.len();
        match self.perform(kind, id, &mut fields, replies) {
            Ok(()) => Ok(()),
            Err(Refusal::Malformed) => Err(Malformed),
            Err(refusal) => {
                replies.take_back(start);
                refuse(id, refusal, replies);
                Ok(())
            }
        }
    }

    fn begin(&mut self, replies: &mut Replies) -> Result<(), Malformed> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Err(Malformed);
        }
        replies.packet(reply::VERSION, |replies| {
            replies.u32(VERSION);
            for (name, version) in EXTENSIONS {
                replies.string(name);
                replies.string(version);
            }
        });
        Ok(())
    }

    fn perform(&mut self, kind: u8, id: u32, fields: &mut Fields<'_>, replies: &mut Replies) -> Done {
        match kind {
            request::OPEN => {
                let (path, flags) = (fields.string()?, fields.u32()?);
                let attributes = Attributes::read(fields)?;
                let handle = self.open(path, flags, &attributes)?;
                handed_out(id, handle, replies);
                return Ok(());
            }
            request::OPENDIR => {
                let path = fields.string()?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | QUIET;
                let directory = rustix::fs::open(path, flags, Mode::empty())?;
                let listing = Dir::read_from(&directory)?;
                let handle = self.handles.insert(Open::Directory(directory, listing))?;
                handed_out(id, handle, replies);
                return Ok(());
            }
            request::READ => return self.read(id, fields, replies),
            request::READDIR => return self.read_directory(id, fields, replies),
            request::LSTAT | request::STAT => {
                let path = fields.string()?;
                let stat =
                    if kind == request::STAT { rustix::fs::stat(path) } else { rustix::fs::lstat(path) };
                let stat = stat?;
                replies.packet(reply::ATTRS, |replies| {
                    replies.u32(id);
                    attributes::write(&stat, replies);
                });
                return Ok(());
            }
            request::FSTAT => {
                let stat = rustix::fs::fstat(self.handles.get(fields.string()?)?)?;
                replies.packet(reply::ATTRS, |replies| {
                    replies.u32(id);
                    attributes::write(&stat, replies);
                });
                return Ok(());
            }
            request::REALPATH => {
                named(id, &paths::real(fields.string()?)?, replies);
                return Ok(());
            }
            request::READLINK => {
                let target = rustix::fs::readlink(fields.string()?, Vec::new())?;
                named(id, target.as_bytes(), replies);
                return Ok(());
            }
            request::EXTENDED => return self.extended(id, fields, replies),
            request::CLOSE => self.handles.close(fields.string()?)?,
            request::WRITE => {
                let (handle, offset, data) = (fields.string()?, fields.u64()?, fields.string()?);
                write_all(self.handles.file(handle)?, offset, data)?;
            }
            request::FSETSTAT => {
                let handle = fields.string()?;
                let attributes = Attributes::read(fields)?;
                self.may_change()?;
                attributes.set_open(self.handles.get(handle)?)?;
            }
            _ => self.change(kind, fields)?,
        }
        done(id, replies);
        Ok(())
    }

    /// Requests that change something by its path.
    fn change(&self, kind: u8, fields: &mut Fields<'_>) -> Done {
        match kind {
            request::SETSTAT => {
                let path = fields.string()?;
                let attributes = Attributes::read(fields)?;
                self.may_change()?;
                attributes.set(path, true)?;
            }
            request::REMOVE => {
                let path = fields.string()?;
                self.may_change()?;
                rustix::fs::unlink(path)?;
            }
            request::RMDIR => {
                let path = fields.string()?;
                self.may_change()?;
                rustix::fs::rmdir(path)?;
            }
            request::MKDIR => {
                let path = fields.string()?;
                let attributes = Attributes::read(fields)?;
                self.may_change()?;
                rustix::fs::mkdir(path, attributes.mode_or(0o777))?;
            }
            request::RENAME => {
                let (from, to) = (fields.string()?, fields.string()?);
                self.may_change()?;
                rename_to_free_name(from, to)?;
            }
            request::SYMLINK => {
                // OpenSSH's order, which clients use with servers like it; the draft has them the other way round.
                let (target, path) = (fields.string()?, fields.string()?);
                self.may_change()?;
                rustix::fs::symlink(target, path)?;
            }
            _ => return Err(Refusal::Unsupported),
        }
        Ok(())
    }

    fn extended(&mut self, id: u32, fields: &mut Fields<'_>, replies: &mut Replies) -> Done {
        match fields.string()? {
            b"posix-rename@openssh.com" => {
                let (from, to) = (fields.string()?, fields.string()?);
                self.may_change()?;
                rustix::fs::rename(from, to)?;
            }
            b"hardlink@openssh.com" => {
                let (from, to) = (fields.string()?, fields.string()?);
                self.may_change()?;
                rustix::fs::link(from, to)?;
            }
            b"lsetstat@openssh.com" => {
                let path = fields.string()?;
                let attributes = Attributes::read(fields)?;
                self.may_change()?;
                attributes.set(path, false)?;
            }
            b"fsync@openssh.com" => rustix::fs::fsync(self.handles.file(fields.string()?)?)?,
            b"statvfs@openssh.com" => {
                file_system(id, &rustix::fs::statvfs(fields.string()?)?, replies);
                return Ok(());
            }
            b"fstatvfs@openssh.com" => {
                let handle = self.handles.get(fields.string()?)?;
                file_system(id, &rustix::fs::fstatvfs(handle.as_fd())?, replies);
                return Ok(());
            }
            b"limits@openssh.com" => {
                limits(id, replies);
                return Ok(());
            }
            b"expand-path@openssh.com" => {
                named(id, &paths::real(&paths::expanded(fields.string()?, &self.home))?, replies);
                return Ok(());
            }
            _ => return Err(Refusal::Unsupported),
        }
        done(id, replies);
        Ok(())
    }

    fn may_change(&self) -> Done {
        if self.read_only { Err(Refusal::ReadOnly) } else { Ok(()) }
    }

    fn open(&mut self, path: &[u8], asked: u32, attributes: &Attributes) -> Done<u32> {
        let mut flags = match (asked & READ != 0, asked & WRITE != 0) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (true, false) => OFlags::RDONLY,
            (false, false) => return Err(Errno::INVAL.into()),
        };
        let wishes = [
            (APPEND, OFlags::APPEND),
            (CREATE, OFlags::CREATE),
            (TRUNCATE, OFlags::TRUNC),
            (EXCLUSIVE, OFlags::EXCL),
        ];
        flags |= wishes.iter().filter(|(bit, _)| asked & bit != 0).map(|(_, flag)| *flag).collect();
        if asked & (WRITE | APPEND | CREATE | TRUNCATE) != 0 {
            self.may_change()?;
        }
        // Opening a FIFO or a socket would affect the process at its other end, or wait for one.
        if let Ok(stat) = rustix::fs::stat(path) {
            refuse_odd(kind_of(&stat))?;
        }
        let file = rustix::fs::open(path, flags | QUIET, attributes.mode_or(0o666))?;
        refuse_odd(kind_of(&rustix::fs::fstat(&file)?))?;
        Ok(self.handles.insert(Open::File(file))?)
    }

    fn read(&mut self, id: u32, fields: &mut Fields<'_>, replies: &mut Replies) -> Done {
        let (handle, offset, length) = (fields.string()?, fields.u64()?, fields.u32()?);
        let file = self.handles.file(handle)?;
        let length = (length as usize).min(MAX_DATA_BYTES);
        let (start, room) = replies.begin_data(id, length);
        let mut filled = 0;
        // A short read is the end for some clients, so the kernel is asked until there is no more.
        while filled < length {
            match read_some(file, &mut room[filled..], offset.saturating_add(filled as u64)) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(n_read) => filled += n_read,
                Err(Errno::INTR) => {}
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        if filled == 0 && length > 0 {
            return Err(Refusal::End);
        }
        replies.end_data(start, filled);
        Ok(())
    }

    fn read_directory(&mut self, id: u32, fields: &mut Fields<'_>, replies: &mut Replies) -> Done {
        let Open::Directory(directory, listing) = self.handles.get(fields.string()?)? else {
            return Err(Errno::NOTDIR.into());
        };
        let (mut names, mut n_bytes) = (Vec::new(), 0);
        while names.len() < NAMES_PER_REPLY && n_bytes < NAME_BYTES_PER_REPLY {
            let Some(entry) = listing.read() else { break };
            let entry = entry?;
            // Removed since the directory was read.
            let Ok(stat) = rustix::fs::statat(&*directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            else {
                continue;
            };
            let name = entry.file_name().to_bytes().to_vec();
            n_bytes += 2 * name.len();
            names.push((name, stat));
        }
        if names.is_empty() {
            return Err(Refusal::End);
        }
        replies.packet(reply::NAME, |replies| {
            replies.u32(id);
            replies.u32(u32::try_from(names.len()).unwrap_or(u32::MAX));
            for (name, stat) in &names {
                replies.string(name);
                replies.string(&attributes::long_name(name, stat));
                attributes::write(stat, replies);
            }
        });
        Ok(())
    }
}

fn refuse_odd(kind: FileType) -> Done {
    match kind {
        FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::NXIO.into()),
    }
}

/// Past this offset the kernel refuses to read instead of reporting the end.
const MAX_OFFSET: u64 = i64::MAX as u64 - MAX_DATA_BYTES as u64;

fn read_some(file: impl AsFd, room: &mut [u8], offset: u64) -> Result<usize, Errno> {
    match rustix::io::pread(&file, &mut *room, offset.min(MAX_OFFSET)) {
        // Files without positions are read as they come.
        Err(Errno::SPIPE) => rustix::io::read(&file, room),
        result => result,
    }
}

fn write_all(file: impl AsFd, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        let written = match rustix::io::pwrite(&file, data, offset) {
            Err(Errno::SPIPE) => rustix::io::write(&file, data),
            result => result,
        };
        match written {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n_written) => {
                offset = offset.saturating_add(n_written as u64);
                data = &data[n_written..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// In version 3 a rename replaces nothing.
fn rename_to_free_name(from: &[u8], to: &[u8]) -> Result<(), Errno> {
    use rustix::fs::CWD;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that cannot check in the same step.
        Err(Errno::INVAL | Errno::NOSYS) if rustix::fs::lstat(to).is_err() => rustix::fs::rename(from, to),
        result => result,
    }
}

fn handed_out(id: u32, handle: u32, replies: &mut Replies) {
    replies.packet(reply::HANDLE, |replies| {
        replies.u32(id);
        replies.string(&handle.to_be_bytes());
    });
}

/// A reply with one name and no attributes.
fn named(id: u32, name: &[u8], replies: &mut Replies) {
    replies.packet(reply::NAME, |replies| {
        replies.u32(id);
        replies.u32(1);
        replies.string(name);
        replies.string(name);
        replies.u32(0);
    });
}

fn file_system(id: u32, found: &StatVfs, replies: &mut Replies) {
    replies.packet(reply::EXTENDED, |replies| {
        replies.u32(id);
        for value in [
            found.f_bsize,
            found.f_frsize,
            found.f_blocks,
            found.f_bfree,
            found.f_bavail,
            found.f_files,
            found.f_ffree,
            found.f_favail,
            found.f_fsid,
            found.f_flag.bits(),
            found.f_namemax,
        ] {
            replies.u64(value);
        }
    });
}

fn limits(id: u32, replies: &mut Replies) {
    replies.packet(reply::EXTENDED, |replies| {
        replies.u32(id);
        for limit in [MAX_PACKET_BYTES, MAX_DATA_BYTES, MAX_DATA_BYTES, MAX_HANDLES] {
            replies.u64(limit as u64);
        }
    });
}

fn done(id: u32, replies: &mut Replies) {
    tell(id, status::OK, "Success", replies);
}

fn refuse(id: u32, refusal: Refusal, replies: &mut Replies) {
    let (code, message) = match refusal {
        Refusal::End => (status::EOF, "End of file".to_owned()),
        Refusal::ReadOnly => (status::PERMISSION_DENIED, "this key may read only".to_owned()),
        Refusal::Unsupported | Refusal::Malformed => {
            (status::OP_UNSUPPORTED, "Operation unsupported".to_owned())
        }
        Refusal::Errno(errno) => (code_of(errno), io::Error::from(errno).to_string()),
    };
    tell(id, code, &message, replies);
}

/// As OpenSSH's server sorts them: clients act on these.
fn code_of(errno: Errno) -> u32 {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP => status::NO_SUCH_FILE,
        Errno::PERM | Errno::ACCESS | Errno::ROFS => status::PERMISSION_DENIED,
        Errno::NAMETOOLONG | Errno::INVAL => status::BAD_MESSAGE,
        Errno::NOSYS | Errno::OPNOTSUPP => status::OP_UNSUPPORTED,
        _ => status::FAILURE,
    }
}

fn tell(id: u32, code: u32, message: &str, replies: &mut Replies) {
    replies.packet(reply::STATUS, |replies| {
        replies.u32(id);
        replies.u32(code);
        replies.string(message.as_bytes());
        replies.string(b"");
    });
}
