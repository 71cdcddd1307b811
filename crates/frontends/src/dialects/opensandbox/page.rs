//! Lists by page.

use sandbox::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;

const DEFAULT_SIZE: u64 = 20;
const MAX_SIZE: u64 = 200;

/// The part of a list that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    number: u64,
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Pagination {
    pub(super) page: u64,
    pub(super) page_size: u64,
    pub(super) total_items: u64,
    pub(super) total_pages: u64,
    pub(super) has_next_page: bool,
}

impl Page {
    pub(super) fn new(number: Option<u64>, size: Option<u64>) -> Result<Self> {
        let (number, size) = (number.unwrap_or(1), size.unwrap_or(DEFAULT_SIZE));
        if number == 0 {
            return Err(Error::invalid("page 0: pages are numbered from 1"));
        }
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(Error::invalid(format!("a page of {size} is not between 1 and {MAX_SIZE}")));
        }
        Ok(Self { number, size })
    }

    pub(super) fn cut<T>(self, items: Vec<T>) -> (Vec<T>, Pagination) {
        let Self { number: page, size: page_size } = self;
        let total_items = items.len() as u64;
        let total_pages = total_items.div_ceil(page_size);
        let n_before = usize::try_from((page - 1).saturating_mul(page_size)).unwrap_or(usize::MAX);
        let items = items.into_iter().skip(n_before).take(page_size as usize).collect();
        (items, Pagination { page, page_size, total_items, total_pages, has_next_page: page < total_pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_cut_and_counted() {
        let page = |number, size| {
            let (items, counted) = Page::new(Some(number), Some(size)).unwrap().cut(vec![3, 2, 1]);
            (items, counted.total_pages, counted.has_next_page)
        };
        assert_eq!(page(1, 2), (vec![3, 2], 2, true));
        assert_eq!(page(2, 2), (vec![1], 2, false));
        assert_eq!(page(9, 2), (vec![], 2, false));
        assert_eq!(page(u64::MAX, 200), (vec![], 1, false));
        assert_eq!(page(1, 3), (vec![3, 2, 1], 1, false));
        assert!(Page::new(Some(0), None).is_err() && Page::new(None, Some(201)).is_err());
    }
}
