//! `sandbox_ssh_exec`, `sandbox_sftp_*`: what an SSH client does, as one user of the sandbox. They need no SSH server:
//! commands are execs, and files go through the guest's SFTP server.

mod client;
#[cfg(test)]
mod stories;

use sandbox::{Error, ErrorKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::client::{READLINK, REALPATH, REMOVE, RENAME, RMDIR, SYMLINK, SftpClient};
use super::{
    exec::{self, ExecFields, Reader},
    files::{Encoding, Made, Part, Removed, Renamed, Written, not_text},
};
use crate::mcp::{Answer, Call, Failure, Tool, ToolResult, Truncated};

pub(super) fn tools() -> Vec<Tool> {
    tools! { Ssh;
        "sandbox_ssh_exec", "Run a command as over SSH", ADDS, ssh_exec:
            "Run a command line with the sandbox's shell, as an SSH login would, and return its output and status.";
        "sandbox_sftp_read", "Read a file over SFTP", READS, read:
            "Read a file as one user of the sandbox.";
        "sandbox_sftp_write", "Write a file over SFTP", DESTROYS, write:
            "Write a file as one user of the sandbox, replacing what is there. Its directory must exist.";
        "sandbox_sftp_mkdir", "Create a directory over SFTP", SETS, mkdir:
            "Create a directory as one user of the sandbox. Its parent must exist.";
        "sandbox_sftp_remove", "Remove a path over SFTP", DESTROYS, remove:
            "Remove a file or an empty directory as one user of the sandbox.";
        "sandbox_sftp_rename", "Rename a path over SFTP", ADDS, rename:
            "Move a file or directory as one user of the sandbox. Fails if the new path exists.";
        "sandbox_sftp_realpath", "Resolve a path over SFTP", READS, realpath:
            "The absolute path without symlinks, as one user of the sandbox sees it.";
        "sandbox_sftp_readlink", "Read a symlink over SFTP", READS, readlink:
            "The target of a symlink.";
        "sandbox_sftp_symlink", "Create a symlink over SFTP", ADDS, symlink:
            "Create a symlink as one user of the sandbox.";
    }
}

// The arguments that all of them take. No comments for the schema: the names say it.
#[derive(Debug, Deserialize, JsonSchema)]
struct Login {
    name: String,
    user: Option<String>,
    #[schemars(extend("x-full-only" = true))]
    term: Option<String>,
}

impl Login {
    async fn sftp(&self, call: &Call) -> Result<SftpClient, Failure> {
        let which = call.sandbox(&self.name)?;
        let stream = call.engine().open_sftp(&call.who, &which, self.user.as_deref()).await?;
        Ok(SftpClient::begin(stream).await?)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecArguments {
    #[serde(flatten)]
    login: Login,
    command: String,
    tty: Option<bool>,
    /// Per stream
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SshResult {
    status: i32,
    success: bool,
    stdout: String,
    stderr: String,
}

async fn ssh_exec(call: Call, arguments: ExecArguments) -> ToolResult<SshResult> {
    let ExecArguments { login, command, tty, max_bytes } = arguments;
    let term = login.term.map(|term| [("TERM".to_owned(), term)].into());
    let fields = ExecFields {
        name: login.name,
        command,
        user: login.user,
        env: term.filter(|_| tty == Some(true)),
        tty,
        max_bytes,
        ..ExecFields::default()
    };
    let limit = Some(call.settings.default_timeout());
    let prepared = fields.prepare(Vec::new(), &Reader::DefaultShell, limit)?;
    let answer = exec::run(&call, prepared, "command").await?;
    Ok(answer.map(|ran| SshResult {
        status: ran.exit_code,
        success: ran.success,
        stdout: ran.stdout,
        stderr: ran.stderr,
    }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadArguments {
    #[serde(flatten)]
    login: Login,
    path: String,
    encoding: Option<Encoding>,
    #[schemars(range(min = 1))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Read {
    path: String,
    encoding: Encoding,
    content: String,
}

async fn read(call: Call, arguments: ReadArguments) -> ToolResult<Read> {
    let ReadArguments { login, path, encoding, max_bytes } = arguments;
    let max = call.max_bytes(max_bytes);
    let (bytes, is_more) = login.sftp(&call).await?.read(&path, max).await?;
    let encoding = encoding.unwrap_or_default();
    let part = Part::of(encoding, &bytes, 0, is_more);
    let cut = is_more.then(|| Truncated {
        field: "content".to_owned(),
        returned_bytes: part.used as u64,
        total_bytes: part.used as u64 + 1,
        hint: Some("Call sandbox_fs_read with offset for the rest.".to_owned()),
    });
    let is_lossy = part.is_lossy;
    let answer = Answer::new(Read { path, encoding, content: part.content });
    Ok(answer.truncate(cut).warn_all(is_lossy.then(not_text)))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WriteArguments {
    #[serde(flatten)]
    login: Login,
    path: String,
    content: String,
    encoding: Option<Encoding>,
}

async fn write(call: Call, arguments: WriteArguments) -> ToolResult<Written> {
    let WriteArguments { login, path, content, encoding } = arguments;
    let encoding = encoding.unwrap_or_default();
    let content = encoding.decode(content)?;
    call.who.may_change()?;
    login.sftp(&call).await?.write(&path, &content).await?;
    Ok(Answer::new(Written { path, encoding, written: content.len() as u64 }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PathArguments {
    #[serde(flatten)]
    login: Login,
    path: String,
}

async fn mkdir(call: Call, PathArguments { login, path }: PathArguments) -> ToolResult<Made> {
    call.who.may_change()?;
    let mut sftp = login.sftp(&call).await?;
    if let Err(error) = sftp.mkdir(&path).await {
        // It says only that it failed; a directory that is there is as good as one that was made.
        if sftp.name(REALPATH, &format!("{path}/.")).await.is_err() {
            return Err(error.into());
        }
    }
    Ok(Answer::new(Made { path, created: true }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RemoveKind {
    File,
    Dir,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct RemoveArguments {
    #[serde(flatten)]
    login: Login,
    path: String,
    kind: RemoveKind,
}

async fn remove(call: Call, arguments: RemoveArguments) -> ToolResult<Removed> {
    let RemoveArguments { login, path, kind } = arguments;
    call.who.may_change()?;
    let request = if kind == RemoveKind::Dir { RMDIR } else { REMOVE };
    login.sftp(&call).await?.change(request, &path, None).await?;
    Ok(Answer::new(Removed { path, removed: true }))
}

#[derive(Debug, Deserialize, JsonSchema)]
struct RenameArguments {
    #[serde(flatten)]
    login: Login,
    from: String,
    to: String,
}

async fn rename(call: Call, RenameArguments { login, from, to }: RenameArguments) -> ToolResult<Renamed> {
    call.who.may_change()?;
    login.sftp(&call).await?.change(RENAME, &from, Some(&to)).await?;
    Ok(Answer::new(Renamed { from, to, renamed: true }))
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Resolved {
    path: String,
    real_path: String,
}

async fn realpath(call: Call, PathArguments { login, path }: PathArguments) -> ToolResult<Resolved> {
    let real_path = login.sftp(&call).await?.name(REALPATH, &path).await?;
    Ok(Answer::new(Resolved { path, real_path }))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Link {
    path: String,
    target: String,
}

async fn readlink(call: Call, PathArguments { login, path }: PathArguments) -> ToolResult<Link> {
    let target =
        login.sftp(&call).await?.name(READLINK, &path).await.map_err(|error| match error.kind() {
            ErrorKind::InvalidRequest => {
                Error::new(ErrorKind::WrongState, format!("{path} is not a symlink"))
            }
            _ => error,
        })?;
    Ok(Answer::new(Link { path, target }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SymlinkArguments {
    #[serde(flatten)]
    login: Login,
    target: String,
    link_path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Linked {
    target: String,
    link_path: String,
    created: bool,
}

async fn symlink(call: Call, arguments: SymlinkArguments) -> ToolResult<Linked> {
    let SymlinkArguments { login, target, link_path } = arguments;
    call.who.may_change()?;
    login.sftp(&call).await?.change(SYMLINK, &target, Some(&link_path)).await?;
    Ok(Answer::new(Linked { target, link_path, created: true }))
}
