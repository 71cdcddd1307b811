//! `apt.conf`: the proxy.

use std::path::Path;

use super::{Host, HostPackages};

const DIRECTORY: &str = "/etc/apt/apt.conf.d";
const FILE: &str = "/etc/apt/apt.conf";

pub(super) fn read(host: &Host<'_>, found: &mut HostPackages) {
    let mut proxy = None;
    let parts = (host.names)(Path::new(DIRECTORY)).into_iter().map(|name| format!("{DIRECTORY}/{name}"));
    for path in parts.chain([FILE.to_owned()]) {
        for (key, value) in host.text(path).map(|text| settings(&text)).unwrap_or_default() {
            match key.as_str() {
                "acquire::http::proxy" | "acquire::https::proxy" => proxy = Some(value),
                key if key.starts_with("acquire::http::proxy::") => {
                    found.notes.push("A proxy of apt for a single host is not used.".to_owned());
                }
                _ => {}
            }
        }
    }
    let proxy = proxy.filter(|proxy| !matches!(proxy.to_ascii_lowercase().as_str(), "" | "direct" | "false"));
    if let Some(text) = proxy {
        found.apt_proxy = found.address(&text, "The proxy of apt");
    }
}

/// All settings of a text, in order: `A::B "v";` and `A { B "v"; };`, names in lower case.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut scopes: Vec<String> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for token in tokens(text) {
        match token {
            Token::Word(word) => words.push(word),
            Token::Open => {
                scopes.push(words.drain(..).next().unwrap_or_default().to_ascii_lowercase());
            }
            Token::Close => {
                words.clear();
                scopes.pop();
            }
            Token::End => {
                if let [name, value] = words.as_slice() {
                    let mut key = scopes.join("::");
                    if !key.is_empty() {
                        key.push_str("::");
                    }
                    found.push((key + &name.to_ascii_lowercase(), value.clone()));
                }
                words.clear();
            }
        }
    }
    found
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return found };
        if rest.starts_with("//") || first == '#' {
            rest = rest.split_once('\n').map_or("", |(_, behind)| behind);
            continue;
        }
        if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
            continue;
        }
        let (token, behind) = match first {
            '{' => (Token::Open, &rest[1..]),
            '}' => (Token::Close, &rest[1..]),
            ';' => (Token::End, &rest[1..]),
            '"' => {
                let (word, behind) = rest[1..].split_once('"').unwrap_or((&rest[1..], ""));
                (Token::Word(word.to_owned()), behind)
            }
            _ => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || matches!(c, '{' | '}' | ';' | '"'))
                    .unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), &rest[end..])
            }
        };
        found.push(token);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gathered;

    fn proxy(files: &[(&str, &str)]) -> Option<String> {
        gathered(files, &[]).apt_proxy.map(String::from)
    }

    #[test]
    fn both_ways_of_writing_it() {
        let flat =
            ("/etc/apt/apt.conf.d/01proxy", "// ours\nAcquire::http::Proxy \"http://a.example:3142\";\n");
        let nested = (
            "/etc/apt/apt.conf.d/90more",
            "/* x */ acquire { retries 3; HTTP { Proxy \"http://b.example:3142/\"; }; };\n#clear x\n",
        );
        let none = ("/etc/apt/apt.conf", "Acquire::http::Proxy DIRECT;");
        assert_eq!(proxy(&[flat]).as_deref(), Some("http://a.example:3142/"));
        assert_eq!(proxy(&[flat, nested]).as_deref(), Some("http://b.example:3142/"));
        assert_eq!(proxy(&[flat, none]), None);
        for broken in ["Acquire::http::Proxy \"http://a.exa", "{{{}}}};;", "}", "Acquire { ", "/*", "\""] {
            assert_eq!(proxy(&[("/etc/apt/apt.conf", broken)]), None, "{broken}");
        }
    }
}
