//! The identity of a tree, in one digest.
//!
//! The digest is the SHA-256 of this form of the tree. Numbers are little-endian; *text* is its length (4 bytes), then
//! its bytes.
//!
//! ```text
//! tree       "tree 1\n", then every entry in the order of the bytes of the names, then 00
//! entry      kind (1 byte), name (text), then by kind:
//!   d          attributes, the entries in it in the same way, 00
//!   f          attributes, length (8), pieces
//!   l          attributes with mode 0, target (text)
//!   p s        attributes                               (pipe, socket)
//!   w          nothing                                  (whiteout)
//!   h          number (8) of the entry, counted from 0 in this order, of which this is a further name
//! attributes mode without the kind (4), owner (4), group (4),
//!            seconds (8, signed) and nanoseconds (4) of the last change, number of extended attributes (4),
//!            each as name and value (texts), in the order of the bytes of the names
//! pieces     the content in pieces of 1 MiB, the last one shorter:
//!   p          SHA-256 of a piece (32)
//!   z          number (8) of pieces in a row that are nothing but zeros, as many as there are
//! ```
//!
//! So holes are the same as zeros and cost nothing, and pieces can be hashed at the same time.

mod hashers;

use std::{
    collections::{HashMap, VecDeque},
    ffi::CStr,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{fs::Stat, io::Errno};
use sha2::{Digest as _, Sha256};

use self::hashers::{Hashers, Pending, Piece, hash_piece};
use crate::{
    attributes::{Attributes, Reader},
    content::{self, PIECE_BYTES},
    error::{Error, Result},
    ladder::{Identity, identity},
    walk::{Step, Walk},
};

const TITLE: &[u8] = b"tree 1\n";
const END: &[u8] = &[0];
/// Files up to this size are hashed at once; longer ones go to threads.
const SMALL_BYTES: u64 = 128 * 1024;
/// Most parts of the form that wait for an earlier piece.
const MAX_PENDING: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `sha256:` and 64 digits.
    pub digest: String,
    /// Sum of the lengths of the files; one with several names counts once.
    pub bytes: u64,
    pub n_entries: u64,
}

/// Reads all of the tree in `directory`, which nobody changes meanwhile.
pub fn facts(directory: BorrowedFd<'_>) -> Result<Facts> {
    std::thread::scope(|scope| {
        let mut summer = Summer {
            form: Form { hash: Sha256::new(), zeros: 0, waiting: VecDeque::new() },
            hashers: Hashers::new(scope),
            reader: Reader::default(),
            linked: HashMap::new(),
            piece: Vec::new(),
            bytes: 0,
            n_entries: 0,
        };
        summer.form.push(Part::Bytes(TITLE.to_vec()))?;
        let mut walk = Walk::new(directory)?;
        while let Some(step) = walk.next()? {
            summer.add(&walk, step)?;
        }
        summer.form.push(Part::Bytes(END.to_vec()))?;
        let digest = summer.form.finish()?;
        let digest = digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"));
        Ok(Facts { digest, bytes: summer.bytes, n_entries: summer.n_entries })
    })
}

struct Summer<'scope, 'env> {
    form: Form,
    hashers: Hashers<'scope, 'env>,
    reader: Reader,
    /// Number of the entry that has the first name of a file with several.
    linked: HashMap<Identity, u64>,
    piece: Vec<u8>,
    bytes: u64,
    n_entries: u64,
}

impl Summer<'_, '_> {
    fn add(&mut self, walk: &Walk<'_>, step: Step) -> Result<()> {
        match step {
            Step::Enter { name, stat } => {
                let mut head = self.begin(b'd', &name);
                self.attributes(&mut head, walk.here(), &stat)
                    .map_err(|errno| Error::io("read the attributes of", walk.shown(None), errno))?;
                self.form.push(Part::Bytes(head))
            }
            Step::Leave { .. } => self.form.push(Part::Bytes(END.to_vec())),
            Step::File { name, file, stat } => self.file(walk, &name, file, &stat),
            Step::Link { name, stat } => {
                let target = rustix::fs::readlinkat(walk.here(), &name, Vec::new())
                    .map_err(|errno| walk.failed("read the link", &name, errno))?;
                self.plain(b'l', &name, &stat, Some(target.to_bytes()))
            }
            Step::Fifo { name, stat } => self.plain(b'p', &name, &stat, None),
            Step::Socket { name, stat } => self.plain(b's', &name, &stat, None),
            Step::Whiteout { name } => {
                let head = self.begin(b'w', &name);
                self.form.push(Part::Bytes(head))
            }
            Step::Device => Ok(()),
        }
    }

    fn begin(&mut self, kind: u8, name: &CStr) -> Vec<u8> {
        self.n_entries += 1;
        let mut head = vec![kind];
        push_text(&mut head, name.to_bytes());
        head
    }

    /// Whether this is a further name of a file already seen; then it is recorded as that.
    fn is_further_name(&mut self, name: &CStr, stat: &Stat) -> Result<bool> {
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let number = self.n_entries;
        let first = *self.linked.entry(identity(stat)).or_insert(number);
        if first == number {
            return Ok(false);
        }
        let mut head = self.begin(b'h', name);
        head.extend_from_slice(&first.to_le_bytes());
        self.form.push(Part::Bytes(head))?;
        Ok(true)
    }

