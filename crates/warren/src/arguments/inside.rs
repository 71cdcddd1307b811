//! Flags for the inside of a new sandbox: mounts, files, programs, and defaults for its commands.

use std::path::{Path, PathBuf};

use clap::Args;
use sandbox::{ByteSize, Error, InitSpec, MountSource, MountSpec, Patch, PortSpec, Rlimit, SandboxSpec};

use crate::error::CommandResult;

#[derive(Debug, Args)]
pub(crate) struct InsideArgs {
    /// Mount a volume or a host path: NAME:/path or ./dir:/path, with :ro for read-only
    #[arg(long = "volume", short = 'v', value_name = "SOURCE:PATH[:ro]", value_parser = volume)]
    volumes: Vec<MountSpec>,
    /// Mount, in the long form: type=volume|bind|tmpfs|disk,src=…,dst=…,ro,noexec,size=…
    #[arg(long = "mount", value_name = "KEY=VALUE,…", value_parser = mount)]
    mounts: Vec<MountSpec>,
    /// Mount an in-memory file system, which is lost when the sandbox stops
    #[arg(long, value_name = "PATH[:SIZE]", value_parser = tmpfs)]
    tmpfs: Vec<MountSpec>,
    /// Copy a file or directory from this machine before anything runs
    #[arg(long = "copy", value_name = "HOST:PATH", value_parser = copy)]
    copies: Vec<(PathBuf, String)>,
    /// Publish a port of the sandbox on this machine, such as 8080:80; host port 0 is any free one
    #[arg(long = "publish", short = 'p', value_name = "[ADDRESS:]HOST:INSIDE[/udp]", value_parser = port)]
    ports: Vec<PortSpec>,
    /// Change its files before anything runs, such as {"kind":"text","path":"/a","content":"b"}
    #[arg(long = "patch", value_name = "JSON", value_parser = patch)]
    patches: Vec<Patch>,
    /// Install a script from a file into /usr/local/bin
    #[arg(long = "script", value_name = "NAME=FILE", value_parser = script)]
    scripts: Vec<(String, PathBuf)>,
    /// Resource limit for every command, such as nofile=1024:2048
    #[arg(long = "rlimit", visible_alias = "ulimit", value_name = "NAME=SOFT[:HARD]", value_parser = rlimit)]
    rlimits: Vec<Rlimit>,
    /// Shell for command lines [default: the image's, or sh]
    #[arg(long, value_name = "PROGRAM")]
    shell: Option<String>,
    /// Program to run when a command names none; `warren run` passes its arguments to it
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    /// Program to start each time the sandbox starts; a line with spaces is run by sh
    #[arg(long, value_name = "COMMAND")]
    pub(super) init: Option<String>,
}

impl InsideArgs {
    /// Reads the named files; the daemon reads directories itself.
    pub(crate) fn fill(&self, spec: &mut SandboxSpec) -> CommandResult<()> {
        spec.mounts = self.volumes.iter().chain(&self.mounts).chain(&self.tmpfs).cloned().collect();
        for (host, path) in &self.copies {
            spec.patches.push(copied(host, path)?);
        }
        spec.patches.extend(self.patches.iter().cloned());
        for (name, file) in &self.scripts {
            let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
            spec.scripts.insert(name.clone(), text);
        }
        spec.rlimits.clone_from(&self.rlimits);
        spec.ports.clone_from(&self.ports);
        spec.shell.clone_from(&self.shell);
        // An empty one is Docker's way to say that there is none.
        spec.entrypoint = self.entrypoint.iter().filter(|program| !program.is_empty()).cloned().collect();
        spec.init = self.init.as_deref().map(init);
        Ok(())
    }
}

/// The cause is in the message, so it is not told once more as one.
fn unreadable(file: &Path, error: &std::io::Error) -> Error {
    Error::invalid(format!("cannot read {}: {error}", file.display()))
        .with_hint("Give a file on this machine that you can read.")
}

