//! Trees of files from strangers: copied, hashed, compared, packed and unpacked by descriptor, never by path. Knows
//! nothing of sandboxes.
//!
//! A tree is the content of a directory, not the directory itself. The upper layer of an overlay contains two more
//! things: *whiteouts* (character devices 0:0), which hide entries of the layers below, and *opaque* directories
//! (attribute `user.overlay.opaque`), which hide everything in the same directory below. Both are kept. An overlay's
//! other attributes are about one mount of it on one host and are left out; so are device nodes, which nobody in a
//! sandbox can make.
//!
//! Everything is reached by descriptor and no link is ever followed. Trees may be deeper than any path and any stack,
//! and too wide for memory: what is held at a time is bounded, except for the names of the directories on the way down.
#![forbid(unsafe_code)]

mod attributes;
mod content;
mod copy;
mod diff;
mod error;
mod facts;
mod ladder;
mod pack;
mod reach;
mod unpack;
mod walk;

/// Longest path in an archive. Deeper trees exist, but no program reaches into them by name.
const MAX_PATH_BYTES: usize = 64 * 1024;
/// Most parts between runs of zeros in one file.
const MAX_PARTS: usize = 1024 * 1024;

pub use copy::{Copied, copy, copy_attributes};
pub use diff::{Change, ChangeKind, Diff, DiffOptions, FileKind, Overlay, diff};
pub use error::{Error, Result};
pub use facts::{Facts, facts};
pub use pack::{Packed, pack};
pub use unpack::{UnpackLimits, unpack};
