//! The manifest as bytes: canonical JSON, whose SHA-256 identifies a snapshot.

use sandbox::{Error, ErrorKind, Result, SnapshotManifest};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Longest manifest that is read. Only labels and the environment can be long in one.
pub(crate) const MAX_MANIFEST_BYTES: usize = 4 * 1024 * 1024;

/// Keys sorted, no spaces.
pub(crate) fn canonical(manifest: &SnapshotManifest) -> Result<String> {
    let value = serde_json::to_value(manifest).map_err(|source| {
        Error::new(ErrorKind::Internal, "could not write the snapshot's manifest").with_source(source)
    })?;
    Ok(write(&value))
}

/// Reads a manifest that may come from a stranger: it must be canonical, or one snapshot would have many digests.
pub(crate) fn parse(bytes: &[u8]) -> Result<SnapshotManifest> {
    let refuse = |why: String| Error::invalid(format!("cannot read the snapshot's manifest: {why}"));
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(refuse(format!("it has {} bytes; the limit is {MAX_MANIFEST_BYTES}", bytes.len())));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
    if write(&value).as_bytes() != bytes {
        return Err(refuse("it is not in canonical form".to_owned()));
    }
    let manifest: SnapshotManifest =
        serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
    manifest.check()?;
    Ok(manifest)
}

pub(crate) fn digest_of(bytes: &[u8]) -> String {
    digest_text(&Sha256::digest(bytes))
}

pub(crate) fn digest_text(hash: &[u8]) -> String {
    use std::fmt::Write;
    hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or(());
        text
    })
}

/// Sorted here and not by the map: whether that keeps its own order depends on other users of the JSON library.
fn write(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(write).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let member =
                |(key, value): (&String, &Value)| format!("{}:{}", Value::String(key.clone()), write(value));
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sandbox::{ImageRef, SNAPSHOT_FORMAT, SnapshotSource, TreeFacts};

    use super::*;

    fn manifest() -> SnapshotManifest {
        SnapshotManifest {
            format: SNAPSHOT_FORMAT,
            created_at: Timestamp::UNIX_EPOCH,
            image: ImageRef::host(),
            image_digest: None,
            host_path: None,
            parent: None,
            tree: TreeFacts { digest: digest_of(b""), bytes: 0, n_entries: 0 },
            labels: [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "\"2\"\n".replace('\n', ""))].into(),
            config: Default::default(),
            source: SnapshotSource {
                sandbox: "web".parse().unwrap(),
                limits: Default::default(),
                network: Default::default(),
            },
        }
    }

    #[test]
    fn keys_are_sorted_and_nothing_is_spaced() {
        let text = canonical(&manifest()).unwrap();
        assert!(text.starts_with(r#"{"config":{"#), "{text}");
        assert!(text.contains(r#""labels":{"a":"\"2\"","b":"1"}"#), "{text}");
        assert_eq!(parse(text.as_bytes()).unwrap(), manifest());
    }

    #[test]
    fn the_same_words_written_otherwise_are_refused() {
        let text = canonical(&manifest()).unwrap();
        for other in [
            text.replace(":{", ": {"),
            format!("{text}\n"),
            format!(r#"{{"aaa":1,{}"#, &text[1..]).replace(r#"{"aaa":1,"#, r#"{"zzz":1,"#),
            text.replace(r#""format":1"#, r#""format":2"#),
            text[..text.len() - 1].to_owned(),
            "{}".to_owned(),
            "[".repeat(10_000),
        ] {
            assert!(parse(other.as_bytes()).is_err(), "{other}");
        }
    }
}
