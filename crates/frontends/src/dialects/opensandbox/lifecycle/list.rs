//! Lists by page, newest first.

use axum::{Json, extract::State};
use engine::SandboxFilter;
use sandbox::{Error, Label, Result};
use serde_json::{Value, json};

use super::view;
use crate::{
    dialects::opensandbox::ask::{Caller, Front, Pairs},
    http::ApiResult,
};

const DEFAULT_PAGE_SIZE: u64 = 20;
const MAX_PAGE_SIZE: u64 = 200;

/// Which part of a list is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    number: u64,
    size: u64,
}

impl Page {
    pub(super) fn of(query: &Pairs) -> Result<Self> {
        let (number, size) =
            (query.number("page")?.unwrap_or(1), query.number("pageSize")?.unwrap_or(DEFAULT_PAGE_SIZE));
        if number == 0 {
            return Err(Error::invalid("page 0: pages are numbered from 1"));
        }
        if !(1..=MAX_PAGE_SIZE).contains(&size) {
            return Err(Error::invalid(format!("pageSize {size} is not between 1 and {MAX_PAGE_SIZE}")));
        }
        Ok(Self { number, size })
    }

    /// `items`: oldest first.
    pub(super) fn answer<T>(self, items: Vec<T>, shown: impl Fn(&T) -> Value) -> Value {
        let Self { number, size } = self;
        let n_items = items.len() as u64;
        let n_before = usize::try_from((number - 1).saturating_mul(size)).unwrap_or(usize::MAX);
        let page: Vec<_> = items.iter().rev().skip(n_before).take(size as usize).map(shown).collect();
        json!({
            "items": page,
            "pagination": {
                "page": number,
                "pageSize": size,
                "totalItems": n_items,
                "totalPages": n_items.div_ceil(size),
                "hasNextPage": number.saturating_mul(size) < n_items,
            },
        })
    }
}

pub(super) async fn list(State(front): State<Front>, caller: Caller) -> ApiResult<Json<Value>> {
    let query = caller.query.only(&["state", "metadata", "page", "pageSize"])?;
    let page = Page::of(query)?;
    let states: Vec<_> = query.all("state").map(str::to_ascii_lowercase).collect();
    let labels = query.one("metadata")?.map(metadata).transpose()?.unwrap_or_default();
    let filter = SandboxFilter { labels, ..SandboxFilter::default() };
    let mut views = front.engine().sandboxes(&caller.who, &filter).await?;
    // Unknown states are matched by none, as clients of other versions may know more of them.
    views.retain(|one| states.is_empty() || states.contains(&view::state(one.state).to_ascii_lowercase()));
    Ok(Json(page.answer(views, view::of)))
}

/// `key=value&key=value`, encoded once more within its parameter.
fn metadata(text: &str) -> Result<Vec<Label>> {
    let wrong = || Error::invalid("the parameter metadata must be key=value&key=value");
    let address = format!("/?{text}").parse().map_err(|_malformed| wrong())?;
    let axum::extract::Query(pairs) = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&address)
        .map_err(|_unreadable| wrong())?;
    pairs.iter().map(|(key, value)| Label::new(key, value).map_err(Error::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_cut_from_the_newest_on() {
        let page = |number, size| Page { number, size }.answer(vec![1, 2, 3], |n| json!(n));
        assert_eq!(page(1, 2)["items"], json!([3, 2]));
        assert_eq!(page(2, 2)["items"], json!([1]));
        assert_eq!(page(1, 2)["pagination"]["hasNextPage"], true);
        assert_eq!(page(2, 2)["pagination"]["hasNextPage"], false);
        assert_eq!((&page(9, 2)["items"], &page(9, 2)["pagination"]["totalPages"]), (&json!([]), &json!(2)));
        assert_eq!(page(u64::MAX, 200)["items"], json!([]));
    }

    #[test]
    fn metadata_is_read_as_pairs() {
        let labels = metadata("team=x&a%2Fb=c%20d").unwrap();
        let pairs: Vec<_> = labels.iter().map(|label| (label.key.as_str(), label.value.as_str())).collect();
        assert_eq!(pairs, [("team", "x"), ("a/b", "c d")]);
        assert!(metadata("a b=c").is_err());
    }
}
