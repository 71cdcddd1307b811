//! The section `images`: where images come from and how much of the disk they may take.

use std::path::PathBuf;

use engine::{ImageAuth, ImageOptions, Mirror};
use gateway::Url;
use sandbox::ByteSize;
use toml::Value;

use super::{is_http, size};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ImagesConfig {
    max_disk: Option<ByteSize>,
    /// Registries and addresses, in the order in which they are tried.
    mirrors: Vec<(String, Url)>,
    insecure: Vec<String>,
    registries: Option<Vec<String>>,
    ca_files: Vec<PathBuf>,
}

impl ImagesConfig {
    /// Sets one key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "images.max_disk" => {
                self.max_disk = Some(size(value).ok_or("a size such as \"20g\"")?);
            }
            "images.mirrors" => {
                self.mirrors = mirrors(value)
                    .ok_or("a table of registries and addresses such as \"https://mirror.example\"")?;
            }
            "images.insecure" => {
                self.insecure = texts(value).ok_or("a list of registries such as \"registry.lan:5000\"")?;
            }
            "images.registries" => {
                let list = texts(value).ok_or("a list of registries such as \"registry.lan:5000\"")?;
                self.registries = Some(list);
            }
            _ => {
                let files: Option<Vec<PathBuf>> =
                    texts(value).map(|texts| texts.into_iter().map(PathBuf::from).collect());
                let absolute = files.filter(|files| files.iter().all(|file| file.is_absolute()));
                self.ca_files = absolute.ok_or("a list of absolute paths of PEM files")?;
            }
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &Url> {
        self.mirrors.iter().map(|(_, url)| url)
    }

    /// Credentials come from the Docker configuration of the daemon's user.
    pub(crate) fn options(&self) -> ImageOptions {
        let mirror = |(registry, url): &(String, Url)| Mirror {
            registry: registry.clone(),
            url: url.as_str().trim_end_matches('/').to_owned(),
        };
        ImageOptions {
            disk_cap: self.max_disk.map(ByteSize::bytes),
            mirrors: self.mirrors.iter().map(mirror).collect(),
            insecure: self.insecure.clone(),
            registries: self.registries.clone(),
            ca_files: self.ca_files.clone(),
            auth: ImageAuth::of_environment(),
            ..ImageOptions::default()
        }
    }
}

/// `{ "docker.io" = "https://one.example" }`, or a list of addresses for one registry.
fn mirrors(value: &Value) -> Option<Vec<(String, Url)>> {
    let mut found = Vec::new();
    for (registry, value) in value.as_table()? {
        let urls = match value {
            Value::String(text) => vec![text.clone()],
            several => texts(several)?,
        };
        for url in urls {
            found.push((registry.clone(), Url::parse(&url).ok().filter(is_http)?));
        }
    }
    Some(found)
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_says_is_what_the_store_of_images_is_told() {
        let text = "max_disk = '20g'\ninsecure = ['registry.lan:5000']\nregistries = ['docker.io']\nca_files = ['/etc/ca.pem']\n\
                    [mirrors]\n'docker.io' = ['https://one.example/', 'http://two.example:5000']\n'ghcr.io' = 'https://three.example'\n";
        let table: toml::Table = text.parse().unwrap();
        let mut config = ImagesConfig::default();
        for (key, value) in &table {
            config.set(&format!("images.{key}"), value).unwrap();
        }
        let options = config.options();
        assert_eq!(options.disk_cap, Some(20 << 30));
        let mirrors: Vec<_> =
            options.mirrors.iter().map(|mirror| (mirror.registry.as_str(), mirror.url.as_str())).collect();
        assert_eq!(
            mirrors,
            [
                ("docker.io", "https://one.example"),
                ("docker.io", "http://two.example:5000"),
                ("ghcr.io", "https://three.example")
            ]
        );
        assert_eq!(options.registries, Some(vec!["docker.io".to_owned()]));
        assert_eq!((options.insecure.len(), options.ca_files.len()), (1, 1));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (key, value) in [
            ("max_disk", "'much'"),
            ("mirrors", "'https://one.example'"),
            ("mirrors", "{ 'docker.io' = 'ftp://x' }"),
            ("mirrors", "{ 'docker.io' = [1] }"),
            ("insecure", "true"),
            ("registries", "'docker.io'"),
            ("ca_files", "['relative.pem']"),
        ] {
            let table: toml::Table = format!("x = {value}").parse().unwrap();
            let refused = ImagesConfig::default().set(&format!("images.{key}"), &table["x"]);
            assert!(refused.is_err(), "{key} = {value}");
        }
    }
}
