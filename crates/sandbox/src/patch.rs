//! Patches: changes to a new sandbox's files before anything runs in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{Error, MountSpec, Result};

/// Most patches and scripts of one sandbox: each is a request to its guest.
pub const MAX_PATCHES: usize = 256;
/// Contents of all patches and scripts together: they travel in one message. Copies from the host are streamed and do
/// not count.
pub const MAX_PATCH_BYTES: usize = 8 * 1024 * 1024;
const MAX_PATH_BYTES: usize = 4095;
const MAX_SCRIPT_NAME_BYTES: usize = 64;
const SCRIPT_DIRECTORY: &str = "/usr/local/bin";
const SCRIPT_MODE: u32 = 0o755;
/// All existing permission bits.
const MAX_MODE: u32 = 0o7777;

/// One change of a new sandbox's files. Paths are absolute and inside; missing parent directories are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind", deny_unknown_fields)]
pub enum Patch {
    Text {
        path: String,
        content: String,
        /// Permission bits of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Whether an existing file may be overwritten.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    },
    File {
        path: String,
        #[serde(rename = "contentBase64", with = "base64_text")]
        #[schema(value_type = String)]
        content: Vec<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    },
    Append {
        path: String,
        content: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
    },
    Mkdir {
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
    },
    Symlink {
        /// Text for the link; it may be relative and need not exist.
        target: String,
        path: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    },
    /// A file, or a directory with its contents. A missing one is not a failure.
    Remove { path: String },
    /// A file of the host: for the daemon's owner, and for those whom the policy lets read it.
    CopyFile {
        #[schema(rename = "hostPath", value_type = String)]
        host_path: PathBuf,
        path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    },
    /// The files of a directory of the host, created beneath `path`; permissions as for a file.
    CopyDir {
        #[schema(rename = "hostPath", value_type = String)]
        host_path: PathBuf,
        path: String,
        /// Permission bits of `path` itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    },
}

impl Patch {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::File { .. } => "file",
            Self::Append { .. } => "append",
            Self::Mkdir { .. } => "mkdir",
            Self::Symlink { .. } => "symlink",
            Self::Remove { .. } => "remove",
            Self::CopyFile { .. } => "copyFile",
            Self::CopyDir { .. } => "copyDir",
        }
    }

