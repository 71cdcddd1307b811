//! The section `metrics`: where Prometheus may read without a key.

use std::net::SocketAddr;

use toml::Value;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MetricsConfig {
    pub(crate) listen: Option<SocketAddr>,
}

impl MetricsConfig {
    /// Sets the only key of the section. The error describes the expected value.
    pub(super) fn set(&mut self, value: &Value) -> Result<(), &'static str> {
        let address = value.as_str().and_then(|text| text.parse().ok());
        self.listen = Some(address.ok_or("an address such as \"127.0.0.1:9464\"")?);
        Ok(())
    }
}
