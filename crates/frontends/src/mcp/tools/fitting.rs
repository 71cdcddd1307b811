//! Lists that must fit an answer.

use serde::Serialize;

use crate::mcp::Truncated;

/// Leaves out the items that do not fit into so many bytes; the first always does. `field` is where the list is in the
/// answer.
pub(super) fn fit<T: Serialize>(field: &str, items: &mut Vec<T>, max_bytes: usize) -> Option<Truncated> {
    let sizes: Vec<_> =
        items.iter().map(|item| serde_json::to_string(item).map_or(0, |text| text.len() + 1)).collect();
    let total: usize = sizes.iter().sum();
    if total <= max_bytes {
        return None;
    }
    let mut n_bytes = 0;
    let n_kept = sizes.iter().take_while(|size| {
        n_bytes += **size;
        n_bytes <= max_bytes
    });
    let n_kept = n_kept.count().max(1);
    items.truncate(n_kept);
    let returned: usize = sizes[..n_kept].iter().sum();
    Some(Truncated {
        field: field.to_owned(),
        returned_bytes: returned as u64,
        total_bytes: total as u64,
        hint: None,
    })
}
