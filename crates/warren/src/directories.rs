//! Finds and creates the data directory and the run directory.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sandbox::{Error, ErrorKind, Result};

use crate::{daemon::LockNote, env};

/// Longest path that fits into a Unix socket address with its final NUL.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// What the temporary daemons of `doctor` add to the path of a socket: `attack-4194304/`.
const SCRATCH_BYTES: usize = 15;
pub(crate) const SOCKET_NAME: &str = "warren.sock";
const SSH_SOCKET_NAME: &str = "ssh.sock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directories {
    pub(crate) home: PathBuf,
    pub(crate) run: PathBuf,
    /// Where nobody chose the run directory: the one for a data directory without a daemon.
    unchosen_run: Option<PathBuf>,
}

impl Directories {
    /// Flags win over variables, and variables over the host's defaults. A data directory that is chosen by flag does
    /// not take the run directory of a variable, which belongs to another daemon.
    pub(crate) fn find(home: Option<&Path>, run: Option<&Path>) -> Result<Self> {
        let variables = (env::path(env::HOME_DIRECTORY), env::path(env::RUN_DIRECTORY));
        Self::chosen((home, run), variables)
    }

    /// Each pair is the data directory and the run directory.
    fn chosen(
        (home, run): (Option<&Path>, Option<&Path>),
        (home_variable, run_variable): (Option<PathBuf>, Option<PathBuf>),
    ) -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let run_variable = run_variable.filter(|_| home.is_none());
        let chosen_home = home.map(Path::to_owned).or(home_variable);
        let chosen_run = run.map(Path::to_owned).or(run_variable);
        let is_default = chosen_home.is_none();
        let home = match chosen_home {
            Some(home) => absolute(&home)?,
            None => absolute(&default_home(uid)?)?,
        };
        if let Some(run) = chosen_run {
            return Ok(Self::at(home, absolute(&run)?));
        }
        let run = default_run(uid, &home, is_default);
        Ok(Self { unchosen_run: Some(run.clone()), home, run }.current())
    }

    /// These two, whatever a daemon says.
    pub(crate) fn at(home: PathBuf, run: PathBuf) -> Self {
        Self { home, run, unchosen_run: None }
    }

    /// With the run directory as it is now. Unless somebody chose it, it is that of the daemon that has the data
    /// directory, or had it last: its sandboxes are there.
    pub(crate) fn current(&self) -> Self {
        let Some(unchosen) = &self.unchosen_run else { return self.clone() };
        let run = LockNote::run_of(&self.home).unwrap_or_else(|| unchosen.clone());
        Self { run, ..self.clone() }
    }

    /// Returns the path of the socket on which the daemon listens.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        self.socket_named(SOCKET_NAME)
    }

    /// Returns the path of the socket on which its SSH server listens for the daemon's owner.
    pub(crate) fn ssh_socket(&self) -> Result<PathBuf> {
        self.socket_named(SSH_SOCKET_NAME)
    }

    fn socket_named(&self, name: &str) -> Result<PathBuf> {
        let socket = self.run.join(name);
        let len = socket.as_os_str().len();
        if len > MAX_SOCKET_PATH_BYTES {
            let message = format!(
                "the socket path {} has {len} bytes; the limit is {MAX_SOCKET_PATH_BYTES}",
                socket.display()
            );
            return Err(Error::invalid(message)
                .with_hint("Choose a shorter run directory with --run-dir or WARREN_RUN."));
        }
        Ok(socket)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.home.join("daemon.log")
    }

    /// Creates both directories, accessible only to our user.
    pub(crate) fn make(&self) -> Result<()> {
        make_private(&self.home)?;
        make_private(&self.run)
    }
}

fn default_home(uid: u32) -> Result<PathBuf> {
    if uid == 0 {
        return Ok(PathBuf::from("/var/lib/warren"));
    }
    if let Some(data) = env::xdg("XDG_DATA_HOME") {
        return Ok(data.join("warren"));
    }
    let home = env::path("HOME").ok_or_else(|| {
        Error::invalid("cannot choose a data directory: HOME is not set")
            .with_hint("Set WARREN_HOME to a directory that you own.")
    })?;
    Ok(home.join(".local/share/warren"))
}

