//! Our own program, prepared to run as the guest in any root file system.
//!
//! Images have other C libraries or none, so the program is put beside the loader and the libraries of this process,
//! and is started by that loader. That keeps the product one file; a second, static build of the guest would have to be
//! made, shipped and found. Copies, not links: a process that breaks a read-only mount must not reach the host's files.

use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash as _, Hasher as _},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

const PROGRAM: &str = "guest";

/// A directory to be mounted inside, and the command that starts the guest there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) directory: PathBuf,
    /// File name of the loader; none for a static program.
    loader: Option<String>,
}

impl Program {
    /// Makes the directory below `parent`, or reuses an existing one.
    pub(super) fn prepare(parent: &Path) -> io::Result<Self> {
        let program = fs::read_link("/proc/self/exe")?;
        let libraries = libraries(&fs::read_to_string("/proc/self/maps")?, &program);
        let loader = libraries.iter().filter_map(|path| path.file_name()?.to_str());
        let loader = loader
            .filter(|name| name.starts_with("ld-") || name.starts_with("ld."))
            .map(str::to_owned)
            .next();
        let directory = parent.join(format!("{PROGRAM}-{:016x}", fingerprint(&program, &libraries)?));
        if !directory.exists() {
            fs::create_dir_all(parent)?;
            let unfinished = parent.join(format!(".unfinished-{}", std::process::id()));
            fs::create_dir(&unfinished)?;
            // The link is read as it is now, even if the file was replaced by a newer build.
            copy(Path::new("/proc/self/exe"), &unfinished.join(PROGRAM))?;
            for library in &libraries {
                copy(library, &unfinished.join(library.file_name().unwrap_or_default()))?;
            }
            match fs::rename(&unfinished, &directory) {
                Err(_) if directory.exists() => fs::remove_dir_all(&unfinished)?,
                renamed => renamed?,
            }
        }
        remove_older(parent, &directory)?;
        Ok(Self { directory, loader })
    }

    /// The command that starts the guest if the directory is mounted at `at`.
    pub(super) fn command(&self, at: &str, role: &[String]) -> Vec<String> {
        let program = format!("{at}/{PROGRAM}");
        let mut command = match &self.loader {
            Some(loader) => {
                vec![format!("{at}/{loader}"), "--library-path".to_owned(), at.to_owned(), program]
            }
            None => vec![program],
        };
        command.extend_from_slice(role);
        command
    }
}

/// Removes the directories of earlier builds except the last one: running guests need nothing of it any more, but one
/// may be just starting.
fn remove_older(parent: &Path, current: &Path) -> io::Result<()> {
    let mut others: Vec<(i64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(&format!("{PROGRAM}-")));
        if is_ours && entry.path() != current {
            others.push((entry.metadata()?.mtime(), entry.path()));
        }
    }
    others.sort_unstable();
    others.pop();
    for (_, path) in others {
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

/// The shared libraries in a process's memory map, including its loader.
fn libraries(maps: &str, program: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = maps
        .lines()
        .filter(|line| line.split_ascii_whitespace().nth(1).is_some_and(|rights| rights.contains('x')))
        .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
        .filter(|path| path != program && !path.to_string_lossy().ends_with(" (deleted)"))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn fingerprint(program: &Path, libraries: &[PathBuf]) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for path in std::iter::once(Path::new("/proc/self/exe")).chain(libraries.iter().map(PathBuf::as_path)) {
        let found = fs::metadata(path)?;
        (path, found.len(), found.mtime(), found.mtime_nsec(), found.ino()).hash(&mut hasher);
    }
    program.hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_map() {
        let maps = "55d0-55d1 r-xp 00001000 fe:00 1    /opt/warren\n\
            7f00-7f01 r-xp 00002000 fe:00 2    /usr/lib/libc.so.6\n\
            7f01-7f02 r--p 00002000 fe:00 2    /usr/lib/libc.so.6\n\
            7f02-7f03 r--s 00000000 fe:00 9    /usr/share/some.db\n\
            7f03-7f04 r-xp 00000000 fe:00 3    /usr/lib/ld-linux-x86-64.so.2\n\
            7f04-7f05 r-xp 00000000 00:00 0    [vdso]\n";
        let found = libraries(maps, Path::new("/opt/warren"));
        assert_eq!(found, ["/usr/lib/ld-linux-x86-64.so.2", "/usr/lib/libc.so.6"].map(PathBuf::from));
    }
}
