//! Reading a packument, and making its links ours.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    digest::{Algorithm, Stated},
    pages::{Content, Fetched, Form},
    table::{Named, Table},
};

pub(super) const FORM: &str = "packument";

/// In the name of a tarball.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An object of which only the names are read. Packuments are large, and read as trees they are many times as large.
type Object<'a> = BTreeMap<String, &'a RawValue>;

/// The facts that we need of a version's tarball.
#[derive(Deserialize)]
struct Dist {
    tarball: String,
    #[serde(default)]
    integrity: Option<String>,
    #[serde(default)]
    shasum: Option<String>,
}

pub(super) fn read(package: &str, fetched: &Fetched) -> Result<Content, String> {
    let packument: Object<'_> =
        serde_json::from_slice(&fetched.body).map_err(|error| format!("not a packument: {error}"))?;
    let versions = packument.get("versions").ok_or_else(|| "a packument without versions".to_owned())?;
    let versions: Object<'_> =
        serde_json::from_str(versions.get()).map_err(|error| format!("a packument's versions: {error}"))?;
    let mut out = Writer::new(fetched.body.len());
    let mut files = Table::new();
    out.object(&packument, "versions", |out| {
        let mut is_first = true;
        out.text("{");
        for (version, manifest) in &versions {
            // A version that cannot be fetched would fail in the middle of an install, so it is left out.
            let Some((manifest, dist, named)) = parts(version, manifest, fetched) else { continue };
            let file = format!("{}-{version}.tgz", package.rsplit('/').next().unwrap_or(package));
            let link = format!("{package}/-/{}", utf8_percent_encode(&file, IN_PATH));
            out.key(&mut is_first, version);
            out.object(&manifest, "dist", |out| out.object(&dist, "tarball", |out| out.link(&link)));
            files.insert(file, named);
        }
        out.text("}");
    });
    Ok(Content { forms: vec![Form { name: FORM, body: out.body, cuts: out.cuts }], files })
}

/// A version's manifest, what that says of its tarball, and where the tarball is.
fn parts<'a>(
    version: &str,
    manifest: &'a RawValue,
    fetched: &Fetched,
) -> Option<(Object<'a>, Object<'a>, Named)> {
    let manifest: Object<'a> = serde_json::from_str(manifest.get()).ok()?;
    let dist = manifest.get("dist")?.get();
    let known: Dist = serde_json::from_str(dist).ok()?;
    let mut url = fetched.url.join(&known.tarball).ok()?;
    url.set_fragment(None);
    let stated = known
        .integrity
        .and_then(|text| Stated::from_integrity(&text))
        .or_else(|| Stated::from_hex(Algorithm::Sha1, &known.shasum?));
    let dist = serde_json::from_str(dist).ok()?;
    is_version(version).then_some((manifest, dist, Named { url, stated }))
}

/// One part of a file's name.
fn is_version(version: &str) -> bool {
    !version.is_empty()
        && version.len() < 128
        && !version.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

/// JSON with places in it where our own address will be put.
struct Writer {
    body: Vec<u8>,
    cuts: Vec<u64>,
}

impl Writer {
    fn new(capacity: usize) -> Self {
        Self { body: Vec::with_capacity(capacity), cuts: Vec::new() }
    }

    fn text(&mut self, text: &str) {
        self.body.extend_from_slice(text.as_bytes());
    }

    fn key(&mut self, is_first: &mut bool, name: &str) {
        if !std::mem::take(is_first) {
            self.text(",");
        }
        self.text(&serde_json::Value::from(name).to_string());
        self.text(":");
    }

    /// The object as it is, but for the value of one name.
    fn object(&mut self, object: &Object<'_>, changed: &str, change: impl FnOnce(&mut Self)) {
        let mut change = Some(change);
        let mut is_first = true;
        self.text("{");
        for (name, value) in object {
            self.key(&mut is_first, name);
            match change.take_if(|_| name == changed) {
                Some(change) => change(self),
                None => self.text(value.get()),
            }
        }
        self.text("}");
    }

    /// `link` holds nothing that a string in JSON could not.
    fn link(&mut self, link: &str) {
        self.text("\"");
        self.cuts.push(self.body.len() as u64);
        self.text(link);
        self.text("\"");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        for body in [json!([]), json!({"versions": []}), json!({"error": "no"}), json!(1), json!(null)] {
            assert!(read("thing", &fetched(&body)).unwrap_err().contains("packument"), "{body}");
        }
        assert!(read("thing", &fetched(&json!({"versions": {"1": 5, "2": null}}))).unwrap().files.is_empty());
    }
}
