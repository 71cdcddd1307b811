//! Saves pictures that code displayed as files.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use engine::MimeBundle;
use sandbox::{Error, ErrorKind};
use serde_json::Value;

use crate::error::{CommandError, CommandResult, io_failure};

/// Media types of pictures, best first, with their file extensions.
const PICTURES: [(&str, &str); 5] = [
    ("image/png", "png"),
    ("image/svg+xml", "svg"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
];
const MAX_NAME_BYTES: usize = 100;
/// Maximum number of files with one name in one directory.
const MAX_NUMBER: u32 = 99_999;

#[derive(Debug, clap::Args)]
pub(crate) struct PlotsArgs {
    /// Save every picture that the code displays to this directory, as plot-001.png and so on
    #[arg(long, value_name = "DIR")]
    pub(crate) save_plots: Option<PathBuf>,
    /// File name prefix of the pictures
    #[arg(long, value_name = "NAME", requires = "save_plots", default_value = "plot")]
    plot_name: String,
}

impl PlotsArgs {
    pub(crate) fn open(&self) -> CommandResult<Option<Plots>> {
        self.save_plots.as_ref().map(|directory| Plots::open(directory, &self.plot_name)).transpose()
    }
}

/// A directory for pictures. Existing files are never overwritten.
#[derive(Debug)]
pub(crate) struct Plots {
    directory: PathBuf,
    name: String,
    next: u32,
}

/// A picture to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) ending: &'static str,
    pub(crate) bytes: Vec<u8>,
}

impl Plots {
    pub(crate) fn open(directory: &Path, name: &str) -> CommandResult<Self> {
        let is_plain = |c: char| !c.is_control() && c != '/' && c != '\\';
        if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || name.starts_with('.')
            || !name.chars().all(is_plain)
        {
            let message = format!("{name:?} is not a valid file name prefix");
            return Err(Error::invalid(message)
                .with_hint("It must not contain a slash or start with a dot.")
                .into());
        }
        fs::create_dir_all(directory).map_err(|error| io_failure(directory.display().to_string(), error))?;
        Ok(Self { directory: directory.to_owned(), name: name.to_owned(), next: 1 })
    }

    /// Writes a picture under the next free number, either completely or not at all.
    pub(crate) fn save(&mut self, picture: &Picture) -> CommandResult<PathBuf> {
        let half = self.directory.join(format!(".{}-{}.part", self.name, std::process::id()));
        let failed = |path: &Path, error| io_failure(path.display().to_string(), error);
        let written = write_new(&half, &picture.bytes).map_err(|error| failed(&half, error));
        let placed = written.and_then(|()| self.place(&half, picture.ending));
        fs::remove_file(&half).ok();
        placed
    }

    /// Links atomically: fails if the name exists.
    fn place(&mut self, half: &Path, ending: &str) -> CommandResult<PathBuf> {
        while self.next <= MAX_NUMBER {
            let path = self.directory.join(format!("{}-{:03}.{ending}", self.name, self.next));
            self.next += 1;
            match fs::hard_link(half, &path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_failure(path.display().to_string(), error)),
            }
        }
        let message =
            format!("{} already has {MAX_NUMBER} files called {}", self.directory.display(), self.name);
        Err(CommandError::from(
            Error::new(ErrorKind::LimitReached, message).with_hint("Use another --plot-name."),
        ))
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let open = |path| fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    let mut file = match open(path) {
        // Left over from a killed command with the same process id.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            open(path)?
        }
        opened => opened?,
    };
    file.write_all(bytes)
}

/// The file extension of a media type.
pub(crate) fn ending_of(mime: &str) -> Option<&'static str> {
    PICTURES.iter().find(|(known, _)| *known == mime).map(|(_, ending)| *ending)
}

/// The picture among the displayed forms, if there is one.
pub(crate) fn picture(data: &MimeBundle) -> Option<Picture> {
    PICTURES.iter().find_map(|(mime, ending)| {
        let Value::String(text) = data.get(*mime)? else { return None };
        let coded: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let bytes = match BASE64_STANDARD.decode(coded) {
            Ok(bytes) => bytes,
            Err(_) if *ending == "svg" => text.clone().into_bytes(),
            Err(_) => return None,
        };
        Some(Picture { ending, bytes })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("warren-plots-{name}-{}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        directory
    }

    #[test]
    fn a_picture_never_takes_the_place_of_a_file() {
        let directory = scratch("place");
        let mut plots = Plots::open(&directory, "plot").unwrap();
        fs::write(directory.join("plot-001.png"), "mine").unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", directory.join("plot-002.png")).unwrap();
        let saved = plots.save(&Picture { ending: "png", bytes: b"new".to_vec() }).unwrap();
        assert_eq!(saved, directory.join("plot-003.png"));
        assert_eq!(fs::read(saved).unwrap(), b"new");
        assert_eq!(fs::read(directory.join("plot-001.png")).unwrap(), b"mine");
        let saved = plots.save(&Picture { ending: "svg", bytes: b"<svg/>".to_vec() }).unwrap();
        assert_eq!(saved, directory.join("plot-004.svg"));
        // Nothing half-written stays.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_name_is_no_path() {
        let directory = scratch("name");
        for name in ["", "a/b", "..", "../x", ".hidden", "a\nb", &"x".repeat(101)] {
            assert!(Plots::open(&directory, name).is_err(), "{name:?}");
        }
        assert!(!directory.exists());
    }

    #[test]
    fn pictures_are_found_among_the_forms() {
        let bundle = |mime: &str, text: &str| MimeBundle::from([(mime.to_owned(), json!(text))]);
        let png = picture(&bundle("image/png", "aGk=\n")).unwrap();
        assert_eq!(png, Picture { ending: "png", bytes: b"hi".to_vec() });
        assert_eq!(picture(&bundle("image/svg+xml", "<svg/>")).unwrap().bytes, b"<svg/>");
        assert_eq!(picture(&bundle("image/png", "not base64!")), None);
        assert_eq!(picture(&bundle("text/html", "<p>")), None);
    }
}