/// In the data directory, which every command of a user agrees on and which lasts as long as the sandboxes.
/// `$XDG_RUNTIME_DIR` is neither: programs are started without the variable, and the directory goes away at the last
/// logout while sandboxes run on.
fn default_run(uid: u32, home: &Path, is_default_home: bool) -> PathBuf {
    if uid == 0 && is_default_home {
        return PathBuf::from("/run/warren");
    }
    let run = home.join("run");
    let is_short = run.join(SOCKET_NAME).as_os_str().len() + SCRATCH_BYTES <= MAX_SOCKET_PATH_BYTES;
    if is_short || !is_default_home { run } else { PathBuf::from(format!("/tmp/warren-{uid}")) }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        Error::invalid(format!("cannot make {} an absolute path", path.display())).with_source(error)
    })
}

/// Creates `directory` with mode 0700, or checks that it is a directory we own and not a link that someone else left.
pub(crate) fn make_private(directory: &Path) -> Result<()> {
    let failed = |what: &str, error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("could not {what} {}: {error}", directory.display()))
            .with_hint("Set WARREN_HOME or pass --home, with a directory in which you may write.")
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| failed("create the directory", error))?;
    let found = fs::symlink_metadata(directory).map_err(|error| failed("look at", error))?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != own {
        let message = format!("{} is not a directory owned by user id {own}", directory.display());
        return Err(Error::new(ErrorKind::Denied, message).with_hint(
            "Remove it, or choose another directory with --home, --run-dir, WARREN_HOME or WARREN_RUN.",
        ));
    }
    if found.mode() & 0o077 != 0 {
        // `--home /tmp` must not close /tmp for everyone: a directory with other files in it is left alone.
        let is_empty = fs::read_dir(directory).map_err(|error| failed("look into", error))?.next().is_none();
        if !is_empty {
            let message = format!("{} is open to other users and not empty", directory.display());
            return Err(Error::new(ErrorKind::Denied, message)
                .with_hint(format!("If only Warren uses it, run: chmod 700 {}", directory.display())));
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
            .map_err(|error| failed("make private", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_home_brings_its_own_run_directory() {
        let found = Directories::find(Some(Path::new("/srv/w")), None).unwrap();
        assert_eq!(found.run, Path::new("/srv/w/run"));
        let variables = (Some(PathBuf::from("/srv/v")), Some(PathBuf::from("/r")));
        let found = Directories::chosen((Some(Path::new("/srv/w")), None), variables.clone()).unwrap();
        assert_eq!((&*found.home, &*found.run), (Path::new("/srv/w"), Path::new("/srv/w/run")));
        let found = Directories::chosen((None, None), variables).unwrap();
        assert_eq!((&*found.home, &*found.run), (Path::new("/srv/v"), Path::new("/r")));
        let found = Directories::find(Some(Path::new("/srv/w")), Some(Path::new("/r"))).unwrap();
        assert_eq!(found.run, Path::new("/r"));
    }

    #[test]
    fn the_run_directory_is_in_the_data_directory_unless_the_path_is_too_long() {
        let home = Path::new("/home/ana/.local/share/warren");
        assert_eq!(default_run(1000, home, true), home.join("run"));
        assert_eq!(default_run(0, Path::new("/var/lib/warren"), true), Path::new("/run/warren"));
        let long = PathBuf::from(format!("/{}", "x".repeat(100)));
        assert_eq!(default_run(1000, &long, true), Path::new("/tmp/warren-1000"));
        assert_eq!(default_run(1000, &long, false), long.join("run"));
    }

    #[test]
    fn a_socket_path_that_cannot_be_is_named() {
        let long = PathBuf::from(format!("/{}", "x".repeat(100)));
        let error = Directories::at(long.clone(), long).socket().unwrap_err();
        assert!(error.to_string().contains("113 bytes"), "{error}");
    }

    #[test]
    fn a_link_or_a_file_is_not_a_private_directory() {
        let place = tempfile::tempdir().unwrap();
        let (real, link, file) =
            (place.path().join("real"), place.path().join("link"), place.path().join("file"));
        make_private(&real).unwrap();
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(make_private(&link).unwrap_err().kind(), ErrorKind::Denied);
        fs::write(&file, "").unwrap();
        assert!(make_private(&file).is_err());
    }

    #[test]
    fn an_empty_open_directory_of_ours_is_closed() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        make_private(&open).unwrap();
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn an_open_directory_with_other_things_in_it_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("someone's"), "").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = make_private(place.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(fs::metadata(place.path()).unwrap().mode() & 0o777, 0o755);
    }
}