fn copied(host: &Path, path: &str) -> Result<Patch, Error> {
    let metadata = std::fs::metadata(host).map_err(|error| unreadable(host, &error))?;
    let (host_path, path) = (absolute(host)?, path.to_owned());
    Ok(match metadata.is_dir() {
        true => Patch::CopyDir { host_path, path, mode: None, replace: true },
        false => Patch::CopyFile { host_path, path, mode: None, replace: true },
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| unreadable(path, &error))
}

fn init(line: &str) -> InitSpec {
    let (path, args) = match line.contains(char::is_whitespace) {
        true => ("/bin/sh".to_owned(), vec!["-c".to_owned(), format!("exec {line}")]),
        false => (line.to_owned(), Vec::new()),
    };
    InitSpec { path, args, env: Default::default() }
}

/// The texts before and after the first colon. A path may not contain one.
fn at_colon<'a>(text: &'a str, how: &str) -> Result<(&'a str, &'a str), String> {
    match text.split_once(':') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => Ok((left, right)),
        _ => Err(format!("write {how}")),
    }
}

/// Docker's short form: a plain word is a volume; text with a slash or a leading dot is a path on this machine.
fn volume(text: &str) -> Result<MountSpec, String> {
    let (source, rest) = at_colon(text, "NAME:/path or ./dir:/path, with :ro for read-only")?;
    let (guest_path, options) = rest.split_once(':').unwrap_or((rest, ""));
    let mut mount = MountSpec {
        guest_path: guest_path.to_owned(),
        source: named_or_bind(source)?,
        readonly: false,
        noexec: false,
    };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => mount.readonly = true,
            "rw" => mount.readonly = false,
            "noexec" => mount.noexec = true,
            // Docker's labels for SELinux, and its hints for file systems of virtual machines, change nothing here.
            "z" | "Z" | "cached" | "delegated" | "consistent" => {}
            other => return Err(format!("{other:?} is not a mount option: use ro, rw or noexec")),
        }
    }
    Ok(mount)
}

fn named_or_bind(source: &str) -> Result<MountSource, String> {
    if source.starts_with('.') || source.contains('/') {
        return bind(source);
    }
    Ok(MountSource::Named { name: source.parse().map_err(|error: sandbox::InvalidName| error.to_string())? })
}

fn bind(source: &str) -> Result<MountSource, String> {
    let host_path = host_path(source)?;
    Ok(MountSource::Bind { host_path, no_links: false, allowed: None })
}

/// Absolute and without `..`, because the daemon refuses any other path.
fn host_path(source: &str) -> Result<PathBuf, String> {
    std::fs::canonicalize(source).map_err(|error| format!("{source}: {error}"))
}

/// Docker's long form.
fn mount(text: &str) -> Result<MountSpec, String> {
    let (mut kind, mut source, mut target, mut size) = ("volume", None, None, None);
    let (mut readonly, mut noexec) = (false, false);
    for field in text.split(',').filter(|field| !field.is_empty()) {
        let (key, value) = field.split_once('=').unwrap_or((field, "true"));
        let is_on = || match value {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(format!("{key} must be true or false")),
        };
        match key {
            "type" => kind = value,
            "src" | "source" => source = Some(value),
            "dst" | "target" | "destination" => target = Some(value),
            "ro" | "readonly" => readonly = is_on()?,
            "noexec" => noexec = is_on()?,
            "size" | "tmpfs-size" => size = Some(parsed_size(value)?),
            _ => {
                return Err(format!("{key:?} is not a mount key: use type, src, dst, ro, noexec or size"));
            }
        }
    }
    let wanted = || source.ok_or_else(|| format!("a mount of type {kind} needs src=…"));
    let source = match kind {
        "volume" | "named" => {
            let name = wanted()?.parse();
            MountSource::Named { name: name.map_err(|error: sandbox::InvalidName| error.to_string())? }
        }
        "bind" => bind(wanted()?)?,
        "disk" => MountSource::Disk { host_path: host_path(wanted()?)?, allowed: None },
        "tmpfs" => MountSource::Tmpfs { size },
        other => return Err(format!("{other:?} is not a mount type: use volume, bind, tmpfs or disk")),
    };
    let guest_path = target.ok_or("a mount needs dst=/path")?.to_owned();
    Ok(MountSpec { guest_path, source, readonly, noexec })
}

fn parsed_size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|error: sandbox::InvalidSize| error.to_string())
}

fn tmpfs(text: &str) -> Result<MountSpec, String> {
    let (path, size) = match text.split_once(':') {
        Some((path, size)) => (path, Some(parsed_size(size.strip_prefix("size=").unwrap_or(size))?)),
        None => (text, None),
    };
    let source = MountSource::Tmpfs { size };
    Ok(MountSpec { guest_path: path.to_owned(), source, readonly: false, noexec: false })
}

