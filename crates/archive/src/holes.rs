//! Holes of files: where they are, and how zeros become some.

use std::{fs::File, io, os::fd::AsFd, os::unix::fs::FileExt as _};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use crate::{Content, Part};

/// The unit of holes: the block of most file systems. In larger steps, a lone byte would be written with zeros around
/// it.
const BLOCK_BYTES: usize = 4096;

/// Finds the parts of an open file of `size` bytes, by what its file system knows of holes. Moves the file's position.
pub fn parts_of_file(file: impl AsFd, size: u64) -> Result<Content, Errno> {
    let file = file.as_fd();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let offset = match seek(file, SeekFrom::Data(at)) {
            Ok(offset) => offset.min(size),
            Err(Errno::NXIO) => break,
            // A file system that cannot tell: everything may be written.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Content::whole(size)),
            Err(errno) => return Err(errno),
        };
        at = seek(file, SeekFrom::Hole(offset))?.clamp(offset, size);
        if at == offset {
            break;
        }
        parts.push(Part { offset, length: at - offset });
    }
    Ok(Content { size, parts })
}

/// Writes each run of blocks that are not all zeros. Whoever writes the end sets the length, which may be in a hole.
pub fn write_sparsely(file: &File, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (run, rest) = bytes.split_at(run_of(at, bytes));
        if !is_zero(run) {
            file.write_all_at(run, at)?;
        }
        at += run.len() as u64;
        bytes = rest;
    }
    Ok(())
}

/// How much at the beginning of `bytes` is one block of zeros, or else all that is none.
fn run_of(at: u64, bytes: &[u8]) -> usize {
    let into_block = usize::try_from(at % BLOCK_BYTES as u64).unwrap_or(0);
    // Up to where the file system's next block begins.
    let first = bytes.len().min(BLOCK_BYTES - into_block);
    if is_zero(&bytes[..first]) {
        return first;
    }
    let blocks = bytes[first..].chunks(BLOCK_BYTES).take_while(|block| !is_zero(block));
    first + blocks.map(<[u8]>::len).sum::<usize>()
}

pub fn is_zero(bytes: &[u8]) -> bool {
    // Most pieces that are not zero begin otherwise; the rest is compared with itself, one byte on, at the speed of
    // memory.
    match bytes.split_first() {
        None => true,
        Some((first, rest)) => *first == 0 && rest == &bytes[..rest.len()],
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn content_is_the_same_however_it_comes_and_zeros_take_no_room() {
        let zeros = vec![0; 1 << 20];
        let contents = [
            (vec![], 0),
            (zeros.clone(), 0),
            ([&zeros[..], b"end"].concat(), 1),
            ([b"begin", &zeros[..]].concat(), 1),
            ([&zeros[..5000], b"middle", &zeros[..], &[7; 9000], &zeros[..1]].concat(), 5),
        ];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for (number, (content, n_blocks)) in contents.iter().enumerate() {
            for n_bytes in [1, 1000, 4096, 5000, 64 * 1024] {
                let file = File::create(&path).unwrap();
                for (index, piece) in content.chunks(n_bytes).enumerate() {
                    write_sparsely(&file, (index * n_bytes) as u64, piece).unwrap();
                }
                file.set_len(content.len() as u64).unwrap();
                assert!(fs::read(&path).unwrap() == *content, "{number} in pieces of {n_bytes}");
                // Some file systems allot more than a block at a time.
                let taken = file.metadata().unwrap().blocks() * 512;
                assert!(taken <= n_blocks * 64 * 1024, "{number} in pieces of {n_bytes} takes {taken}");
            }
        }
    }

    #[test]
    fn holes_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 << 20).unwrap();
        file.write_all_at(b"x", 5 << 20).unwrap();
        let content = parts_of_file(&file, 10 << 20).unwrap();
        assert_eq!(content.size, 10 << 20);
        assert!(content.parts.iter().any(|part| part.offset <= 5 << 20 && part.end() > 5 << 20));
        assert_eq!(parts_of_file(&file, 0).unwrap(), Content::default());
    }
}
