//! A tar stream from inside a sandbox onto this machine. Every name and every byte of it may be a trick.
//!
//! Everything happens beneath one open directory, component by component, and no link is ever followed. Owners, setuid bits and
//! devices stay inside. What an honest sandbox never sends ends the copy; what means nothing here is left out with a warning.

use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path},
    rc::Rc,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps},
    io::Errno,
};
use tar::{Archive, Entry, EntryType};

use super::sparse::SparseFile;
use crate::output;

/// Deeper trees are refused: moving and removing them needs a descriptor for each level.
const MAX_DEPTH: usize = 256;
/// Bytes of headers, long names and extensions before one entry's own bytes: the archive's reader holds them whole.
const MAX_HEADER_BYTES: u64 = 256 * 1024;
/// Entries left out that are named; the rest are counted.
const MAX_WARNINGS: u64 = 10;

/// Unpacks beneath `root`.
pub(super) fn unpack(source: impl Read, root: OwnedFd) -> io::Result<()> {
    let header_left = Rc::new(Cell::new(None));
    let mut archive = Archive::new(Bounded { source, header_left: Rc::clone(&header_left) });
    let mut unpacker = Unpacker { root, n_left_out: 0 };
    let mut entries = archive.entries()?;
    loop {
        header_left.set(Some(MAX_HEADER_BYTES));
        let Some(entry) = entries.next() else { break };
        header_left.set(None);
        let mut entry = entry?;
        unpacker.one(&mut entry)?;
        // What is left of the entry is not part of the next one's header.
        io::copy(&mut entry, &mut io::sink())?;
    }
    unpacker.tell_the_rest();
    Ok(())
}

/// Gives only so many bytes between two entries.
struct Bounded<R> {
    source: R,
    /// `None` while an entry's own bytes are read.
    header_left: Rc<Cell<Option<u64>>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(out)?;
        if let Some(left) = self.header_left.get() {
            let left = left
                .checked_sub(n as u64)
                .ok_or_else(|| refused("a header", "is longer than any honest one"))?;
            self.header_left.set(Some(left));
        }
        Ok(n)
    }
}

struct Unpacker {
    root: OwnedFd,
    n_left_out: u64,
}

/// A name in an open directory beneath the root.
struct Spot {
    directory: OwnedFd,
    name: OsString,
}

fn refused(what: impl std::fmt::Display, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} {why}"))
}

/// How an entry is called in messages.
fn shown(path: &Path) -> String {
    output::printable(&path.display().to_string())
}

impl Unpacker {
    fn one<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> io::Result<()> {
        let path = Path::new(OsStr::from_bytes(&entry.path_bytes())).to_owned();
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", shown(&path)));
        let kind = entry.header().entry_type();
        if kind.is_gnu_sparse() {
            // Even to leave it out, its holes would have to be counted through, and they may have no end.
            return Err(refused(shown(&path), "comes as a sparse file, which no honest sandbox sends"));
        }
        if !matches!(
            kind,
            EntryType::Regular
                | EntryType::Continuous
                | EntryType::Directory
                | EntryType::Symlink
                | EntryType::Link
        ) {
            self.leave_out(&path);
            return Ok(());
        }
        let mode = entry.header().mode()?;
        // The root itself is there already.
        let Some(spot) = self.spot(&path)? else { return Ok(()) };
        match kind {
            EntryType::Directory => make_directory(&spot, mode),
            EntryType::Symlink => make_symlink(&spot, entry),
            EntryType::Link => self.make_link(&spot, entry),
            _ => write_file(&spot, mode, entry),
        }
        .map_err(named)
    }

    /// Opens what is above `path`, making directories that are missing.
    fn spot(&self, path: &Path) -> io::Result<Option<Spot>> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                    return Err(refused(shown(path), "leads out of the tree that is copied"));
                }
            }
        }
        if names.len() > MAX_DEPTH {
            return Err(refused(shown(path), &format!("is deeper than {MAX_DEPTH} directories")));
        }
        let Some((name, above)) = names.split_last() else { return Ok(None) };
        let mut directory = self.root.try_clone()?;
        for part in above {
            directory = open_or_make(&directory, part)
                .map_err(|_not_one| refused(shown(path), "is beneath something that is not a directory"))?;
        }
        Ok(Some(Spot { directory, name: (*name).to_owned() }))
    }

    /// A second name for a file that came before. `linkat` does not follow a link at the end.
    fn make_link<R: Read>(&self, spot: &Spot, entry: &Entry<'_, R>) -> io::Result<()> {
        let target = entry.link_name_bytes().unwrap_or_default();
        let target = Path::new(OsStr::from_bytes(&target));
        let first = self.spot(target)?.ok_or_else(|| refused("a hard link", "to nothing"))?;
        let found = rustix::fs::statat(&first.directory, &first.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(refused(shown(target), "is no file, so it has no second name"));
        }
        clear(spot)?;
        rustix::fs::linkat(&first.directory, &first.name, &spot.directory, &spot.name, AtFlags::empty())?;
        Ok(())
    }

    fn leave_out(&mut self, path: &Path) {
        self.n_left_out += 1;
        if self.n_left_out <= MAX_WARNINGS {
            output::warn(&format!("{} is left out: not a file, directory or link", shown(path)));
        }
    }

    fn tell_the_rest(&self) {
        if let Some(n) = self.n_left_out.checked_sub(MAX_WARNINGS).filter(|n| *n > 0) {
            output::warn(&format!("{n} more are left out"));
        }
    }
}

