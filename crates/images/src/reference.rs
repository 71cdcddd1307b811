//! How an image is written: `alpine`, `ghcr.io/owner/name:tag`, `localhost:5000/name@sha256:…`.

use std::{fmt, str::FromStr};

use oci_spec::distribution;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    error::{Error, Result},
};

/// Longest text that is looked at; the longest valid reference is shorter.
const MAX_REFERENCE_BYTES: usize = 1024;

const DOCKER_HUB: &str = "docker.io";

/// How long a word of hexadecimal digits looks like the beginning of a digest.
const DIGEST_LENGTHS: std::ops::RangeInclusive<usize> = 12..=64;

/// An image in a registry, in full: registry, repository, and a tag or a digest or both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Host, and port where one was given. `docker.io` where none was.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// `latest` where neither tag nor digest was given.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The same repository at this digest, without a tag.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), tag: None, ..self.clone() }
    }

    /// The part that the registry is asked for: the digest when there is one.
    pub(crate) fn wanted(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        }
    }

    /// Fails for what no image can be called, because whoever wrote it would mean something else.
    pub fn check_as_name(&self) -> Result<()> {
        let word = self.repository.strip_prefix("library/").filter(|_| self.registry == DOCKER_HUB);
        let Some(word) = word.filter(|word| !word.contains('/')) else { return Ok(()) };
        let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let why = match word {
            "host" => "it stands for the machine's own files",
            "sha256" => "it looks like a digest",
            _ if is_hex && DIGEST_LENGTHS.contains(&word.len()) => "it looks like a digest",
            _ => return Ok(()),
        };
        Err(Error::invalid(format!("no image can be called {}: {why}", self.familiar())))
    }

    /// The short form people write: no `docker.io/library/`.
    pub fn familiar(&self) -> String {
        let full = self.to_string();
        let short = full.strip_prefix("docker.io/").unwrap_or(&full);
        short.strip_prefix("library/").filter(|_| self.registry == DOCKER_HUB).unwrap_or(short).to_owned()
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::invalid(format!("{text:?} is not an image reference: {why}"));
        if text.len() > MAX_REFERENCE_BYTES {
            return Err(Error::invalid("the image reference is too long"));
        }
        let parsed: distribution::Reference =
            text.parse().map_err(|error: distribution::ParseError| bad(&error.to_string()))?;
        let digest = parsed.digest().map(Digest::from_str).transpose()?;
        // A reference with a digest has the tag it was given, not a tag nobody wrote.
        let tag = parsed.tag().map(str::to_owned);
        Ok(Self {
            registry: parsed.registry().to_owned(),
            repository: parsed.repository().to_owned(),
            tag,
            digest,
        })
    }
}

impl TryFrom<String> for Reference {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_written_in_full() {
        let check = |text: &str, full: &str, familiar: &str| {
            let reference: Reference = text.parse().unwrap();
            assert_eq!((reference.to_string().as_str(), reference.familiar().as_str()), (full, familiar));
            assert_eq!(full.parse::<Reference>().unwrap(), reference);
        };
        check("alpine", "docker.io/library/alpine:latest", "alpine:latest");
        check("index.docker.io/library/alpine:3", "docker.io/library/alpine:3", "alpine:3");
        check("owner/name:1.2", "docker.io/owner/name:1.2", "owner/name:1.2");
        check("localhost:5000/a/b", "localhost:5000/a/b:latest", "localhost:5000/a/b:latest");
        check("127.0.0.1:80/x", "127.0.0.1:80/x:latest", "127.0.0.1:80/x:latest");
        let pinned = format!("ghcr.io/o/n@{DIGEST}");
        check(&pinned, &pinned, &pinned);
        let both = format!("ghcr.io/o/n:v1@{DIGEST}");
        check(&both, &both, &both);
    }

    #[test]
    fn names_that_mean_something_else_are_not_given() {
        for bad in
            ["host", "host:1", "docker.io/library/host", "sha256:abc", "0123456789ab", "deadbeefcafe:v1"]
        {
            let error = bad.parse::<Reference>().unwrap().check_as_name().unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{bad}: {error}");
        }
        for good in
            ["hosts", "team/host", "localhost/host", "localhost/sha256:abc", "facade", "x0123456789ab"]
        {
            good.parse::<Reference>().unwrap().check_as_name().unwrap();
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for bad in
            ["", "UPPER", "a b", "a:", "a@sha256:12", "-a", "../a", "a//b", "a:tag:tag", &"a".repeat(2000)]
        {
            assert!(matches!(bad.parse::<Reference>(), Err(Error::Invalid { .. })), "{bad}");
        }
    }
}
