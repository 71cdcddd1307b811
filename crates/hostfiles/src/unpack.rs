//! Bytes from inside a sandbox onto this host. Every name and every byte of them may be a trick.
//!
//! Everything happens beneath one open directory, component by component, and no link is ever followed. Owners, setuid
//! bits, pipes and devices stay inside. What an honest sandbox never sends ends the copy; what means nothing here is
//! left out.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufReader, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path},
};

use archive::{Content, Format, Kind, Member, ReadLimits, Reader};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Timestamps, fchmod, ftruncate, futimens, linkat, openat, symlinkat,
        unlinkat,
    },
    io::Errno,
};

use crate::{
    Counts, Draft, Error, Result, Rules,
    directory::{LISTED, kind_at, make_directory, step},
    merge::{Staging, merge},
    pipe::each_chunk,
    tally::Tally,
};

/// Limits on what is held in memory of one entry.
const READ_LIMITS: ReadLimits = ReadLimits { header_bytes: 256 * 1024, parts: 64 * 1024 };
/// The bytes still read behind the end of an archive, so that its sender can finish.
const MAX_TRAILING_BYTES: u64 = 1024 * 1024;

/// Makes a file of everything that comes.
pub fn receive_file(mut source: impl Read, mut draft: Draft, rules: Rules) -> Result<Counts> {
    let mut tally = Tally::new(rules.limits);
    tally.file()?;
    let broken = |error: &io::Error| Error::Archive(error.to_string());
    each_chunk(&mut source, broken, |chunk| {
        tally.bytes(chunk.len() as u64)?;
        draft.append(chunk)
    })?;
    draft.commit()?;
    Ok(tally.counts)
}

/// Unpacks a tar stream into the directory `into`: directories are merged, files and links replaced. Nothing is changed
/// there before all has come. The first `n_stripped` components of every name are left away. `shown` is where `into`
/// is, for messages.
pub fn receive_tree(
    mut source: impl Read,
    into: &OwnedFd,
    shown: &Path,
    n_stripped: usize,
    rules: Rules,
) -> Result<Counts> {
    let staging = Staging::new(into, shown)?;
    let counts = unpack(&mut source, staging.directory(), shown, n_stripped, rules)?;
    io::copy(&mut source.take(MAX_TRAILING_BYTES), &mut io::sink()).unwrap_or(0);
    merge(staging.directory(), into, shown)?;
    Ok(counts)
}

fn unpack(
    source: impl Read,
    root: &OwnedFd,
    shown: &Path,
    n_stripped: usize,
    rules: Rules,
) -> Result<Counts> {
    let mut unpacker = Unpacker { root, shown, n_stripped, rules, tally: Tally::new(rules.limits) };
    let mut archive = Reader::new(BufReader::new(source), Format::Any, READ_LIMITS);
    while let Some(member) = archive.next()? {
        unpacker.one(&member, &mut archive)?;
    }
    Ok(unpacker.tally.counts)
}

struct Unpacker<'a> {
    root: &'a OwnedFd,
    shown: &'a Path,
    n_stripped: usize,
    rules: Rules,
    tally: Tally,
}

/// A name in an open directory beneath the root.
struct Spot {
    directory: OwnedFd,
    name: OsString,
    /// Steps from the root to the directory.
    depth: usize,
}

fn refused(entry: &Path, why: &'static str) -> Error {
    Error::Refused { entry: entry.to_owned(), why }
}

