//! Tiny packages, made on the spot.

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};

use crate::index::Reply;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) struct Wheel {
    pub(crate) project: &'static str,
    pub(crate) filename: String,
    pub(crate) metadata: String,
    pub(crate) bytes: Vec<u8>,
}

impl Wheel {
    /// A module of the project's name that says its version.
    pub(crate) fn new(project: &'static str, version: &str, requires: &[&str]) -> Self {
        let mut metadata = format!("Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n");
        for one in requires {
            metadata.push_str(&format!("Requires-Dist: {one}\n"));
        }
        let info = format!("{project}-{version}.dist-info");
        let module = format!("{project}.py");
        let bytes = zip(&[
            (&module, &format!("VERSION = {version:?}\n")),
            (&format!("{info}/METADATA"), &metadata),
            (
                &format!("{info}/WHEEL"),
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            ),
            (
                &format!("{info}/RECORD"),
                &format!("{module},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"),
            ),
        ]);
        Self { project, filename: format!("{project}-{version}-py3-none-any.whl"), metadata, bytes }
    }

    pub(crate) fn sha256(&self) -> String {
        sha256(&self.bytes)
    }
}

/// How an index tells of its wheels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// As the public index does, with hashes and metadata beside the files.
    Json,
    Html,
    /// A web server's listing of a directory: names and nothing else.
    Listing,
}

/// The pages and files of an index with these wheels, one for each project.
pub(crate) fn pip_pages(style: Style, wheels: &[Wheel]) -> Vec<(String, Reply)> {
    let mut pages = Vec::new();
    for wheel in wheels {
        let Wheel { project, filename, metadata, bytes } = wheel;
        let (place, page) = match style {
            Style::Json => ("files", json_page(wheel)),
            Style::Html => ("files", html_page(wheel)),
            Style::Listing => {
                let page =
                    format!("<ul><li><a href=\"../\">../</a><li><a href=\"{filename}\">{filename}</a></ul>");
                (&*format!("simple/{project}"), Reply::html(page))
            }
        };
        pages.push((format!("/simple/{project}/"), page));
        pages.push((format!("/{place}/{filename}"), Reply::file(bytes.clone())));
        pages.push((format!("/{place}/{filename}.metadata"), Reply::file(metadata.as_bytes())));
    }
    pages
}

fn json_page(wheel: &Wheel) -> Reply {
    let page = json!({
        "meta": {"api-version": "1.0"},
        "name": wheel.project,
        "files": [{
            "filename": wheel.filename,
            "url": format!("../../files/{}", wheel.filename),
            "hashes": {"sha256": wheel.sha256()},
            "requires-python": ">=3.6",
            "core-metadata": {"sha256": sha256(wheel.metadata.as_bytes())},
        }],
    });
    Reply::new("application/vnd.pypi.simple.v1+json", page.to_string())
}

fn html_page(wheel: &Wheel) -> Reply {
    let filename = &wheel.filename;
    let (sha256, metadata) = (wheel.sha256(), sha256(wheel.metadata.as_bytes()));
    Reply::html(format!(
        "<!DOCTYPE html><a href='/files/{filename}#sha256={sha256}' data-requires-python='&gt;=3.6'\
         data-dist-info-metadata='sha256={metadata}'>{filename}</a>"
    ))
}

/// A zip archive with nothing compressed.
fn zip(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, text) in entries {
        let offset = out.len() as u32;
        let mut common = Vec::new();
        for field in [20_u16, 0, 0, 0, 0x21] {
            common.extend(field.to_le_bytes());
        }
        for field in [crc32fast::hash(text.as_bytes()), text.len() as u32, text.len() as u32] {
            common.extend(field.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(text.as_bytes());
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        for field in [0_u16, 0, 0] {
            directory.extend(field.to_le_bytes());
        }
        directory.extend((0o100_644_u32 << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        out.extend((entries.len() as u16).to_le_bytes());
    }
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend(0_u16.to_le_bytes());
    out
}

pub(crate) struct NpmPackage {
    pub(crate) name: &'static str,
    pub(crate) tarball: Vec<u8>,
    dependencies: Value,
}

impl NpmPackage {
    pub(crate) fn new(name: &'static str, dependencies: Value) -> Self {
        let manifest =
            json!({"name": name, "version": "1.0.0", "main": "index.js", "dependencies": dependencies});
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (path, text) in [
            ("package/package.json", manifest.to_string()),
            ("package/index.js", format!("module.exports = {name:?};\n")),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        let mut encoder = archive.into_inner().unwrap();
        encoder.flush().unwrap();
        Self { name, tarball: encoder.finish().unwrap(), dependencies }
    }

    /// The packument, at the path under which npm asks for it, and the tarball.
    pub(crate) fn pages(&self) -> [(String, Reply); 2] {
        let file = format!("/tarballs/{}.tgz", sha256(self.name.as_bytes()));
        let packument = json!({
            "name": self.name,
            "dist-tags": {"latest": "1.0.0"},
            "modified": "2020-01-01T00:00:00.000Z",
            "versions": {"1.0.0": {
                "name": self.name,
                "version": "1.0.0",
                "dependencies": self.dependencies,
                "dist": {
                    "tarball": file,
                    "integrity": format!("sha512-{}", STANDARD.encode(Sha512::digest(&self.tarball))),
                },
            }},
        });
        [
            (
                format!("/npm/{}", self.name.replace('/', "%2F")),
                Reply::new("application/vnd.npm.install-v1+json", packument.to_string()),
            ),
            (file, Reply::file(self.tarball.clone())),
        ]
    }
}
