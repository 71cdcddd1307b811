//! The section `defaults`: what sandboxes get that nobody asked about.

use std::time::Duration;

use engine::EngineConfig;
use toml::Value;

use crate::arguments;

/// An agent that is done rarely says so. A day is long enough to come back, and short enough that what was forgotten
/// does not pile up.
const AGENT_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefaultsConfig {
    /// For sandboxes that agents make over MCP or a dialect.
    idle: Option<Duration>,
}

impl Default for DefaultsConfig {
    fn default() -> Self {
        Self { idle: Some(AGENT_IDLE) }
    }
}

impl DefaultsConfig {
    /// Sets `idle`. The error describes the expected value.
    pub(super) fn set(&mut self, value: &Value) -> Result<(), &'static str> {
        let wanted = "a time such as \"24h\", or \"none\"";
        self.idle = match value.as_str().ok_or(wanted)? {
            "none" => None,
            text => Some(arguments::duration(text).ok().filter(|idle| !idle.is_zero()).ok_or(wanted)?),
        };
        Ok(())
    }

    pub(crate) fn apply(&self, engine: &mut EngineConfig) {
        engine.agent_idle = self.idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_sandbox_stops_after_a_day_unless_the_file_says_otherwise() {
        let idle = |text: Option<&str>| {
            let mut config = DefaultsConfig::default();
            text.map_or(Ok(()), |text| config.set(&Value::from(text)))?;
            let mut engine = EngineConfig::new("/home");
            config.apply(&mut engine);
            Ok::<_, &str>(engine.agent_idle)
        };
        assert_eq!(idle(None), Ok(Some(Duration::from_secs(86_400))));
        assert_eq!(idle(Some("90m")), Ok(Some(Duration::from_secs(5_400))));
        assert_eq!(idle(Some("none")), Ok(None));
        for wrong in ["0", "", "soon"] {
            assert!(idle(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