    fn plain(&mut self, kind: u8, name: &CStr, stat: &Stat, target: Option<&[u8]>) -> Result<()> {
        if self.is_further_name(name, stat)? {
            return Ok(());
        }
        let mut head = self.begin(kind, name);
        let mut attributes = Attributes::of(stat);
        if kind == b'l' {
            attributes.mode = 0;
        }
        push_attributes(&mut head, &attributes, &[]);
        if let Some(target) = target {
            push_text(&mut head, target);
        }
        self.form.push(Part::Bytes(head))
    }

    fn attributes(&mut self, head: &mut Vec<u8>, file: BorrowedFd<'_>, stat: &Stat) -> Result<(), Errno> {
        let extended = self.reader.read(file)?;
        push_attributes(head, &Attributes::of(stat), &extended);
        Ok(())
    }

    fn file(&mut self, walk: &Walk<'_>, name: &CStr, file: OwnedFd, stat: &Stat) -> Result<()> {
        if self.is_further_name(name, stat)? {
            return Ok(());
        }
        let failed = |act: &str, errno| walk.failed(act, name, errno);
        let mut head = self.begin(b'f', name);
        self.attributes(&mut head, file.as_fd(), stat)
            .map_err(|errno| failed("read the attributes of", errno))?;
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        head.extend_from_slice(&size.to_le_bytes());
        self.bytes = self.bytes.saturating_add(size);
        self.form.push(Part::Bytes(head))?;
        if size == 0 {
            return Ok(());
        }
        if size <= SMALL_BYTES {
            let piece =
                hash_piece(file.as_fd(), 0, size, &mut self.piece).map_err(|errno| failed("read", errno))?;
            return self.form.push(Part::Piece(piece, walk.shown(Some(name))));
        }
        self.pieces(&Arc::new(file), size, &walk.shown(Some(name)))
    }

    fn pieces(&mut self, file: &Arc<OwnedFd>, size: u64, shown: &str) -> Result<()> {
        let mut at = 0;
        while at < size {
            let written = content::next_written(file, at, size)
                .map_err(|errno| Error::io("find what is written in", shown.to_owned(), errno))?;
            if written > at {
                self.form.push(Part::Zeros((written - at).div_ceil(PIECE_BYTES)))?;
                at = written;
                continue;
            }
            let length = PIECE_BYTES.min(size - at);
            let pending = self.hashers.hash(file, at, length);
            self.form.push(Part::Pending(pending, shown.to_owned()))?;
            at += length;
        }
        Ok(())
    }
}

/// A part of the form, in its order.
enum Part {
    Bytes(Vec<u8>),
    Piece(Piece, String),
    Pending(Pending, String),
    Zeros(u64),
}

/// The form as far as it is known: parts behind a piece that is still being hashed wait for it.
struct Form {
    hash: Sha256,
    zeros: u64,
    waiting: VecDeque<Part>,
}

impl Form {
    fn push(&mut self, part: Part) -> Result<()> {
        if self.waiting.is_empty() && !matches!(part, Part::Pending(..)) {
            return self.take(part);
        }
        self.waiting.push_back(part);
        while self.waiting.len() > MAX_PENDING {
            self.take_first()?;
        }
        Ok(())
    }

    fn take_first(&mut self) -> Result<()> {
        self.waiting.pop_front().map_or(Ok(()), |part| self.take(part))
    }

    fn take(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Bytes(bytes) => {
                self.end_zeros();
                self.hash.update(bytes);
            }
            Part::Zeros(count) => self.zeros += count,
            Part::Pending(pending, shown) => {
                let piece = pending.wait().map_err(|errno| Error::io("read", shown.clone(), errno))?;
                self.take_piece(piece, shown)?;
            }
            Part::Piece(piece, shown) => self.take_piece(piece, shown)?,
        }
        Ok(())
    }

    fn take_piece(&mut self, piece: Piece, shown: String) -> Result<()> {
        match piece {
            Piece::Zero => self.zeros += 1,
            Piece::Digest(digest) => {
                self.end_zeros();
                self.hash.update(b"p");
                self.hash.update(digest);
            }
            Piece::Missing => return Err(Error::Changed { path: shown }),
        }
        Ok(())
    }

    fn end_zeros(&mut self) {
        if self.zeros > 0 {
            self.hash.update(b"z");
            self.hash.update(self.zeros.to_le_bytes());
            self.zeros = 0;
        }
    }

    fn finish(&mut self) -> Result<[u8; 32]> {
        while !self.waiting.is_empty() {
            self.take_first()?;
        }
        Ok(std::mem::take(&mut self.hash).finalize().into())
    }
}

fn push_text(form: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    form.extend_from_slice(&length.to_le_bytes());
    form.extend_from_slice(text);
}

fn push_attributes(form: &mut Vec<u8>, attributes: &Attributes, extended: &[(Vec<u8>, Vec<u8>)]) {
    for number in [attributes.mode, attributes.uid, attributes.gid] {
        form.extend_from_slice(&number.to_le_bytes());
    }
    form.extend_from_slice(&attributes.mtime.tv_sec.to_le_bytes());
    let nanoseconds = u32::try_from(attributes.mtime.tv_nsec).unwrap_or_default();
    form.extend_from_slice(&nanoseconds.to_le_bytes());
    let count = u32::try_from(extended.len()).unwrap_or(u32::MAX);
    form.extend_from_slice(&count.to_le_bytes());
    for (name, value) in extended {
        push_text(form, name);
        push_text(form, value);
    }
}
