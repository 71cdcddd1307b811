//! The hint for fingers that know Docker: `warren run alpine echo hi` names an image where the program goes.

use sandbox::ImageRef;

use crate::client::Client;

/// Images that people try first. Any other is recognised by its tag or registry, or because it is here.
const WELL_KNOWN: &[&str] = &[
    "almalinux",
    "alpine",
    "amazonlinux",
    "archlinux",
    "busybox",
    "centos",
    "debian",
    "fedora",
    "gcc",
    "golang",
    "hello-world",
    "httpd",
    "mariadb",
    "mongo",
    "mysql",
    "nginx",
    "node",
    "openjdk",
    "perl",
    "php",
    "postgres",
    "python",
    "redis",
    "rockylinux",
    "ruby",
    "rust",
    "ubuntu",
];

/// Words of the command that a hint repeats; the rest is `…`.
const MAX_SHOWN_WORDS: usize = 6;

/// The hint, if the first word of a command that was not found is an image.
pub(super) async fn of(client: &Client, command: &[String]) -> Option<String> {
    let (image, program) = command.split_first()?;
    let is_image =
        is_named_like_one(image) || (image.parse::<ImageRef>().is_ok() && is_here(client, image).await);
    is_image.then(|| {
        let mut line = format!("warren run --image {image}");
        for word in program.iter().take(MAX_SHOWN_WORDS) {
            line.push(' ');
            line.push_str(&quoted(word));
        }
        if program.len() > MAX_SHOWN_WORDS {
            line.push_str(" …");
        }
        format!("{image} looks like an image. Name images with --image, before the program: `{line}`.")
    })
}

fn is_named_like_one(word: &str) -> bool {
    if word.starts_with(['/', '.', '-', '~']) || word.parse::<ImageRef>().is_err() {
        return false;
    }
    WELL_KNOWN.contains(&word) || word.contains([':', '@', '/'])
}

async fn is_here(client: &Client, image: &str) -> bool {
    client.image(image).await.is_ok()
}

/// As a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_programs() {
        for image in ["alpine", "python:3.12-slim", "ghcr.io/team/app", "team/app", "localhost:5000/it"] {
            assert!(is_named_like_one(image), "{image}");
        }
        for program in ["bash", "./alpine", "/usr/bin/alpine", "pyhton3", "-x", "a b", "../team/app"] {
            assert!(!is_named_like_one(program), "{program}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a=b"), "a=b");
        assert_eq!(quoted("it's $x"), r"'it'\''s $x'");
        assert_eq!(quoted(""), "''");
    }
}
