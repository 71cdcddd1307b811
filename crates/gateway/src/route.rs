//! Routes: the requests that paths stand for. Nothing here touches the network or the disk.

use percent_encoding::percent_decode_str;

use crate::error::Refusal;

/// Longest name of a project, package or file, in bytes. npm's own limit is 214.
const MAX_NAME_BYTES: usize = 255;

/// Deepest path beneath an apt source, in segments.
const MAX_APT_DEPTH: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Normalised as PEP 503 says.
    PipProject(String),
    PipFile {
        project: String,
        file: String,
    },
    /// `name` or `@scope/name`.
    NpmPackage(String),
    NpmTarball {
        package: String,
        file: String,
    },
    /// Decoded segments, none of them empty, `.` or `..`.
    Apt {
        source: usize,
        path: Vec<String>,
    },
}

pub(crate) fn route(path: &str) -> Result<Route, Refusal> {
    let mut segments = Vec::new();
    for raw in path.strip_prefix('/').unwrap_or(path).split('/') {
        segments.push(decoded(raw)?);
    }
    // A trailing slash makes no difference.
    if segments.last().is_some_and(String::is_empty) {
        segments.pop();
    }
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["pip", "simple"] => Err(Refusal::not_found(
            "The list of all projects is not offered. Ask for one project at /pip/simple/<project>/.",
        )),
        ["pip", "simple", project] => Ok(Route::PipProject(pip_project(project)?)),
        ["pip", "files", project, file] => {
            Ok(Route::PipFile { project: pip_project(project)?, file: plain(file)? })
        }
        ["npm", rest @ ..] => npm(rest),
        ["apt", number, rest @ ..] => apt(number, rest),
        _ => Err(nowhere()),
    }
}

fn npm(segments: &[&str]) -> Result<Route, Refusal> {
    match segments {
        // `@scope%2fname`, as npm asks, is one segment with a slash in it.
        [name] | [name, "-", _] if name.starts_with('@') && name.contains('/') => {
            let (scope, bare) = name.split_once('/').ok_or_else(nowhere)?;
            npm_named(npm_package(Some(scope), bare)?, segments.get(2))
        }
        [scope, name] | [scope, name, "-", _] if scope.starts_with('@') => {
            npm_named(npm_package(Some(scope), name)?, segments.get(3))
        }
        [name] | [name, "-", _] => npm_named(npm_package(None, name)?, segments.get(2)),
        _ => Err(nowhere()),
    }
}

fn npm_named(package: String, file: Option<&&str>) -> Result<Route, Refusal> {
    match file {
        None => Ok(Route::NpmPackage(package)),
        Some(file) => Ok(Route::NpmTarball { package, file: plain(file)? }),
    }
}

/// A file of an apt source, by the path beneath it as it was sent.
pub(crate) fn apt_file(source: usize, rest: &str) -> Result<Route, Refusal> {
    let segments = rest.split('/').map(decoded).collect::<Result<Vec<_>, _>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    apt_path(source, &segments)
}

fn apt(number: &str, rest: &[&str]) -> Result<Route, Refusal> {
    apt_path(number.parse().map_err(|_error: std::num::ParseIntError| nowhere())?, rest)
}

fn apt_path(source: usize, rest: &[&str]) -> Result<Route, Refusal> {
    if rest.len() > MAX_APT_DEPTH {
        return Err(Refusal::bad_request("The path has too many parts."));
    }
    let mut path = Vec::new();
    for segment in rest {
        // Flat repositories are asked for `./Packages`, and some clients double a slash.
        if !matches!(*segment, "" | ".") {
            path.push(plain(segment)?);
        }
    }
    if path.is_empty() { Err(nowhere()) } else { Ok(Route::Apt { source, path }) }
}

fn decoded(raw: &str) -> Result<String, Refusal> {
    let text = percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_not_utf8: std::str::Utf8Error| Refusal::bad_request("The path is not UTF-8."))?;
    if text.len() > MAX_NAME_BYTES {
        return Err(Refusal::bad_request("A part of the path is too long."));
    }
    if text.chars().any(|c| c.is_control() || c == '\\') {
        return Err(Refusal::bad_request("The path has characters that no package has."));
    }
    Ok(text.into_owned())
}

/// One name in a directory.
fn plain(text: &str) -> Result<String, Refusal> {
    if text.is_empty() || text == "." || text == ".." || text.contains('/') {
        return Err(Refusal::bad_request("The path leads out of its place."));
    }
    Ok(text.to_owned())
}

/// The name of a Python project, normalised: lower case, runs of `-`, `_` and `.` become one `-`.
fn pip_project(name: &str) -> Result<String, Refusal> {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let is_name = name.chars().all(|c| is_word(c) || matches!(c, '-' | '_' | '.'))
        && name.starts_with(is_word)
        && name.ends_with(is_word);
    if !is_name {
        return Err(Refusal::not_found(format!("{name:?} cannot be the name of a Python project.")));
    }
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            c => normal.push(c.to_ascii_lowercase()),
        }
    }
    Ok(normal)
}

