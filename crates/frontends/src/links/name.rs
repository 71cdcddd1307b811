//! Names of files, as they may stand in addresses and headers.

use std::fmt::Write as _;

use super::media;

/// Longest name in a header; longer ones are cut. File systems take 255 bytes.
const MAX_NAME_CHARACTERS: usize = 255;

/// The last part of a path.
pub(super) fn of_path(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("file")
}

/// Returns the name under which an output is saved.
pub(super) fn of_output(number: u32, mime: &str) -> String {
    format!("output-{number}{}", media::ending_of(mime))
}

/// Percent encoding of one part of an address.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(encoded, "%{byte:02X}").ok();
        }
    }
    encoded
}

/// How a browser is to treat a file of this name (RFC 6266): plain ASCII for the old ones, everything for the others,
/// and nothing that could end the header, leave a directory or turn the name around.
pub(crate) fn disposition(is_inline: bool, name: &str) -> String {
    let safe: String =
        name.chars().take(MAX_NAME_CHARACTERS).map(|c| if is_unsafe(c) { '_' } else { c }).collect();
    let safe = if safe.trim_matches(['.', ' ']).is_empty() { "file".to_owned() } else { safe };
    let plain: String =
        safe.chars().map(|c| if c.is_ascii() && !"\"%".contains(c) { c } else { '_' }).collect();
    let kind = if is_inline { "inline" } else { "attachment" };
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{}", encode(&safe))
}

/// Separators of paths, control characters, and those that change the direction of text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || "/\\".contains(c)
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_header() {
        let check = |name: &str, expected: &str| {
            assert_eq!(disposition(false, name), format!("attachment; {expected}"));
        };
        check("a.bin", "filename=\"a.bin\"; filename*=UTF-8''a.bin");
        check(
            "a\"; filename=\"b",
            "filename=\"a_; filename=_b\"; filename*=UTF-8''a%22%3B%20filename%3D%22b",
        );
        check("a\r\nSet-Cookie: x", "filename=\"a__Set-Cookie: x\"; filename*=UTF-8''a__Set-Cookie%3A%20x");
        check("ü€.txt", "filename=\"__.txt\"; filename*=UTF-8''%C3%BC%E2%82%AC.txt");
        check("..\\..\\x", "filename=\".._.._x\"; filename*=UTF-8''.._.._x");
        check("..", "filename=\"file\"; filename*=UTF-8''file");
        check("a\u{202e}gnp.exe", "filename=\"a_gnp.exe\"; filename*=UTF-8''a_gnp.exe");
        let long = disposition(true, &"x".repeat(5000));
        assert!(long.starts_with("inline; ") && long.len() < 1000);
    }

    #[test]
    fn the_last_part_of_a_path_is_its_name() {
        assert_eq!((of_path("/a/b c"), of_path("/a/"), of_path("/")), ("b c", "a", "file"));
        assert_eq!(encode("a b/ü"), "a%20b%2F%C3%BC");
    }
}
