//! Parts of a file, and whether a client has the same file already (RFC 9110).

use axum::http::{
    HeaderMap, HeaderValue,
    header::{IF_NONE_MATCH, IF_RANGE, RANGE},
};

/// Tells one state of a file from another by its size and time. Weak: two changes within a millisecond that leave the
/// size are one to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) size: u64,
    pub(crate) modified_at_ms: i64,
}

impl Version {
    fn tag(self) -> String {
        format!("\"{:x}-{:x}\"", self.size, self.modified_at_ms)
    }

    pub(crate) fn header(self) -> Option<HeaderValue> {
        HeaderValue::from_str(&format!("W/{}", self.tag())).ok()
    }

    fn is(self, told: &str) -> bool {
        let told = told.trim();
        told.strip_prefix("W/").unwrap_or(told) == self.tag()
    }

    /// Whether the client has this one.
    pub(crate) fn is_had(self, headers: &HeaderMap) -> bool {
        let lists = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        lists.flat_map(|list| list.split(',')).any(|told| told.trim() == "*" || self.is(told))
    }
}

/// The part of the file that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Piece {
        start: u64,
        length: u64,
    },
    /// The part is beyond the file's end.
    Nothing,
}

impl Part {
    /// One range. Several, and what cannot be read, are ignored, as the standard allows; a range of another version
    /// too.
    pub(crate) fn asked(headers: &HeaderMap, version: Version) -> Self {
        let mut ranges = headers.get_all(RANGE).iter();
        let Some(text) = ranges.next().and_then(|value| value.to_str().ok()) else { return Self::Whole };
        let is_same = match headers.get(IF_RANGE) {
            // Our own tag is weak, and the only one there is: a client that brings it back means the file it has.
            Some(told) => told.to_str().is_ok_and(|told| version.is(told)),
            None => true,
        };
        if ranges.next().is_some() || !is_same {
            return Self::Whole;
        }
        Self::parse(text, version.size).unwrap_or(Self::Whole)
    }

    pub(crate) fn parse(text: &str, size: u64) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (start, end) = match (first.trim(), last.trim()) {
            ("", suffix) => (size.saturating_sub(number(suffix)?).min(size), size),
            (first, "") => (number(first)?, size),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return None;
                }
                (first, size.min(last.saturating_add(1)))
            }
        };
        Some(if start >= end { Self::Nothing } else { Self::Piece { start, length: end - start } })
    }
}

/// Digits only; a number beyond all files is as good as any.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: Version = Version { size: 100, modified_at_ms: 0x1234 };

    fn asked(pairs: &[(&'static str, &str)]) -> Part {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        Part::asked(&headers, VERSION)
    }

    #[test]
    fn one_range_is_honoured() {
        let piece = |start, length| Part::Piece { start, length };
        for (range, part) in [
            ("bytes=0-0", piece(0, 1)),
            ("bytes=10-19", piece(10, 10)),
            ("bytes=90-", piece(90, 10)),
            ("bytes=-10", piece(90, 10)),
            ("bytes=-1000", piece(0, 100)),
            ("Bytes= 0-9999999999999999999999", piece(0, 100)),
            ("bytes=100-", Part::Nothing),
            ("bytes=99999999999999999999999-", Part::Nothing),
            ("bytes=-0", Part::Nothing),
            ("bytes=5-2", Part::Whole),
            ("bytes=0-1,5-6", Part::Whole),
            ("bytes=x-1", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes", Part::Whole),
        ] {
            assert_eq!(asked(&[("range", range)]), part, "{range}");
        }
        assert_eq!(asked(&[]), Part::Whole);
        assert_eq!(asked(&[("range", "bytes=0-1"), ("range", "bytes=2-3")]), Part::Whole);
        assert_eq!(Part::parse("bytes=0-", 0), Some(Part::Nothing));
    }

    #[test]
    fn a_range_of_another_version_is_the_whole() {
        let with = |told: &str| asked(&[("range", "bytes=0-1"), ("if-range", told)]);
        assert_eq!(with("W/\"64-1234\""), Part::Piece { start: 0, length: 2 });
        assert_eq!(with("W/\"64-1235\""), Part::Whole);
        assert_eq!(with("Wed, 21 Oct 2015 07:28:00 GMT"), Part::Whole);
    }

    #[test]
    fn who_has_it_is_known() {
        let had = |told: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, told.parse().unwrap());
            VERSION.is_had(&headers)
        };
        assert!(had("W/\"64-1234\"") && had("\"x\", \"64-1234\"") && had("*"));
        assert!(!had("W/\"64-1\"") && !VERSION.is_had(&HeaderMap::new()));
    }
}
