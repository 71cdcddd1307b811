//! The builder's own settings, besides the Dockerfile.

use std::collections::BTreeMap;

/// `--build-arg NAME=value`.
pub type BuildArgs = BTreeMap<String, String>;

/// The platform that it is built for and on, for the predefined arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub os: String,
    pub architecture: String,
    pub variant: Option<String>,
}

impl Target {
    pub fn platform(&self) -> String {
        let variant = self.variant.as_ref().map(|variant| format!("/{variant}")).unwrap_or_default();
        format!("{}/{}{variant}", self.os, self.architecture)
    }

    /// Arguments that exist without being given. A sandbox runs on the machine's own processor, so both sides are the
    /// same.
    pub(crate) fn predefined(&self) -> BTreeMap<String, String> {
        let mut args = BTreeMap::new();
        for side in ["TARGET", "BUILD"] {
            args.insert(format!("{side}PLATFORM"), self.platform());
            args.insert(format!("{side}OS"), self.os.clone());
            args.insert(format!("{side}ARCH"), self.architecture.clone());
            args.insert(format!("{side}VARIANT"), self.variant.clone().unwrap_or_default());
        }
        args
    }
}

/// Arguments that need no `ARG`: they change where things are fetched, not what is built, and so stay out of the cache.
pub(crate) fn is_proxy(name: &str) -> bool {
    matches!(
        name.to_ascii_lowercase().as_str(),
        "http_proxy" | "https_proxy" | "ftp_proxy" | "no_proxy" | "all_proxy"
    )
}
