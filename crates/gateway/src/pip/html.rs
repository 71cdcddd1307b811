//! PEP 503: the page as HTML, and whatever else has links in it, such as a web server's listing of a directory.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _};

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use percent_encoding::percent_decode_str;
use url::Url;

use super::page::{Metadata, PipFile, Project, Yanked};

pub(super) fn read(text: &str, page: &Url) -> Project {
    let mut base = page.clone();
    let mut project = Project::default();
    for tag in tags(text) {
        let Some(href) = value(&tag, "href") else { continue };
        match tag.name.as_slice() {
            b"base" => base = page.join(href.trim()).unwrap_or(base),
            b"a" => {
                if let Some(file) = file(&base, href.trim(), &tag) {
                    project.push(file);
                }
            }
            _ => {}
        }
    }
    project
}

fn file(base: &Url, href: &str, tag: &StartTag<()>) -> Option<PipFile> {
    let mut url = base.join(href).ok()?;
    let hashes = url.fragment().map(fragment_hashes).unwrap_or_default();
    url.set_fragment(None);
    let last = url.path_segments()?.next_back()?;
    let filename = percent_decode_str(last).decode_utf8().ok()?.into_owned();
    let metadata = value(tag, "data-core-metadata").or_else(|| value(tag, "data-dist-info-metadata"));
    Some(PipFile {
        filename,
        url,
        hashes,
        requires_python: value(tag, "data-requires-python").map(Cow::into_owned),
        yanked: value(tag, "data-yanked").map(|reason| match reason.as_ref() {
            "" => Yanked::Is(true),
            reason => Yanked::Because(reason.to_owned()),
        }),
        metadata: metadata.and_then(|value| match value.split_once('=') {
            Some((name, hex)) => Some(Metadata::Hashed([(name.to_owned(), hex.to_owned())].into())),
            None => (value != "false").then_some(Metadata::Is(true)),
        }),
        size: None,
        upload_time: None,
    })
}

/// `sha256=…`, perhaps among other words.
fn fragment_hashes(fragment: &str) -> BTreeMap<String, String> {
    fragment
        .split('&')
        .filter_map(|word| word.split_once('='))
        .filter(|(name, _)| matches!(*name, "md5" | "sha1" | "sha224" | "sha256" | "sha384" | "sha512"))
        .map(|(name, hex)| (name.to_owned(), hex.to_owned()))
        .collect()
}

pub(super) fn write(name: &str, project: &Project) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html>\n<head>\n<meta name=\"pypi:repository-version\" content=\"1.0\">\n\
         <title>Links for {name}</title>\n</head>\n<body>\n<h1>Links for {name}</h1>\n"
    );
    for file in &project.files {
        let fragment =
            strongest(&file.hashes).map(|(name, hex)| format!("#{name}={hex}")).unwrap_or_default();
        attribute(&mut out, "<a href", &format!("{}{fragment}", file.path(name)));
        if let Some(requires) = &file.requires_python {
            attribute(&mut out, " data-requires-python", requires);
        }
        match &file.yanked {
            Some(Yanked::Because(reason)) => attribute(&mut out, " data-yanked", reason),
            Some(Yanked::Is(true)) => attribute(&mut out, " data-yanked", ""),
            Some(Yanked::Is(false)) | None => {}
        }
        if let Some(metadata) = &file.metadata {
            let value = match metadata {
                Metadata::Hashed(hashes) => strongest(hashes).map(|(name, hex)| format!("{name}={hex}")),
                Metadata::Is(_) => None,
            };
            let value = value.as_deref().unwrap_or("true");
            attribute(&mut out, " data-core-metadata", value);
            attribute(&mut out, " data-dist-info-metadata", value);
        }
        // Writing to a string does not fail.
        let _ = writeln!(out, ">{}</a><br>", escaped(&file.filename));
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn attribute(out: &mut String, name: &str, value: &str) {
    let _ = write!(out, "{name}=\"{}\"", escaped(value));
}

/// One fits in a link; all installers know the first.
fn strongest(hashes: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    ["sha256", "sha512", "sha384", "sha224", "sha1", "md5"]
        .iter()
        .find_map(|name| hashes.get(*name).map(|hex| (*name, hex.as_str())))
        .filter(|(_, hex)| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            c => out.push(c),
        }
    }
    out
}

/// The opening tags of a page. What stands in comments and scripts is not HTML.
fn tags(text: &str) -> impl Iterator<Item = StartTag<()>> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(text, emitter).flatten().filter_map(|token| match token {
        Token::StartTag(tag) => Some(tag),
        _ => None,
    })
}

