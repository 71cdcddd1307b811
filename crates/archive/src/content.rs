//! The content of a file in an archive.

/// A stretch of a file that is no hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub offset: u64,
    pub length: u64,
}

impl Part {
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The archive holds the parts of a file, in order; all else of it is zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    pub size: u64,
    pub parts: Vec<Part>,
}

impl Content {
    /// The content of a file without holes.
    pub fn whole(size: u64) -> Self {
        let parts = if size == 0 { Vec::new() } else { vec![Part { offset: 0, length: size }] };
        Self { size, parts }
    }

    /// Bytes in the archive.
    pub fn stored(&self) -> u64 {
        self.parts.iter().map(|part| part.length).sum()
    }

    pub fn has_holes(&self) -> bool {
        self.stored() < self.size
    }
}