    /// The path inside that it changes.
    pub fn path(&self) -> &str {
        match self {
            Self::Text { path, .. }
            | Self::File { path, .. }
            | Self::Append { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Symlink { path, .. }
            | Self::Remove { path }
            | Self::CopyFile { path, .. }
            | Self::CopyDir { path, .. } => path,
        }
    }

    /// The source of a copy.
    pub fn host_path(&self) -> Option<&std::path::Path> {
        match self {
            Self::CopyFile { host_path, .. } | Self::CopyDir { host_path, .. } => Some(host_path),
            _ => None,
        }
    }

    fn mode(&self) -> Option<u32> {
        match self {
            Self::Text { mode, .. }
            | Self::File { mode, .. }
            | Self::Append { mode, .. }
            | Self::Mkdir { mode, .. }
            | Self::CopyFile { mode, .. }
            | Self::CopyDir { mode, .. } => *mode,
            Self::Symlink { .. } | Self::Remove { .. } => None,
        }
    }

    fn n_bytes(&self) -> usize {
        match self {
            Self::Text { content, .. } | Self::Append { content, .. } => content.len(),
            Self::File { content, .. } => content.len(),
            _ => 0,
        }
    }

    /// A program for `/usr/local/bin`.
    pub fn script(name: &str, text: String) -> Self {
        let path = format!("{SCRIPT_DIRECTORY}/{name}");
        Self::Text { path, content: text, mode: Some(SCRIPT_MODE), replace: true }
    }

    fn check(&self, place: &str, mounted: &BTreeSet<String>) -> Result<()> {
        let path = self.path();
        let shown: String = path.chars().take(80).collect();
        let refuse = |why: &str| {
            Err(Error::invalid(format!("{place}: {shown:?} {why}"))
                .with_hint("Give a path of a file or directory inside that begins with /."))
        };
        if !path.starts_with('/') || path.len() > MAX_PATH_BYTES || path.contains('\0') {
            return refuse("is not an absolute path");
        }
        if path.bytes().all(|byte| byte == b'/') && !matches!(self, Self::CopyDir { .. }) {
            return refuse("is the root, which cannot be patched");
        }
        if let Some(mount) = mounted.iter().find(|mount| is_beneath(path, mount)) {
            return Err(Error::invalid(format!("{place}: {shown:?} is in the mount {mount}")).with_hint(
                "Patches change the sandbox's own files; write to a mount once the sandbox runs.",
            ));
        }
        if let (Self::Remove { .. } | Self::CopyDir { .. }, Some(mount)) =
            (self, mounted.iter().find(|mount| is_beneath(mount, path)))
        {
            return Err(Error::invalid(format!("{place}: the mount {mount} is in {shown:?}")).with_hint(
                "Patches change the sandbox's own files; change files in a mount once the sandbox runs.",
            ));
        }
        if let Self::Symlink { target, .. } = self
            && (target.is_empty() || target.len() > MAX_PATH_BYTES || target.contains('\0'))
        {
            return Err(Error::invalid(format!("{place}: the link has no target")));
        }
        match self.mode() {
            Some(mode) if mode > MAX_MODE => Err(Error::invalid(format!(
                "{place}: {mode} are not permission bits; the maximum is {MAX_MODE}"
            ))),
            _ => Ok(()),
        }
    }
}

/// `path` as a program with this working directory would read it. Dots are left to the kernel, which knows the links;
/// an empty path stays one.
pub fn path_from(directory: &str, path: &str) -> String {
    match path {
        "." => directory.to_owned(),
        whole if whole.is_empty() || whole.starts_with('/') => whole.to_owned(),
        relative => format!("{}/{relative}", directory.trim_end_matches('/')),
    }
}

/// Whether `path` is `place` or lies in it, by name alone.
pub fn is_beneath(path: &str, place: &str) -> bool {
    let parts =
        |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    parts(path).starts_with(&parts(place))
}

/// Refuses what cannot be applied, naming its position in the request.
pub fn check_patches(
    patches: &[Patch],
    scripts: &BTreeMap<String, String>,
    mounts: &[MountSpec],
) -> Result<()> {
    let n = patches.len() + scripts.len();
    if n > MAX_PATCHES {
        return Err(Error::invalid(format!("there are {n} patches and scripts; the limit is {MAX_PATCHES}"))
            .with_hint("Write the rest once the sandbox runs."));
    }
    let n_bytes = patches.iter().map(Patch::n_bytes).chain(scripts.values().map(String::len));
    let n_bytes = n_bytes.fold(0, usize::saturating_add);
    if n_bytes > MAX_PATCH_BYTES {
        let message = format!(
            "the patches and scripts have {n_bytes} bytes of content; the limit is {MAX_PATCH_BYTES}"
        );
        return Err(Error::invalid(message).with_hint("Copy large files in once the sandbox runs."));
    }
    let mounted = mounts.iter().filter_map(|mount| crate::check_guest_path(&mount.guest_path).ok()).collect();
    for (index, patch) in patches.iter().enumerate() {
        patch.check(&format!("patches[{index}]"), &mounted)?;
    }
    scripts.keys().try_for_each(|name| check_script_name(name))
}

fn check_script_name(name: &str) -> Result<()> {
    let is_plain = !name.is_empty()
        && name.len() <= MAX_SCRIPT_NAME_BYTES
        && !name.starts_with(['.', '-'])
        && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    if is_plain {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_SCRIPT_NAME_BYTES).collect();
    Err(Error::invalid(format!("scripts: {shown:?} is not a valid program name"))
        .with_hint("A script's name has no slash and no space, such as build or run-tests."))
}

/// Bytes are base64 in JSON.
mod base64_text {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(|error| D::Error::custom(format!("not base64: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patches: &[Patch]) -> Result<()> {
        check_patches(patches, &BTreeMap::new(), &[])
    }

    fn text(path: &str, content: &str) -> Patch {
        Patch::Text { path: path.to_owned(), content: content.to_owned(), mode: None, replace: false }
    }

    #[test]
    fn what_would_change_a_mount_is_refused_from_above_too() {
        let mounted: MountSpec =
            serde_json::from_str(r#"{"kind":"named","guestPath":"/srv/data","name":"d"}"#).unwrap();
        let refused = |patch: &str| {
            let patch: Patch = serde_json::from_str(patch).unwrap();
            check_patches(&[patch], &BTreeMap::new(), std::slice::from_ref(&mounted)).unwrap_err().to_string()
        };
        assert!(refused(r#"{"kind":"remove","path":"/srv"}"#).contains("the mount /srv/data is in"));
        let copy = r#"{"kind":"copyDir","hostPath":"/h","path":"/srv"}"#;
        assert!(refused(copy).contains("the mount /srv/data is in"));
    }

    #[test]
    fn a_patch_reads_as_callers_write_it() {
        let json = r#"{"kind":"file","path":"/a","contentBase64":"aGk=","mode":420,"replace":true}"#;
        let patch: Patch = serde_json::from_str(json).unwrap();
        let expected =
            Patch::File { path: "/a".to_owned(), content: b"hi".to_vec(), mode: Some(0o644), replace: true };
        assert_eq!(patch, expected);
        assert_eq!(serde_json::to_string(&patch).unwrap(), json);
        let copy: Patch = serde_json::from_str(r#"{"kind":"copyDir","hostPath":"/h","path":"/g"}"#).unwrap();
        assert_eq!(copy.host_path(), Some(std::path::Path::new("/h")));
        for wrong in [
            r#"{"kind":"text","path":"/a"}"#,
            r#"{"kind":"text","path":"/a","content":"","owner":1}"#,
            r#"{"kind":"file","path":"/a","contentBase64":"?"}"#,
            r#"{"kind":"chmod","path":"/a"}"#,
        ] {
            assert!(serde_json::from_str::<Patch>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_applied_is_refused_by_its_place() {
        check(&[text("/a", ""), Patch::script("build", String::new())]).unwrap();
        for path in ["", "a", "/", "//", "/a\0b", &format!("/{}", "x".repeat(5000))] {
            let error = check(&[text("/fine", ""), text(path, "")]).unwrap_err();
            assert!(error.to_string().starts_with("patches[1]"), "{error}");
        }
        let link = Patch::Symlink { target: String::new(), path: "/l".to_owned(), replace: false };
        assert!(check(&[link]).is_err());
        assert!(check(&[Patch::Mkdir { path: "/d".to_owned(), mode: Some(0o10000) }]).is_err());
    }

    #[test]
    fn there_are_only_so_many_and_so_large() {
        assert!(check(&vec![text("/a", ""); MAX_PATCHES + 1]).unwrap_err().to_string().contains("257"));
        let half = "x".repeat(MAX_PATCH_BYTES / 2);
        check(&[text("/a", &half), text("/b", &half)]).unwrap();
        assert!(check(&[text("/a", &half), text("/b", &half), text("/c", "x")]).is_err());
    }

    #[test]
    fn a_mount_is_not_patched() {
        let mount: MountSpec = serde_json::from_str(r#"{"kind":"tmpfs","guestPath":"/data/"}"#).unwrap();
        let patched = |path: &str| {
            check_patches(&[text(path, "")], &BTreeMap::new(), std::slice::from_ref(&mount)).is_ok()
        };
        assert!(patched("/database") && patched("/da") && patched("/x/data"));
        assert!(!patched("/data") && !patched("//data/a") && !patched("/data//b/c"));
        // Removing a directory removes everything in it.
        let mount: MountSpec = serde_json::from_str(r#"{"kind":"tmpfs","guestPath":"/srv/data"}"#).unwrap();
        let removed = |path: &str| {
            let patch = Patch::Remove { path: path.to_owned() };
            check_patches(&[patch], &BTreeMap::new(), std::slice::from_ref(&mount)).is_ok()
        };
        assert!(removed("/srv/other") && removed("/srv/data-old") && removed("/sr"));
        assert!(!removed("/srv") && !removed("/srv//") && !removed("/srv/data/x"));
    }

    #[test]
    fn a_script_has_a_name_of_one_word() {
        let named =
            |name: &str| check_patches(&[], &BTreeMap::from([(name.to_owned(), String::new())]), &[]).is_ok();
        assert!(named("build") && named("run-tests.sh"));
        for name in ["", "../x", "a/b", "a b", "-x", ".x", &"x".repeat(65)] {
            assert!(!named(name), "{name:?}");
        }
    }
}
