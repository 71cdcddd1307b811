//! What an image means while sandboxes are made from the host's own programs only.

use std::path::{Path, PathBuf};

use sandbox::{Error, ErrorKind, ImageRef};

use super::fields::Rootfs;
use crate::mcp::envelope::Failure;

/// Where a sandbox finds the host's programs.
const PROGRAM_DIRECTORIES: [&str; 2] = ["/usr/bin", "/usr/local/bin"];
/// Registries and owners whose images are the well-known ones.
const WELL_KNOWN: [&str; 4] = ["docker.io/library/", "docker.io/", "library/", "microsandbox/"];
/// Images that the host can stand in for, and the programs that it needs for that.
const STAND_INS: [(&str, &[&str]); 2] = [("python", &["python3", "python"]), ("node", &["node", "nodejs"])];
const MAX_SHOWN_CHARS: usize = 80;

/// Checks that the host can serve as what was asked. Says so, where something else was asked.
pub(super) fn resolve(image: Option<&str>, rootfs: Option<&Rootfs>) -> Result<Option<String>, Failure> {
    let found = |names: &[&str]| find_program(names, &PROGRAM_DIRECTORIES.map(Path::new));
    match rootfs {
        None => stand_in("image", image.unwrap_or(ImageRef::HOST), found),
        Some(Rootfs::Host {}) => Ok(None),
        Some(Rootfs::Oci { reference, .. }) => stand_in("rootfs.reference", reference, found),
        Some(Rootfs::Bind { .. }) => Err(unsupported_rootfs("bind")),
        Some(Rootfs::Disk { .. }) => Err(unsupported_rootfs("disk")),
        Some(Rootfs::Snapshot { .. }) => Err(unsupported_rootfs("snapshot")),
    }
}

fn stand_in(
    field: &str,
    image: &str,
    find: impl Fn(&[&str]) -> Option<PathBuf>,
) -> Result<Option<String>, Failure> {
    if image == ImageRef::HOST {
        return Ok(None);
    }
    let shown: String = image.chars().take(MAX_SHOWN_CHARS).collect();
    let refusal = |hint: String| {
        let error = Error::new(ErrorKind::Unsupported, format!("{field} {shown:?} cannot be used yet"));
        Failure::from(error).with_hint(hint)
    };
    let host = "Use image: \"host\", which has the programs of this machine.";
    let Some((_, programs)) = STAND_INS.iter().find(|(name, _)| *name == bare_name(image)) else {
        return Err(refusal(host.to_owned()));
    };
    match find(programs) {
        Some(program) => Ok(Some(format!(
            "Image {shown} is not used yet: the sandbox has the host's programs, with {}.",
            program.display()
        ))),
        None => Err(refusal(format!("This machine has no {}. {host}", programs[0]))),
    }
}

/// `docker.io/library/python:3.12-slim` is `python`.
fn bare_name(image: &str) -> &str {
    let known = WELL_KNOWN.iter().find_map(|prefix| image.strip_prefix(prefix));
    let image = known.unwrap_or(image);
    image.split([':', '@']).next().unwrap_or(image)
}

fn find_program(names: &[&str], directories: &[&Path]) -> Option<PathBuf> {
    let places = names.iter().flat_map(|name| directories.iter().map(move |place| place.join(name)));
    places.into_iter().find(|place| place.is_file())
}

fn unsupported_rootfs(kind: &str) -> Failure {
    let message = format!("rootfs of kind {kind} cannot be used yet");
    Failure::from(Error::new(ErrorKind::Unsupported, message))
        .with_hint("Leave rootfs out and use image: \"host\", which has the programs of this machine.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_of_the_host_stand_in_for_their_images() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("python3"), "").unwrap();
        let find = |names: &[&str]| find_program(names, &[place.path()]);
        for image in
            ["python", "python:3.12-slim", "microsandbox/python", "docker.io/library/python@sha256:00"]
        {
            let warning = stand_in("image", image, find).unwrap().unwrap();
            assert!(warning.contains(image) && warning.contains("python3"), "{warning}");
        }
        assert_eq!(stand_in("image", "host", find).unwrap(), None);
    }

    #[test]
    fn other_images_are_refused_with_the_one_that_works() {
        for image in ["node:22", "alpine", "/srv/rootfs", "evil/python", "pythonic"] {
            let failure = stand_in("image", image, |_| None).unwrap_err();
            assert_eq!(failure.code, "unsupported", "{image}");
            assert!(failure.message.contains(image), "{}", failure.message);
            assert!(failure.hint.unwrap().contains("image: \"host\""), "{image}");
        }
    }
}
