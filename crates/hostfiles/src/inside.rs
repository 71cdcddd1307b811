//! Paths inside a sandbox, which are text here.

/// Links followed before it is called a circle.
const MAX_LINKS: usize = 40;

/// The path without what only says how to read it: slashes and dots at its end.
pub fn plain_path(path: &str) -> &str {
    let mut plain = path.trim_end_matches('/');
    while let Some(shorter) = plain.strip_suffix("/.") {
        plain = shorter.trim_end_matches('/');
    }
    if plain.is_empty() { "/" } else { plain }
}

/// The last component of a path, without slashes at its end. The root has none.
pub fn base_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

/// Follows a path to what it means, and returns where that is. `look` tells what is at a path, and where it points if
/// it is a link. None: links lead to links without end.
pub async fn behind_links<T, E, L: Future<Output = Result<(T, Option<String>), E>>>(
    path: &str,
    look: impl Fn(String) -> L,
) -> Result<Option<(String, T)>, E> {
    let mut path = plain_path(path).to_owned();
    for _ in 0..MAX_LINKS {
        let (entry, target) = look(path.clone()).await?;
        let Some(target) = target else { return Ok(Some((path, entry))) };
        let next = match (target.starts_with('/'), path.rsplit_once('/')) {
            (false, Some((parent, _))) => format!("{parent}/{target}"),
            _ => target,
        };
        plain_path(&next).clone_into(&mut path);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_their_names() {
        for (path, plain, name) in [
            ("/a/b", "/a/b", "b"),
            ("/a/b//", "/a/b", "b"),
            ("/a/./", "/a", "a"),
            ("/", "/", ""),
            ("/.", "/", ""),
        ] {
            assert_eq!((plain_path(path), base_name(plain_path(path))), (plain, name), "{path}");
        }
    }

    #[tokio::test]
    async fn links_are_followed_to_their_end() {
        let look = async |path: String| {
            let target = match path.as_str() {
                "/d/one" => Some("two/"),
                "/d/two" => Some("/three"),
                "/circle" => Some("circle"),
                _ => None,
            };
            Ok::<_, ()>((path.len(), target.map(str::to_owned)))
        };
        assert_eq!(behind_links("/d/one/.", look).await, Ok(Some(("/three".to_owned(), 6))));
        assert_eq!(behind_links("/circle", look).await, Ok(None));
    }
}
