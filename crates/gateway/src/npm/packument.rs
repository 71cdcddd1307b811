//! Reading a packument, and making its links ours.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{
    digest::{Algorithm, Stated},
    pages::{Content, Fetched, Form, Named, Table},
};

pub(super) const FORM: &str = "packument";

/// In the name of a tarball.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes of the mark that stands for our own address until it is known.
const MARK_BYTES: usize = 16;

pub(super) fn read(package: &str, fetched: &Fetched) -> Result<Content, String> {
    let mut packument: Value =
        serde_json::from_slice(&fetched.body).map_err(|error| format!("not a packument: {error}"))?;
    let versions = packument
        .get_mut("versions")
        .and_then(Value::as_object_mut)
        .ok_or_else(|| "a packument without versions".to_owned())?;
    let mark = mark()?;
    let base_name = package.rsplit('/').next().unwrap_or(package);
    let mut files = Table::new();
    let mut unusable = Vec::new();
    for (version, manifest) in versions.iter_mut() {
        let file = format!("{base_name}-{version}.tgz");
        match named(manifest, fetched) {
            Some(named) if is_version(version) => {
                let link = format!("{mark}{package}/-/{}", utf8_percent_encode(&file, IN_PATH));
                manifest["dist"]["tarball"] = Value::String(link);
                files.insert(file, named);
            }
            // A version that cannot be fetched would fail in the middle of an install.
            _ => unusable.push(version.clone()),
        }
    }
    for version in unusable {
        versions.remove(&version);
    }
    let marked = serde_json::to_string(&packument).map_err(|error| error.to_string())?;
    let (body, cuts) = without_marks(&marked, &mark);
    Ok(Content { forms: vec![Form { name: FORM, body, cuts }], files })
}

fn named(manifest: &Value, fetched: &Fetched) -> Option<Named> {
    let dist = manifest.get("dist")?.as_object()?;
    let mut url = fetched.url.join(dist.get("tarball")?.as_str()?).ok()?;
    url.set_fragment(None);
    let text = |name: &str| dist.get(name).and_then(Value::as_str);
    let stated = text("integrity")
        .and_then(Stated::from_integrity)
        .or_else(|| Stated::from_hex(Algorithm::Sha1, text("shasum")?));
    Some(Named { url, stated })
}

/// One part of a file's name.
fn is_version(version: &str) -> bool {
    !version.is_empty()
        && version.len() < 128
        && !version.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

/// A text that nobody could have put into the packument: it was not known when that was written.
fn mark() -> Result<String, String> {
    let mut random = [0; MARK_BYTES];
    getrandom::fill(&mut random).map_err(|error| error.to_string())?;
    Ok(crate::digest::sha256_hex(&random))
}

/// The text with every mark taken out, and where they stood.
fn without_marks(marked: &str, mark: &str) -> (Vec<u8>, Vec<u64>) {
    let mut body = Vec::with_capacity(marked.len());
    let mut cuts = Vec::new();
    for (number, part) in marked.split(mark).enumerate() {
        if number > 0 {
            cuts.push(body.len() as u64);
        }
        body.extend_from_slice(part.as_bytes());
    }
    (body, cuts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fetched(packument: &Value) -> Fetched {
        Fetched {
            body: packument.to_string().into_bytes(),
            content_type: String::new(),
            url: "https://registry.example/@scope%2fthing".parse().unwrap(),
        }
    }

    #[test]
    fn links_become_ours() {
        let sha1 = "a".repeat(40);
        let theirs = json!({
            "name": "@scope/thing",
            "dist-tags": {"latest": "1.0.0"},
            "versions": {
                "1.0.0": {"name": "@scope/thing", "dist": {"tarball": "https://files.example/x?y=1", "shasum": sha1}},
                "2.0.0+b": {"dist": {"tarball": "/thing-2.tgz", "integrity": "sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0="}},
                "3.0.0": {"dist": {}},
                "../4": {"dist": {"tarball": "/thing-4.tgz"}},
            },
        });
        let content = read("@scope/thing", &fetched(&theirs)).unwrap();
        let form = &content.forms[0];
        let mut body = form.body.clone();
        for cut in form.cuts.iter().rev() {
            body.splice(*cut as usize..*cut as usize, *b"http://us/npm/");
        }
        let ours: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            ours["versions"],
            json!({
                "1.0.0": {"name": "@scope/thing",
                          "dist": {"tarball": "http://us/npm/@scope/thing/-/thing-1.0.0.tgz", "shasum": sha1}},
                "2.0.0+b": {"dist": {"tarball": "http://us/npm/@scope/thing/-/thing-2.0.0%2Bb.tgz",
                                     "integrity": "sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0="}},
            })
        );
        let first = &content.files["thing-1.0.0.tgz"];
        assert_eq!(first.url.as_str(), "https://files.example/x?y=1");
        assert_eq!(first.stated.as_ref().unwrap().hex, sha1);
        assert_eq!(content.files["thing-2.0.0+b.tgz"].url.as_str(), "https://registry.example/thing-2.tgz");
        assert_eq!(content.files.len(), 2);
    }

    #[test]
    fn what_is_no_packument_is_said() {
        for body in [json!([]), json!({"versions": []}), json!({"error": "not found"}), json!(1)] {
            assert!(read("thing", &fetched(&body)).unwrap_err().contains("packument"), "{body}");
        }
        assert!(read("thing", &fetched(&json!({"versions": {"1": 5, "2": null}}))).unwrap().files.is_empty());
    }
}