impl Unpacker<'_> {
    fn one<R: Read>(&mut self, member: &Member, archive: &mut Reader<BufReader<R>>) -> Result<()> {
        let path = path_of(&member.path);
        if !matches!(
            member.kind,
            Kind::Directory | Kind::Symlink { .. } | Kind::HardLink { .. } | Kind::File(_)
        ) {
            return self.tally.leave_out(path);
        }
        // The top itself is there already.
        let Some(spot) = self.spot(path)? else {
            return if member.kind == Kind::Directory { Ok(()) } else { Err(Error::NotADirectory) };
        };
        let failed = |errno| Error::io("write", self.shown.join(path), errno);
        match &member.kind {
            Kind::Directory => {
                self.tally.directory()?;
                set_directory(&spot, member.mode).map_err(failed)
            }
            Kind::Symlink { target } if self.rules.keeps_link(path_of(target), spot.depth) => {
                self.tally.link()?;
                clear(&spot)
                    .and_then(|()| symlinkat(path_of(target), &spot.directory, &spot.name))
                    .map_err(failed)
            }
            Kind::HardLink { target } => {
                self.tally.file()?;
                self.make_second_name(&spot, path_of(target), failed)
            }
            Kind::File(content) => {
                self.tally.file()?;
                self.tally.bytes(content.size)?;
                let file = create(&spot).map_err(failed)?;
                archive.content(content, |at, bytes| {
                    archive::write_sparsely(&file, at, bytes).map_err(|error| failed(errno_of(&error)))
                })?;
                finish(&file, member, content).map_err(failed)
            }
            _ => self.tally.leave_out(path),
        }
    }

    /// Opens what is above `path`, making directories that are missing. The top has no name.
    fn spot(&self, path: &Path) -> Result<Option<Spot>> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                    return Err(refused(path, "leads out of the tree that is copied"));
                }
            }
        }
        let names = names.get(self.n_stripped..).unwrap_or_default();
        let Some((name, above)) = names.split_last() else { return Ok(None) };
        self.tally.depth(above.len(), || path.to_owned())?;
        let not_a_directory = |_errno| refused(path, "is beneath something that is not a directory");
        let mut directory =
            self.root.try_clone().map_err(|error| Error::of_io("open", self.shown, &error))?;
        for part in above {
            let opened = match step(&directory, part, LISTED) {
                Err(Errno::NOENT) => make_directory(&directory, part, Mode::RWXU, LISTED),
                opened => opened,
            };
            directory = opened.map_err(not_a_directory)?;
        }
        Ok(Some(Spot { directory, name: (*name).to_owned(), depth: above.len() }))
    }

    /// A second name for a file that came before. `linkat` does not follow a link at the end.
    fn make_second_name(&self, spot: &Spot, target: &Path, failed: impl Fn(Errno) -> Error) -> Result<()> {
        let first = self
            .spot(target)?
            .ok_or_else(|| refused(target, "is not a file, so it cannot have a second name"))?;
        if kind_at(&first.directory, &first.name).map_err(&failed)? != FileType::RegularFile {
            return Err(refused(target, "is not a file, so it cannot have a second name"));
        }
        clear(spot)
            .and_then(|()| {
                linkat(&first.directory, &first.name, &spot.directory, &spot.name, AtFlags::empty())
            })
            .map_err(failed)
    }
}