/// The value of an attribute, without entities.
fn value<'a>(tag: &'a StartTag<()>, name: &str) -> Option<Cow<'a, str>> {
    tag.attributes.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<PipFile> {
        read(text, &"https://index.example/simple/six/".parse().unwrap()).files
    }

    fn names(text: &str) -> Vec<String> {
        page(text).into_iter().map(|file| file.filename).collect()
    }

    #[test]
    fn links_of_a_simple_page() {
        let files = page(
            r#"<!DOCTYPE html><html><body><h1>Links for six</h1>
            <a href="https://files.example/six-1.0-py3-none-any.whl#sha256=abc" data-requires-python="&gt;=3.6, &lt;4"
               data-dist-info-metadata="sha256=def" data-core-metadata="sha256=def" >six-1.0-py3-none-any.whl</a><br/>
            <A HREF='../../packages/six-0.9.tar.gz#md5=123&amp;egg=six' data-yanked="bad &quot;one&quot;">x</A>
            <a data-yanked href=six-0.8.zip>x</a>
            </body></html>"#,
        );
        let expected = |filename: &str, url: &str| PipFile {
            filename: filename.to_owned(),
            url: url.parse().unwrap(),
            hashes: BTreeMap::new(),
            requires_python: None,
            yanked: None,
            metadata: None,
            size: None,
            upload_time: None,
        };
        let one = |name: &str, hex: &str| BTreeMap::from([(name.to_owned(), hex.to_owned())]);
        assert_eq!(
            files,
            [
                PipFile {
                    hashes: one("sha256", "abc"),
                    requires_python: Some(">=3.6, <4".to_owned()),
                    metadata: Some(Metadata::Hashed(one("sha256", "def"))),
                    ..expected("six-1.0-py3-none-any.whl", "https://files.example/six-1.0-py3-none-any.whl")
                },
                PipFile {
                    hashes: one("md5", "123"),
                    yanked: Some(Yanked::Because("bad \"one\"".to_owned())),
                    ..expected("six-0.9.tar.gz", "https://index.example/packages/six-0.9.tar.gz")
                },
                PipFile {
                    yanked: Some(Yanked::Is(true)),
                    ..expected("six-0.8.zip", "https://index.example/simple/six/six-0.8.zip")
                },
            ]
        );
        let ours = write("six", &Project { files: files.clone(), ..Project::default() });
        let again = read(&ours, &"http://gateway.example/pip/simple/six/".parse().unwrap()).files;
        let facts = |files: &[PipFile]| -> Vec<_> {
            let facts = |file: &PipFile| {
                let file = file.clone();
                (file.filename, file.hashes, file.requires_python, file.yanked, file.metadata)
            };
            files.iter().map(facts).collect()
        };
        assert_eq!(facts(&again), facts(&files), "what we write says what we read");
        assert_eq!(again[1].url.as_str(), "http://gateway.example/pip/files/six/six-0.9.tar.gz");
    }

    #[test]
    fn listings_of_directories() {
        let apache = r#"<table><tr><th><a href="?C=N;O=D">Name</a></th></tr>
            <tr><td><a href="/wheels/">Parent Directory</a></td></tr>
            <tr><td><a href="six-1.0%2Bx.tar.gz">six-1.0+x.t..&gt;</a></td></tr></table>"#;
        assert_eq!(names(apache), ["six-1.0+x.tar.gz"]);
        let python = "<ul>\n<li><a href=\"six-1.0-py3-none-any.whl\">six</a></li>\n<li><a href=\"sub/\">sub/</a></li></ul>";
        assert_eq!(names(python), ["six-1.0-py3-none-any.whl"]);
        let based = "<base href='/elsewhere/'><a href='six-1.0.tar.gz'>";
        assert_eq!(page(based)[0].url.as_str(), "https://index.example/elsewhere/six-1.0.tar.gz");
    }

    #[test]
    fn strange_pages_are_read_without_harm() {
        assert_eq!(
            names("<!-- <a href=a-1.zip> --><script>'<a href=b-1.zip>'</SCRIPT><a href=c-1.zip>"),
            ["c-1.zip"]
        );
        assert_eq!(names("<abbr href=a-1.zip><a href=b-1.zip>"), ["b-1.zip"]);
        assert!(names("<a href=b-1.zip").is_empty(), "a tag without an end is none, as in browsers");
        assert!(names("<a href=\"a-1.zip").is_empty());
        for text in [
            "<",
            "<a",
            "<a ",
            "<a href",
            "<a href=",
            "<a href='",
            "<a =",
            "<a ==>",
            "<!--",
            "<script>",
            "<a / / >",
            "<a é=ü>",
            "<a href='é-1.zip&#x110000;&#xé;'>",
            "&",
            "<a href=//[>",
            "<a href='http://'>",
            "<<<<a<a<a",
        ] {
            read(text, &"https://index.example/simple/six/".parse().unwrap());
        }
    }
}
