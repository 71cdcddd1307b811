//! Lists by page, newest first.

use axum::{Json, extract::State};
use engine::SandboxFilter;
use sandbox::{Error, Label, Result};
use serde_json::{Value, json};

use crate::{
    dialects::opensandbox::{
        ask::{Caller, Front, Pairs},
        page::{Page, Pagination},
        view,
    },
    http::ApiResult,
};

pub(super) fn page_of(query: &Pairs) -> Result<Page> {
    Page::new(query.number("page")?, query.number("pageSize")?)
}

pub(super) fn answer<T>(page: Page, items: Vec<T>, shape: impl Fn(&T) -> Value) -> Value {
    let (items, counted) = page.cut(items);
    let Pagination { page, page_size, total_items, total_pages, has_next_page } = counted;
    json!({
        "items": items.iter().map(shape).collect::<Vec<_>>(),
        "pagination": {
            "page": page,
            "pageSize": page_size,
            "totalItems": total_items,
            "totalPages": total_pages,
            "hasNextPage": has_next_page,
        },
    })
}

pub(super) async fn list(State(front): State<Front>, caller: Caller) -> ApiResult<Json<Value>> {
    let query = &caller.query;
    let page = page_of(query)?;
    let words: Vec<_> = query.all("state").collect();
    let labels = query.one("metadata")?.map(metadata).transpose()?.unwrap_or_default();
    // Unknown states are matched by none, as clients of other versions may know more of them.
    let states: Vec<_> = words.iter().filter_map(|word| view::state_named(word)).collect();
    let filter = SandboxFilter { labels, states, ..SandboxFilter::default() };
    let found = match words.is_empty() || !filter.states.is_empty() {
        true => view::list(front.engine(), &caller.who, &filter).await?,
        false => Vec::new(),
    };
    Ok(Json(answer(page, found, super::shape)))
}

/// `key=value&key=value`, encoded once more within its parameter.
fn metadata(text: &str) -> Result<Vec<Label>> {
    let wrong = || Error::invalid("the parameter metadata must be key=value&key=value");
    let address = format!("/?{text}").parse().map_err(|_malformed| wrong())?;
    let axum::extract::Query(pairs) = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&address)
        .map_err(|_unreadable| wrong())?;
    // The parser reads `key` like `key=`. A key without a value is a mistake, not a label without a value.
    if text.split('&').any(|pair| !pair.is_empty() && !pair.contains('=')) {
        return Err(wrong());
    }
    pairs.iter().map(|(key, value)| Label::new(key, value).map_err(Error::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_as_pairs() {
        let labels = metadata("team=x&a%2Fb=c%20d").unwrap();
        let pairs: Vec<_> = labels.iter().map(|label| (label.key.as_str(), label.value.as_str())).collect();
        assert_eq!(pairs, [("team", "x"), ("a/b", "c d")]);
        assert!(metadata("a b=c").is_err() && metadata("broken").is_err() && metadata("a=b&broken").is_err());
    }
}
