//! The configuration of an image, as callers of every front end write and read it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Defaults for what runs in the image; empty where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ImageConfig {
    /// `NAME=value`.
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Name or number, and perhaps a group: `1000:1000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `80/tcp`.
    pub exposed_ports: Vec<String>,
    pub volumes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    pub shell: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

impl From<engine::ImageConfig> for ImageConfig {
    fn from(config: engine::ImageConfig) -> Self {
        Self {
            env: config.env,
            entrypoint: config.entrypoint,
            cmd: config.cmd,
            working_dir: config.working_dir,
            user: config.user,
            exposed_ports: config.exposed_ports,
            volumes: config.volumes,
            stop_signal: config.stop_signal,
            shell: config.shell,
            labels: config.labels,
        }
    }
}

impl From<ImageConfig> for engine::ImageConfig {
    fn from(config: ImageConfig) -> Self {
        Self {
            env: config.env,
            user: config.user,
            working_dir: config.working_dir,
            entrypoint: config.entrypoint,
            cmd: config.cmd,
            exposed_ports: config.exposed_ports,
            volumes: config.volumes,
            stop_signal: config.stop_signal,
            shell: config.shell,
            labels: config.labels,
        }
    }
}
