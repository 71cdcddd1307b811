//! A call written out in a hint, so that a model can make it as it stands.

use serde_json::Value;

/// `sandbox_fs_read {"name":"lab","offset":24576}`.
pub(super) fn written(tool: &str, arguments: &Value) -> String {
    format!("{tool} {arguments}")
}
