//! The configuration of an image: how it is run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    error::{Error, Result},
    images::{History, Origin},
    platform::Platform,
};

/// Defaults for what runs in the image. Empty where the image says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Name or number, and perhaps a group: `1000:1000`.
    pub user: Option<String>,
    pub working_dir: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// `80/tcp`.
    pub exposed_ports: Vec<String>,
    pub volumes: Vec<String>,
    pub stop_signal: Option<String>,
    pub shell: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// The configuration as it is stored, as far as it concerns us. Writers leave fields out and write `null` for empty.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ConfigFile {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    variant: Option<String>,
    pub(crate) created: Option<String>,
    config: Option<Run>,
    rootfs: Rootfs,
    /// Only for people: whatever it is, the image works without it.
    #[serde(default)]
    history: serde_json::Value,
}

#[derive(Debug, Clone, Deserialize)]
struct Rootfs {
    diff_ids: Option<Vec<Digest>>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default)]
struct Run {
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cmd: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volumes: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shell: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
}

impl ConfigFile {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::unreadable("the image's configuration", "a configuration", &error))
    }

    /// Returns the digests of the layers, lowest first.
    pub(crate) fn diff_ids(&self) -> &[Digest] {
        self.rootfs.diff_ids.as_deref().unwrap_or_default()
    }

    pub(crate) fn platform(&self) -> Platform {
        let or =
            |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
        Platform {
            os: or(&self.os, "linux"),
            architecture: or(&self.architecture, "unknown"),
            variant: self.variant.clone().filter(|variant| !variant.is_empty()),
        }
    }

    /// Fails when the image says that it is for another platform than the one that was asked for.
    pub(crate) fn expect(&self, asked: Option<&Platform>) -> Result<()> {
        let Some(asked) = asked else { return Ok(()) };
        let built = self.platform();
        // Many leave out the variant, and some say nothing at all.
        let variant = built.variant.as_deref().or(asked.variant.as_deref());
        if self.architecture.is_empty() || asked.suits(&built.os, &built.architecture, variant) {
            return Ok(());
        }
        Err(Error::no_build(asked, &built.to_string()))
    }

    /// Oldest first. Steps that cannot be read are left out.
    pub(crate) fn history(&self) -> Vec<History> {
        let steps = self.history.as_array().into_iter().flatten();
        steps.filter_map(|step| serde_json::from_value(step.clone()).ok()).collect()
    }

    pub(crate) fn config(&self) -> ImageConfig {
        let run = self.config.clone().unwrap_or_default();
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let keys = |map: Option<BTreeMap<String, _>>| map.unwrap_or_default().into_keys().collect();
        ImageConfig {
            env: run.env.unwrap_or_default(),
            user: text(run.user),
            working_dir: text(run.working_dir),
            entrypoint: run.entrypoint.unwrap_or_default(),
            cmd: run.cmd.unwrap_or_default(),
            exposed_ports: keys(run.exposed_ports),
            volumes: keys(run.volumes),
            stop_signal: text(run.stop_signal),
            shell: run.shell.unwrap_or_default(),
            labels: run.labels.unwrap_or_default(),
        }
    }
}

