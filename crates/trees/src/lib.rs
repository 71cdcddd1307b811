//! Trees of files that strangers wrote: copied, hashed, compared, packed and unpacked by descriptor, never by path. Knows
//! nothing of sandboxes.
#![forbid(unsafe_code)]
