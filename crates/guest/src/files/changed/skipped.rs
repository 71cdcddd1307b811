//! Files that are nobody's work: those of the system, and those that tools keep for themselves.

use std::path::{Component, Path};

use crate::code::CELL_DIRECTORY;

/// Directories in the root that belong to the system.
const SYSTEM: &[&[u8]] = &[
    b"bin", b"boot", b"dev", b"etc", b"lib", b"lib32", b"lib64", b"libx32", b"proc", b"run", b"sbin", b"sys",
    b"usr", b"var",
];
/// Nothing in these is a file, at any depth.
const NEVER_FILES: &[&[u8]] = &[b"dev", b"proc", b"sys"];

/// Directories that tools fill on their own, and those that hold secrets.
const DIRECTORIES: &[&[u8]] = &[
    b".git",
    b".hg",
    b".svn",
    b".jj",
    b"node_modules",
    b".npm",
    b".yarn",
    b".pnpm-store",
    b".bun",
    b".next",
    b".turbo",
    b".parcel-cache",
    b"__pycache__",
    b"site-packages",
    b"dist-packages",
    b".venv",
    b".tox",
    b".nox",
    b".eggs",
    b".ipynb_checkpoints",
    b".mypy_cache",
    b".pytest_cache",
    b".ruff_cache",
    b".ipython",
    b".jupyter",
    b".conda",
    b".cargo",
    b".rustup",
    b".gradle",
    b".m2",
    b".bundle",
    b".gem",
    b".cache",
    b".config",
    b".local",
    b".ssh",
    b".gnupg",
    b".aws",
    b".kube",
    b".docker",
];
/// Files that programs write about themselves.
const FILES: &[&[u8]] = &[
    b".bash_history",
    b".python_history",
    b".node_repl_history",
    b".irb_history",
    b".lesshst",
    b".viminfo",
    b".wget-hsts",
    b".sudo_as_admin_successful",
    b".netrc",
    b".DS_Store",
];
const ENDINGS: &[&[u8]] = &[b".pyc", b".swp", b".swx"];

/// The file that marks a directory as a cache, by convention.
pub(super) const CACHE_TAG: &[u8] = b"CACHEDIR.TAG";

/// Whether a working directory belongs to the system: nothing in it is searched.
pub(super) fn is_system(directory: &Path) -> bool {
    let mut names = directory.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_encoded_bytes()),
        _ => None,
    });
    match (names.next(), names.next()) {
        (Some(first), None) => SYSTEM.contains(&first),
        (Some(first), Some(_)) => NEVER_FILES.contains(&first),
        (None, _) => false,
    }
}

/// Whether a directory is skipped. `is_in_root`: it lies in `/`.
pub(super) fn directory(name: &[u8], is_in_root: bool) -> bool {
    DIRECTORIES.contains(&name) || is_of_cell(name) || (is_in_root && SYSTEM.contains(&name))
}

/// Directories in which the guest itself puts the code of cells that run by file.
fn is_of_cell(name: &[u8]) -> bool {
    let random = name.strip_prefix(CELL_DIRECTORY.as_bytes());
    random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}

pub(super) fn file(name: &[u8]) -> bool {
    FILES.contains(&name) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_passed_over_and_work_in_it_is_not() {
        for path in ["/usr", "/etc", "/var/", "/proc/self", "/dev/shm/x", "/sys/kernel"] {
            assert!(is_system(Path::new(path)), "{path}");
        }
        for path in ["/", "/root", "/home/me", "/usr/src/app", "/var/www", "/workspace", "/etcetera"] {
            assert!(!is_system(Path::new(path)), "{path}");
        }
        assert!(directory(b"etc", true) && !directory(b"etc", false) && directory(b".git", false));
        assert!(directory(b"cell-0123456789abcdef", false) && !directory(b"cell-division", false));
        assert!(file(b"a.pyc") && !file(b"pyc") && file(b".bash_history"));
    }
}
