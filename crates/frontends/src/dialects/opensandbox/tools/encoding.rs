//! Encodings of texts, by the names that Python gives them; and base64, so that no file is out of reach.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    dialects::opensandbox::handle::shown,
    mcp::{Failure, from_base64},
    output::{from_character_border, until_character_border},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Ascii,
    Latin1,
    Base64,
}

pub(super) fn utf8() -> String {
    "utf-8".to_owned()
}

impl Encoding {
    pub(super) fn named(name: &str) -> Result<Self, Failure> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match plain.to_ascii_lowercase().as_str() {
            "utf8" => Ok(Self::Utf8),
            "ascii" | "usascii" => Ok(Self::Ascii),
            "latin1" | "iso88591" => Ok(Self::Latin1),
            "base64" => Ok(Self::Base64),
            _ => Err(Failure::invalid(format!("encoding: {:?} is not known", shown(name)))
                .with_hint("Use utf-8, ascii, latin-1, or base64 for bytes that are no text.")),
        }
    }

    /// Bytes as text. A character that is cut in two at either end of a part is left out.
    pub(super) fn decode(self, path: &str, bytes: &[u8], is_part: bool) -> Result<String, Failure> {
        let whole = || match is_part && self == Self::Utf8 {
            true => from_character_border(until_character_border(bytes)),
            false => bytes,
        };
        match self {
            Self::Utf8 => std::str::from_utf8(whole()).map(str::to_owned).ok(),
            Self::Ascii => bytes.is_ascii().then(|| bytes.iter().map(|byte| char::from(*byte)).collect()),
            Self::Latin1 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
            Self::Base64 => Some(BASE64_STANDARD.encode(bytes)),
        }
        .ok_or_else(|| {
            Failure::invalid(format!("{path} is not text in this encoding"))
                .with_hint("Read it with encoding base64, or with latin-1 if it is text of that encoding.")
        })
    }

    pub(super) fn encode(self, text: String) -> Result<Vec<u8>, Failure> {
        let refuse =
            |why: String| Failure::invalid(format!("content: {why}")).with_hint("Use encoding utf-8.");
        let bytes = |limit: u32| {
            let byte =
                |character| u8::try_from(u32::from(character)).ok().filter(|byte| u32::from(*byte) < limit);
            text.chars().map(|character| byte(character).ok_or(character)).collect::<Result<Vec<u8>, char>>()
        };
        match self {
            Self::Utf8 => Ok(text.into_bytes()),
            Self::Ascii => bytes(128).map_err(|character| refuse(format!("{character:?} is not ASCII"))),
            Self::Latin1 => {
                bytes(256).map_err(|character| refuse(format!("{character:?} is not in latin-1")))
            }
            Self::Base64 => {
                from_base64(&text).map_err(|error| refuse(format!("this is not base64: {error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back_as_they_were_written() {
        for (name, text) in [
            ("utf-8", "grüße ✓"),
            ("UTF8", ""),
            ("ascii", "plain"),
            ("ISO-8859-1", "grüße"),
            ("base64", "AP8="),
        ] {
            let encoding = Encoding::named(name).unwrap();
            let bytes = encoding.encode(text.to_owned()).unwrap();
            assert_eq!(encoding.decode("/f", &bytes, false).unwrap(), text, "{name}");
        }
        for name in ["", "utf-16", "../x", "rot13"] {
            assert_eq!(Encoding::named(name).unwrap_err().code(), "invalid_request", "{name}");
        }
        assert!(
            Encoding::Ascii.encode("ü".to_owned()).is_err()
                && Encoding::Latin1.encode("✓".to_owned()).is_err()
        );
        assert!(Encoding::Base64.encode("!".to_owned()).is_err());
    }

    #[test]
    fn parts_end_between_characters_and_bytes_that_are_no_text_are_refused() {
        let bytes = "aäb".as_bytes();
        assert_eq!(Encoding::Utf8.decode("/f", &bytes[..2], true).unwrap(), "a");
        assert_eq!(Encoding::Utf8.decode("/f", &bytes[2..], true).unwrap(), "b");
        let refused = Encoding::Utf8.decode("/f", &[b'a', 0xff, b'b'], true).unwrap_err();
        let told = refused.worded(super::super::words::hint);
        assert!(told.message.contains("/f") && told.hint.unwrap().contains("base64"));
    }
}
