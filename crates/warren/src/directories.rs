//! Finds and creates the data directory and the run directory.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use sandbox::{Error, ErrorKind, Result};

use crate::env;

/// Longest path that fits into a Unix socket address with its final NUL.
const MAX_SOCKET_PATH_BYTES: usize = 107;
const SOCKET_NAME: &str = "warren.sock";
const SSH_SOCKET_NAME: &str = "ssh.sock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directories {
    pub(crate) home: PathBuf,
    pub(crate) run: PathBuf,
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
        let run = match (chosen_run, &chosen_home) {
            (Some(run), _) => run,
            // Another data directory means another daemon, and that one needs a socket of its own.
            (None, Some(home)) => home.join("run"),
            (None, None) => default_run(uid),
        };
        let home = match chosen_home {
            Some(home) => home,
            None => default_home(uid)?,
        };
        Ok(Self { home: absolute(&home)?, run: absolute(&run)? })
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

fn default_run(uid: u32) -> PathBuf {
    if uid == 0 {
        return PathBuf::from("/run/warren");
    }
    match env::xdg("XDG_RUNTIME_DIR") {
        Some(runtime) => runtime.join("warren"),
        None => PathBuf::from(format!("/tmp/warren-{uid}")),
    }
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
    fn a_socket_path_that_cannot_be_is_named() {
        let long = PathBuf::from(format!("/{}", "x".repeat(100)));
        let error = Directories { home: long.clone(), run: long }.socket().unwrap_err();
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