/// Opens a directory by its name in another one; a link to one is none.
pub(super) fn open_directory(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn open_or_make(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    match open_directory(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
            open_directory(parent, name)
        }
        opened => opened,
    }
}

/// What everyone may have of a mode that came from inside: no setuid, no setgid, no sticky bit.
fn plain(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// Its owner may always read and write it: otherwise nobody could move its files into place, or remove it later.
fn make_directory(spot: &Spot, mode: u32) -> io::Result<()> {
    match rustix::fs::mkdirat(&spot.directory, &spot.name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let made = open_directory(&spot.directory, &spot.name)?;
    Ok(rustix::fs::fchmod(&made, plain(mode) | Mode::RWXU)?)
}

fn make_symlink<R: Read>(spot: &Spot, entry: &Entry<'_, R>) -> io::Result<()> {
    let target = entry.link_name_bytes().unwrap_or_default();
    clear(spot)?;
    Ok(rustix::fs::symlinkat(&*target, &spot.directory, &spot.name)?)
}

fn write_file<R: Read>(spot: &Spot, mode: u32, entry: &mut Entry<'_, R>) -> io::Result<()> {
    clear(spot)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&spot.directory, &spot.name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = SparseFile::new(File::from(opened));
    file.append_all(entry)?;
    let file = file.finish()?;
    rustix::fs::fchmod(&file, plain(mode))?;
    if let Ok(seconds) = i64::try_from(entry.header().mtime()?) {
        let then = Timespec { tv_sec: seconds, tv_nsec: 0 };
        // A time that the file system cannot hold is no reason to lose the file.
        rustix::fs::futimens(&file, &Timestamps { last_access: then, last_modification: then }).ok();
    }
    Ok(())
}

/// A later entry replaces an earlier one of the same name, unless that is a directory.
fn clear(spot: &Spot) -> io::Result<()> {
    match rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        path::PathBuf,
    };

    use super::*;

    struct Scene {
        place: tempfile::TempDir,
    }

    impl Scene {
        /// A directory to unpack into, and beside it one with a secret.
        fn new() -> Self {
            let scene = Self { place: tempfile::tempdir().unwrap() };
            fs::create_dir(scene.staging()).unwrap();
            fs::create_dir(scene.outside()).unwrap();
            fs::write(scene.outside().join("secret"), "mine").unwrap();
            scene
        }

        fn staging(&self) -> PathBuf {
            self.place.path().join("staging")
        }

        fn outside(&self) -> PathBuf {
            self.place.path().join("outside")
        }

        fn unpack(&self, archive: &[u8]) -> io::Result<()> {
            unpack(archive, File::open(self.staging()).unwrap().into())
        }

        #[track_caller]
        fn assert_outside_untouched(&self) {
            let left: Vec<_> =
                fs::read_dir(self.outside()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["secret"]);
            assert_eq!(fs::read_to_string(self.outside().join("secret")).unwrap(), "mine");
        }

        #[track_caller]
        fn refuses(&self, archive: &[u8], word: &str) {
            let error = self.unpack(archive).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            self.assert_outside_untouched();
        }
    }

    fn archive_of(entries: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, mode, text) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_mtime(1_000_000);
            let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
            header.set_size(if is_link { 0 } else { text.len() as u64 });
            // By hand: the builder itself refuses such names.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            if is_link {
                header.set_link_name_literal(text).unwrap();
            }
            header.set_cksum();
            builder.append(&header, if is_link { &b""[..] } else { text.as_bytes() }).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_absolute_name_is_refused() {
        let scene = Scene::new();
        let name = scene.outside().join("a");
        let name = name.to_str().unwrap();
        scene.refuses(&archive_of(&[(name, EntryType::Regular, 0o644, "x")]), "leads out");
    }

    #[test]
    fn a_name_with_dots_is_refused() {
        let scene = Scene::new();
        for name in ["../outside/a", "d/../../outside/a", ".."] {
            scene.refuses(&archive_of(&[(name, EntryType::Regular, 0o644, "x")]), "leads out");
        }
    }

    #[test]
    fn a_file_through_a_link_is_refused() {
        let scene = Scene::new();
        let outside = scene.outside();
        let link = ("link", EntryType::Symlink, 0o777, outside.to_str().unwrap());
        scene.refuses(&archive_of(&[link, ("link/b", EntryType::Regular, 0o644, "x")]), "not a directory");
        scene.refuses(&archive_of(&[link, ("link/d/b", EntryType::Directory, 0o755, "")]), "not a directory");
        // Making a directory where a link is must not change the mode of what the link points to.
        let mode = || fs::metadata(&outside).unwrap().permissions().mode();
        let before = mode();
        assert!(scene.unpack(&archive_of(&[link, ("link", EntryType::Directory, 0o700, "")])).is_err());
        assert_eq!(mode(), before);
    }

    #[test]
    fn a_file_replaces_a_link_and_does_not_write_through_it() {
        let scene = Scene::new();
        let secret = scene.outside().join("secret");
        let link = ("f", EntryType::Symlink, 0o777, secret.to_str().unwrap());
        scene.unpack(&archive_of(&[link, ("f", EntryType::Regular, 0o644, "theirs")])).unwrap();
        assert_eq!(fs::read_to_string(scene.staging().join("f")).unwrap(), "theirs");
        scene.assert_outside_untouched();
    }

    #[test]
    fn a_hard_link_to_outside_is_refused() {
        let scene = Scene::new();
        let (outside, secret) = (scene.outside(), scene.outside().join("secret"));
        for target in ["../outside/secret", secret.to_str().unwrap()] {
            scene.refuses(&archive_of(&[("hard", EntryType::Link, 0o644, target)]), "leads out");
        }
        let link = ("link", EntryType::Symlink, 0o777, outside.to_str().unwrap());
        scene.refuses(
            &archive_of(&[link, ("hard", EntryType::Link, 0o644, "link/secret")]),
            "not a directory",
        );
        scene.refuses(&archive_of(&[link, ("hard", EntryType::Link, 0o644, "link")]), "no file");
        assert!(fs::symlink_metadata(scene.staging().join("hard")).is_err());
    }

    #[test]
    fn a_hard_link_within_the_tree_is_a_second_name() {
        let scene = Scene::new();
        let file = ("d/a", EntryType::Regular, 0o644, "x");
        scene.unpack(&archive_of(&[file, ("d/b", EntryType::Link, 0o644, "d/a")])).unwrap();
        assert_eq!(fs::read_to_string(scene.staging().join("d/b")).unwrap(), "x");
    }

    #[test]
    fn devices_and_pipes_are_left_out() {
        let scene = Scene::new();
        let kinds = [EntryType::Char, EntryType::Block, EntryType::Fifo];
        for kind in kinds {
            scene.unpack(&archive_of(&[("odd", kind, 0o666, "")])).unwrap();
            assert!(fs::symlink_metadata(scene.staging().join("odd")).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn zeros_take_no_room() {
        let scene = Scene::new();
        let text = format!("begin{}", "\0".repeat(8 << 20));
        scene.unpack(&archive_of(&[("f", EntryType::Regular, 0o644, &text)])).unwrap();
        assert!(fs::read(scene.staging().join("f")).unwrap() == text.as_bytes());
        let taken = fs::metadata(scene.staging().join("f")).unwrap().blocks() * 512;
        assert!(taken <= 64 * 1024, "{taken}");
    }

    #[test]
    fn a_hole_without_end_is_refused() {
        let scene = Scene::new();
        let mut header = tar::Header::new_gnu();
        header.set_path("hole").unwrap();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o644);
        header.set_size(0);
        let endless = *b"777777777777";
        let fields = header.as_gnu_mut().unwrap();
        (fields.realsize, fields.sparse[0].offset) = (endless, endless);
        fields.sparse[0].numbytes = *b"000000000000";
        header.set_cksum();
        scene.refuses(header.as_bytes(), "sparse");
    }

    #[test]
    fn setuid_bits_and_owners_stay_inside() {
        let scene = Scene::new();
        let tree = [("d", EntryType::Directory, 0o7555, ""), ("d/f", EntryType::Regular, 0o6755, "x")];
        scene.unpack(&archive_of(&tree)).unwrap();
        let mode =
            |path: &str| fs::metadata(scene.staging().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("d"), mode("d/f")), (0o755, 0o755));
    }

    #[test]
    fn a_tree_without_end_is_refused() {
        let scene = Scene::new();
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        builder.append_data(&mut header, "d/".repeat(MAX_DEPTH + 1), io::empty()).unwrap();
        scene.refuses(&builder.into_inner().unwrap(), "deeper than 256");
    }

    #[test]
    fn a_name_without_end_is_refused() {
        let scene = Scene::new();
        let name = "x".repeat(MAX_HEADER_BYTES as usize + 1);
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(name.len() as u64);
        header.set_cksum();
        builder.append(&header, name.as_bytes()).unwrap();
        scene.refuses(&builder.into_inner().unwrap(), "longer than any honest one");
    }
}