fn npm_package(scope: Option<&str>, name: &str) -> Result<String, Refusal> {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~!'()*".contains(c))
    };
    let is_name = is_part(name) && scope.is_none_or(|scope| scope.strip_prefix('@').is_some_and(is_part));
    if !is_name {
        let full = scope.map_or_else(|| name.to_owned(), |scope| format!("{scope}/{name}"));
        return Err(Refusal::not_found(format!("{full:?} cannot be the name of an npm package.")));
    }
    Ok(scope.map_or_else(|| name.to_owned(), |scope| format!("{scope}/{name}")))
}

fn nowhere() -> Refusal {
    Refusal::not_found(
        "There is nothing here. Package managers find their indexes at /pip/simple/, /npm/ and /apt/<n>/.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(path: &str) -> Route {
        route(path).unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"))
    }

    #[test]
    fn pip_paths() {
        assert_eq!(ok("/pip/simple/six/"), Route::PipProject("six".to_owned()));
        assert_eq!(ok("/pip/simple/six"), Route::PipProject("six".to_owned()));
        assert_eq!(ok("/pip/simple/Foo_.-Bar.baz/"), Route::PipProject("foo-bar-baz".to_owned()));
        let file = "torch-2.0+cpu-cp311-cp311-linux_x86_64.whl".to_owned();
        assert_eq!(
            ok("/pip/files/torch/torch-2.0%2Bcpu-cp311-cp311-linux_x86_64.whl"),
            Route::PipFile { project: "torch".to_owned(), file }
        );
    }

    #[test]
    fn npm_paths() {
        assert_eq!(ok("/npm/is-odd"), Route::NpmPackage("is-odd".to_owned()));
        for path in ["/npm/@types%2fnode", "/npm/@types%2Fnode", "/npm/@types/node", "/npm/%40types/node"] {
            assert_eq!(ok(path), Route::NpmPackage("@types/node".to_owned()), "{path}");
        }
        for path in ["/npm/@types/node/-/node-1.0.0.tgz", "/npm/@types%2fnode/-/node-1.0.0.tgz"] {
            let (package, file) = ("@types/node".to_owned(), "node-1.0.0.tgz".to_owned());
            assert_eq!(ok(path), Route::NpmTarball { package, file }, "{path}");
        }
        let (package, file) = ("is-odd".to_owned(), "is-odd-3.0.1.tgz".to_owned());
        assert_eq!(ok("/npm/is-odd/-/is-odd-3.0.1.tgz"), Route::NpmTarball { package, file });
    }

    #[test]
    fn apt_paths() {
        let path = |parts: &[&str]| parts.iter().map(|&part| part.to_owned()).collect();
        assert_eq!(
            ok("/apt/0/dists/stable/InRelease"),
            Route::Apt { source: 0, path: path(&["dists", "stable", "InRelease"]) }
        );
        assert_eq!(ok("/apt/12/./Packages"), Route::Apt { source: 12, path: path(&["Packages"]) });
        assert_eq!(
            ok("/apt/0/pool/a%253a1_all.deb"),
            Route::Apt { source: 0, path: path(&["pool", "a%3a1_all.deb"]) }
        );
    }

    #[test]
    fn what_leads_out_is_refused() {
        for path in [
            "",
            "/",
            "/pip",
            "/pip/simple/",
            "/pip/simple/../x",
            "/pip/simple/%2e%2e/",
            "/pip/simple/http:%2f%2f127.0.0.1%2f/",
            "/pip/simple/a%2fb/",
            "/pip/simple/six/extra",
            "/pip/files/six/..",
            "/pip/files/six/a%2f..%2fb",
            "/pip/files/six/a%5cb",
            "/pip/files/six/a%00b",
            "/pip/files/six/%ff",
            "/pip/files/six/",
            "/npm",
            "/npm/",
            "/npm/..",
            "/npm/@a",
            "/npm/@/b",
            "/npm/@a%2f..",
            "/npm/@a%2f%2e%2e%2fc",
            "/npm/-/ping",
            "/npm/-/v1/search",
            "/npm/a/-/..",
            "/npm/http:%2f%2f127.0.0.1",
            "/apt/x/dists/a",
            "/apt/-1/a",
            "/apt/0/",
            "/apt/0/../1/a",
            "/apt/0/dists/%2e%2e/%2e%2e/etc",
            "/apt/0/dists/..%2f..",
            "//pip/simple/six/",
            "http://index.example/pip/simple/six/",
        ] {
            assert!(route(path).is_err(), "{path}: {:?}", route(path));
        }
        assert!(route(&format!("/pip/simple/{}/", "a".repeat(300))).is_err());
        assert!(route(&format!("/apt/0{}", "/a".repeat(40))).is_err());
    }
}
