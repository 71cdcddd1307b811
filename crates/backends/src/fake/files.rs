//! A file system in memory: a map from absolute paths to nodes, with symlinks, modes and owners.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::{Bytes, BytesMut};
use guest_protocol::{
    EntryKind, Failure, FailureKind, FileEntry, Request, Response, WatchEvent, WatchKind, WriteMode,
};
use tokio::sync::broadcast;

/// Bytes of all files of one simulated sandbox, whatever its limit says: they are in our memory.
pub(super) const MAX_FILES_BYTES: u64 = 512 * 1024 * 1024;
const MAX_NODES: usize = 100_000;
const MAX_PATH_BYTES: usize = 4096;
/// As the kernel's own limit.
const MAX_SYMLINKS: usize = 40;
/// Events that a watcher may fall behind before it is told to look again.
const MAX_WATCH_EVENTS: usize = 256;

pub(super) type Result<T> = std::result::Result<T, Failure>;

#[derive(Debug, Clone)]
pub(super) enum Content {
    File(Bytes),
    Directory,
    Symlink(String),
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) content: Content,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified_at_ms: i64,
}

impl Node {
    pub(super) fn new(content: Content, mode: u32) -> Self {
        Self { content, mode, uid: 0, gid: 0, modified_at_ms: now_ms() }
    }

    fn size(&self) -> u64 {
        match &self.content {
            Content::File(bytes) => bytes.len() as u64,
            Content::Directory => 0,
            Content::Symlink(target) => target.len() as u64,
        }
    }
}

