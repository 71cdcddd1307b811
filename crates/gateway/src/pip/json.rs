//! PEP 691: the page as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::page::{Metadata, PipFile, Project, Yanked};

#[derive(Deserialize)]
struct PageIn {
    #[serde(default)]
    meta: Meta,
    files: Vec<FileIn>,
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default, rename = "project-status")]
    status: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default, rename = "api-version")]
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FileIn {
    filename: String,
    url: String,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
    #[serde(default)]
    requires_python: Option<String>,
    #[serde(default)]
    yanked: Option<Yanked>,
    // One thing with three names: PEP 714, PEP 658, and what the public index wrote by mistake.
    #[serde(default)]
    core_metadata: Option<Metadata>,
    #[serde(default)]
    dist_info_metadata: Option<Metadata>,
    #[serde(default)]
    data_dist_info_metadata: Option<Metadata>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    upload_time: Option<String>,
}

#[derive(Serialize)]
struct PageOut<'a> {
    meta: BTreeMap<&'static str, &'static str>,
    name: &'a str,
    files: Vec<FileOut<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    versions: &'a [String],
    #[serde(rename = "project-status", skip_serializing_if = "Option::is_none")]
    status: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct FileOut<'a> {
    filename: &'a str,
    url: String,
    hashes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_python: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    yanked: Option<&'a Yanked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_metadata: Option<&'a Metadata>,
    // pip 23.0 fails on PEP 658's own name, so the public index writes this one, and so do we.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dist_info_metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload_time: Option<&'a str>,
}

pub(super) fn read(body: &[u8], base: &Url) -> Result<Project, String> {
    let page: PageIn =
        serde_json::from_slice(body).map_err(|error| format!("not a page in JSON: {error}"))?;
    if page.meta.version.as_deref().is_some_and(|version| !version.starts_with("1.")) {
        return Err(format!("a page of API version {:.20}", page.meta.version.unwrap_or_default()));
    }
    let mut project = Project { files: Vec::new(), versions: page.versions, status: page.status };
    for file in page.files {
        // One broken link must not hide the others.
        let Ok(mut url) = base.join(&file.url) else { continue };
        url.set_fragment(None);
        let metadata = file.core_metadata.or(file.dist_info_metadata).or(file.data_dist_info_metadata);
        project.push(PipFile {
            filename: file.filename,
            url,
            hashes: file.hashes,
            requires_python: file.requires_python,
            yanked: file.yanked.filter(|yanked| *yanked != Yanked::Is(false)),
            metadata: metadata.filter(|metadata| *metadata != Metadata::Is(false)),
            size: file.size,
            upload_time: file.upload_time,
        });
    }
    Ok(project)
}

pub(super) fn write(name: &str, project: &Project) -> Vec<u8> {
    // Version 1.1 promises sizes and versions; where the index gave none, neither can we.
    let is_newer = !project.versions.is_empty() && project.files.iter().all(|file| file.size.is_some());
    let page = PageOut {
        meta: [("api-version", if is_newer { "1.1" } else { "1.0" })].into(),
        name,
        files: project
            .files
            .iter()
            .map(|file| FileOut {
                filename: &file.filename,
                url: file.path(name),
                hashes: &file.hashes,
                requires_python: file.requires_python.as_deref(),
                yanked: file.yanked.as_ref(),
                core_metadata: file.metadata.as_ref(),
                data_dist_info_metadata: file.metadata.as_ref(),
                size: file.size,
                upload_time: file.upload_time.as_deref(),
            })
            .collect(),
        versions: &project.versions,
        status: project.status.as_ref(),
    };
    // Strings and numbers only: this cannot fail.
    serde_json::to_vec(&page).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_of_the_public_index_becomes_ours() {
        let page = json!({
            "meta": {"api-version": "1.4", "_last-serial": 1},
            "name": "Six",
            "versions": ["1.0"],
            "files": [
                {"filename": "six-1.0.tar.gz", "url": "https://files.example/a/six-1.0.tar.gz", "size": 7,
                 "hashes": {"sha256": "aa"}, "requires-python": ">=3", "yanked": false, "upload-time": "2020-01-01T00:00:00Z",
                 "core-metadata": false, "provenance": null},
                {"filename": "six-1.0+x-py3-none-any.whl", "url": "../../p/six.whl", "size": 8, "hashes": {},
                 "yanked": "broken", "data-dist-info-metadata": {"sha256": "bb"}},
                {"filename": "readme.html", "url": "x"},
                {"filename": "../../etc/passwd.whl", "url": "x"},
            ],
        });
        let project =
            read(page.to_string().as_bytes(), &"https://index.example/simple/six/".parse().unwrap()).unwrap();
        assert_eq!(project.files.len(), 2);
        assert_eq!(project.files[1].url.as_str(), "https://index.example/p/six.whl");

        let ours: Value = serde_json::from_slice(&write("six", &project)).unwrap();
        assert_eq!(
            ours,
            json!({
                "meta": {"api-version": "1.1"},
                "name": "six",
                "versions": ["1.0"],
                "files": [
                    {"filename": "six-1.0.tar.gz", "url": "/pip/files/six/six-1.0.tar.gz", "size": 7,
                     "hashes": {"sha256": "aa"}, "requires-python": ">=3", "upload-time": "2020-01-01T00:00:00Z"},
                    {"filename": "six-1.0+x-py3-none-any.whl", "url": "/pip/files/six/six-1.0%2Bx-py3-none-any.whl",
                     "size": 8, "hashes": {}, "yanked": "broken",
                     "core-metadata": {"sha256": "bb"}, "data-dist-info-metadata": {"sha256": "bb"}},
                ],
            })
        );
        let table = project.table();
        let names: Vec<_> = table.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["six-1.0+x-py3-none-any.whl", "six-1.0+x-py3-none-any.whl.metadata", "six-1.0.tar.gz"]
        );
        assert_eq!(
            table["six-1.0+x-py3-none-any.whl.metadata"].url.as_str(),
            "https://index.example/p/six.whl.metadata"
        );
    }

    #[test]
    fn what_is_no_page_is_said() {
        let base = "https://index.example/simple/six/".parse().unwrap();
        for (body, said) in [
            ("[]", "not a page in JSON"),
            ("{\"files\": 3}", "not a page in JSON"),
            ("{\"meta\": {\"api-version\": \"2.0\"}, \"files\": []}", "API version 2.0"),
        ] {
            let error = read(body.as_bytes(), &base).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
