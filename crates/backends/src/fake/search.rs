//! Glob, grep and tar over the simulated files.

use std::io::Read;

use bytes::Bytes;
use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use guest_protocol::{FailureKind, GrepMatch, Request, Response};

use super::files::{Content, Files, Node, Result, failure, join};

/// A matching line is cut to this many characters.
const MAX_LINE_CHARS: usize = 1000;

fn glob_matcher(pattern: &str) -> Result<GlobMatcher> {
    match GlobBuilder::new(pattern).literal_separator(true).build() {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => failure(FailureKind::InvalidRequest, format!("{pattern:?} is not a glob: {error}")),
    }
}

fn regex(pattern: &str, ignore_case: bool, literal: bool) -> Result<RegexMatcher> {
    let mut builder = RegexMatcherBuilder::new();
    match builder.case_insensitive(ignore_case).fixed_strings(literal).build(pattern) {
        Ok(matcher) => Ok(matcher),
        Err(error) => {
            let complaint = error.to_string();
            let why = complaint.rsplit_once("error: ").map_or(complaint.as_str(), |(_, why)| why);
            failure(FailureKind::InvalidRequest, format!("{pattern:?} is not a regular expression: {why}"))
        }
    }
}

fn relative<'a>(root: &str, path: &'a str) -> &'a str {
    path[root.len()..].trim_start_matches('/')
}

impl Files {
    pub(super) fn glob(&self, root: &str, pattern: &str, limit: u32) -> Result<Response> {
        let root = self.directory(root)?;
        let matcher = glob_matcher(pattern)?;
        let found = self.beneath(&root).filter(|(path, _)| matcher.is_match(relative(&root, path)));
        let mut paths: Vec<_> = found.map(|(path, _)| path.clone()).collect();
        let truncated = paths.len() > limit as usize;
        paths.truncate(limit as usize);
        Ok(Response::Paths { paths, truncated })
    }

    pub(super) fn grep(&self, request: &Request) -> Result<Response> {
        let Request::Grep { root, pattern, include, ignore_case, literal, limit } = request else {
            return failure(FailureKind::Internal, "not a search".to_owned());
        };
        let root = self.resolve(root, true)?;
        let matcher = regex(pattern, *ignore_case, *literal)?;
        let include = include.as_deref().map(glob_matcher).transpose()?;
        let mut matches = Vec::new();
        for (path, node) in
            self.nodes.iter().filter(|(path, _)| **path == root || super::files::is_beneath(&root, path))
        {
            let name = path.rsplit('/').next().unwrap_or_default();
            let is_wanted = include
                .as_ref()
                .is_none_or(|include| include.is_match(relative(&root, path)) || include.is_match(name));
            let Content::File(bytes) = &node.content else { continue };
            if !is_wanted || bytes.contains(&0) {
                continue;
            }
            let text = String::from_utf8_lossy(bytes);
            for (line, text) in (1..).zip(text.lines()) {
                if matcher.is_match(text.as_bytes()).unwrap_or(false) {
                    if matches.len() >= *limit as usize {
                        return Ok(Response::Matches { matches, truncated: true });
                    }
                    let text = text.chars().take(MAX_LINE_CHARS).collect();
                    matches.push(GrepMatch { path: path.clone(), line, text });
                }
            }
        }
        Ok(Response::Matches { matches, truncated: false })
    }

    /// A tar of `path`; entries are named beneath its last component.
    pub(super) fn pack(&self, path: &str) -> Result<Bytes> {
        let real = self.resolve(path, true)?;
        if !self.nodes.contains_key(&real) {
            return failure(FailureKind::NotFound, format!("{path}: no such file or directory"));
        }
        let above = real.rfind('/').map_or(0, |at| at + 1);
        let mut builder = tar::Builder::new(Vec::new());
        let inner = self.beneath(&real);
        let top = self.nodes.get_key_value(&real);
        for (path, node) in top.into_iter().chain(inner) {
            let name = &path[above.min(path.len())..];
            let added = append(&mut builder, if name.is_empty() { "." } else { name }, node);
            if let Err(error) = added {
                return failure(FailureKind::Internal, format!("could not pack {path}: {error}"));
            }
        }
        match builder.into_inner() {
            Ok(bytes) => Ok(bytes.into()),
            Err(error) => failure(FailureKind::Internal, format!("could not pack {path}: {error}")),
        }
    }

    /// Unpacks into the directory `path`; returns the bytes that came.
    pub(super) fn unpack(&mut self, path: &str, keep_ids: bool, archive: &[u8]) -> Result<u64> {
        let root = self.directory(path)?;
        let broken = |error: std::io::Error| {
            guest_protocol::Failure::new(FailureKind::InvalidRequest, format!("not a tar archive: {error}"))
        };
        let mut archive_reader = tar::Archive::new(archive);
        for entry in archive_reader.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let name = entry.path().map_err(broken)?.to_string_lossy().into_owned();
            if name.starts_with('/') || name.split('/').any(|part| part == "..") {
                return failure(
                    FailureKind::InvalidRequest,
                    format!("the entry {name:?} would leave {path}"),
                );
            }
            let name = name.trim_start_matches("./").trim_end_matches('/');
            if name.is_empty() || name == "." {
                continue;
            }
            let header = entry.header().clone();
            let content = match header.entry_type() {
                tar::EntryType::Directory => Content::Directory,
                tar::EntryType::Symlink => {
                    let target = entry.link_name().map_err(broken)?.unwrap_or_default();
                    Content::Symlink(target.to_string_lossy().into_owned())
                }
                tar::EntryType::Regular => {
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes).map_err(broken)?;
                    Content::File(bytes.into())
                }
                _ => continue,
            };
            let mut node = Node::new(content, header.mode().map_err(broken)? & 0o7777);
            if keep_ids {
                node.uid = header.uid().ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
                node.gid = header.gid().ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
            }
            self.unpack_one(&root, name, node)?;
        }
        Ok(archive.len() as u64)
    }

    fn unpack_one(&mut self, root: &str, name: &str, node: Node) -> Result<()> {
        let target = join(root, name);
        if let Some((above, _)) = target.rsplit_once('/') {
            self.mkdir(if above.is_empty() { "/" } else { above }, true, None)?;
        }
        let real = self.resolve(&target, false)?;
        if real != root && !super::files::is_beneath(root, &real) {
            return failure(FailureKind::InvalidRequest, format!("the entry {name:?} would leave {root}"));
        }
        self.put(&real, node)
    }
}

fn append(builder: &mut tar::Builder<Vec<u8>>, name: &str, node: &Node) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(node.mode);
    header.set_uid(u64::from(node.uid));
    header.set_gid(u64::from(node.gid));
    header.set_mtime(u64::try_from(node.modified_at_ms / 1000).unwrap_or(0));
    header.set_size(0);
    match &node.content {
        Content::File(bytes) => {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, &bytes[..])
        }
        Content::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, name, std::io::empty())
        }
        Content::Symlink(target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            builder.append_link(&mut header, name, target)
        }
    }
}