#[derive(Debug)]
pub(super) struct Files {
    pub(super) nodes: BTreeMap<String, Node>,
    max_bytes: u64,
    watchers: broadcast::Sender<WatchEvent>,
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn failure<T>(kind: FailureKind, message: String) -> Result<T> {
    Err(Failure::new(kind, message))
}

fn not_found<T>(path: &str) -> Result<T> {
    failure(FailureKind::NotFound, format!("{path}: no such file or directory"))
}

fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

pub(super) fn join(directory: &str, name: &str) -> String {
    if directory == "/" { format!("/{name}") } else { format!("{directory}/{name}") }
}

/// Whether `path` lies beneath `root`, not being it.
pub(super) fn is_beneath(root: &str, path: &str) -> bool {
    root == "/" && path != "/" || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

impl Files {
    /// The root and nothing in it.
    pub(super) fn empty(max_bytes: u64) -> Self {
        Self {
            nodes: [("/".to_owned(), Node::new(Content::Directory, 0o755))].into(),
            max_bytes: max_bytes.min(MAX_FILES_BYTES),
            watchers: broadcast::Sender::new(MAX_WATCH_EVENTS),
        }
    }

    pub(super) fn new(hostname: &str, max_bytes: u64) -> Self {
        let mut files = Self::empty(max_bytes);
        for path in ["/bin", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/usr", "/usr/bin", "/var"] {
            files.nodes.insert(path.to_owned(), Node::new(Content::Directory, 0o755));
        }
        files.nodes.insert("/tmp".to_owned(), Node::new(Content::Directory, 0o1777));
        let name = Bytes::from(format!("{hostname}\n"));
        files.nodes.insert("/etc/hostname".to_owned(), Node::new(Content::File(name), 0o644));
        files
    }

    pub(super) fn bytes(&self) -> u64 {
        self.nodes.values().map(Node::size).sum()
    }

    /// Follows symlinks on the way to `path`, and at its end if asked. The last part need not exist.
    pub(super) fn resolve(&self, path: &str, follow_last: bool) -> Result<String> {
        if !path.starts_with('/') || path.contains('\0') || path.len() > MAX_PATH_BYTES {
            let shown: String = path.chars().take(80).collect();
            return failure(FailureKind::InvalidRequest, format!("{shown:?} is not an absolute path"));
        }
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut at = "/".to_owned();
        let mut n_symlinks = 0;
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    at = parent_of(&at).to_owned();
                    continue;
                }
                _ => {}
            }
            let is_last = rest.iter().all(|part| part.is_empty() || part == ".");
            let next = join(&at, &part);
            match self.nodes.get(&next).map(|node| &node.content) {
                Some(Content::Symlink(target)) if !is_last || follow_last => {
                    n_symlinks += 1;
                    if n_symlinks > MAX_SYMLINKS {
                        return failure(FailureKind::WrongState, format!("{path}: too many symbolic links"));
                    }
                    if target.starts_with('/') {
                        at = "/".to_owned();
                    }
                    rest.extend(target.split('/').rev().map(str::to_owned));
                }
                Some(Content::File(_)) if !is_last => {
                    return failure(FailureKind::WrongState, format!("{next} is not a directory"));
                }
                None if !is_last => return not_found(path),
                _ => at = next,
            }
        }
        Ok(at)
    }

    fn node(&self, path: &str, follow: bool) -> Result<(String, &Node)> {
        let real = self.resolve(path, follow)?;
        match self.nodes.get(&real) {
            Some(node) => Ok((real, node)),
            None => not_found(path),
        }
    }

    pub(super) fn directory(&self, path: &str) -> Result<String> {
        match self.node(path, true)? {
            (real, Node { content: Content::Directory, .. }) => Ok(real),
            _ => failure(FailureKind::WrongState, format!("{path} is not a directory")),
        }
    }

    pub(super) fn entry(path: &str, node: &Node) -> FileEntry {
        let (kind, target) = match &node.content {
            Content::File(_) => (EntryKind::File, None),
            Content::Directory => (EntryKind::Directory, None),
            Content::Symlink(target) => (EntryKind::Symlink, Some(target.clone())),
        };
        FileEntry {
            path: path.to_owned(),
            kind,
            size: node.size(),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            modified_at_ms: node.modified_at_ms,
            target,
        }
    }

    /// Everything beneath a directory, in order of path.
    pub(super) fn beneath<'a>(&'a self, root: &'a str) -> impl Iterator<Item = (&'a String, &'a Node)> {
        self.nodes.iter().filter(move |(path, _)| is_beneath(root, path))
    }

    pub(super) fn children<'a>(&'a self, root: &'a str) -> impl Iterator<Item = (&'a String, &'a Node)> {
        self.beneath(root).filter(move |(path, _)| parent_of(path) == root)
    }

    fn tell(&self, kind: WatchKind, path: &str, from: Option<&str>) {
        let event = WatchEvent { kind, path: path.to_owned(), from: from.map(str::to_owned) };
        // Nobody watches, as a rule.
        self.watchers.send(event).map(drop).unwrap_or_default();
    }

    /// Puts a node in place, telling watchers. The parent must exist.
    pub(super) fn put(&mut self, path: &str, node: Node) -> Result<()> {
        self.directory(parent_of(path))?;
        let old = self.nodes.get(path).map_or(0, Node::size);
        if self.bytes() - old + node.size() > self.max_bytes || self.nodes.len() >= MAX_NODES {
            return failure(
                FailureKind::LimitReached,
                format!("{path}: no space left on the simulated disk"),
            );
        }
        let is_new = self.nodes.insert(path.to_owned(), node).is_none();
        self.tell(if is_new { WatchKind::Created } else { WatchKind::Modified }, path, None);
        Ok(())
    }

    pub(super) fn read(&self, path: &str, offset: u64, length: Option<u64>) -> Result<(FileEntry, Bytes)> {
        let (real, node) = self.node(path, true)?;
        let Content::File(bytes) = &node.content else {
            return failure(FailureKind::WrongState, format!("{path} is not a file"));
        };
        let len = bytes.len() as u64;
        let start = offset.min(len);
        let end = start.saturating_add(length.unwrap_or(u64::MAX)).min(len);
        let part = bytes.slice(start as usize..end as usize);
        Ok((Self::entry(&real, node), part))
    }

    /// What can be refused before a body has come.
    pub(super) fn refuses(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { path, write, parents, .. } => {
                let real = self.writable(path, *parents)?;
                if *write == WriteMode::CreateNew && self.nodes.contains_key(&real) {
                    return failure(FailureKind::AlreadyExists, format!("{path} exists"));
                }
                Ok(())
            }
            Request::TarIn { path, .. } => self.directory(path).map(drop),
            _ => Ok(()),
        }
    }

    fn writable(&self, path: &str, parents: bool) -> Result<String> {
        let real = match self.resolve(path, true) {
            Err(missing) if missing.kind == FailureKind::NotFound && parents => path.to_owned(),
            other => other?,
        };
        match self.nodes.get(&real).map(|node| &node.content) {
            Some(Content::Directory) => failure(FailureKind::WrongState, format!("{path} is a directory")),
            None if !parents => self.directory(parent_of(&real)).map(|_directory| real),
            _ => Ok(real),
        }
    }

    pub(super) fn write(
        &mut self,
        path: &str,
        write: WriteMode,
        mode: Option<u32>,
        parents: bool,
        bytes: Bytes,
    ) -> Result<u64> {
        if parents && let Some((above, _)) = path.trim_end_matches('/').rsplit_once('/') {
            self.mkdir(if above.is_empty() { "/" } else { above }, true, None)?;
        }
        let real = self.writable(path, parents)?;
        let n_bytes = bytes.len() as u64;
        let mut node = match (self.nodes.get(&real), write) {
            (Some(_), WriteMode::CreateNew) => {
                return failure(FailureKind::AlreadyExists, format!("{path} exists"));
            }
            (Some(old), _) => old.clone(),
            (None, _) => Node::new(Content::File(Bytes::new()), mode.unwrap_or(0o644) & 0o7777),
        };
        node.content = Content::File(match (node.content, write) {
            (Content::File(old), WriteMode::Append) => {
                let mut all = BytesMut::from(&old[..]);
                all.extend_from_slice(&bytes);
                all.freeze()
            }
            (Content::File(_), WriteMode::At(_)) => {
                return failure(FailureKind::Unsupported, "the fake writes no pieces of files".to_owned());
            }
            _ => bytes,
        });
        node.modified_at_ms = now_ms();
        self.put(&real, node)?;
        Ok(n_bytes)
    }

    pub(super) fn mkdir(&mut self, path: &str, parents: bool, mode: Option<u32>) -> Result<()> {
        if parents {
            let mut at = "/".to_owned();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                at = self.resolve(&join(&at, part), true)?;
                match self.nodes.get(&at).map(|node| &node.content) {
                    Some(Content::Directory) => {}
                    Some(_) => return failure(FailureKind::WrongState, format!("{at} is not a directory")),
                    None => {
                        self.put(&at.clone(), Node::new(Content::Directory, mode.unwrap_or(0o755) & 0o7777))?;
                    }
                }
            }
            return Ok(());
        }
        let real = self.resolve(path, true)?;
        if self.nodes.contains_key(&real) {
            return failure(FailureKind::AlreadyExists, format!("{path} exists"));
        }
        self.put(&real, Node::new(Content::Directory, mode.unwrap_or(0o755) & 0o7777))
    }

    pub(super) fn remove(&mut self, path: &str, recursive: bool) -> Result<()> {
        let (real, node) = self.node(path, false)?;
        if real == "/" {
            return failure(FailureKind::Denied, "/ cannot be removed".to_owned());
        }
        if matches!(node.content, Content::Directory) && !recursive && self.children(&real).next().is_some() {
            return failure(FailureKind::WrongState, format!("{path} is not empty"));
        }
        let mut gone: Vec<String> = self.beneath(&real).map(|(path, _)| path.clone()).collect();
        gone.push(real);
        for path in gone {
            self.nodes.remove(&path);
            self.tell(WatchKind::Removed, &path, None);
        }
        Ok(())
    }

    /// Where a copy or rename to `to` ends up.
    fn destination(&self, to: &str) -> Result<String> {
        let real = self.resolve(to, false)?;
        self.directory(parent_of(&real))?;
        Ok(real)
    }

    fn copy(&mut self, from: &str, to: &str, recursive: bool) -> Result<()> {
        let (source, node) = self.node(from, true)?;
        let node = node.clone();
        let target = self.destination(to)?;
        if matches!(node.content, Content::Directory) {
            if !recursive {
                return failure(FailureKind::WrongState, format!("{from} is a directory"));
            }
            if target == source || is_beneath(&source, &target) {
                return failure(FailureKind::InvalidRequest, format!("{from} cannot be copied into itself"));
            }
        }
        let inner: Vec<_> = self
            .beneath(&source)
            .map(|(path, node)| (path[source.len()..].to_owned(), node.clone()))
            .collect();
        self.put(&target, node)?;
        for (tail, node) in inner {
            self.put(&format!("{target}{tail}"), node)?;
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<()> {
        let (source, _) = self.node(from, false)?;
        let target = self.destination(to)?;
        if is_beneath(&source, &target) {
            return failure(FailureKind::InvalidRequest, format!("{from} cannot be moved into itself"));
        }
        if self.nodes.contains_key(&target) && source != target {
            if !replace {
                return failure(FailureKind::AlreadyExists, format!("{to} exists"));
            }
            self.remove(&target, false)?;
        }
        let moved: Vec<String> =
            self.nodes.keys().filter(|path| **path == source || is_beneath(&source, path)).cloned().collect();
        for old in moved {
            if let Some(node) = self.nodes.remove(&old) {
                self.nodes.insert(format!("{target}{}", &old[source.len()..]), node);
            }
        }
        self.tell(WatchKind::Renamed, &target, Some(&source));
        Ok(())
    }

    fn symlink(&mut self, target: &str, path: &str) -> Result<()> {
        let real = self.destination(path)?;
        if self.nodes.contains_key(&real) {
            return failure(FailureKind::AlreadyExists, format!("{path} exists"));
        }
        self.put(&real, Node::new(Content::Symlink(target.to_owned()), 0o777))
    }

    fn read_link(&self, path: &str) -> Result<String> {
        match self.node(path, false)?.1 {
            Node { content: Content::Symlink(target), .. } => Ok(target.clone()),
            _ => failure(FailureKind::WrongState, format!("{path} is not a symbolic link")),
        }
    }

    fn change(&mut self, path: &str, recursive: bool, change: impl Fn(&mut Node)) -> Result<()> {
        let (real, _) = self.node(path, true)?;
        for (at, node) in &mut self.nodes {
            if *at == real || (recursive && is_beneath(&real, at)) {
                change(node);
            }
        }
        self.tell(WatchKind::Modified, &real, None);
        Ok(())
    }

    fn list(&self, path: &str, recursive: bool, limit: u32) -> Result<Response> {
        let root = self.directory(path)?;
        let found = self.beneath(&root).filter(|(path, _)| recursive || parent_of(path) == root);
        let mut entries: Vec<_> = found.map(|(path, node)| Self::entry(path, node)).collect();
        let truncated = entries.len() > limit as usize;
        entries.truncate(limit as usize);
        Ok(Response::Entries { entries, truncated })
    }

    /// Answers the requests that need nothing but the tree.
    pub(super) fn answer(&mut self, request: &Request) -> Result<Response> {
        let done = |()| Response::Done;
        match request {
            Request::Stat { path, follow } => {
                let (real, node) = self.node(path, *follow)?;
                Ok(Response::Entry { entry: Self::entry(&real, node) })
            }
            Request::List { path, recursive, limit } => self.list(path, *recursive, *limit),
            Request::Glob { root, pattern, limit } => self.glob(root, pattern, *limit),
            Request::Grep { .. } => self.grep(request),
            Request::Mkdir { path, parents, mode } => self.mkdir(path, *parents, *mode).map(done),
            Request::Remove { path, recursive } => self.remove(path, *recursive).map(done),
            Request::Copy { from, to, recursive } => self.copy(from, to, *recursive).map(done),
            Request::Rename { from, to, replace } => self.rename(from, to, *replace).map(done),
            Request::Symlink { target, path } => self.symlink(target, path).map(done),
            Request::Readlink { path } => self.read_link(path).map(|target| Response::Link { target }),
            Request::Chmod { path, mode, recursive } => {
                self.change(path, *recursive, |node| node.mode = mode & 0o7777).map(done)
            }
            Request::Chown { path, uid, gid, recursive } => self
                .change(path, *recursive, |node| {
                    node.uid = uid.unwrap_or(node.uid);
                    node.gid = gid.unwrap_or(node.gid);
                })
                .map(done),
            _ => failure(FailureKind::Unsupported, "the simulated guest cannot do this".to_owned()),
        }
    }

    pub(super) fn watch(&self, path: &str) -> Result<(String, broadcast::Receiver<WatchEvent>)> {
        let (real, _) = self.node(path, true)?;
        Ok((real, self.watchers.subscribe()))
    }

    pub(super) fn concerns(root: &str, recursive: bool, event: &WatchEvent) -> bool {
        let is_in =
            |path: &str| path == root || is_beneath(root, path) && (recursive || parent_of(path) == root);
        is_in(&event.path) || event.from.as_deref().is_some_and(is_in)
    }

    pub(super) fn overflow(root: &str) -> WatchEvent {
        WatchEvent { kind: WatchKind::Overflow, path: root.to_owned(), from: None }
    }
}
