//! The media type that a browser is told: found by a file's first bytes, never by what a workload says of it.
//!
//! Pictures and text are shown. HTML, scripts and styles are text too: what was made in a sandbox never becomes a page
//! of ours. Everything else is saved.

/// The first bytes of a file that are looked at.
pub(super) const SNIFFED_BYTES: u64 = 4096;

/// How something is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Media {
    pub(super) content_type: &'static str,
    /// Shown, not saved.
    pub(super) is_inline: bool,
}

const TEXT: Media = Media { content_type: "text/plain; charset=utf-8", is_inline: true };
const SVG: Media = shown("image/svg+xml");
/// A browser's viewer for these is a program that the policy of our answers does not let run, so they are saved.
const PDF: Media = saved("application/pdf");
const OTHER: Media = saved("application/octet-stream");

const fn shown(content_type: &'static str) -> Media {
    Media { content_type, is_inline: true }
}

const fn saved(content_type: &'static str) -> Media {
    Media { content_type, is_inline: false }
}

impl Media {
    /// `head`: the first bytes, up to [`SNIFFED_BYTES`].
    pub(super) fn of(name: &str, head: &[u8]) -> Self {
        if let Some(known) = by_magic(head) {
            return known;
        }
        let is_svg = name.len() >= 4 && name.as_bytes()[name.len() - 4..].eq_ignore_ascii_case(b".svg");
        match is_text(head) {
            true if is_svg => SVG,
            true => TEXT,
            false => OTHER,
        }
    }

    pub(super) fn is_image(self) -> bool {
        self.content_type.starts_with("image/")
    }
}

fn by_magic(head: &[u8]) -> Option<Media> {
    let riff = |kind: &[u8]| head.starts_with(b"RIFF") && head.get(8..12) == Some(kind);
    let avif = head.get(4..8) == Some(b"ftyp") && matches!(head.get(8..12), Some(b"avif" | b"avis"));
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(shown("image/png"))
    } else if head.starts_with(b"\xff\xd8\xff") {
        Some(shown("image/jpeg"))
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        Some(shown("image/gif"))
    } else if riff(b"WEBP") {
        Some(shown("image/webp"))
    } else if avif {
        Some(shown("image/avif"))
    } else if head.starts_with(b"%PDF-") {
        Some(PDF)
    } else {
        None
    }
}

/// UTF-8 without the bytes that no text has. The last character may be cut.
fn is_text(head: &[u8]) -> bool {
    let is_cut_only = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && head.len() as u64 >= SNIFFED_BYTES,
    };
    // Besides line ends and tabs: what terminals are coloured with.
    let is_strange = |byte: &u8| *byte < b' ' && !b"\t\n\x0c\r\x08\x1b".contains(byte);
    is_cut_only && !head.iter().any(is_strange)
}

/// The end of a name for an output of this type.
pub(super) fn ending_of(mime: &str) -> &'static str {
    match mime {
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "image/svg+xml" => ".svg",
        "application/pdf" => ".pdf",
        "application/json" => ".json",
        "text/html" => ".html",
        "text/markdown" => ".md",
        "text/latex" => ".tex",
        _ if mime.starts_with("text/") => ".txt",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decide_and_names_do_not() {
        let check = |name: &str, head: &[u8], content_type: &str, is_inline: bool| {
            let media = Media::of(name, head);
            assert_eq!((media.content_type, media.is_inline), (content_type, is_inline), "{name}");
        };
        let text = "text/plain; charset=utf-8";
        check("a.png", b"\x89PNG\r\n\x1a\nrest", "image/png", true);
        check("a.html", b"\x89PNG\r\n\x1a\nrest", "image/png", true);
        check("a", b"\xff\xd8\xff\xe0", "image/jpeg", true);
        check("a", b"GIF89a\x01", "image/gif", true);
        check("a", b"RIFF\x01\x02\x03\x04WEBPVP8 ", "image/webp", true);
        check("a", b"\0\0\0\x20ftypavif", "image/avif", true);
        check("a.png", b"<script>alert(1)</script>", text, true);
        check("a.html", b"<!doctype html><script>1</script>", text, true);
        check("a.js", b"alert(1)", text, true);
        check("a.SVG", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", true);
        check("a.svg", b"\x1f\x8b\x08\0", "application/octet-stream", false);
        check("a.pdf", b"%PDF-1.7\n", "application/pdf", false);
        check("a.txt", b"a\0b", "application/octet-stream", false);
        check("a.txt", b"\xff\xfeh\0i\0", "application/octet-stream", false);
        check("log", b"\x1b[31mred\x1b[0m\n", text, true);
        check("empty", b"", text, true);
        check("a.txt", b"cut \xc3", "application/octet-stream", false);
        let mut long = vec![b'x'; SNIFFED_BYTES as usize - 1];
        long.push(0xc3);
        check("a.txt", &long, text, true);
    }
}
