//! Tar archives that are well-formed enough to be read and hostile in everything that they say.

use arbitrary::Arbitrary;

const BLOCK: usize = 512;
/// The two empty blocks at the end of every archive.
pub const END_BYTES: usize = 2 * BLOCK;
/// Parts of paths that have led out of directories before.
const PARTS: [&[u8]; 12] = [
    b"a",
    b"b",
    b"..",
    b".",
    b"",
    b"canary",
    b"..\0",
    b".wh.a",
    b".wh..wh..opq",
    b"proc",
    b"inside",
    b"\xff",
];
/// Kinds of tar members, known and unknown ones.
const KINDS: [u8; 16] = *b"01234567xgLKSMV\0";

/// One member, as a fuzzer makes it.
#[derive(Debug, Arbitrary)]
pub struct Member {
    path: Vec<u8>,
    is_absolute: bool,
    kind: u8,
    link: Vec<u8>,
    link_is_absolute: bool,
    mode: u16,
    content: Vec<u8>,
    /// Claims another length than its content has.
    claimed: Option<u32>,
    device: u8,
}

fn path(parts: &[u8], is_absolute: bool) -> Vec<u8> {
    let parts: Vec<_> = parts.iter().take(12).map(|part| PARTS[usize::from(*part) % PARTS.len()]).collect();
    let mut path = if is_absolute { b"/".to_vec() } else { Vec::new() };
    path.extend(parts.join(&b'/'));
    path
}

/// The members as one plain tar archive with right checksums.
pub fn tar(members: &[Member]) -> Vec<u8> {
    let mut archive = Vec::new();
    for member in members {
        let head = Head {
            path: &path(&member.path, member.is_absolute),
            mode: member.mode & 0o7777,
            size: member.claimed.unwrap_or(member.content.len() as u32),
            kind: KINDS[usize::from(member.kind) % KINDS.len()],
            link: &path(&member.link, member.link_is_absolute),
            device: member.device,
        };
        add(&mut archive, &head, &member.content);
    }
    archive.resize(archive.len() + END_BYTES, 0);
    archive
}

/// An archive of these files.
pub fn files(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files {
        let size = content.len() as u32;
        let head = Head { path: name.as_bytes(), mode: 0o644, size, kind: b'0', link: b"", device: 0 };
        add(&mut archive, &head, content);
    }
    archive.resize(archive.len() + END_BYTES, 0);
    archive
}

struct Head<'a> {
    path: &'a [u8],
    mode: u16,
    size: u32,
    kind: u8,
    link: &'a [u8],
    device: u8,
}

fn add(archive: &mut Vec<u8>, head: &Head<'_>, content: &[u8]) {
    let mut block = [0; BLOCK];
    put(&mut block[..100], head.path);
    put(&mut block[100..108], format!("{:07o}", head.mode).as_bytes());
    put(&mut block[108..116], b"0000000");
    put(&mut block[116..124], b"0000000");
    put(&mut block[124..136], format!("{:011o}", head.size).as_bytes());
    put(&mut block[136..148], b"00000000000");
    block[156] = head.kind;
    put(&mut block[157..257], head.link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    put(&mut block[329..337], format!("{:07o}", head.device).as_bytes());
    put(&mut block[337..345], format!("{:07o}", head.device).as_bytes());
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block[148..156], format!("{sum:06o}\0 ").as_bytes());
    archive.extend_from_slice(&block);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

fn put(field: &mut [u8], bytes: &[u8]) {
    let length = field.len().min(bytes.len());
    field[..length].copy_from_slice(&bytes[..length]);
}
