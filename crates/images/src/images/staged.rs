//! The files of an archive, where they can be reached by name.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{Read, Write as _},
    path::PathBuf,
};

use archive::Kind;

use super::Inner;
use crate::{
    digest::{Digest, HashingWriter},
    error::{Error, Result},
    store::lease::{Lease, Thing},
    unpack::read_archive,
};

/// How many links in an archive lead from a name to a file at most. Archives of docker use one.
const MAX_HOPS: usize = 4;
/// Longest name of a member that is of interest.
const MAX_NAME_BYTES: usize = 512;

/// The files of a tar, each in a scratch file of its own, unless the store has it already.
#[derive(Debug)]
pub(super) struct Members<'a> {
    inner: &'a Inner,
    files: HashMap<String, Member>,
    links: HashMap<String, String>,
}

/// A scratch file goes when this is dropped.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    digest: Digest,
    bytes: u64,
    /// Set if it is a blob of the store.
    lease: Option<Lease>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.lease.is_none() {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

impl<'a> Members<'a> {
    pub(super) fn of(inner: &'a Inner, archive: impl Read + Send) -> Result<Self> {
        let limits = &inner.options.limits;
        let mut members = Self { inner, files: HashMap::new(), links: HashMap::new() };
        let most = inner.below_cap(limits.max_layer_bytes);
        let mut room = inner.room(most)?;
        read_archive(archive, most, |member, data| {
            if members.files.len() + members.links.len() >= limits.max_archive_members {
                return Err(Error::TooLarge {
                    what: "the number of members of the archive".to_owned(),
                    limit: "max_archive_members".into(),
                    most: limits.max_archive_members as u64,
                });
            }
            let Some(name) = plain_name(&String::from_utf8_lossy(&member.path)) else { return Ok(()) };
            match &member.kind {
                // No program writes images with holes in them.
                Kind::File(content) if !content.has_holes() => {
                    room.take(content.size)?;
                    let file = members.stage(|writer| {
                        data.data(content.size, |bytes| {
                            writer.write_all(bytes).map_err(Error::io("write", &name))
                        })
                    })?;
                    members.links.remove(&name);
                    members.files.insert(name, file);
                }
                Kind::Symlink { target } => {
                    let beside = name.rsplit_once('/').map_or("", |(directory, _)| directory);
                    members.link(&name, &format!("{beside}/{}", String::from_utf8_lossy(target)));
                }
                Kind::HardLink { target } => members.link(&name, &String::from_utf8_lossy(target)),
                _ => {}
            }
            Ok(())
        })?;
        Ok(members)
    }

    fn stage(&self, fill: impl FnOnce(&mut HashingWriter<File>) -> Result<()>) -> Result<Member> {
        let (file, path) = self.inner.store.scratch_file()?;
        let mut writer = HashingWriter::new(file);
        if let Err(error) = fill(&mut writer) {
            let _the_first_error_counts = fs::remove_file(&path);
            return Err(error);
        }
        let bytes = writer.hasher.bytes();
        let mut member = Member { path, digest: writer.hasher.finish(), bytes, lease: None };
        if let Some(lease) = self.inner.hold_stored(&member.digest) {
            let _in_nobodys_way = fs::remove_file(&member.path);
            member.path = self.inner.store.blob_path(&member.digest);
            member.lease = Some(lease);
        }
        Ok(member)
    }

    fn link(&mut self, name: &str, target: &str) {
        // A link out of the archive leads nowhere.
        if let Some(target) = plain_name(target) {
            self.links.insert(name.to_owned(), target);
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.resolve(name).is_some()
    }

    /// A small file, whole.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(name)?.take(most + 1).read_to_end(&mut bytes).map_err(Error::io("read", name))?;
        if bytes.len() as u64 > most {
            return Err(Error::TooLarge {
                what: format!("{name} in the archive"),
                limit: "max_document_bytes".into(),
                most,
            });
        }
        Ok(bytes)
    }

    pub(super) fn open(&self, name: &str) -> Result<File> {
        let file = &self.member(name)?.path;
        File::open(file).map_err(Error::io("open", file))
    }

    pub(super) fn digest(&self, name: &str) -> Result<&Digest> {
        Ok(&self.member(name)?.digest)
    }

    /// Makes the file, which should have this digest, a blob of the store, and answers its length. Whoever calls holds
    /// a lease on it if it is to stay.
    pub(super) fn take(&self, name: &str, expected: &Digest) -> Result<u64> {
        let member = self.member(name)?;
        expected.expect(&member.digest, format!("{name} in the archive"))?;
        let store = &self.inner.store;
        if !store.has_blob(&member.digest) {
            // A second name for the same file: another image of the archive may want it too.
            let (_, link) = store.scratch_file()?;
            let adopted = fs::remove_file(&link)
                .and_then(|()| fs::hard_link(&member.path, &link))
                .map_err(Error::io("link", &link))
                .and_then(|()| store.adopt_blob(&member.digest, &link));
            if adopted.is_err() {
                let _the_first_error_counts = fs::remove_file(&link);
            }
            adopted?;
        }
        Ok(member.bytes)
    }

    fn member(&self, name: &str) -> Result<&Member> {
        let missing = || Error::corrupt("the archive", format!("a file {name}"), "none").shortened();
        self.resolve(name).ok_or_else(missing)
    }

    fn resolve(&self, name: &str) -> Option<&Member> {
        let mut name = plain_name(name)?;
        for _hop in 0..=MAX_HOPS {
            if let Some(file) = self.files.get(&name) {
                return Some(file);
            }
            name = self.links.get(&name)?.clone();
        }
        None
    }
}

impl Inner {
    /// Holds a blob that is here, and the image that it tells of: room for an image that comes once more is not made by
    /// taking it away with its other names.
    fn hold_stored(&self, digest: &Digest) -> Option<Lease> {
        let mut things = vec![Thing::Blob(digest.clone())];
        let index = self.store.index();
        let told =
            index.images.iter().filter(|(manifest, record)| [*manifest, &record.config].contains(&digest));
        things.extend(told.map(|(manifest, _)| Thing::Image(manifest.clone())));
        drop(index);
        let lease = self.store.lease(things);
        self.store.has_blob(digest).then_some(lease)
    }
}

/// A name without `.` and `..`; `None` when it leads out of the archive. Names are keys here and never paths.
fn plain_name(name: &str) -> Option<String> {
    if name.len() > MAX_NAME_BYTES || name.starts_with('/') && name.len() == 1 {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        assert_eq!(plain_name("./a/./b").as_deref(), Some("a/b"));
        assert_eq!(plain_name("x/../layer.tar").as_deref(), Some("layer.tar"));
        assert_eq!(plain_name("../etc/passwd"), None);
        assert_eq!(plain_name("a/../../b"), None);
    }
}
