//! The files that a page names, and how one of them is found.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    io::{self, BufReader, Read},
};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use url::Url;

use crate::digest::Stated;

/// How much of a table is read at a time, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// By the names under which we serve the files.
pub(crate) type Table = BTreeMap<String, Named>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) url: Url,
    pub(crate) stated: Option<Stated>,
}

/// The file of that name in a table that was written as JSON. Reads it in pieces: those of large projects have
/// megabytes.
pub(crate) fn find(table: impl Read, name: &str) -> io::Result<Option<Named>> {
    let pieces = BufReader::with_capacity(PIECE_BYTES, table);
    Ok(Lookup { name }.deserialize(&mut serde_json::Deserializer::from_reader(pieces))?)
}

/// Finds one file in a [`Table`] without building the table.
struct Lookup<'a> {
    name: &'a str,
}

impl<'de> DeserializeSeed<'de> for Lookup<'_> {
    type Value = Option<Named>;

    fn deserialize<D: Deserializer<'de>>(self, table: D) -> Result<Self::Value, D::Error> {
        table.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Lookup<'_> {
    type Value = Option<Named>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            if name == self.name {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_found_among_many() {
        let named = |url: &str| Named { url: url.parse().unwrap(), stated: None };
        let table: Table = [("a \"b\"", "http://a.example/"), ("c", "http://c.example/")]
            .map(|(name, url)| (name.to_owned(), named(url)))
            .into();
        let text = serde_json::to_vec(&table).unwrap();
        let look = |name| find(text.as_slice(), name).unwrap();
        assert_eq!(look("a \"b\""), Some(named("http://a.example/")));
        assert_eq!(look("c"), Some(named("http://c.example/")));
        assert_eq!(look("d"), None);
    }
}
