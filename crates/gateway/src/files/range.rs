//! The headers with which a client asks for less than everything.

use hyper::{
    HeaderMap,
    header::{CACHE_CONTROL, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, PRAGMA, RANGE},
};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Share {
    Whole,
    /// From the first offset up to, and excluding, the second.
    Part(u64, u64),
    Nothing,
}

/// Which part of a file of `size` bytes the client asks for. A range that is not understood means the whole file, as
/// HTTP allows.
pub(super) fn share(headers: &HeaderMap, size: u64, etag: &str, last_modified: Option<&str>) -> Share {
    let Some(range) = text(headers, RANGE) else { return Share::Whole };
    if text(headers, IF_RANGE).is_some_and(|seen| seen != etag && Some(seen) != last_modified) {
        return Share::Whole;
    }
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Share::Whole;
    };
    let part = match (first.trim(), last.trim()) {
        ("", last) => last.parse().ok().map(|count: u64| (size.saturating_sub(count), size)),
        (first, "") => first.parse().ok().map(|first: u64| (first, size)),
        (first, last) => match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => Some((first, size.min(last.saturating_add(1)))),
            _ => None,
        },
    };
    match part {
        None => Share::Whole,
        Some((from, to)) if from < to => Share::Part(from, to),
        Some(_) => Share::Nothing,
    }
}

/// Whether the client has this very file.
pub(super) fn is_known(headers: &HeaderMap, etag: &str, last_modified: Option<&str>) -> bool {
    if let Some(seen) = text(headers, IF_NONE_MATCH) {
        return seen.split(',').any(|one| one.trim() == etag || one.trim() == "*");
    }
    // Only the exact time that we sent: any other belongs to another file.
    last_modified.is_some() && text(headers, IF_MODIFIED_SINCE) == last_modified
}

/// Whether the client distrusts caches (`apt -o Acquire::http::No-Cache=true`, a reload): we ask the index again.
pub(super) fn is_reload(headers: &HeaderMap) -> bool {
    let says =
        |name| text(headers, name).is_some_and(|value| value.to_ascii_lowercase().contains("no-cache"));
    says(CACHE_CONTROL) || says(PRAGMA)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str, condition: Option<&str>) -> Share {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, range.parse().unwrap());
        if let Some(condition) = condition {
            headers.insert(IF_RANGE, condition.parse().unwrap());
        }
        share(&headers, 100, "\"tag\"", Some("then"))
    }

    #[test]
    fn ranges() {
        assert_eq!(asked("bytes=0-0", None), Share::Part(0, 1));
        assert_eq!(asked("bytes=10-19", None), Share::Part(10, 20));
        assert_eq!(asked("bytes=90-", None), Share::Part(90, 100));
        assert_eq!(asked("bytes=90-500", None), Share::Part(90, 100));
        assert_eq!(asked("bytes=-10", None), Share::Part(90, 100));
        assert_eq!(asked("bytes=-500", None), Share::Part(0, 100));
        assert_eq!(asked("bytes=100-", None), Share::Nothing);
        assert_eq!(asked("bytes=-0", None), Share::Nothing);
        assert_eq!(asked("bytes=0-18446744073709551615", None), Share::Part(0, 100));
        for odd in
            ["bytes=5-4", "bytes=a-b", "bytes=0-1,5-6", "lines=0-1", "bytes=", "bytes=99999999999999999999-"]
        {
            assert_eq!(asked(odd, None), Share::Whole, "{odd}");
        }
        assert_eq!(asked("bytes=0-0", Some("\"tag\"")), Share::Part(0, 1));
        assert_eq!(asked("bytes=0-0", Some("then")), Share::Part(0, 1));
        assert_eq!(asked("bytes=0-0", Some("\"other\"")), Share::Whole);
    }
}
