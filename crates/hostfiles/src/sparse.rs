//! Zeros that become holes: what a sandbox shows as a file of many terabytes may take no room there, and shall take
//! none here.

use std::{fs::File, io, os::unix::fs::FileExt as _};

/// What is a hole or is not: the block of most file systems.
const BLOCK_BYTES: usize = 4096;
const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// A new file that is written from its begin to its end.
#[derive(Debug)]
pub(crate) struct SparseFile {
    file: File,
    position: u64,
}

impl SparseFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file, position: 0 }
    }

    /// Writes what is not zeros.
    pub(crate) fn append(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let (run, rest) = piece.split_at(self.run_of(piece));
            if !is_hole(run) {
                self.file.write_all_at(run, self.position)?;
            }
            self.position += run.len() as u64;
            piece = rest;
        }
        Ok(())
    }

    /// How much at the begin of `piece` is one hole block, or else all that is none.
    fn run_of(&self, piece: &[u8]) -> usize {
        let into_block = usize::try_from(self.position % BLOCK_BYTES as u64).unwrap_or(0);
        // Up to where the file system's next block begins.
        let mut end = piece.len().min(BLOCK_BYTES - into_block);
        if is_hole(&piece[..end]) {
            return end;
        }
        for block in piece[end..].chunks(BLOCK_BYTES).take_while(|block| !is_hole(block)) {
            end += block.len();
        }
        end
    }

    pub(crate) fn n_bytes(&self) -> u64 {
        self.position
    }

    /// A file that ends with a hole gets its length only here.
    pub(crate) fn finish(&self) -> io::Result<&File> {
        self.file.set_len(self.position)?;
        Ok(&self.file)
    }
}

fn is_hole(bytes: &[u8]) -> bool {
    bytes.chunks(BLOCK_BYTES).all(|block| block == &ZEROS[..block.len()])
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    /// What is in the file, and the bytes it takes.
    fn written(content: &[u8], n_bytes: usize) -> (Vec<u8>, u64) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        let mut file = SparseFile::new(File::create(&path).unwrap());
        for piece in content.chunks(n_bytes) {
            file.append(piece).unwrap();
        }
        let metadata = file.finish().unwrap().metadata().unwrap();
        (fs::read(&path).unwrap(), metadata.blocks() * 512)
    }

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
        for (number, (content, n_blocks)) in contents.iter().enumerate() {
            for n_bytes in [1, 1000, 4096, 5000, 128 * 1024] {
                let (found, taken) = written(content, n_bytes);
                assert!(found == *content, "{number} in pieces of {n_bytes}");
                // Some file systems allot more than a block at a time.
                assert!(taken <= n_blocks * 64 * 1024, "{number} in pieces of {n_bytes} takes {taken}");
            }
        }
    }
}
