//! Builds paths and queries of requests safely.

use std::fmt::{Display, Write as _};

/// A path with a query, percent-encoded piece by piece.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    text: String,
    has_query: bool,
}

impl Target {
    /// Starts with `/v1`; each segment may be any text.
    pub(crate) fn new(segments: &[&str]) -> Self {
        let mut text = "/v1".to_owned();
        for segment in segments {
            text.push('/');
            encode(segment, &mut text);
        }
        Self { text, has_query: false }
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl Display) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        encode(key, &mut self.text);
        self.text.push('=');
        encode(&value.to_string(), &mut self.text);
        self
    }

    #[must_use]
    pub(crate) fn maybe(self, key: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(out, "%{byte:02X}").ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_text_stays_in_its_place() {
        let target =
            Target::new(&["sandboxes", "a/../b?x"]).with("path", "/tmp/é &=1").maybe("limit", None::<u32>);
        assert_eq!(target.as_str(), "/v1/sandboxes/a%2F..%2Fb%3Fx?path=%2Ftmp%2F%C3%A9%20%26%3D1");
    }
}