impl ImageConfig {
    /// The configuration file of an image with these layers. The same input gives the same bytes.
    pub(crate) fn to_file(
        &self,
        platform: &Platform,
        diff_ids: &[Digest],
        origin: &Origin,
    ) -> Result<Vec<u8>> {
        let list = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let set = |list: &[String]| {
            let keys = list.iter().map(|key| (key.clone(), serde_json::json!({})));
            (!list.is_empty()).then(|| keys.collect())
        };
        let run = Run {
            env: list(&self.env),
            user: self.user.clone(),
            working_dir: self.working_dir.clone(),
            entrypoint: list(&self.entrypoint),
            cmd: list(&self.cmd),
            exposed_ports: set(&self.exposed_ports),
            volumes: set(&self.volumes),
            stop_signal: self.stop_signal.clone(),
            shell: list(&self.shell),
            labels: (!self.labels.is_empty()).then(|| self.labels.clone()),
        };
        let mut file = serde_json::json!({
            "architecture": platform.architecture,
            "os": platform.os,
            "config": run,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        if let Some(created) = &origin.created {
            file["created"] = created.as_str().into();
        }
        if !origin.history.is_empty() {
            file["history"] = serde_json::json!(padded(&origin.history, diff_ids.len()));
        }
        if let Some(variant) = &platform.variant {
            file["variant"] = variant.as_str().into();
        }
        serde_json::to_vec(&file).map_err(|error| Error::invalid(format!("configuration: {error}")))
    }
}

/// One step for each layer, as readers expect. Steps that nobody recorded are those of the oldest layers.
fn padded(history: &[History], n_layers: usize) -> Vec<History> {
    let n_known = history.iter().filter(|step| !step.empty_layer).count();
    let unknown = std::iter::repeat_n(History::default(), n_layers.saturating_sub(n_known));
    unknown.chain(history.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_a_step_once_there_is_a_history() {
        let step = |by: &str, empty_layer| History {
            created_by: Some(by.to_owned()),
            empty_layer,
            ..History::default()
        };
        let history = [step("ENV", true), step("RUN", false)];
        let by = |n_layers| -> Vec<_> {
            padded(&history, n_layers).into_iter().map(|step| step.created_by.unwrap_or_default()).collect()
        };
        assert_eq!(by(1), ["ENV", "RUN"]);
        assert_eq!(by(2), ["", "ENV", "RUN"]);
        assert_eq!(by(0), ["ENV", "RUN"]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let config = ImageConfig {
            env: vec!["PATH=/bin".to_owned()],
            user: Some("1000:1000".to_owned()),
            working_dir: Some("/data".to_owned()),
            entrypoint: vec!["/bin/sh".to_owned()],
            cmd: vec!["-c".to_owned(), "true".to_owned()],
            exposed_ports: vec!["80/tcp".to_owned()],
            volumes: vec!["/data".to_owned()],
            stop_signal: Some("SIGINT".to_owned()),
            shell: vec!["/bin/ash".to_owned()],
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        };
        let platform: Platform = "linux/arm/v7".parse().unwrap();
        let layers = [Digest::of(b"layer")];
        let file =
            ConfigFile::parse(&config.to_file(&platform, &layers, &Origin::default()).unwrap()).unwrap();
        assert_eq!((file.config(), file.platform(), file.diff_ids()), (config, platform, &layers[..]));
    }

    #[test]
    fn an_image_is_for_the_platform_it_names() {
        let check = |config: &str, asked: &str, suits: bool| {
            let text = format!(r#"{{{config} "rootfs": {{"type": "layers", "diff_ids": []}}}}"#);
            let expected = ConfigFile::parse(text.as_bytes()).unwrap().expect(Some(&asked.parse().unwrap()));
            assert_eq!(expected.is_ok(), suits, "{config} {asked}: {expected:?}");
        };
        check(r#""os": "linux", "architecture": "amd64","#, "linux/amd64", true);
        check(r#""os": "linux", "architecture": "amd64","#, "linux/arm64", false);
        check(r#""os": "windows", "architecture": "amd64","#, "linux/amd64", false);
        check(r#""architecture": "arm", "variant": "v6","#, "linux/arm/v7", false);
        check(r#""architecture": "arm","#, "linux/arm/v7", true);
        check("", "linux/arm64", true);
    }

    #[test]
    fn nulls_and_gaps_are_empty() {
        let text = br#"{"config": {"Env": null, "User": "", "ExposedPorts": null, "Labels": null}, "rootfs": {"type": "layers", "diff_ids": null}}"#;
        let file = ConfigFile::parse(text).unwrap();
        assert_eq!(file.config(), ImageConfig::default());
        assert!(file.diff_ids().is_empty());
        assert!(matches!(ConfigFile::parse(b"{}"), Err(Error::Corrupt { .. })));
    }
}
