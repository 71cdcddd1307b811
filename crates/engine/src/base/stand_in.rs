//! Interpreters of the host as a substitute for their well-known images, for callers who accept one.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use images::{Event, Image, Images, PullOptions, Reference};
use sandbox::{Base, HostImage, ImageRef};
use tokio::{sync::Notify, time::timeout};

use crate::Progress;

/// How long a registry may take to resolve an image that the host can stand in for.
const PATIENCE: Duration = Duration::from_secs(8);
/// Where a sandbox finds the host's programs.
const PROGRAM_DIRECTORIES: [&str; 2] = ["/usr/bin", "/usr/local/bin"];
/// Registries and owners whose images are the well-known ones.
const WELL_KNOWN: [&str; 4] = ["docker.io/library/", "docker.io/", "library/", "microsandbox/"];
/// Images that the host can stand in for, and the programs needed for that.
const STAND_INS: [(&str, &[&str]); 2] = [("python", &["python3", "python"]), ("node", &["node", "nodejs"])];
/// Programs of the image `host` that a caller who cannot have another image is told of.
const OFFERED: [&str; 9] = ["python3", "node", "bash", "perl", "ruby", "php", "go", "gcc", "java"];

/// A host program that can replace an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StandIn {
    image: String,
    program: PathBuf,
}

impl StandIn {
    pub(super) fn base(&self, why: &str) -> Base {
        let Self { image, program } = self;
        let warning = format!(
            "Image {image} is not used ({why}): the sandbox has the host's programs, including {}.",
            program.display()
        );
        Base { image: Some(ImageRef::host()), warnings: vec![warning], ..Base::host() }
    }
}

/// The host's stand-in for the image, if there is one.
pub(super) fn find(image: &str) -> Option<StandIn> {
    find_in(image, &PROGRAM_DIRECTORIES.map(Path::new))
}

/// Returns what the image `host` offers on this machine.
pub(super) fn host_image(can_stand_in: bool) -> HostImage {
    let directories = PROGRAM_DIRECTORIES.map(Path::new);
    let programs = OFFERED.iter().filter_map(|name| versioned_in(name, &directories));
    HostImage { programs: programs.collect(), can_stand_in }
}

/// The program's name with its version, where a link tells it: `python3` is often a link to `python3.11`.
fn versioned_in(name: &str, directories: &[&Path]) -> Option<String> {
    let program = directories.iter().map(|place| place.join(name)).find(|place| place.is_file())?;
    let target = program.canonicalize().ok();
    let told = target.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
    Some(told.filter(|told| told.starts_with(name)).unwrap_or(name).to_owned())
}

fn find_in(image: &str, directories: &[&Path]) -> Option<StandIn> {
    if image.contains('@') {
        // A digest asks for exactly these bytes.
        return None;
    }
    let (_, programs) = STAND_INS.iter().find(|(name, _)| *name == bare_name(image))?;
    let mut places = programs.iter().flat_map(|name| directories.iter().map(move |place| place.join(name)));
    let program = places.find(|place| place.is_file())?;
    Some(StandIn { image: image.to_owned(), program })
}

/// `docker.io/library/python:3.12-slim` is `python`.
fn bare_name(image: &str) -> &str {
    let known = WELL_KNOWN.iter().find_map(|prefix| image.strip_prefix(prefix));
    let image = known.unwrap_or(image);
    image.split(':').next().unwrap_or(image)
}

/// Like a pull, but a silent registry soon counts as unreachable, because there is an alternative.
pub(super) async fn pull_if_reachable(
    images: &Images,
    reference: &Reference,
    options: PullOptions,
    progress: &Progress,
) -> images::Result<Image> {
    let answered = Arc::new(Notify::new());
    let (told, further) = (Arc::clone(&answered), progress.clone());
    let watched = Progress::new(move |event| {
        if matches!(event, Event::Resolved { .. }) {
            told.notify_one();
        }
        further.tell(event);
    });
    let pull = images.pull(reference, options, watched);
    tokio::pin!(pull);
    tokio::select! {
        pulled = &mut pull => pulled,
        answer = timeout(PATIENCE, answered.notified()) => match answer {
            Ok(()) => pull.await,
            Err(_elapsed) => {
                Err(images::Error::TimedOut { what: format!("image {reference}"), after: PATIENCE })
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_by_its_version_where_a_link_tells_it() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("python3.11"), "").unwrap();
        std::os::unix::fs::symlink("python3.11", place.path().join("python3")).unwrap();
        std::fs::write(place.path().join("node"), "").unwrap();
        std::os::unix::fs::symlink("node", place.path().join("gcc")).unwrap();
        let told = |name| versioned_in(name, &[place.path()]);
        assert_eq!(told("python3").as_deref(), Some("python3.11"));
        assert_eq!((told("node").as_deref(), told("gcc").as_deref()), (Some("node"), Some("gcc")));
        assert_eq!(told("ruby"), None);
    }

    #[test]
    fn interpreters_of_the_host_stand_in_for_their_images_and_for_no_others() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("python3"), "").unwrap();
        let find = |image| find_in(image, &[place.path()]);
        for image in ["python", "python:3.12-slim", "microsandbox/python", "docker.io/library/python:3"] {
            let base = find(image).unwrap().base("no route to it");
            let warning = &base.warnings[0];
            assert!(warning.contains(image) && warning.contains("python3"), "{warning}");
            assert!(warning.contains("no route to it"), "{warning}");
        }
        for image in [
            "python@sha256:00",
            "python:3@sha256:00",
            "host",
            "node:22",
            "alpine",
            "evil/python",
            "pythonic",
            "ghcr.io/library/python",
        ] {
            assert_eq!(find(image), None, "{image}");
        }
    }
}
