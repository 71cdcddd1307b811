//! For which platform an image is built.

use std::{fmt, str::FromStr};

use crate::error::{Error, Result};

/// `linux/amd64`, `linux/arm64/v8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    pub os: String,
    pub architecture: String,
    /// `None`: any.
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this machine.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    pub(crate) fn suits(&self, os: &str, architecture: &str, variant: Option<&str>) -> bool {
        self.os == os
            && self.architecture == architecture
            && match (self.variant.as_deref(), variant) {
                (None, _) => true,
                // 64-bit ARM has one variant, which most manifests leave out.
                (Some("v8"), None) => architecture == "arm64",
                (wanted, found) => wanted == found,
            }
    }
}

impl Default for Platform {
    fn default() -> Self {
        Self::host()
    }
}

impl FromStr for Platform {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let sound = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        match parts[..] {
            [os, architecture] if parts.iter().all(sound) => {
                Ok(Self { os: os.to_owned(), architecture: architecture.to_owned(), variant: None })
            }
            [os, architecture, variant] if parts.iter().all(sound) => Ok(Self {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
                variant: Some(variant.to_owned()),
            }),
            _ => Err(Error::invalid(format!("{text:?} is not a platform; one looks like linux/amd64"))),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms() {
        let check = |wanted: &str, (os, architecture, variant): (&str, &str, Option<&str>), suits: bool| {
            let wanted: Platform = wanted.parse().unwrap();
            assert_eq!(wanted.suits(os, architecture, variant), suits, "{wanted}");
        };
        check("linux/arm64", ("linux", "arm64", Some("v8")), true);
        check("linux/arm64/v8", ("linux", "arm64", None), true);
        check("linux/arm/v7", ("linux", "arm", Some("v6")), false);
        check("linux/amd64", ("windows", "amd64", None), false);
        for bad in ["", "linux", "linux/", "a/b/c/d", "linux/am d64"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }
}