fn port(text: &str) -> Result<PortSpec, String> {
    let is_range = |part: &str| {
        let numbers = part.split_once('/').map_or(part, |(numbers, _)| numbers).split_once('-');
        numbers.is_some_and(|(from, to)| from.parse::<u16>().is_ok() && to.parse::<u16>().is_ok())
    };
    if text.split(':').any(is_range) {
        return Err("ranges of ports are not taken: give each port with a -p of its own".to_owned());
    }
    text.parse().map_err(|error: Error| error.to_string())
}

fn copy(text: &str) -> Result<(PathBuf, String), String> {
    let (host, path) = at_colon(text, "HOST:/path")?;
    Ok((host.into(), path.to_owned()))
}

fn patch(text: &str) -> Result<Patch, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn script(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err("write NAME=FILE".to_owned()),
    }
}

fn rlimit(text: &str) -> Result<Rlimit, String> {
    let how = || format!("{text:?} is not a resource limit: write nofile=1024 or nofile=1024:2048");
    let (resource, values) = text.split_once('=').ok_or_else(how)?;
    let (soft, hard) = values.split_once(':').unwrap_or((values, values));
    let number = |text: &str| match text {
        "unlimited" => Ok(u64::MAX),
        text => text.parse().map_err(|_not_a_number| how()),
    };
    let limit = Rlimit { resource: resource.to_lowercase(), soft: number(soft)?, hard: number(hard)? };
    limit.check().map_err(|error| error.to_string())?;
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> MountSource {
        MountSource::Named { name: text.parse().unwrap() }
    }

    #[test]
    fn volumes_are_written_as_docker_takes_them() {
        assert_eq!(volume("models:/data:Z"), volume("models:/data"));
        let mount = volume("models:/data:ro,noexec").unwrap();
        assert_eq!((mount.guest_path.as_str(), mount.readonly, mount.noexec), ("/data", true, true));
        assert_eq!(mount.source, named("models"));
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let MountSource::Bind { host_path, .. } = volume(".:/src").unwrap().source else { panic!() };
        assert_eq!(host_path, here);
        assert!(matches!(volume("/:/all").unwrap().source, MountSource::Bind { .. }));
        for wrong in ["models", ":/x", "models:", "models:/x:rx", "/no/such/dir:/x", "a b:/x"] {
            assert!(volume(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mounts_are_written_in_full() {
        let mount = super::mount("type=tmpfs,dst=/scratch,tmpfs-size=64m").unwrap();
        assert_eq!(mount.source, MountSource::Tmpfs { size: Some(ByteSize::mib(64)) });
        let mount = super::mount("source=models,target=/data,readonly").unwrap();
        assert_eq!((mount.source, mount.readonly), (named("models"), true));
        for wrong in ["", "type=nfs,src=a,dst=/b", "src=a", "dst=/b", "src=a,dst=/b,ro=perhaps", "colour=red"]
        {
            assert!(super::mount(wrong).is_err(), "{wrong}");
        }
        let sized = tmpfs("/scratch:1g").unwrap();
        assert_eq!(sized.source, MountSource::Tmpfs { size: Some(ByteSize::gib(1)) });
        assert_eq!(tmpfs("/scratch").unwrap().source, MountSource::Tmpfs { size: None });
        assert!(tmpfs("/scratch:big").is_err());
    }

    #[test]
    fn limits_have_one_number_or_two() {
        let limit = |resource: &str, soft, hard| Rlimit { resource: resource.to_owned(), soft, hard };
        assert_eq!(rlimit("nofile=1024"), Ok(limit("nofile", 1024, 1024)));
        assert_eq!(rlimit("CORE=0:unlimited"), Ok(limit("core", 0, u64::MAX)));
        for wrong in ["nofile", "files=1", "nofile=2:1", "nofile=x"] {
            assert!(rlimit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_of_ports_are_said_not_to_be_taken() {
        assert_eq!(port("8080:80").unwrap().inside, 80);
        for range in ["8000-8005:8000-8005", "127.0.0.1:80-81:80-81/udp", "80-81"] {
            assert!(port(range).unwrap_err().contains("-p of its own"), "{range}");
        }
    }

    #[test]
    fn a_first_program_may_be_a_line() {
        assert_eq!(init("/sbin/init").args, Vec::<String>::new());
        assert_eq!(init("sleep 5").args, ["-c", "exec sleep 5"]);
    }
}
