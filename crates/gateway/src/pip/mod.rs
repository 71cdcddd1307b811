//! Python projects: the "simple" index (PEP 503, 691) and its files (with PEP 658 metadata beside them).

mod html;
mod json;
mod page;

use bytes::Bytes;
use hyper::{
    HeaderMap, Response,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, VARY},
};
use std::sync::Arc;

use self::page::Project;
use crate::{
    Inner,
    clients::Client,
    config::Manager,
    error::Refusal,
    files::{self, Change},
    pages::{self, Content, Fetched, Form},
    reply::{self, Body, Part},
    upstream::Ask,
};

const ACCEPTED: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

const JSON: &str = "application/vnd.pypi.simple.v1+json";
const HTML: &str = "application/vnd.pypi.simple.v1+html";
const OLD_HTML: &str = "text/html";

pub(crate) async fn project(
    inner: &Inner,
    client: &Arc<Client>,
    project: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let content_type = chosen(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*"));
    let form = if content_type == JSON { "json" } else { "html" };
    let page = inner.pages.get(client, wanted(inner, project)).await?;
    let form = page
        .form(form)
        .ok_or_else(|| Refusal::not_found(format!("The page of {project} cannot be read.")))?;
    let part =
        Part { file: Arc::new(form.file), from: 0, to: form.size, cuts: Vec::new(), inserted: Bytes::new() };
    let length = part.length();
    let mut response = Response::new(reply::pieces(part.stream(), Arc::clone(&inner.counters)));
    reply::set_length(&mut response, length);
    reply::set(&mut response, CONTENT_TYPE, content_type);
    reply::set(&mut response, VARY, "Accept");
    reply::set(&mut response, ETAG, &format!("\"{}\"", form.sha256));
    reply::set(&mut response, CACHE_CONTROL, "no-store");
    Ok(response)
}

pub(crate) async fn file(
    inner: &Inner,
    client: &Arc<Client>,
    project: &str,
    file: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let page = inner.pages.get_any_age(client, wanted(inner, project)).await?;
    let mut found = inner.pages.file(page, file).await;
    if matches!(found, Ok(None)) {
        // Perhaps it is newer than our page.
        let page = inner.pages.get(client, wanted(inner, project)).await?;
        found = inner.pages.file(page, file).await;
    }
    let named = found
        .map_err(|error| Refusal::disk(&inner.counters, &error))?
        .ok_or_else(|| Refusal::not_found(format!("The project {project} has no file {file:?}.")))?;
    let change = if named.stated.is_some() { Change::Never } else { Change::Sometimes };
    let wanted = files::FileRequest {
        what: format!("the file {file}"),
        ask: ask(named.url, "*/*", false),
        stated: named.stated,
        change,
        content_type: "application/octet-stream",
    };
    inner.files.get(client, wanted, headers).await
}

fn wanted(inner: &Inner, project: &str) -> pages::PageRequest {
    let mut url = inner.pip_index.clone();
    // The name is normalised: letters, digits and single dashes.
    url.set_path(&format!("{}{project}/", url.path()));
    let name = project.to_owned();
    pages::PageRequest {
        key: format!("pip {} {project}", inner.pip_index),
        what: format!("the project {project}"),
        ask: ask(url, ACCEPTED, true),
        read: Box::new(move |fetched| read(&name, fetched)),
    }
}

fn ask(url: url::Url, accept: &'static str, may_compress: bool) -> Ask {
    Ask { url, accept, may_compress, manager: Manager::Pip, etag: None, last_modified: None }
}

fn read(name: &str, fetched: &Fetched) -> Result<Content, String> {
    let is_json = fetched.content_type.contains("json")
        || (!fetched.content_type.contains("html") && fetched.body.trim_ascii_start().starts_with(b"{"));
    let project = if is_json {
        json::read(&fetched.body, &fetched.url)?
    } else {
        let text = String::from_utf8_lossy(&fetched.body);
        html::read(&text, &fetched.url)
    };
    Ok(content(name, &project))
}

fn content(name: &str, project: &Project) -> Content {
    Content {
        forms: vec![
            Form { name: "html", body: html::write(name, project).into_bytes(), cuts: Vec::new() },
            Form { name: "json", body: json::write(name, project), cuts: Vec::new() },
        ],
        files: project.table(),
    }
}

/// The type that the client likes best. HTML where it says nothing, as PEP 691 has it.
fn chosen(accept: &str) -> &'static str {
    let mut best = (0, OLD_HTML);
    for offer in accept.split(',') {
        let mut words = offer.split(';').map(str::trim);
        let content_type = match words.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            JSON | "application/vnd.pypi.simple.latest+json" => JSON,
            HTML | "application/vnd.pypi.simple.latest+html" => HTML,
            OLD_HTML | "text/*" | "*/*" => OLD_HTML,
            _ => continue,
        };
        let quality =
            words.find_map(|word| word.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok());
        let quality = thousandths(quality.unwrap_or(0.0));
        if quality > best.0 {
            best = (quality, content_type);
        }
    }
    best.1
}

fn thousandths(quality: f32) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1000 before")]
    let whole = (quality.clamp(0.0, 1.0) * 1000.0) as u16;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_the_form_they_like() {
        for (accept, expected) in [
            ("*/*", OLD_HTML),
            ("", OLD_HTML),
            ("text/html", OLD_HTML),
            // pip before 22.2, pip since, uv.
            ("text/html; q=1", OLD_HTML),
            (
                "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01",
                JSON,
            ),
            (
                "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01",
                JSON,
            ),
            ("application/vnd.pypi.simple.v1+html", HTML),
            ("application/vnd.pypi.simple.v1+json;q=0.1, text/html", OLD_HTML),
            ("application/vnd.pypi.simple.latest+json;q=NaN, image/png", OLD_HTML),
        ] {
            assert_eq!(chosen(accept), expected, "{accept}");
        }
    }
}