/// Returns the part of a mode from inside that everyone may have: no setuid, no setgid, no sticky bit.
fn plain(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// Makes a directory that its owner may always read and write: otherwise nobody could move its files into place, or
/// remove it later.
fn set_directory(spot: &Spot, mode: u32) -> Result<(), Errno> {
    let made = make_directory(&spot.directory, &spot.name, Mode::RWXU, LISTED)?;
    fchmod(&made, plain(mode) | Mode::RWXU)
}

fn create(spot: &Spot) -> Result<File, Errno> {
    clear(spot)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&spot.directory, &spot.name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Sets what a file has besides its bytes. It may end with a hole.
fn finish(file: &File, member: &Member, content: &Content) -> Result<(), Errno> {
    ftruncate(file, content.size)?;
    fchmod(file, plain(member.mode))?;
    // A time that the file system cannot hold is no reason to lose the file.
    futimens(file, &Timestamps { last_access: member.mtime, last_modification: member.mtime }).unwrap_or(());
    Ok(())
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A later entry replaces an earlier one of the same name, unless that is a directory.
fn clear(spot: &Spot) -> Result<(), Errno> {
    match unlinkat(&spot.directory, &spot.name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        cleared => cleared,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        path::PathBuf,
    };

    use tar::EntryType;

    use super::*;
    use crate::{Fidelity, Limits};

    const RULES: Rules =
        Rules { fidelity: Fidelity::Own, limits: Limits { entries: 1000, bytes: 16 << 20, depth: 256 } };

    struct Scene {
        home: tempfile::TempDir,
    }

    impl Scene {
        /// A directory to unpack into, and beside it one with a secret.
        fn new() -> Self {
            let scene = Self { home: tempfile::tempdir().unwrap() };
            fs::create_dir(scene.staging()).unwrap();
            fs::create_dir(scene.outside()).unwrap();
            fs::write(scene.outside().join("secret"), "mine").unwrap();
            scene
        }

        fn staging(&self) -> PathBuf {
            self.home.path().join("staging")
        }

        fn outside(&self) -> PathBuf {
            self.home.path().join("outside")
        }

        fn unpack(&self, archive: &[u8]) -> Result<Counts> {
            let root = File::open(self.staging()).unwrap().into();
            unpack(archive, &root, &self.staging(), 0, RULES)
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
        scene.refuses(&archive_of(&[link, ("hard", EntryType::Link, 0o644, "link")]), "not a file");
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
            let counts = scene.unpack(&archive_of(&[("odd", kind, 0o666, "")])).unwrap();
            assert_eq!((counts.left_out, counts.left_out_paths), (1, vec!["odd".to_owned()]));
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
        scene.refuses(header.as_bytes(), "more than 16777216 bytes");
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
        builder.append_data(&mut header, "d/".repeat(RULES.limits.depth + 1), io::empty()).unwrap();
        scene.refuses(&builder.into_inner().unwrap(), "more than 256 directories");
    }

    #[test]
    fn a_name_without_end_is_refused() {
        let scene = Scene::new();
        let name = "x".repeat(READ_LIMITS.header_bytes as usize + 1);
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(name.len() as u64);
        header.set_cksum();
        builder.append(&header, name.as_bytes()).unwrap();
        scene.refuses(&builder.into_inner().unwrap(), "longer than 262144 bytes");
    }

    fn received(scene: &Scene, archive: &[u8], rules: Rules) -> Result<Counts> {
        receive_tree(archive, &File::open(scene.staging()).unwrap().into(), &scene.staging(), 1, rules)
    }

    #[test]
    fn a_tree_comes_without_its_own_name_and_only_as_a_whole() {
        let scene = Scene::new();
        let top = ("top", EntryType::Directory, 0o755, "");
        let (file, link) =
            (("top/d/f", EntryType::Regular, 0o644, "x"), ("top/d/l", EntryType::Symlink, 0o777, "f"));
        let whole = archive_of(&[top, file, link]);
        assert!(received(&scene, &whole[..3 * 512 - 1], RULES).is_err());
        assert_eq!(fs::read_dir(scene.staging()).unwrap().count(), 0);
        let counts = received(&scene, &whole, RULES).unwrap();
        assert_eq!((counts.files, counts.links, counts.bytes), (1, 1, 1));
        assert_eq!(fs::read_to_string(scene.staging().join("d/l")).unwrap(), "x");
        assert_eq!(fs::read_dir(scene.staging()).unwrap().count(), 1);
        let no_tree = archive_of(&[("top", EntryType::Symlink, 0o777, "elsewhere")]);
        assert_eq!(received(&scene, &no_tree, RULES), Err(Error::NotADirectory));
    }

    #[test]
    fn a_plain_copy_takes_no_link_that_leads_out_and_no_more_than_it_may() {
        let scene = Scene::new();
        let limits = Limits { entries: 2, bytes: 5, depth: 2 };
        let plain = Rules { fidelity: Fidelity::Plain, limits };
        let file = |path| (path, EntryType::Regular, 0o644, "four");
        let link = |path, target| (path, EntryType::Symlink, 0o777, target);
        let links = archive_of(&[link("t/out", "../../x"), link("t/fine", "out")]);
        let counts = received(&scene, &links, plain).unwrap();
        assert_eq!((counts.links, counts.left_out), (1, 1));
        let too_much = [
            (archive_of(&[file("t/a"), file("t/b")]), Error::TooLarge { limit: 5 }),
            (archive_of(&[file("t/a"), link("t/b", "a"), link("t/c", "a")]), Error::TooMany { limit: 2 }),
            (archive_of(&[file("t/a/b/c")]), Error::TooDeep { path: "t/a/b/c".into(), limit: 2 }),
        ];
        for (archive, error) in too_much {
            assert_eq!(received(&scene, &archive, plain), Err(error));
        }
    }
}
